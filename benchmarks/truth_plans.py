"""What is answered of plans whose true chance is known: whether `holds` holds, and whether lower bounds lie below the truth.

Plans are asked while their world is replayed through the engine, each of the model of that moment; how earlier ones turned out
is known by then where they are over, and counts as it does while serving.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import orjson

from benchmarks.truth_plan_worlds import FAILING_HOST, GRAPHS, Planned, PlanWorld, key, plan_world
from calibrate.evidence.reliability import Reliability
from predictors.plans.chance import Verdict
from service.backtest import Replay
from service.engine import Serving
from service.learners import DEFAULT, learner
from service.plan_questions import ChanceQuestion, Occasion
from service.planning import ask_chances

LEVEL, SURE = 0.95, 0.97
"""Level asked for; the true chance from which a refusal is counted."""
SITUATIONS = {
    "plans": PlanWorld(history=600, plans=2_000),
    "fails fast": PlanWorld(history=600, plans=500, graphs=GRAPHS[:1], failing=True),
}
FAMILIES = ("heavy", "bimodal")
REACH = {
    "in time": (LEVEL, 1.0),
    "lower below": (0.95, 1.0),
    "refused": (0.0, 1.0),
    "holds": (0.0, 1.0),
    "gap": (-1.0, 1.0),
    "held there": (0.0, 0.0),
    "chance there": (0.9, 1.1),
    "median there": (0.9, 1.25),
}
"""Range that a figure is to lie in; of what is only told, all of it. Medians may be longer, as in the other situations."""


@dataclass(frozen=True)
class Told:
    """What was answered of a plan."""

    plan: Planned
    probability: float
    said: float
    lower: float
    holds: bool
    median_s: float


def judged(situation: str, family: str, seed: int) -> dict[str, float]:
    """Figures of one world by name."""
    found = list(answers(family, SITUATIONS[situation], seed))
    return failing(found) if SITUATIONS[situation].failing else planned(found)


def answers(family: str, asked: PlanWorld, seed: int) -> Iterator[Told]:
    """Every plan as it was answered, in the order of being asked."""
    rows, plans = plan_world(family, asked, seed)
    place = {rows.key(row): row for row in range(len(rows))}
    waiting = {(place[key(plan.first, "setup")], plan.age_s): plan for plan in plans}
    replay = Replay(rows, learner(DEFAULT), {row: [age_s] for row, age_s in waiting if age_s is not None})
    reliability, open_plans = Reliability(), list[Told]()
    for answer in replay.answers():
        plan = waiting.get((answer.row, answer.elapsed_s))
        if plan is None:
            continue
        over = [told for told in open_plans if told.plan.over_s <= plan.asked_s]
        for told in sorted(over, key=lambda told: told.plan.over_s):
            reliability = reliability.after(told.probability, met=told.plan.met, said=told.said)
            open_plans.remove(told)
        assert replay.learner.model is not None, "plans are asked after a history"
        told = _told(plan, Serving(replay.learner.model, "truth"), reliability)
        open_plans.append(told)
        yield told


def _told(plan: Planned, serving: Serving, reliability: Reliability) -> Told:
    question = ChanceQuestion(plan.stages, plan.deadline_s, LEVEL, key(plan.first, "plan"))
    turn = reliability.turnout.turn
    occasion = Occasion("truth", ("answer",), 0, 0, reliability.calibration_se, above_se=reliability.above_se, turn=turn)
    body = orjson.loads(ask_chances(serving, [question], occasion)[0].body)
    held = body["verdict"] == Verdict.HOLDS
    return Told(plan, body["probability"], body["probability_said"], body["lower"], held, body["completion_s"][0])


def planned(found: list[Told]) -> dict[str, float]:
    """Of plans answered `holds` the share in time, of all the share with a true bound, of the sure ones the share refused.

    `holds` is the share of all that were answered so, `gap` the mean of answered less true chances.
    """
    held = [told.plan.met for told in found if told.holds]
    sure = [told.holds for told in found if told.plan.chance >= SURE]
    figures = {
        "lower below": float(np.mean([told.lower <= told.plan.chance for told in found])),
        "holds": len(held) / len(found),
        "gap": float(np.mean([told.probability - told.plan.chance for told in found])),
    }
    figures |= {"in time": float(np.mean(held))} if held else {}
    return figures | ({"refused": 1.0 - float(np.mean(sure))} if sure else {})


def failing(found: list[Told]) -> dict[str, float]:
    """Of plans on the host that fails fast: the share that `holds`, their chance and median completion over the true ones."""
    there = [told for told in found if told.plan.first.context.host == FAILING_HOST]
    return {
        "held there": float(np.mean([told.holds for told in there])),
        "chance there": float(np.mean([t.probability for t in there]) / np.mean([t.plan.chance for t in there])),
        "median there": float(np.median([told.median_s / told.plan.median_s for told in there])),
    }


def reach(figure: str) -> tuple[float, float]:
    """The range a figure is to lie in."""
    return REACH[figure]
