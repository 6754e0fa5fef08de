"""Start a process under a grant and hold it to its ceilings, from outside, without changing any system setting.

The memory ceiling is RLIMIT_DATA: private writable pages. The address space would also count the mapped libraries of
a large backend, which are shared and cost nothing. File sizes are held by RLIMIT_FSIZE, threads by the environment of
the numeric libraries, run time by whoever waits (`Running.left_s`), and priority is lowered.

`attended` looks at the host several times a second: it holds the process (SIGSTOP) while that would disturb, and ends it when
that does not pass, when its time is over, or when its permission is withdrawn.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from calibrate.hosts.grants import Request, permits
from calibrate.hosts.series import Pause
from calibrate.hosts.vitals import Rules, Verdict, Vitals, judged, waited_share
from telemetry.tables import Grant

NICENESS = 5
"""Added to our own: a process never has a better priority than whoever started it."""
LOOK_S = 0.2
MESSAGE_BYTES = 1 << 20
"""Even a process without disk may write so much, since its error messages may be redirected to a file."""
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Running:
    """A process started under a grant, and the monotonic time in s at which it must be over."""

    process: subprocess.Popen[str]
    ends_at_s: float

    def left_s(self) -> float:
        """Seconds of permitted run time left, at least 0."""
        return max(0.0, self.ends_at_s - time.monotonic())

    def stop(self) -> None:
        """Kill it and what it started if it still runs, and wait until it is gone."""
        self.signal(signal.SIGKILL)
        self.process.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process and what it started; to none that is over."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)


@dataclass
class Attended:
    """What a process said, and what became of it.

    `lines` in order; `held` are the times, monotonic ns from and to, at which it was held; `ended_by` says why it was ended, None
    where it ended itself. `waited` is the share of wanted processor time it had to wait for, None where the kernel does not tell.
    """

    lines: list[str] = field(default_factory=list)
    held: list[Pause] = field(default_factory=list)
    ended_by: str | None = None
    waited: float | None = None


def start(
    grant: Grant,
    request: Request,
    module: str,
    arguments: Sequence[str] = (),
    *,
    keep_fds: Sequence[int] = (),
    stdout: IO[str] | int | None = None,
    environment: Mapping[str, str] | None = None,
) -> Running:
    """Run `python -m module arguments` under the grant; raises NotGranted before anything is started.

    The process keeps the descriptors `keep_fds`, and `environment` goes before ours. It must be over when the request's
    seconds or the grant's window end.
    """
    now_ns = time.time_ns()
    permits(grant, request, host=socket.gethostname(), now_ns=now_ns)
    process = subprocess.Popen(  # noqa: S603 -- our own module under our own interpreter, no shell
        [sys.executable, "-m", module, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        text=True,
        pass_fds=tuple(keep_fds),
        env=_environment(request.threads) | dict(environment or {}),
        start_new_session=True,
    )
    _confine(process.pid, request)
    allowed_s = min(request.run_s, (grant.expires_ns - now_ns) / 1e9)
    return Running(process, time.monotonic() + allowed_s)


def attended(
    running: Running,
    look: Callable[[], Vitals],
    rules: Rules,
    *,
    threads: int,
    processors: int,
    withdrawn: Callable[[], str | None] = lambda: None,
) -> Attended:
    """Stay with a process until it is over, holding or ending it as `look` and `rules` ask; on return it is gone.

    It is held only after it has said something. `withdrawn` says why its permission has ended, None while it stands. The time in
    which it is held does not count as run time, but the end of the grant's window does.
    """
    told = Attended()
    reading = threading.Thread(target=_read, args=(running.process, told.lines), daemon=True)
    reading.start()
    held_from_ns: int | None = None
    try:
        while not _over(running.process):
            told.waited = _newest(waited_share(running.process.pid), told.waited)
            on_host = judged(look(), rules, threads=threads, processors=processors)
            held_s = _seconds(told.held, held_from_ns)
            told.ended_by = _end(withdrawn(), running.ends_at_s + held_s - time.monotonic(), held_s, on_host, rules)
            if told.ended_by is not None:
                break
            if told.lines and (on_host.action == "hold") != (held_from_ns is not None):
                held_from_ns = _hold_or_go(running, told, held_from_ns)
    finally:
        running.stop()
        reading.join()
        if held_from_ns is not None:
            told.held.append((held_from_ns, time.monotonic_ns()))
    return told


def _over(process: subprocess.Popen[str]) -> bool:
    """Whether it is over; waits for that until the next look is due."""
    try:
        process.wait(LOOK_S)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(withdrawn: str | None, left_s: float, held_s: float, on_host: Verdict, rules: Rules) -> str | None:
    """Why a process must be ended; None while it may go on, or be held."""
    if withdrawn is not None:
        return withdrawn
    if left_s <= 0:
        return "its time is over"
    if on_host.action == "end":
        return on_host.why
    return f"held for {held_s:.0f} s: {on_host.why}" if on_host.action == "hold" and held_s > rules.patience_s else None


def _hold_or_go(running: Running, told: Attended, held_from_ns: int | None) -> int | None:
    """Hold a process that runs, or let one that is held go on; since when it is held."""
    if held_from_ns is None:
        held_from_ns = time.monotonic_ns()
        running.signal(signal.SIGSTOP)
        return held_from_ns
    running.signal(signal.SIGCONT)
    told.held.append((held_from_ns, time.monotonic_ns()))
    return None


def _seconds(held: Sequence[Pause], held_from_ns: int | None) -> float:
    """Seconds for which it was held so far."""
    now = 0 if held_from_ns is None else time.monotonic_ns() - held_from_ns
    return (sum(until - since for since, until in held) + now) / 1e9


def _newest(read: float | None, before: float | None) -> float | None:
    return before if read is None else read


def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
    """Take what a process says, line by line, until it says no more."""
    if process.stdout is not None:
        with process.stdout as said:
            for line in said:
                lines.append(line)  # noqa: PERF402  each is there as soon as it came


def _environment(threads: int) -> dict[str, str]:
    """Ours, with the thread count of numeric libraries and the place of our packages set.

    Threads that wait give up the processor: spinning ones would take it from the host's own work.
    """
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    numeric = dict.fromkeys(_THREAD_VARIABLES, str(threads)) | {"OMP_WAIT_POLICY": "PASSIVE"}
    return os.environ | numeric | {"PYTHONPATH": os.pathsep.join(paths)}


def _confine(pid: int, request: Request) -> None:
    """Set limits and priority; a process that is already over needs none."""
    try:
        resource.prlimit(pid, resource.RLIMIT_DATA, (request.memory_bytes, request.memory_bytes))
        largest_bytes = max(request.disk_bytes, MESSAGE_BYTES)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (largest_bytes, largest_bytes))
        os.setpriority(os.PRIO_PROCESS, pid, min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS))
    except ProcessLookupError:
        return
