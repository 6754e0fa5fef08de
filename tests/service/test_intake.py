"""Learning gives way to taking in, for a bounded time; and a backlog is worked off in slices, to the same end."""

from __future__ import annotations

import threading
import time

import pytest

from predictors.synthetic import World, runs
from service import upkeep
from service.intake import Intake
from telemetry import asof
from telemetry.store.batch import Batch
from tests.service.living import Living


def test_nobody_waits_while_nothing_comes_in() -> None:
    before_s = time.monotonic()
    Intake().give_way(60.0, threading.Event())
    assert time.monotonic() - before_s < 30.0


def test_the_wait_ends_with_the_requests() -> None:
    intake, taken, passed = Intake(), threading.Event(), threading.Event()

    def learn() -> None:
        intake.give_way(60.0, threading.Event())
        assert taken.is_set()
        passed.set()

    with intake, intake:
        learner = threading.Thread(target=learn)
        learner.start()
        assert not passed.wait(0.05)
        taken.set()
    assert passed.wait(30.0)
    learner.join()


def test_the_wait_is_bounded_and_ends_with_the_service() -> None:
    intake, stopping = Intake(), threading.Event()
    with intake:
        intake.give_way(0.02, stopping)
        stopping.set()
        intake.give_way(60.0, stopping)


def test_a_request_that_fails_is_over_too() -> None:
    intake = Intake()
    with pytest.raises(ValueError, match="bad"), intake:
        raise ValueError("bad")
    intake.give_way(60.0, threading.Event())


def test_a_slice_ends_where_enough_rows_were_written(living: Living) -> None:
    start = living.store.last_commit
    for run in runs(3, seed=7):
        living.store.write(Batch((run.attempt, *run.events[:4])))
    with living.store.reader() as reader:
        upto = living.store.last_commit
        ends = [asof.slice_end(reader, start, upto, most) for most in (1, 5, 9, 10, 14, 15, 99)]
        assert [1, 1, 1, 2, 2, 3, 3] == [end - start for end in ends]
        assert upto == asof.slice_end(reader, upto, upto, 5)


def test_a_backlog_in_slices_gives_what_one_round_gives(living: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    made = runs(12, seed=11, world=World(failure_mean_s=None, cancel_mean_s=None))
    events = [event for run in made for event in run.events]
    with_records = [run.attempt for run in made]
    monkeypatch.setattr(upkeep, "ROUND_ROWS", 20)
    # Halves of attempts wait together with the records that belong to them: each slice sees what the one before it wrote.
    living.store.write(Batch(tuple(events[::2])))
    living.store.write(Batch(tuple(with_records)))
    for at in range(0, len(events[1::2]), 15):
        living.store.write(Batch(tuple(events[1::2][at : at + 15])))
    living.upkeep.first_fit()
    sliced = _standing(living, [run.attempt.attempt_id for run in made])
    again = [run.attempt.model_copy(update={"attempt_id": f"{run.attempt.attempt_id}-b"}) for run in made]
    renamed = [e.model_copy(update={"attempt_id": f"{e.attempt_id}-b", "event_id": f"{e.event_id}-b"}) for e in events]
    monkeypatch.setattr(upkeep, "ROUND_ROWS", 100_000)
    living.store.write(Batch((*again, *renamed)))
    living.upkeep.first_fit()
    whole = _standing(living, [attempt.attempt_id for attempt in again])
    assert {(key.replace("-b/", "/"), row) for key, row in whole} == set(sliced)
    with living.store.reader() as reader:
        assert (
            1
            == reader.rows(
                "SELECT max(n) FROM (SELECT count(*) AS n FROM observations WHERE known_until IS NULL GROUP BY observation_id)"
            )[0][0]
        )


def _standing(living: Living, ids: list[str]) -> list[tuple[str, tuple[object, ...]]]:
    with living.store.reader() as reader:
        found = asof.standing(reader, ids, living.store.last_commit)
    return [(key, (row.duration_s, row.ended, row.absence, row.started_ns)) for key, row in found.items()]
