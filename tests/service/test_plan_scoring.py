"""What happened joined to composite answers: each ending by hand, then through a living service and its restarts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import orjson
import pytest

from calibrate.evidence.reliability import Reliability
from calibrate.evidence.turnout import NOTHING
from predictors.plans.turn import AS_SAID, Turn
from predictors.synthetic import Run, World, runs
from service.plan_questions import ChanceQuestion, LatestStartQuestion, PlannedStage, turn_of
from service.plan_scoring import Correction, WaitingPlans, with_corrections, with_outcomes
from service.planning import ask_again, ask_chances, ask_latest_starts
from telemetry import asof
from telemetry.ledger import PlanAnswer, PlanOutcome
from telemetry.store.batch import Batch
from telemetry.tables import Event, Observation
from telemetry.words import EventKind
from tests.service.living import Living
from tests.service.taught import SERVICE, SETUP, context_of, occasion, plain

S = 1_000_000_000
MADE_NS = 1_700_000_000 * S
SURE = World(failure_mean_s=None, cancel_mean_s=None)


def answer(question: str = "chance", **other: Any) -> PlanAnswer:
    """A ledger row of which only what decides its outcome matters."""
    decides = {"answer_id": "x", "question": question, "attempt_id": "a", "needed_by": [], "made_ns": MADE_NS, "asked": "{}"}
    return PlanAnswer.model_construct(**(decides | {"deadline_s": 2.0, "probability": 0.9} | other))


def seen(attempt_id: str, phase: str, starts_s: float, duration_s: float, ended: str = "completed") -> Observation:
    """A phase that began `starts_s` after the question."""
    return Observation(
        observation_id=f"{attempt_id}/{phase}/0",
        attempt_id=attempt_id,
        phase=phase,
        started_ns=MADE_NS + round(starts_s * S),
        duration_s=duration_s,
        ended=ended,
    )


def outcomes(row: PlanAnswer, observed: Sequence[Observation]) -> list[tuple[float, bool | None]]:
    """Actual seconds and whether the question was met, where there is an outcome."""
    return [(outcome.actual_s, outcome.met) for _, outcome in WaitingPlans([row]).score(observed)]


@pytest.mark.parametrize(
    ("ended", "duration_s", "met"),
    [
        ("completed", 1.5, True),
        ("completed", 2.0, True),
        ("completed", 2.000000001, True),
        ("completed", 2.1, False),
        ("failed", 0.5, False),
        ("failed", 2.5, False),
        ("cancelled", 1.9, None),
        ("cancelled", 2.1, False),
        ("timed_out", 1.9, None),
        ("timed_out", 2.1, False),
    ],
)
def test_a_chance_is_met_by_completion_in_time_alone_and_left_open_by_an_earlier_censoring(
    ended: str, duration_s: float, met: bool | None
) -> None:
    assert [(duration_s, met)] == outcomes(answer(), [seen("a", "completion", 0.25, duration_s, ended)])


def test_of_an_attempt_eligible_before_the_question_only_what_was_left_counts() -> None:
    assert [(1.5, True)] == outcomes(answer(), [seen("a", "completion", -10.0, 11.5)])
    assert [(2.5, False)] == outcomes(answer(), [seen("a", "completion", -10.0, 12.5)])
    assert [] == outcomes(answer(), [seen("a", "completion", -10.0, 9.0)])  # over when asked


@pytest.mark.parametrize("others", [{"attempt_id": None}, {"question": "latest_start"}, {"attempt_id": "b"}])
def test_what_names_no_attempt_or_no_need_has_no_outcome(others: dict[str, Any]) -> None:
    assert [] == outcomes(answer(**others), [seen("a", "completion", 0.0, 1.0), seen("a", "setup", 0.0, 1.0)])


LATEST = {"question": "latest_start", "needed_by": ["p", "q"], "deadline_s": None}
ENDS_AT_3_AND_4 = [seen("p", "service", -1.0, 4.0), seen("q", "service", -2.0, 6.0)]


@pytest.mark.parametrize(
    ("load", "late_s", "met"),
    [
        (seen("a", "setup", 1.0, 2.5), -0.5, True),
        (seen("a", "setup", 1.0, 3.0), 0.0, True),
        (seen("a", "setup", 1.0, 3.25), 0.25, False),
        (seen("a", "setup", 1.0, 1.0, "failed"), -2.0, False),
        (seen("a", "setup", 1.0, 1.0, "cancelled"), -2.0, None),
        (seen("a", "setup", 1.0, 3.5, "cancelled"), 0.5, False),
    ],
)
def test_a_load_is_late_by_its_readiness_after_the_last_predecessor(load: Observation, late_s: float, met: bool | None) -> None:
    for order in permutations([load, *ENDS_AT_3_AND_4]):
        waiting = WaitingPlans([answer(**LATEST)])
        assert ["a", "p", "q"] == waiting.attempt_ids
        scored = [one for row in order for one in waiting.score([row])]
        assert [(late_s, met, 1.0)] == [(o.actual_s, o.met, o.started_s) for _, o in scored]
        assert [] == waiting.attempt_ids


def test_where_a_predecessor_did_not_complete_there_was_no_need() -> None:
    waiting = WaitingPlans([answer(**LATEST)])
    failed = [seen("p", "service", -1.0, 2.0, "failed"), ENDS_AT_3_AND_4[1]]
    assert [] == waiting.score([seen("a", "setup", 1.0, 1.0), *failed])
    assert [] == waiting.attempt_ids
    assert [] == outcomes(answer(**LATEST), [seen("a", "setup", -5.0, 1.0), *ENDS_AT_3_AND_4])  # ready when asked


def test_a_predecessor_that_two_loads_wait_for_stays_known_until_both_are_scored() -> None:
    first, second = (answer(answer_id=n, attempt_id=n, question="latest_start", needed_by=["p"]) for n in ("a", "b"))
    waiting = WaitingPlans([first, second])
    assert ["a"] == [row.answer_id for row, _ in waiting.score([seen("p", "service", 0.0, 2.0), seen("a", "setup", 0.0, 1.0)])]
    assert ["b"] == [row.answer_id for row, _ in waiting.score([seen("b", "setup", 0.0, 3.0)])]


def test_reliability_takes_chances_that_were_decided_and_nothing_else() -> None:
    def outcome(met: bool | None) -> PlanOutcome:
        return PlanOutcome(answer_id="x", actual_s=1.0, ended="completed", met=met)

    decided = [(answer(probability=0.9), outcome(met=True)), (answer(probability=0.6), outcome(met=False))]
    others = [(answer(), outcome(met=None)), (answer(**LATEST), outcome(met=False))]
    found = with_outcomes(Reliability(), [*decided, *others])
    assert 2 == found.n
    assert 0.1 - 0.6 == pytest.approx(found.gap)
    assert 0.09 + 0.24 == pytest.approx(found.variance)


def test_a_chance_is_counted_as_scenarios_said_it_and_as_it_was_answered() -> None:
    turn = Turn(-0.5, 0.8)
    row = answer(probability=float(turn.of(np.array(0.96))), asked=orjson.dumps({"turn": [*turn]}).decode())
    missed = PlanOutcome(answer_id="x", actual_s=9.0, ended="completed", met=False)
    found = with_outcomes(Reliability(), [(row, missed)])
    assert -row.probability == found.gap
    assert NOTHING.after(0.96, met=False) == found.turnout
    met = replace_outcome(missed)
    again = with_corrections(found, [Correction(row, missed, met)])
    assert NOTHING.after(0.96, met=True) == again.turnout


def replace_outcome(missed: PlanOutcome) -> PlanOutcome:
    """The same plan, now known to have been in time."""
    return missed.model_copy(update={"actual_s": 1.0, "met": True})


@pytest.fixture
def taught(living: Living) -> Living:
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    return living


def ask_chance(living: Living, run: Run, deadline_s: float, name: str | None = None) -> PlanAnswer:
    """Ask for a run's chance just before it is eligible, as a route does."""
    attempt_id = run.attempt.attempt_id
    question = ChanceQuestion(plain(context_of(run), attempt=attempt_id), deadline_s, 0.9, attempt_id, attempt_id, attempt_id)
    return _given(living, ask_chances, question, run.events[0].wall_ns - 1, name or f"chance-{attempt_id}")


