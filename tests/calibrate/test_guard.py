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
from calibrate.hosts.guard import NICENESS, Attended, Running, attended, start
from calibrate.hosts.vitals import Rules, Vitals, Watch
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
    "count": (
        "import pathlib, time\n"
        "for n in range(600):\n"
        "    print(n, time.monotonic_ns(), flush=True)\n"
        "    pathlib.Path('began').touch()\n"
        "    time.sleep(0.02)\n"
    ),
    "family": (
        "import subprocess, sys, time\n"
        "from calibrate.hosts.begin import end_with_parent\n"
        "end_with_parent()\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(60)\n"
    ),
}


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in PROGRAMS.items():
        (tmp_path / f"guarded_{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


ASKED = Request("matmul", 1, 128 * MIB, 0, 10.0)
HOT, WELL = Vitals(temperature_c=99.0), Vitals()


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
    running = start(grant(), ASKED, "guarded_show", stdout=subprocess.PIPE)
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
    expired, before = grant(expires_ns=time.time_ns() - 1), psutil.Process().children()
    with pytest.raises(NotGranted):
        start(expired, Request("matmul", 1, 128 * MIB, 0, 10.0), "guarded_wait")
    assert psutil.Process().children() == before


def test_time_left_ends_with_the_window_of_the_grant(programs: Path) -> None:
    ending = grant(expires_ns=time.time_ns() + 2_000_000_000)
    running = start(ending, Request("matmul", 1, 128 * MIB, 0, 10.0), "guarded_wait")
    try:
        assert running.left_s() <= 2.0
    finally:
        running.stop()
    assert running.process.returncode == -9


class Looks:
    """Readings given one after the other once the process counts, the last again and again; `times` are theirs, monotonic ns."""

    def __init__(self, *vitals: Vitals) -> None:
        self.vitals, self.times = list(vitals), []

    def __call__(self) -> Vitals:
        if not Path("began").exists():
            return WELL
        self.times.append(time.monotonic_ns())
        return self.vitals.pop(0) if len(self.vitals) > 1 else self.vitals[0]


def stay(look: Looks, rules: Rules = Rules(), asked: Request = ASKED, **options: Any) -> Attended:  # noqa: B008  frozen
    before = psutil.Process().children()
    running = start(grant(), asked, "guarded_count", stdout=subprocess.PIPE)
    found = attended(running, look, rules, threads=1, processors=2, **options)
    assert running.process.returncode is not None
    assert psutil.Process().children() == before
    return found


def test_a_disturbed_host_has_the_process_held_at_once_and_let_go_when_it_is_quiet(programs: Path) -> None:
    look = Looks(WELL, WELL, HOT, HOT, HOT, HOT, WELL, WELL, Vitals(on_battery=True))
    found = stay(look)
    ((held_ns, freed_ns),) = found.held
    assert held_ns - look.times[2] < 1e9, "within a second of the reading"
    said_ns = [int(line.split()[1]) for line in found.lines]
    assert [] == [at for at in said_ns if held_ns + 5e7 < at < freed_ns - 5e7], "it says so again before its release is noted"
    assert [] != [at for at in said_ns if at > freed_ns]
    assert "battery: the host runs on it" == found.ended_by


def test_a_host_that_stays_disturbed_ends_the_run_and_what_was_said_is_kept(programs: Path) -> None:
    found = stay(Looks(WELL, WELL, WELL, HOT), Rules(patience_s=0.5))
    assert found.ended_by is not None
    assert found.ended_by.startswith("held for ")
    assert "temperature: 99" in found.ended_by
    assert found.lines


def test_permission_that_is_withdrawn_ends_the_run_within_a_second(programs: Path) -> None:
    told_ns: list[int] = []

    def withdrawn() -> str | None:
        told_ns.append(time.monotonic_ns())
        return "grant: it was withdrawn" if len(told_ns) > 2 else None

    found = stay(Looks(WELL), withdrawn=withdrawn)
    assert time.monotonic_ns() - told_ns[-1] < 1e9
    assert "grant: it was withdrawn" == found.ended_by


def test_time_in_which_it_is_held_is_no_run_time_but_the_rest_is(programs: Path) -> None:
    found = stay(Looks(HOT, HOT, HOT, HOT, HOT, WELL), asked=Request("matmul", 1, 128 * MIB, 0, 1.2))
    assert "its time is over" == found.ended_by
    said_ns = [int(line.split()[1]) for line in found.lines]
    assert (said_ns[-1] - said_ns[0]) / 1e9 > 1.2


def test_real_load_and_real_memory_are_looked_at_while_it_runs(programs: Path) -> None:
    rules = Rules(least_available_bytes=psutil.virtual_memory().total * 2)
    running = start(grant(), ASKED, "guarded_count", stdout=subprocess.PIPE)
    found = attended(running, Watch(running.process.pid).look, rules, threads=1, processors=2)
    assert found.ended_by is not None
    assert found.ended_by.startswith("memory: ")


def test_what_a_process_started_ends_with_it(programs: Path) -> None:
    running = start(grant(), ASKED, "guarded_family", stdout=subprocess.PIPE)
    assert running.process.stdout is not None
    child = int(running.process.stdout.readline())
    running.stop()
    running.process.stdout.close()
    until = time.monotonic() + 5
    while psutil.pid_exists(child) and time.monotonic() < until:
        time.sleep(0.02)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE
