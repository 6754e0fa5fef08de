from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from calibrate.conformal import saved
from predictors.contexts import Context
from predictors.model import changes_of
from predictors.synthetic import Run, World, runs
from service import refit
from service.engine import Asking, Question, Serving, ask
from telemetry import asof
from telemetry.errors import BadField, DiskFull, UnknownId
from telemetry.ledger import Prediction
from telemetry.store.batch import Batch, Receipt
from telemetry.store.file import Store
from telemetry.tables import Event
from telemetry.words import EventKind
from tests.service.living import Living, until

SURE = World(failure_mean_s=None, cancel_mean_s=None)


def _ask(living: Living, run: Run, **more: Any) -> Prediction:
    question = Question("service", Context.of(run.attempt.model_dump()), run.attempt.attempt_id, **more)
    answered = ask(
        living.lineup.serving, [question], Asking((0.5,), "r", (f"p-{run.attempt.attempt_id}",), run.events[0].wall_ns)
    )[0]
    living.lineup.ledger.append(answered.row)
    return answered.row


def test_an_outcome_changes_the_next_answer_without_a_refit(living: Living) -> None:
    first, second = runs(60, seed=2, world=SURE), runs(3, seed=3, world=SURE)
    living.send(first)
    living.settle()
    before = living.lineup.serving
    living.send(second)
    living.upkeep.tick()
    after = living.lineup.serving
    assert before.model_id == after.model_id
    assert before.model.commit < after.model.commit
    context = Context.of(second[0].attempt.model_dump())
    assert (
        before.model.predict([context], ["service"]).quantile(0.5)[0, 0]
        != after.model.predict([context], ["service"]).quantile(0.5)[0, 0]
    )


def test_an_answer_is_joined_to_its_outcome(living: Living) -> None:
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    run = runs(1, seed=5, world=SURE)[0]
    row = _ask(living, run)
    living.send([run])
    living.settle()
    with living.store.reader() as reader:
        outcome = asof.outcomes(reader, living.store.last_commit).to_pylist()
    assert [(row.prediction_id, "completed")] == [(o["prediction_id"], o["ended"]) for o in outcome]
    assert run.service_s == pytest.approx(outcome[0]["actual_s"], abs=1e-8)


def test_an_event_that_comes_late_corrects_the_observation_and_the_score(living: Living) -> None:
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    run = runs(1, seed=5, world=SURE)[0]
    _ask(living, run)
    living.send([run])
    living.settle()
    finish = next(e for e in run.events if e.kind is EventKind.COMPUTE_FINISH)
    earlier = finish.model_copy(
        update={"event_id": "late", "wall_ns": finish.wall_ns - 10_000_000, "monotonic_ns": finish.monotonic_ns - 10_000_000}
    )
    living.store.write(Batch((earlier,)))
    living.settle()
    with living.store.reader() as reader:
        outcomes = asof.outcomes(reader, living.store.last_commit).to_pylist()
        versions = reader.rows("SELECT count(*) FROM outcomes")[0][0]
    assert run.service_s - 0.01 == pytest.approx(outcomes[0]["actual_s"], abs=1e-8)
    assert (1, 2) == (len(outcomes), versions)


def _started(run: Run, clock_id: str, since_ns: int) -> list[Event]:
    """Events of an attempt up to its compute start, on the given clock."""
    kept = run.events[: 1 + next(i for i, e in enumerate(run.events) if e.kind is EventKind.COMPUTE_START)]
    last_ns = kept[-1].monotonic_ns
    return [e.model_copy(update={"clock_id": clock_id, "monotonic_ns": since_ns - (last_ns - e.monotonic_ns)}) for e in kept]


def test_a_running_attempt_is_aged_by_its_own_clock_where_that_is_this_machines(living: Living) -> None:
    run = runs(1, seed=5, world=SURE)[0]
    now_ns = time.monotonic_ns()
    living.store.write(Batch((run.attempt, *_started(run, living.lineup.clock_id, now_ns))))
    living.settle()
    living.lineup.monotonic_ns = lambda: now_ns + 250_000_000
    question = living.lineup.running_question(run.attempt.attempt_id, "service", None)
    assert (0.25, "monotonic") == (question.elapsed_s, question.elapsed_source)
    assert run.attempt.host == question.context.host


