"""A process under a grant meets the ceilings of the grant, and the host is left as it was."""

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from calibrate.hosts.grants import MIB, Request, demo_grant
from calibrate.hosts.guard import NICENESS, Running, start
from telemetry.errors import NotGranted
from telemetry.tables import Grant

PROGRAMS = {
    "show": (
        "import os, resource, time\n"
        "time.sleep(0.2)\n"
        "print(os.getpriority(os.PRIO_PROCESS, 0), os.environ['OMP_NUM_THREADS'], os.environ['OPENBLAS_NUM_THREADS'])\n"
    ),
    "hog": "import time\ntime.sleep(0.2)\nbytearray(256 * 1024 * 1024)\nprint('got it')\n",
    "fill": "import time\ntime.sleep(0.2)\nopen('filled', 'wb').write(b'x' * (8 << 20))\nprint('got it')\n",
    "wait": "import time\ntime.sleep(60)\n",
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in PROGRAMS.items():
        (tmp_path / f"guarded_{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def grant(**changes: Any) -> Grant:
    made = demo_grant(user="ada", host=socket.gethostname(), now_ns=time.time_ns(), threads=2)
    return made.model_copy(update=changes)


def output(running: Running) -> str:
    try:
        text, _ = running.process.communicate(timeout=20)
    finally:
        running.stop()
    return text


def test_priority_is_lowered_and_threads_are_set(programs: Path) -> None:
    running = start(grant(), Request("matmul", 1, 128 * MIB, 0, 10.0), "guarded_show", stdout=subprocess.PIPE)
    niceness = min(19, os.getpriority(os.PRIO_PROCESS, 0) + NICENESS)
    assert output(running).split() == [str(niceness), "1", "1"]


def test_own_priority_and_limits_stay_as_they_were(programs: Path) -> None:
    ours = psutil.Process()
    before = (ours.nice(), ours.rlimit(psutil.RLIMIT_DATA), ours.rlimit(psutil.RLIMIT_FSIZE), dict(os.environ))
    output(start(grant(), Request("matmul", 1, 128 * MIB, 0, 10.0), "guarded_show", stdout=subprocess.PIPE))
    assert before == (ours.nice(), ours.rlimit(psutil.RLIMIT_DATA), ours.rlimit(psutil.RLIMIT_FSIZE), dict(os.environ))


def test_memory_past_the_ceiling_is_refused_by_the_kernel(programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    running = start(grant(), Request("matmul", 1, 128 * MIB, 0, 10.0), "guarded_hog", stdout=subprocess.PIPE)
    assert output(running) == ""
    assert running.process.returncode == 1
    assert "MemoryError" in capfd.readouterr().err


def test_memory_within_the_ceiling_is_had(programs: Path) -> None:
    running = start(grant(), Request("matmul", 1, 512 * MIB, 0, 10.0), "guarded_hog", stdout=subprocess.PIPE)
    assert output(running) == "got it\n"


def test_file_past_the_ceiling_is_refused_by_the_kernel(programs: Path, capfd: pytest.CaptureFixture[str]) -> None:
    running = start(grant(), Request("matmul", 1, 128 * MIB, 2 * MIB, 10.0), "guarded_fill", stdout=subprocess.PIPE)
    assert output(running) == ""
    assert (programs / "filled").stat().st_size <= 2 * MIB
    capfd.readouterr()


def test_nothing_starts_without_permission(programs: Path) -> None:
    expired = grant(expires_ns=time.time_ns() - 1)
    with pytest.raises(NotGranted):
        start(expired, Request("matmul", 1, 128 * MIB, 0, 10.0), "guarded_wait")
    assert psutil.Process().children() == []


def test_time_left_ends_with_the_window_of_the_grant(programs: Path) -> None:
    ending = grant(expires_ns=time.time_ns() + 2_000_000_000)
    running = start(ending, Request("matmul", 1, 128 * MIB, 0, 10.0), "guarded_wait")
    try:
        assert running.left_s() <= 2.0
    finally:
        running.stop()
    assert running.process.returncode == -9
