"""Relay rounds really run two attempts beside each other, ask while one runs, wait as told, and leave a true record."""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from calibrate.hosts.grants import demo_grant
from service.demo import relay as relaying
from service.demo import supervisor
from service.demo.relay import ASKED_AT, Round, relay
from service.demo.schedule import Planned
from service.demo.supervisor import Finished, Upcoming
from telemetry.errors import BadField, NotGranted
from telemetry.tables import Attempt, Event, Grant, Observation
from telemetry.timelines import observe
from telemetry.words import Absence, Ended, State
from tests.service.crewed import crew_processes

SUPERVISED = """
import socket, sys, time
from pathlib import Path
from calibrate.hosts.grants import demo_grant
from service.demo.relay import relay

def on_need(load, predecessor):
    print("running", flush=True)
    time.sleep(60)

relay(
    1, grant=demo_grant(user="ada", host=socket.gethostname(), now_ns=time.time_ns(), threads=2),
    folder=Path(sys.argv[1]), spool_dir=Path(sys.argv[1]) / "spool", backend_name="numpy", run_id="test",
    on_before=lambda upcoming: (), on_need=on_need, on_finished=lambda made: None,
)
"""
ANSWERS_S = (None, 0.15, -0.5)
COMPUTING = "compute_start first_output compute_finish producer_terminated resource_released"
SETUP = "phase_start checkpoint_open host_materialized warmup_finish ready"