def test_a_running_attempt_elsewhere_is_as_old_as_its_newest_event_proves(living: Living) -> None:
    run = runs(1, seed=5, world=SURE)[0]
    started = _started(run, "far/boot-9", 5_000_000_000)
    beat = started[-1].model_copy(
        update={
            "event_id": "beat",
            "kind": EventKind.HEARTBEAT,
            "monotonic_ns": 5_125_000_000,
            "wall_ns": started[-1].wall_ns + 125_000_000,
        }
    )
    living.store.write(Batch((run.attempt, *started, beat)))
    living.settle()
    question = living.lineup.running_question(run.attempt.attempt_id, "service", None)
    assert (0.125, "last_event") == (question.elapsed_s, question.elapsed_source)


def test_asking_for_an_attempt_that_does_not_run_says_so(living: Living) -> None:
    run = runs(1, seed=5, world=SURE)[0]
    living.store.write(Batch((run.attempt, *_started(run, "here/boot-1", 5_000_000_000))))
    living.settle()
    with pytest.raises(UnknownId, match="has ended, or its events have not arrived"):
        living.lineup.running_question("nobody", "service", None)
    with pytest.raises(BadField, match="its open phases are"):
        living.lineup.running_question(run.attempt.attempt_id, "release", None)


def test_an_attempt_record_that_comes_after_its_events_gives_them_their_context(living: Living) -> None:
    run = runs(1, seed=5, world=SURE)[0]
    living.store.write(Batch(run.events))
    living.settle()
    living.store.write(Batch((run.attempt,)))
    living.settle()
    with living.store.reader() as reader:
        found = asof.observations(reader, living.store.last_commit).to_pylist()
        before = asof.observations(reader, 2).to_pylist()
    assert {run.attempt.host} == {row["host"] for row in found}
    assert {None} == {row["host"] for row in before}


def test_a_restart_answers_as_before_and_still_waits_for_outcomes(revive: Callable[[], Living]) -> None:
    living = revive()
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    run = runs(1, seed=5, world=SURE)[0]
    before = _ask(living, run)
    again = revive()
    after = ask(
        again.lineup.serving,
        [Question("service", Context.of(run.attempt.model_dump()), run.attempt.attempt_id)],
        Asking((0.5,), "r", (before.prediction_id,), run.events[0].wall_ns),
    )[0].row
    assert before.answer_sha256 == after.answer_sha256
    again.send([run])
    again.settle()
    with again.store.reader() as reader:
        assert [before.prediction_id] == [o["prediction_id"] for o in asof.outcomes(reader, 10**9).to_pylist()]


def test_a_restart_takes_up_running_attempts_and_events_left_behind(revive: Callable[[], Living]) -> None:
    living = revive()
    run = runs(1, seed=5, world=SURE)[0]
    living.store.write(Batch((run.attempt, *_started(run, "far/boot-9", 5_000_000_000))))
    living.settle()
    other = runs(1, seed=6, world=SURE)[0]
    living.send([other])  # committed, never derived: the process ends first
    living.upkeep.stop = living.upkeep._reader.close
    again = revive()
    assert "last_event" == again.lineup.running_question(run.attempt.attempt_id, "service", None).elapsed_source
    with again.store.reader() as reader:
        found = asof.observations(reader, again.store.last_commit).to_pylist()
    assert other.service_s == pytest.approx(
        next(r["duration_s"] for r in found if r["attempt_id"] == other.attempt.attempt_id and r["phase"] == "service"), abs=1e-8
    )


