"""Device work through a living service: completions that run on with an output transfer, and launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from predictors.contexts import Context
from predictors.synthetic import World, runs
from service.derive import derive
from service.engine import Asking, Question, ask
from service.plan_questions import ChanceQuestion
from service.planning import ask_chances
from telemetry import asof
from telemetry.store.batch import Batch
from telemetry.tables import Event
from telemetry.words import EventKind
from tests.service.living import Living
from tests.service.taught import context_of, occasion, plain

RUN = runs(1, seed=5, world=World(failure_mean_s=None, cancel_mean_s=None))[0]
NAME = RUN.attempt.attempt_id
COMPUTED = RUN.events[: 1 + [event.kind for event in RUN.events].index(EventKind.COMPUTE_FINISH)]
WHOLE_S = RUN.setup_s + RUN.service_s
OUT_S = 1.5


def after(kind: str, late_s: float) -> Event:
    """A boundary `late_s` after computing had ended."""
    end, late_ns = COMPUTED[-1], round(late_s * 1e9)
    assert end.monotonic_ns is not None
    moved = {"wall_ns": end.wall_ns + late_ns, "monotonic_ns": end.monotonic_ns + late_ns}
    return end.model_copy(update={"event_id": kind, "kind": EventKind(kind), "stage_index": 1, **moved})


BEGUN, OUT = after("transfer_start", 0.0), after("transfer_finish", OUT_S)


@pytest.fixture
def asked(living: Living) -> Living:
    """A service that was asked how long the run takes until its completion, and whether that is soon enough."""
    living.send(runs(20, seed=2, world=World(failure_mean_s=None, cancel_mean_s=None)))
    living.settle()
    made_ns = RUN.events[0].wall_ns - 1
    question = Question("completion", Context.of(RUN.attempt.model_dump()), NAME)
    living.lineup.ledger.append(ask(living.lineup.serving, [question], Asking((0.5,), "r", ("p",), made_ns))[0].row)
    chance = ChanceQuestion(plain(context_of(RUN), attempt=NAME), WHOLE_S + OUT_S / 2, 0.9, NAME, NAME, NAME)
    at = replace(occasion(), made_ns=made_ns, answer_ids=("c",))
    living.lineup.ledger.append(ask_chances(living.lineup.serving, [chance], at)[0].row)
    return living


def sent(living: Living, *rows: Event) -> tuple[list[float], list[bool | None]]:
    """Commit events, and return what stands of the outcomes of both answers."""
    living.store.write(Batch((RUN.attempt, *rows)))
    living.settle()
    with living.store.reader() as reader:
        scored = asof.outcomes(reader, living.store.last_commit).to_pylist()
        plans = asof.plan_outcomes(reader, living.store.last_commit)
    return [row["actual_s"] for row in scored], [outcome.met for outcome in plans.values()]


@pytest.mark.parametrize(
    "batches",
    [
        [[*COMPUTED], [BEGUN], [OUT]],
        [[*COMPUTED[:-1]], [COMPUTED[-1], BEGUN], [OUT]],
        [[*COMPUTED, BEGUN, OUT]],
        [[OUT], [BEGUN], [*COMPUTED]],
    ],
    ids=["as it happens", "begun with the end", "all at once", "backwards"],
)
def test_answers_are_joined_to_the_end_of_the_output_whenever_its_events_come(
    asked: Living, batches: Sequence[Sequence[Event]]
) -> None:
    for batch in batches[:-1]:
        sent(asked, *batch)
    assert ([pytest.approx(WHOLE_S + OUT_S, abs=1e-6)], [False]) == sent(asked, *batches[-1])
    assert 1 == asked.lineup.reliability_of("chance").n


def test_what_seemed_over_is_corrected_also_after_a_restart(asked: Living, revive: Callable[[], Living]) -> None:
    assert ([pytest.approx(WHOLE_S, abs=1e-6)], [True]) == sent(asked, *COMPUTED)
    sent(asked, BEGUN)
    assert ([pytest.approx(WHOLE_S + OUT_S, abs=1e-6)], [False]) == sent(revive(), OUT)


def test_a_completion_runs_while_its_output_is_on_the_way(asked: Living) -> None:
    sent(asked, *COMPUTED, BEGUN)
    assert {"completion", "transfer"} <= set(asked.lineup.running[NAME].phases)
    sent(asked, OUT, after("resource_released", OUT_S + 0.1))
    assert NAME not in asked.lineup.running


def test_a_launch_is_observed_once_however_often_its_attempt_is_looked_at(living: Living) -> None:
    launched = after("compute_finish", 0.0).model_copy(update={"launch_only": True})
    living.store.write(Batch((*COMPUTED[:-1], launched)))
    living.settle()
    with living.store.reader() as reader:
        standing = asof.standing(reader, [NAME], living.store.last_commit)
        again = derive(reader, [NAME], living.store.last_commit, living.store.last_commit)
    assert (None, "launch_only") == (standing[f"{NAME}/launch/0"].absence, standing[f"{NAME}/service/0"].absence)
    assert (None, []) == (again.batch, again.ended)
