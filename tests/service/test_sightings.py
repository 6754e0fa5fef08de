from __future__ import annotations

import pytest

from predictors.synthetic import Run, World, runs
from service.lineup import Lineup
from service.sightings import MOST, Sightings
from telemetry.columns import Columns
from telemetry.errors import BadField, UnknownId
from telemetry.store.batch import Batch
from telemetry.tables import Attempt, Event
from telemetry.words import EventKind
from tests.service.living import Living

RUN = runs(1, seed=5, world=World(failure_mean_s=None, cancel_mean_s=None))[0]


def _noted(sightings: Sightings, commit: int, attempts: list[Attempt], events: list[Event]) -> None:
    sightings.note(commit, Columns.of(Attempt, attempts), Columns.of(Event, events))


def _upto(run: Run, kind: EventKind) -> list[Event]:
    """Events of a run up to and with the first of that kind."""
    return list(run.events[: 1 + [e.kind for e in run.events].index(kind)])


def test_a_start_that_was_just_committed_is_running_before_upkeep_has_seen_it() -> None:
    lineup = Lineup(RUN.events[0].clock_id or "", derived_to=3)
    started = _upto(RUN, EventKind.COMPUTE_START)
    _noted(lineup.sightings, 4, [RUN.attempt], started)
    lineup.monotonic_ns = lambda: (started[-1].monotonic_ns or 0) + 50_000_000
    question = lineup.running_question(RUN.attempt.attempt_id, "service", None)
    assert (0.05, "monotonic", RUN.attempt.host) == (question.elapsed_s, question.elapsed_source, question.context.host)
    with pytest.raises(BadField, match="open phases are"):
        lineup.running_question(RUN.attempt.attempt_id, "setup", None)


@pytest.mark.parametrize("end", [EventKind.COMPUTE_FINISH, EventKind.FAILED, EventKind.CANCELLED, EventKind.TIMED_OUT])
def test_an_end_that_was_just_committed_ends_it_for_upkeeps_view_too(living: Living, end: EventKind) -> None:
    started = _upto(RUN, EventKind.COMPUTE_START)
    living.store.write(Batch((RUN.attempt, *started)))
    living.settle()
    assert living.lineup.running_question(RUN.attempt.attempt_id, "service", None).elapsed_s is not None
    finish = started[-1].model_copy(update={"event_id": "end", "kind": end})
    _noted(living.lineup.sightings, living.store.last_commit + 1, [], [finish])
    with pytest.raises((UnknownId, BadField)):
        living.lineup.running_question(RUN.attempt.attempt_id, "service", None)


def test_a_start_that_comes_after_its_end_opens_nothing() -> None:
    seen = Sightings()
    _noted(seen, 1, [RUN.attempt], [*reversed(RUN.events)])
    found = seen.of(RUN.attempt.attempt_id, 0)
    assert found is not None
    assert found.phases == {}


def test_what_upkeep_has_seen_is_left_to_it() -> None:
    seen = Sightings()
    _noted(seen, 4, [], _upto(RUN, EventKind.COMPUTE_START))
    assert seen.of(RUN.attempt.attempt_id, 4) is None
    assert seen.of(RUN.attempt.attempt_id, 3) is not None


def test_memory_is_bounded_and_the_oldest_go_first() -> None:
    seen = Sightings()
    _noted(seen, 1, [RUN.attempt.model_copy(update={"attempt_id": str(i)}) for i in range(MOST + 5)], [])
    assert seen.of("4", 0) is None
    assert seen.of("5", 0) is not None