def test_a_damaged_model_file_is_refused_and_the_one_before_serves(revive: Callable[[], Living]) -> None:
    living = revive()
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    living.send(runs(200, seed=3, world=SURE))
    living.settle()
    with living.store.reader() as reader:
        newer, older = [row.model_id for row in asof.models(reader, living.store.last_commit)][:2]
    folder = living.store.path.with_name(living.store.path.name + ".models")
    newest = next(path for path in folder.iterdir() if newer in path.name)
    content = bytearray(newest.read_bytes())
    content[len(content) // 2] ^= 1
    newest.write_bytes(content)
    again = revive()
    assert older == again.lineup.serving.model_id
    assert again.lineup.serving.model.commit > 0


def test_events_without_a_known_phase_change_nothing(living: Living) -> None:
    living.store.write(Batch((Event(event_id="e", attempt_id="a", kind=EventKind.HEARTBEAT, wall_ns=10**18, source="test"),)))
    living.settle()
    assert living.lineup.serving is None


def test_an_observation_and_the_outcome_it_decides_become_known_at_one_commit(living: Living) -> None:
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    run = runs(1, seed=5, world=SURE)[0]
    _ask(living, run)
    living.send([run])
    living.settle()
    with living.store.reader() as reader:
        sql = "SELECT o.known_from, b.known_from FROM outcomes o JOIN observations b USING (observation_id)"
        [(of_outcome, of_observation)] = reader.rows(f"{sql} WHERE b.known_until IS NULL")
    assert of_outcome == of_observation


def test_the_last_round_keeps_answers_and_leaves_events_to_the_next_start(revive: Callable[[], Living]) -> None:
    living = revive()
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    run = runs(1, seed=5, world=SURE)[0]
    row = _ask(living, run)
    living.send([run])
    learned_to = living.lineup.learned_to
    living.upkeep.tick(last=True)
    assert learned_to == living.lineup.learned_to
    assert not living.lineup.ledger
    again = revive()
    again.settle()
    with again.store.reader() as reader:
        assert [row.prediction_id] == [o["prediction_id"] for o in asof.outcomes(reader, again.store.last_commit).to_pylist()]


def test_what_nobody_will_ask_for_is_not_folded(living: Living) -> None:
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    with living.store.reader() as reader:
        newest = living.store.last_commit
        model, changes = refit.fit_as_of(reader, newest), changes_of(asof.changes(reader, 0, newest))
    assert len(changes) > 0
    assert refit.folded(model, changes, lambda: False) is model


def test_a_round_that_cannot_be_written_keeps_its_answers_and_scores_them_once(
    living: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    run = runs(1, seed=5, world=SURE)[0]
    row = _ask(living, run)

    def full(_batch: Batch) -> Receipt:
        raise DiskFull("store", "0 bytes free", "make room")

    living.send([run])
    with monkeypatch.context() as broken:
        broken.setattr(living.store, "write", full)
        with pytest.raises(DiskFull):
            living.upkeep.tick()
    assert [row] == list(living.lineup.ledger)
    living.settle()
    with living.store.reader() as reader:
        assert [row.prediction_id] == [o["prediction_id"] for o in asof.outcomes(reader, living.store.last_commit).to_pylist()]
        assert [(1,)] == reader.rows("SELECT count(*) FROM outcomes")


def test_a_round_that_fails_is_told_and_the_next_one_takes_its_work_up(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: object) -> None:
        raise RuntimeError("no such luck")

    with monkeypatch.context() as broken:
        broken.setattr("service.upkeep.derive", fail)
        living.upkeep.start()
        living.send(runs(3, seed=2, world=SURE))
        until(lambda: living.lineup.trouble == "RuntimeError: no such luck")
    until(lambda: living.lineup.trouble is None)
    until(lambda: living.lineup.serving)


def test_a_service_starts_on_a_full_disk_and_takes_its_work_up_when_there_is_room(
    revive: Callable[[], Living], monkeypatch: pytest.MonkeyPatch
) -> None:
    living = revive()
    living.send(runs(60, seed=2, world=SURE))  # committed, never observed

    def full(_store: Store, _batch: Batch) -> Receipt:
        raise DiskFull("store", "0 bytes free", "make room")

    monkeypatch.setattr(living.upkeep, "stop", living.upkeep._reader.close)
    with monkeypatch.context() as broken:
        broken.setattr(Store, "write", full)
        again = revive()
        assert "DiskFull" in (again.lineup.trouble or "")
    again.settle()
    assert again.lineup.serving is not None


def test_a_fit_that_fails_is_told_and_tried_again(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_given: object, **_named: object) -> None:
        raise OSError("no such luck")

    monkeypatch.setattr("service.refit.RETRY_S", 0.0)
    with monkeypatch.context() as broken:
        broken.setattr("service.refit.saved.save", fail)
        living.send(runs(20, seed=2, world=SURE))
        living.upkeep.start()
        until(lambda: "no such luck" in (living.lineup.trouble or ""))
    until(lambda: living.lineup.serving)
    until(lambda: living.lineup.trouble is None)


def test_attempts_that_never_say_they_are_over_do_not_run_for_ever(living: Living) -> None:
    run = runs(1, seed=5, world=SURE)[0]
    upto = 1 + [e.kind for e in run.events].index(EventKind.COMPUTE_FINISH)
    living.store.write(Batch((run.attempt, *run.events[:upto])))
    living.settle()
    assert {} == living.lineup.running
    with living.store.reader() as reader:
        assert [] == asof.open_attempts(reader, living.store.last_commit)


def test_only_the_newest_model_files_are_kept(living: Living) -> None:
    for seed in range(5):
        living.send(runs(10, seed=10 + seed, world=SURE))
        living.settle()
    folder = living.store.path.with_name(living.store.path.name + ".models")
    with living.store.reader() as reader:
        rows = asof.models(reader, living.store.last_commit)
    assert len(rows) > 3
    assert {row.file_name for row in rows[:3]} == {path.name for path in folder.iterdir()}


def test_what_was_asked_about_lately_is_answered_anew_before_anyone_asks(living: Living) -> None:
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    run = runs(1, seed=5, world=SURE)[0]
    _ask(living, run)
    living.send(runs(3, seed=3, world=SURE))
    living.upkeep.tick()
    context = Context.of(run.attempt.model_dump())
    assert {} == living.lineup.serving.model.curves
    living.upkeep.warm()
    assert [(context, "service")] == list(living.lineup.serving.model.curves)


def test_nothing_is_made_ready_while_something_is_to_be_observed(living: Living) -> None:
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    _ask(living, runs(1, seed=5, world=SURE)[0])
    living.upkeep.tick()
    living.lineup.serving.model.curves.clear()
    living.send(runs(3, seed=3, world=SURE))
    living.upkeep.warm()
    assert {} == living.lineup.serving.model.curves


def test_what_was_learned_outlives_a_fit_and_a_restart(revive: Callable[[], Living]) -> None:
    living = revive()
    for seed in (2, 3):
        living.send(runs(60, seed=seed, world=SURE))
        living.settle()
    with living.store.reader() as reader:
        newest, first = asof.models(reader, living.store.last_commit)[:2]
    assert json.loads(newest.settings)["parent"] == first.model_id
    served = living.lineup.serving
    again = revive().lineup.serving
    assert served.model_id == again.model_id
    assert saved.packed(served.model) == saved.packed(again.model)


def test_a_fit_made_for_another_model_than_the_one_that_serves_is_dropped(living: Living) -> None:
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    with living.store.reader() as reader:
        made = refit.fit(reader, living.store.last_commit, living.lineup.serving)
        other = Serving(living.lineup.serving.model, "another")
        assert refit.succeeded(made, other, reader, living.store.last_commit) is None
        assert refit.succeeded(made, living.lineup.serving, reader, living.store.last_commit) is not None


def test_rows_that_never_end_are_not_waited_for_for_ever(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refit, "WAITED_FOR", 2)
    living.send(runs(20, seed=2, world=SURE))
    living.settle()
    for seed in (5, 6, 7):
        run = runs(1, seed=seed, world=SURE)[0]
        living.store.write(Batch((run.attempt, *_started(run, "far/boot-9", 5_000_000_000))))
        living.settle()
    model = living.lineup.serving.model
    waiting = list(model.inner.pending)
    assert len(waiting) > 2
    assert waiting[-2:] == list(refit.joined(model, model.inner.record, None).inner.pending)