@pytest.fixture(autouse=True, scope="module")
def short_predecessor() -> object:
    """Long enough to be asked about, short enough for a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relaying, "PREDECESSOR_SHAPE", (8, 128))
        yield


@dataclass
class Watched:
    """What the callbacks of a run saw; they answer `answers_s` in turn."""

    answers_s: Sequence[float | None] = (None,)
    before: list[Upcoming] = field(default_factory=list)
    needed: list[tuple[Upcoming, Upcoming]] = field(default_factory=list)
    finished: list[Round] = field(default_factory=list)

    def on_before(self, upcoming: Upcoming) -> Sequence[float]:
        self.before.append(upcoming)
        return ()

    def on_need(self, load: Upcoming, predecessor: Upcoming) -> float | None:
        self.needed.append((load, predecessor))
        return self.answers_s[(len(self.needed) - 1) % len(self.answers_s)]

    def on_finished(self, made: Round) -> None:
        self.finished.append(made)


def grant(**changes: object) -> Grant:
    return demo_grant(user="ada", host=socket.gethostname(), now_ns=time.time_ns(), threads=2).model_copy(update=changes)


def go(n_rounds: int, folder: Path, watched: Watched, *, given: Grant | None = None, backend: str = "numpy") -> list[Round]:
    return relay(
        n_rounds,
        grant=given or grant(),
        folder=folder,
        spool_dir=folder / "spool",
        backend_name=backend,
        run_id="test",
        on_before=watched.on_before,
        on_need=watched.on_need,
        on_finished=watched.on_finished,
    )


Recorded = dict[str, tuple[Attempt, list[Event]]]


def spooled(folder: Path) -> Recorded:
    """Attempts and their events, read back from the spool as the tables will take them."""
    records = [json.loads(line) for path in (folder / "spool").glob("*.jsonl") for line in path.read_text().splitlines()]
    attempts = {r["attempt"]["attempt_id"]: Attempt(**r["attempt"]) for r in records if "attempt" in r}
    events = [Event(**r["event"]) for r in records if "event" in r]
    return {key: (attempt, [e for e in events if e.attempt_id == key]) for key, attempt in attempts.items()}


def kinds(recorded: Recorded, upcoming: Upcoming) -> list[str]:
    """Boundaries in order of time; heartbeats come as they like."""
    events = sorted(recorded[upcoming.attempt_id][1], key=lambda e: e.monotonic_ns or 0)
    return [e.kind.value for e in events if e.kind != "heartbeat"]


def at_ns(recorded: Recorded, upcoming: Upcoming, kind: str) -> int:
    return next(e.monotonic_ns for e in recorded[upcoming.attempt_id][1] if e.kind == kind and e.monotonic_ns is not None)


def phases(recorded: Recorded, upcoming: Upcoming) -> dict[str, Observation]:
    return {o.phase: o for o in observe(*recorded[upcoming.attempt_id]).observations}


def ends(made: Sequence[Round]) -> list[tuple[str, str]]:
    return [(r.predecessor.ended.value, r.load.ended.value) for r in made]


@dataclass(frozen=True)
class Run:
    """Three plain rounds: what was seen, what was recorded, what was left running."""

    watched: Watched
    rounds: list[Round]
    recorded: Recorded
    children: list[psutil.Process]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder, watched = tmp_path_factory.mktemp("relay"), Watched(ANSWERS_S)
    rounds = go(3, folder, watched)
    return Run(watched, rounds, spooled(folder), crew_processes())


def test_every_attempt_completes_and_is_told(made: Run) -> None:
    assert [("completed", "completed")] * 3 == ends(made.rounds)
    assert made.rounds == made.watched.finished


def test_both_are_announced_as_they_are_recorded(made: Run) -> None:
    assert [u for r in made.rounds for u in (r.predecessor.upcoming, r.load.upcoming)] == made.watched.before
    for upcoming in made.watched.before:
        assert Attempt(**upcoming.fields) == made.recorded[upcoming.attempt_id][0]
        assert 1 == upcoming.fields["corunners"]
    assert 3 == len({upcoming.fields["run_id"] for upcoming in made.watched.before})


def test_states_are_resident_before_and_cold_or_cached_by_turns_after(made: Run) -> None:
    assert ["resident"] * 3 == [r.predecessor.upcoming.fields["state"] for r in made.rounds]
    loads = [r.load.upcoming.fields["state"] for r in made.rounds]
    assert loads[1] == "cached"
    assert {loads[0], loads[2]} <= {"cold", "cache_unknown"}


def test_every_boundary_is_marked_in_order(made: Run) -> None:
    for r in made.rounds:
        assert f"enqueue eligible reservation_commit {COMPUTING}".split() == kinds(made.recorded, r.predecessor.upcoming)
        assert f"enqueue eligible reservation_commit {SETUP} {COMPUTING}".split() == kinds(made.recorded, r.load.upcoming)


def test_question_comes_while_the_predecessor_computes_and_not_before_its_share_of_the_typical_time(made: Run) -> None:
    assert [(r.load.upcoming, r.predecessor.upcoming) for r in made.rounds] == made.watched.needed
    first, second, _ = made.rounds
    finish_ns = at_ns(made.recorded, first.predecessor.upcoming, "compute_finish")
    assert at_ns(made.recorded, first.predecessor.upcoming, "compute_start") < (first.asked_ns or 0) < finish_ns
    age_s = ((second.asked_ns or 0) - (second.predecessor.compute_start_ns or 0)) / 1e9
    assert age_s >= ASKED_AT * (made.rounds[0].predecessor.service_s or 0.0) - 1e-6


def test_load_waits_as_long_as_was_answered(made: Run) -> None:
    assert list(ANSWERS_S) == [r.answer_s for r in made.rounds]
    assert made.rounds[1].waited_s >= 0.15
    assert phases(made.recorded, made.rounds[1].load.upcoming)["setup"].duration_s is not None


def test_planned_wait_is_no_part_of_queue_or_completion(made: Run) -> None:
    found = phases(made.recorded, made.rounds[1].load.upcoming)
    length_s = {name: phase.duration_s or 0.0 for name, phase in found.items()}
    eligible_ns = at_ns(made.recorded, made.rounds[1].load.upcoming, "eligible")
    assert length_s["eligibility_wait"] >= 0.149  # enqueued just before the question
    assert eligible_ns >= (made.rounds[1].asked_ns or 0) + 150_000_000
    assert length_s["completion"] >= length_s["setup"] + length_s["service"] > 0.0


def test_load_is_set_up_on_another_worker_while_the_predecessor_computes(made: Run) -> None:
    first = made.rounds[0]
    began_ns = at_ns(made.recorded, first.load.upcoming, "phase_start")
    assert at_ns(made.recorded, first.predecessor.upcoming, "compute_start") < began_ns
    assert began_ns < at_ns(made.recorded, first.predecessor.upcoming, "compute_finish")
    both = made.recorded[first.predecessor.upcoming.attempt_id][1] + made.recorded[first.load.upcoming.attempt_id][1]
    assert 2 == len({e.source for e in both if e.kind == "compute_start"})


def test_predecessor_has_no_setup(made: Run) -> None:
    assert Absence.NOT_APPLICABLE == phases(made.recorded, made.rounds[0].predecessor.upcoming)["setup"].absence


def test_lateness_is_what_the_events_say(made: Run) -> None:
    for r in made.rounds:
        ready_ns = at_ns(made.recorded, r.load.upcoming, "ready")
        finish_ns = at_ns(made.recorded, r.predecessor.upcoming, "compute_finish")
        assert r.late_s == pytest.approx((ready_ns - finish_ns) / 1e9, abs=0.02)


def test_everything_started_has_ended(made: Run) -> None:
    assert [] == made.children


def completed(compute_start_ns: int | None, service_s: float | None) -> Finished:
    planned = Planned(0, 0, State.CACHED, 1, 16, 1)
    return Finished(Upcoming("id", planned, {}), Ended.COMPLETED, None, service_s, compute_start_ns)


def test_lateness_by_hand() -> None:
    # ends at 10 + 2 = 12 s; ready at 11.5 s is half a second early
    assert Round(completed(10**10, 2.0), completed(11_500_000_000, 0.1), 0, None, 0).late_s == pytest.approx(-0.5)
    assert Round(completed(10**10, 1.0), completed(11_500_000_000, None), 0, None, 0).late_s == pytest.approx(0.5)
    assert Round(completed(10**10, None), completed(11_500_000_000, 0.1), 0, None, 0).late_s is None
    assert Round(completed(10**10, 2.0), completed(None, None), 0, None, 0).late_s is None


def test_wait_by_hand() -> None:
    assert Round(completed(1, 1.0), completed(1, 1.0), 10**9, 0.2, 1_250_000_000).waited_s == pytest.approx(0.25)
    assert Round(completed(1, 1.0), completed(1, 1.0), None, None, 1_250_000_000).waited_s == pytest.approx(0.0)


def test_load_started_after_the_predecessors_end_is_late(tmp_path: Path) -> None:
    class Dawdling(Watched):
        def on_need(self, load: Upcoming, predecessor: Upcoming) -> float | None:
            give_up_s = time.monotonic() + 30.0
            while "compute_finish" not in kinds(spooled(tmp_path), predecessor) and time.monotonic() < give_up_s:
                time.sleep(0.02)
            return 0.05

    made = go(1, tmp_path, Dawdling())
    assert [("completed", "completed")] == ends(made)
    assert (made[0].late_s or 0.0) > 0.0


@pytest.mark.parametrize(("post", "expected"), [(0, ("failed", "completed")), (1, ("completed", "failed"))])
def test_worker_that_dies_fails_its_own_attempt_and_is_replaced(tmp_path: Path, post: int, expected: tuple[str, str]) -> None:
    class Killing(Watched):
        def on_need(self, load: Upcoming, predecessor: Upcoming) -> float | None:
            if not self.needed:
                crew_processes()[post].kill()
            return super().on_need(load, predecessor)

    made = go(2, tmp_path, Killing())
    assert [expected, ("completed", "completed")] == ends(made)
    lost = (made[0].predecessor, made[0].load)[post]
    assert "worker ended with exit code -9" == lost.reason
    assert "failed" == kinds(spooled(tmp_path), lost.upcoming)[-1]
    assert made[0].late_s is None


def test_workers_that_die_at_rest_cost_one_round(tmp_path: Path) -> None:
    class Killing(Watched):
        def on_finished(self, made: Round) -> None:
            if not self.finished:
                for process in crew_processes():
                    process.kill()
                    process.wait()
            super().on_finished(made)

    made = go(3, tmp_path, Killing())
    assert [("completed", "completed"), ("failed", "failed"), ("completed", "completed")] == ends(made)
    assert made[1].asked_ns is None


def test_nothing_is_asked_about_a_predecessor_that_has_ended(tmp_path: Path) -> None:
    class Killing(Watched):
        def on_before(self, upcoming: Upcoming) -> Sequence[float]:
            if upcoming.planned.state is not State.RESIDENT:
                crew_processes()[0].kill()
            return super().on_before(upcoming)

    watched = Killing((0.2,))
    made = go(1, tmp_path, watched)
    assert [("failed", "completed")] == ends(made)
    assert [] == watched.needed
    assert (None, None, 0.0) == (made[0].asked_ns, made[0].answer_s, made[0].waited_s)


def test_interrupt_is_a_shutdown_of_both_and_no_failure_of_the_work(tmp_path: Path) -> None:
    class Interrupted(Watched):
        def on_need(self, load: Upcoming, predecessor: Upcoming) -> float | None:
            raise KeyboardInterrupt

    watched = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        go(1, tmp_path, watched)
    recorded = spooled(tmp_path)
    for upcoming in watched.before:
        last = [e for e in recorded[upcoming.attempt_id][1] if e.kind in {"cancelled", "failed"}]
        assert [("cancelled", "shutdown")] == [(e.kind, e.reason) for e in last]
    assert [] == crew_processes()


@pytest.mark.parametrize("answer_s", [31.0, float("inf"), float("nan")])
def test_wait_past_all_patience_is_refused(tmp_path: Path, answer_s: float) -> None:
    with pytest.raises(BadField, match="wait_s"):
        go(1, tmp_path, Watched((answer_s,)))
    assert [] == crew_processes()


def test_attempts_past_all_patience_are_timed_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PATIENCE_S", 0.001)
    assert [("timed_out", "timed_out")] == ends(go(1, tmp_path, Watched()))
    assert [] == crew_processes()


def test_processes_end_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    (tmp_path / "supervised.py").write_text(SUPERVISED)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(tmp_path / "supervised.py"), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        try:
            assert "running\n" == process.stdout.readline()
            started = psutil.Process(process.pid).children()
        finally:
            process.kill()
    assert 2 == len(started)
    _, alive = psutil.wait_procs(started, timeout=20)
    for left in alive:
        left.kill()
    assert [] == alive


def test_nothing_is_spawned_without_permission(tmp_path: Path) -> None:
    watched = Watched()
    with pytest.raises(NotGranted):
        go(1, tmp_path, watched, given=grant(probes=["matmul"]))
    assert [] == crew_processes()
    assert [] == watched.before


def test_rounds_stop_when_the_granted_time_is_used_up(tmp_path: Path) -> None:
    watched = Watched()
    assert [] == go(1, tmp_path, watched, given=grant(max_run_s=0.01))
    assert [] == watched.before


@pytest.mark.torch
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")
def test_torch_workers_make_the_same_round(tmp_path: Path) -> None:
    watched = Watched((0.01,))
    assert [("completed", "completed")] == ends(go(1, tmp_path, watched, backend="torch"))
    assert watched.before[0].fields["runtime"].startswith("torch-")
