"""Composite questions to answers: chances, latest starts and joint draws from the serving model; no HTTP, no store.

Every stage becomes one row of timings; equal contexts are answered once. What links them is the model's dependence: the
correlation of setup and service of one attempt, and the share of the host's state where attempts share a host.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from predictors.distribution import Array
from predictors.plans.chance import COMPLETION_LEVELS, ONE_SIDED, Chance, Verdict, chances
from predictors.plans.forecast_need import Foreseen, foreseen
from predictors.plans.graph import StageKind
from predictors.plans.latest_start import Safety, draw_need_and_load, latest_start, need_from_quantiles, need_from_samples
from service.engine import Serving
from service.plan_known import WAITS, Known, known
from service.plan_questions import (
    ChanceQuestion,
    CompositeQuestion,
    LatestStartQuestion,
    Occasion,
    PlannedStage,
    asked_again,
    kept,
)
from telemetry.ledger import PlanAnswer

P95 = int(np.flatnonzero(COMPLETION_LEVELS == 0.95)[0])


@dataclass(frozen=True, slots=True)
class PlanAnswered:
    """An answer as JSON, and its ledger row."""

    body: bytes
    row: PlanAnswer


def ask_chances(serving: Serving | None, questions: Sequence[ChanceQuestion], occasion: Occasion) -> list[PlanAnswered]:
    """P(completed by the deadline) of every plan, in order; an answer depends on no other plan of the request."""
    found = known(serving, [q.stages for q in questions])
    answers = chances(
        [found.plan(q.stages, rows, q.key) for q, rows in zip(questions, found.rows, strict=True)],
        found.timings,
        np.array([q.deadline_s for q in questions]),
        np.array([q.level for q in questions]),
        seed=occasion.seed,
        calibration_se=occasion.calibration_se,
        above_se=occasion.above_se,
        behind=[found.behind(rows) for rows in found.rows],
        cvar_level=occasion.cvar_level,
        bend=found.serving.model.dependence.bend,
        turn=occasion.turn,
    )
    return [_chance(found, q, answer, occasion, i) for i, (q, answer) in enumerate(zip(questions, answers, strict=True))]


def _chance(found: Known, q: ChanceQuestion, answer: Chance, occasion: Occasion, place: int) -> PlanAnswered:
    """One chance as JSON and ledger row."""
    status, reasons = found.status(found.rows[place])
    verdict: str = answer.verdict
    if answer.verdict is Verdict.HOLDS and (doubt := found.doubt(found.rows[place], status, q.level)):
        verdict, reasons = Verdict.CANNOT_CERTIFY, [*reasons, doubt]
    told = {
        "plan_id": q.plan_id,
        "attempt_id": q.attempt_id,
        "deadline_s": q.deadline_s,
        "level": q.level,
        "probability": answer.probability,
        "probability_said": answer.said,
        "mc_se": answer.mc_se,
        "calibration_se": answer.calibration_se,
        "evidence_se": answer.evidence_se,
        "lower": answer.lower,
        "verdict": verdict,
        "p_complete": answer.p_complete,
        "completion_levels": COMPLETION_LEVELS.tolist(),
        "completion_s": list(answer.quantiles_s),
        "expected_lateness_s": answer.expected_lateness_s,
        "cvar_s": answer.cvar_s,
        "sum_of_p95_s": answer.sum_of_p95_s,
        "n_scenarios": answer.n_scenarios,
        "status": status,
        "reasons": reasons,
    }
    columns = {
        "question": "chance",
        "level": q.level,
        "deadline_s": q.deadline_s,
        "probability": answer.probability,
        "mc_se": answer.mc_se,
        "lower": answer.lower,
        "p_complete": answer.p_complete,
        "expected_late_s": answer.expected_lateness_s,
        "completion_p95_s": answer.quantiles_s[P95],
        "sum_of_p95_s": answer.sum_of_p95_s,
        "needed_by": [],
    }
    return _answered(found, told, columns, q, occasion, place)


def ask_latest_starts(
    serving: Serving | None, questions: Sequence[LatestStartQuestion], occasion: Occasion
) -> list[PlanAnswered]:
    """The latest safe start of every load, in order."""
    found = known(serving, [(*q.predecessors, q.load) for q in questions])
    return [_latest(found, q, occasion, i) for i, q in enumerate(questions)]


def _latest(found: Known, q: LatestStartQuestion, occasion: Occasion, place: int) -> PlanAnswered:
    """One latest start as JSON and ledger row."""
    seen = foreseen(q.forecasts, occasion.seed, q.key) if q.forecasts else None
    rows = found.rows[place]
    need, load, p_complete = _drawn(found, q, rows, seen, occasion.seed)
    p_right = 1.0 if seen is None else seen.p_right
    answer = latest_start(need, load, q.delta, independent=_assumed_independent(q), p_complete=p_complete * p_right)
    status, reasons = found.status(rows)
    verdict: str = answer.safety
    if answer.safety is Safety.SAFE and (doubt := found.doubt(rows, status, 1.0 - q.delta)):
        verdict, reasons = Verdict.CANNOT_CERTIFY, [*reasons, doubt]
    told = {
        "question_id": q.question_id,
        "attempt_id": q.attempt_id,
        "delta": q.delta,
        "verdict": verdict,
        "latest_start_s": answer.start_s,
        "p_on_time": answer.p_on_time,
        "p_on_time_now": answer.p_on_time_now,
        "expected_late_s": answer.expected_late_s,
        "expected_idle_s": answer.expected_idle_s,
        "assumed_independent": answer.assumed_independent,
        "p_at_least": answer.p_at_least,
        "latest_start_any_s": answer.start_any_s,
        "p_complete": p_complete,
        "n_scenarios": answer.n_scenarios,
        "status": status,
        "reasons": reasons,
    }
    told |= {} if seen is None else {"p_needed": seen.p_needed, "p_forecast_right": seen.p_right}
    mc_se = math.sqrt(answer.p_on_time * (1.0 - answer.p_on_time) / answer.n_scenarios)
    columns = {
        "question": "latest_start",
        "level": 1.0 - q.delta,
        "start_s": answer.start_s,
        "probability": answer.p_on_time,
        "mc_se": mc_se,
        "lower": max(0.0, answer.p_on_time - ONE_SIDED * math.hypot(mc_se, occasion.calibration_se)),
        "p_complete": p_complete,
        "expected_late_s": answer.expected_late_s,
        "expected_idle_s": answer.expected_idle_s,
        "needed_by": list(q.needed_by),
    }
    return _answered(found, told, columns, q, occasion, place)


def _assumed_independent(q: LatestStartQuestion) -> bool:
    """Whether need and load were not drawn together though both are uncertain."""
    return not q.predecessors and not (q.forecasts and all(record.release_s is not None for record in q.forecasts))


def _drawn(
    found: Known, q: LatestStartQuestion, rows: Sequence[int], seen: Foreseen | None, seed: int
) -> tuple[Array, Array, float]:
    """Need and load in s, paired by scenario, and the load's probability of completing; the load's row is the last."""
    if seen is not None:
        return seen.need_s, *_load_alone(found, q, rows[-1], seed)
    if q.predecessors:
        plan = found.plan((*q.predecessors, q.load), rows, q.key)
        return draw_need_and_load(plan, q.load.name, found.timings, seed, bend=found.serving.model.dependence.bend)
    if not q.samples_s:
        return need_from_quantiles(q.levels, q.values_s, seed, q.key), *_load_alone(found, q, rows[-1], seed)
    return need_from_samples(q.samples_s, seed, q.key), *_load_alone(found, q, rows[-1], seed)


def _load_alone(found: Known, q: LatestStartQuestion, row: int, seed: int) -> tuple[Array, float]:
    """Load in s drawn beside nothing else, and its probability of completing."""
    before = PlannedStage(f"before {q.load.name}", StageKind.WAIT, planned_s=0.0)
    alone = found.plan((before, q.load), (WAITS, row), q.key)
    _, load, p_complete = draw_need_and_load(alone, q.load.name, found.timings, seed)
    return load, p_complete


def _answered(
    found: Known, told: dict[str, Any], columns: dict[str, Any], question: CompositeQuestion, occasion: Occasion, place: int
) -> PlanAnswered:
    """Answer and row, with what all have in common."""
    serving, answer_id = found.serving, occasion.answer_ids[place]
    made = {"model_id": serving.model_id, "as_of_commit": serving.model.commit, "made_ns": occasion.made_ns}
    body = orjson.dumps({"answer_id": answer_id, **told, **made})
    # Every value was made here, so validating the row again would only cost the caller time.
    row = PlanAnswer.made(
        {
            "answer_id": answer_id,
            "request_id": occasion.request_id,
            "attempt_id": told["attempt_id"],
            "asked": kept(question, occasion),
            "calibration_se": occasion.calibration_se,
            "verdict": str(told["verdict"]),
            "status": str(told["status"]),
            "reasons": told["reasons"],
            "answer_sha256": hashlib.sha256(body).hexdigest(),
            **made,
            **columns,
        }
    )
    return PlanAnswered(body, row)


def ask_again(serving: Serving, row: PlanAnswer) -> PlanAnswered:
    """The answer to a ledger row's question by the given model."""
    question, occasion = asked_again(row)
    if isinstance(question, ChanceQuestion):
        return ask_chances(serving, [question], occasion)[0]
    return ask_latest_starts(serving, [question], occasion)[0]
