"""Start a process under a grant and hold it to its ceilings, from outside, without changing any system setting.

The memory ceiling is RLIMIT_DATA: private writable pages. The address space would also count the mapped libraries of
a large backend, which are shared and cost nothing. File sizes are held by RLIMIT_FSIZE, threads by the environment of
the numeric libraries, run time by whoever waits (`Running.left_s`), and priority is lowered.
"""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from calibrate.hosts.grants import Request, permits
from telemetry.tables import Grant

NICENESS = 5
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
        """Kill it if it still runs, and wait until it is gone."""
        self.process.kill()
        self.process.wait()


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
        os.setpriority(os.PRIO_PROCESS, pid, NICENESS)
    except ProcessLookupError:
        return
