"""The demo's attempts are really made, really stopped, really fail, and leave a true record and no process behind."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from calibrate.hosts.grants import demo_grant
from service.demo import supervisor
from service.demo.schedule import Cancel, Failure, Planned
from service.demo.supervisor import Finished, Upcoming, established, run
from telemetry.errors import BadField, NotGranted
from telemetry.tables import Attempt, Event, Grant, Observation
from telemetry.timelines import observe
from telemetry.words import Absence, Ended, EventKind, State
from tests.service.crewed import crew_processes

SUPERVISED = """
import socket, sys, time
from pathlib import Path
from calibrate.hosts.grants import demo_grant
from service.demo.schedule import Planned
from service.demo.supervisor import run
from telemetry.words import State

def on_running(upcoming, elapsed_s):
    print("running", flush=True)
    time.sleep(60)

run(
    [Planned(0, 0, State.CACHED, 8, 128, 1)],
    grant=demo_grant(user="ada", host=socket.gethostname(), now_ns=time.time_ns(), threads=2),
    folder=Path(sys.argv[1]), spool_dir=Path(sys.argv[1]) / "spool", backend_name="numpy", run_id="test",
    on_before=lambda upcoming: (0.01,), on_running=on_running, on_finished=lambda finished: None,
)
"""
LONG = {"batch": 8, "length": 128}
ASK_AT_S = 0.03


@dataclass
class Watched:
    """What the callbacks of a run saw."""

    before: list[Upcoming] = field(default_factory=list)
    running: list[tuple[str, float]] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    corunner_s: list[float] = field(default_factory=list)

    def on_before(self, upcoming: Upcoming) -> Sequence[float]:
        self.before.append(upcoming)
        return (ASK_AT_S,)

    def on_running(self, upcoming: Upcoming, elapsed_s: float) -> None:
        self.running.append((upcoming.attempt_id, elapsed_s))

    def on_finished(self, finished: Finished) -> None:
        self.finished.append(finished)
        working = [p.cpu_times().user for p in crew_processes() if "service.demo.corunner" in p.cmdline()]
        self.corunner_s.append(sum(working))


def planned(index: int, state: State, *, corunners: int = 0, **rest: object) -> Planned:
    return Planned(index, 0, state, corunners=corunners, **({"batch": 1, "length": 16} | rest))  # type: ignore[arg-type]


SCHEDULE = (
    planned(0, State.CACHED, **LONG),
    planned(1, State.COLD),
    planned(2, State.RESIDENT),
    planned(3, State.CACHED, **LONG, cancel=Cancel.FLAG, cancel_after_fraction=0.1),
    planned(4, State.CACHED, **LONG, cancel=Cancel.KILL, cancel_after_fraction=0.1),
    planned(5, State.CACHED, failure=Failure.TRUNCATED_CHECKPOINT),
    planned(6, State.CACHED, failure=Failure.ID_OUT_OF_RANGE),
    planned(7, State.CACHED, failure=Failure.MEMORY_LIMIT),
    planned(8, State.CACHED, corunners=1, **LONG),
    planned(9, State.CACHED, corunners=1, **LONG),
    planned(10, State.CACHED),
    planned(11, State.CACHED),
)


def grant(**changes: object) -> Grant:
    return demo_grant(user="ada", host=socket.gethostname(), now_ns=time.time_ns(), threads=2).model_copy(update=changes)


def go(
    schedule: Sequence[Planned], folder: Path, watched: Watched, *, given: Grant | None = None, backend: str = "numpy"
) -> None:
    run(
        schedule,
        grant=given or grant(),
        folder=folder,
        spool_dir=folder / "spool",
        backend_name=backend,
        run_id="test",
        on_before=watched.on_before,
        on_running=watched.on_running,
        on_finished=watched.on_finished,
    )


def spooled(folder: Path) -> dict[str, tuple[Attempt, list[Event]]]:
    """Attempts and their events, read back from the spool as the tables will take them."""
    records = [json.loads(line) for path in (folder / "spool").glob("*.jsonl") for line in path.read_text().splitlines()]
    attempts = {r["attempt"]["attempt_id"]: Attempt(**r["attempt"]) for r in records if "attempt" in r}
    events = [Event(**r["event"]) for r in records if "event" in r]
    return {key: (attempt, [e for e in events if e.attempt_id == key]) for key, attempt in attempts.items()}


@dataclass(frozen=True)
class Run:
    """One run of the schedule above: what was seen, what was recorded."""

    watched: Watched
    recorded: dict[str, tuple[Attempt, list[Event]]]
    children: list[psutil.Process]

    def finished(self, index: int) -> Finished:
        return self.watched.finished[index]

    def attempt(self, index: int) -> Attempt:
        return self.recorded[self.finished(index).upcoming.attempt_id][0]

    def kinds(self, index: int) -> list[str]:
        _, events = self.recorded[self.finished(index).upcoming.attempt_id]
        return [e.kind.value for e in sorted(events, key=lambda e: e.monotonic_ns or 0) if e.kind != EventKind.HEARTBEAT]

    def phases(self, index: int) -> dict[str, Observation]:
        timeline = observe(*self.recorded[self.finished(index).upcoming.attempt_id])
        assert timeline.quarantined == ()
        return {o.phase: o for o in timeline.observations}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, watched = tmp_path_factory.mktemp("demo"), Watched()
    go(SCHEDULE, folder, watched)
    return Run(watched, spooled(folder), crew_processes())


def test_attempts_end_as_they_should(made: Run) -> None:
    ended = [f.ended.value for f in made.watched.finished]
    assert ["completed"] * 3 + ["cancelled"] * 2 + ["failed"] * 3 + ["completed"] * 4 == ended


def test_every_attempt_was_announced_before_its_first_event(made: Run) -> None:
    assert [f.upcoming for f in made.watched.finished] == made.watched.before
    assert {u.attempt_id for u in made.watched.before} == set(made.recorded)


def test_what_was_announced_is_what_was_recorded(made: Run) -> None:
    for index, upcoming in enumerate(made.watched.before):
        assert Attempt(**upcoming.fields) == made.attempt(index)
    assert made.attempt(0).runtime is not None
    assert made.attempt(0).runtime.startswith("numpy-")


def test_plain_attempt_marks_every_boundary_in_order(made: Run) -> None:
    expected = (
        "enqueue eligible reservation_commit phase_start checkpoint_open host_materialized warmup_finish ready "
        "compute_start first_output compute_finish producer_terminated resource_released"
    )
    assert expected.split() == made.kinds(0)


def test_completed_phases_nest_and_agree_with_what_the_worker_said(made: Run) -> None:
    phases = made.phases(0)
    length = {name: phase.duration_s or 0.0 for name, phase in phases.items()}
    assert all(phases[name].ended == Ended.COMPLETED for name in ("setup", "read", "warmup", "service", "completion"))
    assert length["setup"] >= length["open"] + length["read"] + length["warmup"]
    assert length["completion"] >= length["setup"] + length["service"] > 0
    assert made.finished(0).service_s == pytest.approx(length["service"], abs=0.02)


def test_longer_input_takes_longer(made: Run) -> None:
    assert (made.finished(0).service_s or 0) > (made.finished(11).service_s or 0) > 0


def test_cold_is_recorded_only_if_it_was_proved(made: Run) -> None:
    assert made.attempt(1).state in {"cold", "cache_unknown"}
    assert made.attempt(0).state == "cached"


def test_resident_model_has_no_setup(made: Run) -> None:
    assert "phase_start" not in made.kinds(2)
    assert made.phases(2)["setup"].absence == Absence.NOT_APPLICABLE
    assert made.phases(2)["service"].ended == Ended.COMPLETED


@pytest.mark.parametrize("index", [3, 4])
def test_cancelled_attempt_is_censored_at_its_request(made: Run, index: int) -> None:
    kinds = made.kinds(index)
    assert kinds.index("cancel_requested") < kinds.index("cancelled")
    assert "compute_finish" not in kinds
    service = made.phases(index)["service"]
    assert (service.ended, service.cause) == (Ended.CANCELLED, "user")
    assert 0 < (service.duration_s or 0) < (made.finished(0).service_s or 0)
    assert made.phases(index)["setup"].ended == Ended.COMPLETED


def test_killed_worker_could_not_say_so_itself(made: Run) -> None:
    _, events = made.recorded[made.finished(4).upcoming.attempt_id]
    said_by = {e.kind: e.source for e in events}
    assert said_by[EventKind.CANCELLED] == said_by[EventKind.ENQUEUE] != said_by[EventKind.COMPUTE_START]
    assert "resource_released" not in made.kinds(4)


def test_attempt_after_the_kill_has_another_worker(made: Run) -> None:
    def worker_of(index: int) -> str:
        _, events = made.recorded[made.finished(index).upcoming.attempt_id]
        return next(e.source for e in events if e.kind == EventKind.PHASE_START)

    assert worker_of(3) == worker_of(4) != worker_of(5)


@pytest.mark.parametrize(
    ("index", "said", "phase"), [(5, "SafetensorError", "open"), (6, "IndexError", "service"), (7, "MemoryError", "setup")]
)
def test_failure_comes_out_of_the_work_and_interrupts_its_phase(made: Run, index: int, said: str, phase: str) -> None:
    interrupted = made.phases(index)[phase]
    assert interrupted.ended == Ended.FAILED
    assert said in (interrupted.cause or "")
    assert said in (made.finished(index).reason or "")


def test_running_attempts_are_asked_about_at_their_age(made: Run) -> None:
    asked = dict(made.watched.running)
    assert made.finished(0).upcoming.attempt_id in asked
    assert made.finished(5).upcoming.attempt_id not in asked
    assert all(elapsed_s >= ASK_AT_S for elapsed_s in asked.values())


def test_corunner_works_beside_its_attempts_and_only_then(made: Run) -> None:
    assert [made.attempt(index).corunners for index in range(7, 11)] == [0, 1, 1, 0]
    used_s = made.watched.corunner_s
    assert used_s[7] == 0.0
    assert used_s[9] - used_s[8] > 0.05
    assert used_s[11] - used_s[10] <= 0.02


def test_everything_started_has_ended(made: Run) -> None:
    assert made.children == []


def test_worker_that_dies_is_replaced_and_its_attempt_failed(tmp_path: Path) -> None:
    class Killing(Watched):
        def on_running(self, upcoming: Upcoming, elapsed_s: float) -> None:
            if upcoming.planned.index == 0:
                for process in crew_processes():
                    process.kill()

    watched = Killing()
    go((planned(0, State.CACHED, **LONG), planned(1, State.CACHED)), tmp_path, watched)
    assert [Ended.FAILED, Ended.COMPLETED] == [f.ended for f in watched.finished]
    assert watched.finished[0].reason == "worker ended with exit code -9"
    attempt_id = watched.finished[0].upcoming.attempt_id
    service = {o.phase: o for o in observe(*spooled(tmp_path)[attempt_id]).observations}["service"]
    assert (service.ended, service.cause) == (Ended.FAILED, "worker ended with exit code -9")


def test_interrupt_is_a_shutdown_and_no_failure_of_the_work(tmp_path: Path) -> None:
    class Interrupted(Watched):
        def on_running(self, upcoming: Upcoming, elapsed_s: float) -> None:
            raise KeyboardInterrupt

    watched = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        go((planned(0, State.CACHED, **LONG),), tmp_path, watched)
    service = {o.phase: o for o in observe(*spooled(tmp_path)[watched.before[0].attempt_id]).observations}["service"]
    assert (service.ended, service.cause) == (Ended.CANCELLED, "shutdown")
    assert crew_processes() == []


def test_processes_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "supervised.py").write_text(SUPERVISED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "supervised.py"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "running\n"
            started = psutil.Process(process.pid).children()
        finally:
            process.kill()
    assert len(started) == 2
    _, alive = psutil.wait_procs(started, timeout=20)
    for left in alive:
        left.kill()
    assert alive == []


def test_attempt_past_all_patience_is_timed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE_S", 0.001)
    watched = Watched()
    go((planned(0, State.CACHED, **LONG),), tmp_path, watched)
    assert [Ended.TIMED_OUT] == [f.ended for f in watched.finished]
    assert crew_processes() == []


@pytest.mark.parametrize(
    "changes", [{"expires_ns": 1}, {"probes": ["matmul"]}, {"host": "elsewhere"}, {"max_memory_bytes": 1}, {"revoked_ns": 1}]
)
def test_nothing_is_spawned_without_permission(tmp_path: Path, changes: dict[str, object]) -> None:
    watched = Watched()
    with pytest.raises(NotGranted):
        go((planned(0, State.CACHED),), tmp_path, watched, given=grant(**changes))
    assert crew_processes() == []
    assert watched.before == []


def test_run_stops_when_the_granted_time_is_used_up(tmp_path: Path) -> None:
    watched = Watched()
    go((planned(0, State.CACHED),), tmp_path, watched, given=grant(max_run_s=0.01))
    assert watched.before == []


def test_worker_that_cannot_start_is_an_error_and_not_a_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['safetensors'] = None\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(BadField, match="not ready"):
        go((planned(0, State.CACHED),), tmp_path, Watched())
    assert "safetensors" in capfd.readouterr().err
    assert crew_processes() == []


@pytest.mark.parametrize(("answer", "expected"), [(True, State.COLD), (False, State.CACHE_UNKNOWN)])
def test_drop_without_proof_makes_the_state_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: bool, expected: State
) -> None:
    drop: Callable[[Path], bool] = lambda path: answer  # noqa: E731
    monkeypatch.setattr(supervisor, "evict", drop)
    assert expected == established(tmp_path, State.COLD)


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")
def test_torch_worker_makes_the_same_attempts(tmp_path: Path) -> None:
    watched = Watched()
    schedule = (SCHEDULE[0], SCHEDULE[2], SCHEDULE[3], SCHEDULE[6], SCHEDULE[7])
    go(schedule, tmp_path, watched, backend="torch")
    assert ["completed", "completed", "cancelled", "failed", "failed"] == [f.ended.value for f in watched.finished]
    assert watched.before[0].fields["runtime"].startswith("torch-")
