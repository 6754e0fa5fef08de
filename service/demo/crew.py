"""The processes the demo starts, each under the grant: a worker at each post, replaced when it dies, and one co-runner."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from calibrate.hosts.grants import MIB, Request
from calibrate.hosts.guard import Running, start
from service.demo.link import pair, receive, receive_within, send
from telemetry.errors import BadField
from telemetry.tables import Grant

WORKER_THREADS = 2
"""With one thread on two cores a one-thread co-runner would change nothing."""
MEMORY_BYTES = 1536 * MIB
DISK_BYTES = 256 * MIB
START_S = 60.0


class Crew:
    """Use within `crew(...)`, which ends every process on leaving."""

    def __init__(self, grant: Grant, backend_name: str, spool_dir: Path) -> None:
        self._grant, self._backend_name, self._spool_dir = grant, backend_name, spool_dir
        self._workers: dict[int, tuple[Running, Connection]] = {}
        self._corunner: tuple[Running, Connection] | None = None
        now_ns = time.time_ns()
        self._ends_at_s = time.monotonic() + min(grant.max_run_s, (grant.expires_ns - now_ns) / 1e9)
        self.corunners = 0
        self.runtime = ""
        """Backend with its version, as the worker said."""

    def worker(self, post: int = 0) -> Connection:
        """The link to the worker at that post, which is ready; started now if there is none."""
        if post not in self._workers:
            threads = min(WORKER_THREADS, self._grant.max_threads)
            arguments = (self._backend_name, str(threads), str(self._spool_dir))
            environment = {"OPENBLAS_NUM_THREADS": "1"} if self._backend_name == "numpy" else {}
            self._workers[post] = self._started("demo_encoder", "service.demo.worker", threads, arguments, environment)
            self.runtime = self._greeted(post)
        return self._workers[post][1]

    def _greeted(self, post: int) -> str:
        """Wait for a new worker to be ready; its runtime."""
        try:
            hello = receive_within(self._workers[post][1], START_S)
        except EOFError:
            hello = None
        if hello is None:
            code = self.drop_worker(post)
            raise BadField("backend", self._backend_name, f"its worker was not ready (exit code {code}); see its message above")
        return str(hello["runtime"])

    def drop_worker(self, post: int = 0) -> int | None:
        """Kill the worker, wait until it is gone, and give its exit code; the next `worker()` starts another."""
        if post not in self._workers:
            return None
        running, end = self._workers.pop(post)
        running.stop()
        end.close()
        return running.process.returncode

    def prepare(self, path: Path, batch: int, length: int, post: int = 0) -> None:
        """Have the worker hold the model of `path`, warmed up for the shape; raises EOFError if it dies over it."""
        end = self.worker(post)
        with suppress(OSError):  # it is gone already, as reading will say
            send(end, "prepare", path=str(path), batch=batch, length=length)
        receive(end)

    def corun(self, n: int) -> None:
        """Let `n` (0 or 1) processes work beside the worker from now on."""
        if n == self.corunners:
            return
        if self._corunner is None:
            self._corunner = self._started("demo_corunner", "service.demo.corunner", 1, (), {})
        send(self._corunner[1], "work" if n else "rest")
        self.corunners = n

    def left_s(self) -> float:
        """Seconds of run time the grant still permits, of all processes together from the start of the crew."""
        return max(0.0, self._ends_at_s - time.monotonic())

    def end(self) -> None:
        """End everything."""
        for post in list(self._workers):
            self.drop_worker(post)
        if self._corunner is not None:
            self._corunner[0].stop()
            self._corunner[1].close()
            self._corunner = None

    def _started(
        self, probe: str, module: str, threads: int, arguments: tuple[str, ...], environment: dict[str, str]
    ) -> tuple[Running, Connection]:
        request = Request(probe, threads, MEMORY_BYTES, DISK_BYTES, self.left_s())
        ours, theirs = pair()
        try:
            running = start(
                self._grant,
                request,
                module,
                (str(theirs.fileno()), *arguments),
                keep_fds=(theirs.fileno(),),
                environment=environment,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return running, ours


@contextmanager
def crew(grant: Grant, backend_name: str, spool_dir: Path) -> Iterator[Crew]:
    """A crew whose processes all end with the block."""
    made = Crew(grant, backend_name, spool_dir)
    try:
        yield made
    finally:
        made.end()