def ask_start(living: Living, load: Run, before: Run, made_ns: int) -> PlanAnswer:
    """Ask when a load must start for the end of another run's service."""
    names = load.attempt.attempt_id, before.attempt.attempt_id
    predecessor = PlannedStage("before", SERVICE, (), None, context_of(before), "service", names[1], 0.0)
    stage = PlannedStage("load", SETUP, (), None, context_of(load), "setup", names[0])
    question = LatestStartQuestion(stage, 0.1, names[0], names[0], names[0], (predecessor,), needed_by=(names[1],))
    return _given(living, ask_latest_starts, question, made_ns, f"start-{names[0]}")


def _given(living: Living, ask: Callable[..., Any], question: Any, made_ns: int, answer_id: str) -> PlanAnswer:
    se = living.lineup.reliability_of("chance").calibration_se if isinstance(question, ChanceQuestion) else 0.05
    at = replace(occasion(calibration_se=se), made_ns=made_ns, answer_ids=(answer_id,))
    row: PlanAnswer = ask(living.lineup.serving, [question], at)[0].row
    living.lineup.ledger.append(row)
    return row


def found_in(living: Living) -> dict[str, PlanOutcome]:
    with living.store.reader() as reader:
        return asof.plan_outcomes(reader, living.store.last_commit)


def test_outcomes_are_joined_through_the_store_and_widen_or_narrow_the_next_answer(taught: Living) -> None:
    made = runs(6, seed=5, world=SURE)
    whole_s = [run.setup_s + run.service_s for run in made]
    before = [
        ask_chance(taught, run, total_s * (1.01 if i % 2 else 0.99))
        for i, (run, total_s) in enumerate(zip(made, whole_s, strict=True))
    ]
    taught.send(made)  # what happened is committed before the ledger is
    taught.settle()
    found = found_in(taught)
    assert {row.answer_id: bool(i % 2) for i, row in enumerate(before)} == {name: o.met for name, o in found.items()}
    for row, total_s in zip(before, whole_s, strict=True):
        assert total_s == pytest.approx(found[row.answer_id].actual_s, abs=1e-6)
    expected = with_outcomes(Reliability(), [(row, found[row.answer_id]) for row in before])
    assert expected.n == 6
    assert expected.calibration_se == pytest.approx(taught.lineup.reliability_of("chance").calibration_se)
    assert expected.calibration_se == pytest.approx(ask_chance(taught, runs(1, seed=6)[0], 1.0).calibration_se)


def test_a_turned_chance_is_kept_with_its_turn_and_comes_out_again(taught: Living) -> None:
    run, turn = runs(1, seed=5, world=SURE)[0], Turn(-0.5, 0.8)
    question = ChanceQuestion(plain(context_of(run)), run.setup_s + run.service_s, 0.9, "key")
    serving = taught.lineup.serving
    assert serving is not None
    as_said, turned = (ask_chances(serving, [question], replace(occasion(), turn=by))[0] for by in (AS_SAID, turn))
    told, before = orjson.loads(turned.body), orjson.loads(as_said.body)
    assert before["probability"] == before["probability_said"] == told["probability_said"]
    assert min(float(turn.of(np.array(before["probability"]))), told["p_complete"]) == pytest.approx(told["probability"])
    assert told["probability"] < before["probability"]
    assert turn == turn_of(turned.row)
    assert turned == ask_again(serving, turned.row)


def test_plans_that_keep_missing_are_answered_less_likely(taught: Living) -> None:
    made = runs(40, seed=5, world=SURE)
    for i, run in enumerate(made):
        ask_chance(taught, run, (run.setup_s + run.service_s) * 0.99, f"c-{i}")
    taught.send(made)
    taught.settle()
    known = taught.lineup.reliability_of("chance")
    assert 40 == known.n
    assert known.turnout.turn.of(np.array(0.9)) < 0.8


def test_more_answers_than_a_ledger_batch_all_find_their_outcome(taught: Living) -> None:
    run = runs(1, seed=5, world=SURE)[0]
    row = ask_chance(taught, run, 10.0)
    taught.lineup.ledger.extend(row.model_copy(update={"answer_id": f"copy-{i}"}) for i in range(5_000))
    taught.send([run])
    taught.settle()
    assert 5_000 + 1 == len(found_in(taught))


def test_a_latest_start_is_joined_to_readiness_and_need(taught: Living) -> None:
    before, load = runs(2, seed=5, world=SURE)
    start_ns = {run: next(e.wall_ns for e in run.events if e.kind is EventKind.COMPUTE_START) for run in (before, load)}
    eligible_ns = load.events[0].wall_ns
    ask_start(taught, load, before, eligible_ns - 1)
    taught.send([load])
    taught.settle()
    assert {} == found_in(taught)  # the need is not known yet
    taught.send([before])
    taught.settle()
    [outcome] = found_in(taught).values()
    late_s = (start_ns[load] - start_ns[before]) / S - before.service_s
    assert late_s == pytest.approx(outcome.actual_s, abs=1e-6)
    assert (late_s <= 0, 0.0) == (outcome.met, pytest.approx(outcome.started_s, abs=1e-6))
    assert 0 == taught.lineup.reliability_of("chance").n  # its start was not the one advised, so its chance was not tested


def test_a_restart_still_waits_and_remembers_how_reliable_chances_were(revive: Callable[[], Living]) -> None:
    living = revive()
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    first, second, third, fourth = runs(4, seed=5, world=SURE)
    ask_chance(living, first, 0.01)
    living.send([first])
    living.settle()
    ask_chance(living, second, 50.0)
    ask_start(living, fourth, third, fourth.events[0].wall_ns - 1)
    living.send([third])  # the need is known, the load is not
    living.settle()
    before = living.lineup.reliability_of("chance")
    again = revive()
    assert before == again.lineup.reliability_of("chance")
    assert 1 == before.n
    again.send([second, fourth])
    again.settle()
    waited = {f"chance-{second.attempt.attempt_id}", f"start-{fourth.attempt.attempt_id}"}
    assert {f"chance-{first.attempt.attempt_id}", *waited} == found_in(again).keys()
    assert 2 == again.lineup.reliability_of("chance").n


def test_answers_left_unscored_by_a_killed_process_are_scored_at_the_next_start(revive: Callable[[], Living]) -> None:
    """Stores of earlier programs hold such answers: outcomes had a commit of their own."""
    living = revive()
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    before, load = runs(2, seed=5, world=SURE)
    ask_chance(living, load, 50.0)
    ask_start(living, load, before, load.events[0].wall_ns - 1)
    living.upkeep._plans.score = lambda _ended: []
    living.send([before, load])
    living.settle()
    assert {} == found_in(living)
    again = revive()
    assert {f"{kind}-{load.attempt.attempt_id}" for kind in ("chance", "start")} == found_in(again).keys()
    assert 1 == again.lineup.reliability_of("chance").n


def _again(run: Run, kind: EventKind, shift_s: float) -> Event:
    """A second report of one of a run's boundaries, `shift_s` later; an earlier one counts from then on."""
    first = next(e for e in run.events if e.kind is kind)
    shift_ns = round(shift_s * S)
    moved = {
        "event_id": f"late-{first.event_id}",
        "wall_ns": first.wall_ns + shift_ns,
        "monotonic_ns": first.monotonic_ns + shift_ns,
    }
    return first.model_copy(update=moved)


def test_late_news_corrects_the_outcome_and_the_count(taught: Living) -> None:
    run = runs(1, seed=5, world=SURE)[0]
    whole_s = run.setup_s + run.service_s
    row = ask_chance(taught, run, whole_s - 0.02)
    taught.send([run])
    taught.settle()
    missed = taught.lineup.reliability_of("chance")
    assert [False] == [outcome.met for outcome in found_in(taught).values()]
    taught.store.write(Batch((_again(run, EventKind.COMPUTE_FINISH, -0.05),)))
    taught.settle()
    [outcome] = found_in(taught).values()
    assert (True, whole_s - 0.05) == (outcome.met, pytest.approx(outcome.actual_s, abs=1e-6))
    met = taught.lineup.reliability_of("chance")
    assert (1, 1) == (missed.n, met.n)
    assert met.gap == pytest.approx(missed.gap + 1.0)
    with taught.store.reader() as reader:
        versions = reader.rows(
            "SELECT met, known_until IS NULL FROM plan_outcomes WHERE answer_id = ? ORDER BY 2", [row.answer_id]
        )
    assert [(False, False), (True, True)] == versions


def test_late_news_that_changes_nothing_of_an_answer_writes_nothing(taught: Living) -> None:
    before, load = runs(2, seed=5, world=SURE)
    ask_start(taught, load, before, load.events[0].wall_ns - 1)
    taught.send([before, load])
    taught.settle()
    [outcome] = found_in(taught).values()
    taught.store.write(Batch((_again(load, EventKind.COMPUTE_FINISH, -0.01),)))  # its readiness stays what it was
    taught.settle()
    assert [outcome] == [*found_in(taught).values()]
    taught.store.write(Batch((_again(before, EventKind.COMPUTE_FINISH, -0.01),)))  # the need comes earlier
    taught.settle()
    [later] = found_in(taught).values()
    assert outcome.actual_s + 0.01 == pytest.approx(later.actual_s, abs=1e-6)


def test_a_cancelled_attempt_leaves_its_chance_open_and_reliability_as_it_was(taught: Living) -> None:
    run = next(r for r in runs(400, seed=8) if r.events[-1].kind is EventKind.CANCELLED)
    ask_chance(taught, run, 1e4)
    taught.send([run])
    taught.settle()
    [outcome] = found_in(taught).values()
    assert (None, "cancelled") == (outcome.met, outcome.ended)
    assert 0 == taught.lineup.reliability_of("chance").n


def test_a_failure_before_the_deadline_is_a_miss(taught: Living) -> None:
    run = next(r for r in runs(400, seed=8) if r.events[-1].kind is EventKind.FAILED)
    ask_chance(taught, run, 1e4)
    taught.store.write(Batch((run.attempt, *run.events)))
    taught.settle()
    [outcome] = found_in(taught).values()
    assert (False, "failed") == (outcome.met, outcome.ended)
