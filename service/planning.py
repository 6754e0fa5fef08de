"""Composite questions to answers: chances, latest starts and joint draws from the serving model; no HTTP, no store.

Every stage becomes one row of timings; equal contexts are answered once. What links them is the model's dependence: the
correlation of setup and service of one attempt, and the share of the host's state where attempts share a host.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from predictors.contexts import Context
from predictors.distribution import Array, Support
from predictors.joint.quantile_table import Timings, timings_of
from predictors.plans.chance import COMPLETION_LEVELS, ONE_SIDED, Chance, Verdict, chances
from predictors.plans.forecast_need import Foreseen, foreseen
from predictors.plans.graph import Plan, Stage, StageKind
from predictors.plans.latest_start import Safety, draw_need_and_load, latest_start, need_from_quantiles, need_from_samples
from service.engine import Serving, judge
from service.plan_questions import (
    ChanceQuestion,
    CompositeQuestion,
    LatestStartQuestion,
    Occasion,
    PlannedStage,
    asked_again,
    kept,
)
from telemetry.errors import BadField, NoEvidence
from telemetry.ledger import PlanAnswer
from telemetry.words import Status

P95 = int(np.flatnonzero(COMPLETION_LEVELS == 0.95)[0])
PRECEDENCE = (Status.SHADOW, Status.EXTRAPOLATED, Status.THIN, Status.CALIBRATED)


@dataclass(frozen=True, slots=True)
class PlanAnswered:
    """An answer as JSON, and its ledger row."""

    body: bytes
    row: PlanAnswer


@dataclass(frozen=True)
class Known:
    """Stages of a request as timings: the row of each, its links, and what its evidence is worth."""

    serving: Serving
    timings: Timings
    supports: tuple[Support, ...]
    place: dict[PlannedStage, int]

    def rows(self, stages: Sequence[PlannedStage]) -> NDArray[np.intp]:
        """Row of each stage's timing."""
        return np.array([self.place[_plain(stage)] for stage in stages], dtype=np.intp)

    def plan(self, stages: Sequence[PlannedStage], key: str) -> Plan:
        """The stages as a plan whose draws are keyed by `key`."""
        return Plan(tuple(self._stage(stage) for stage in stages), key)

    def _stage(self, stage: PlannedStage) -> Stage:
        if stage.context is None:
            return Stage(stage.name, stage.kind, stage.after, stage.planned_s)
        dependence = self.serving.model.dependence
        return Stage(
            stage.name,
            stage.kind,
            stage.after,
            timing=self.place[_plain(stage)],
            host=stage.context.host or "",
            attempt=stage.attempt,
            share=dependence.share.get(stage.phase, 0.0),
            rho=dependence.correlation(stage.context) if stage.kind is StageKind.SERVICE else 0.0,
        )

    def status(self, stages: Sequence[PlannedStage]) -> tuple[Status, list[str]]:
        """The lowest status among the stages, with all reasons."""
        seen = [stage for stage in stages if stage.context is not None]
        found = [judge(self.supports[self.place[_plain(stage)]], stage.elapsed_s) for stage in seen]
        lowest = min((status for status, _ in found), key=PRECEDENCE.index)
        return lowest, sorted({reason for _, reasons in found for reason in reasons})

    def behind(self, stages: Sequence[PlannedStage]) -> float:
        """Fewest outcomes (effective count) behind a stage that is open; of those behind one that runs, as many as got so far."""
        rows = [self.place[_plain(stage)] for stage in stages if stage.context is not None and stage.took_s is None]
        return min((self.supports[row].n_eff * float(1.0 - self.timings.passed[row]) for row in rows), default=np.inf)

    def doubt(self, stages: Sequence[PlannedStage], status: Status, level: float) -> str | None:
        """Why nothing may be certified at `level` however sure it looks: never seen, or more than so few outcomes can claim.

        n outcomes of a phase, in whatever context, can speak for levels up to n / (n + 1).
        """
        open_phases = [stage.phase for stage in stages if stage.context is not None and stage.took_s is None]
        n = min((self.serving.model.outcomes(phase) for phase in open_phases), default=0)
        claimed = n / (n + 1.0) if open_phases else 1.0
        if status is Status.SHADOW:
            return "shadow_cannot_certify"
        return "too_few_outcomes" if level > claimed + 1e-12 else None

    def answered(
        self, told: dict[str, Any], columns: dict[str, Any], question: CompositeQuestion, occasion: Occasion, place: int
    ) -> PlanAnswered:
        """Answer and row, with what both have in common."""
        made: dict[str, Any] = {
            "model_id": self.serving.model_id,
            "as_of_commit": self.serving.model.commit,
            "made_ns": occasion.made_ns,
        }
        body = orjson.dumps({"answer_id": occasion.answer_ids[place]} | told | made)
        row = PlanAnswer.model_construct(
            answer_id=occasion.answer_ids[place],
            request_id=occasion.request_id,
            attempt_id=told["attempt_id"],
            asked=kept(question, occasion),
            calibration_se=occasion.calibration_se,
            verdict=str(told["verdict"]),
            status=str(told["status"]),
            reasons=told["reasons"],
            answer_sha256=hashlib.sha256(body).hexdigest(),
            **made,
            **columns,
        )
        return PlanAnswered(body, row)


def known(serving: Serving | None, stages: Sequence[PlannedStage]) -> Known:
    """Timings of the stages that have a context, equal ones once; NoEvidence names the phases nothing is known of."""
    asked = list(dict.fromkeys(_plain(stage) for stage in stages if stage.context is not None))
    if not asked:
        raise BadField("stages", "only waits", "give at least one stage with a context")
    missing = sorted({s.phase for s in asked if serving is None or not serving.model.knows(s.phase)})
    if serving is None or missing:
        fix = "no finished attempt of these phases is known; POST their events to /v1/events first"
        raise NoEvidence("phase", ", ".join(missing), fix)
    contexts, phases = [s.context or Context() for s in asked], [s.phase for s in asked]
    elapsed, took = _optional([s.elapsed_s for s in asked]), _optional([s.took_s for s in asked])
    law = serving.model.predict(contexts, phases)
    complete = serving.model.p_complete(contexts, phases, np.nan_to_num(elapsed))
    timings = timings_of(law, elapsed_s=elapsed, took_s=took, p_complete=np.where(np.isnan(took), complete, 1.0))
    return Known(serving, timings, law.support, {stage: i for i, stage in enumerate(asked)})


def _plain(stage: PlannedStage) -> PlannedStage:
    """What decides a stage's timing: not its name, its place in the plan, or whose it is."""
    return replace(stage, name="", kind=StageKind.SERVICE, after=(), attempt="")


def _optional(values: Sequence[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values])


def ask_chances(serving: Serving | None, questions: Sequence[ChanceQuestion], occasion: Occasion) -> list[PlanAnswered]:
    """P(completed by the deadline) of every plan, in order; an answer depends on no other plan of the request."""
    found = known(serving, [stage for q in questions for stage in q.stages])
    answers = chances(
        [found.plan(q.stages, q.key) for q in questions],
        found.timings,
        np.array([q.deadline_s for q in questions]),
        np.array([q.level for q in questions]),
        seed=occasion.seed,
        calibration_se=occasion.calibration_se,
        above_se=occasion.above_se,
        behind=[found.behind(q.stages) for q in questions],
        cvar_level=occasion.cvar_level,
        bend=found.serving.model.dependence.bend,
    )
    return [_chance(found, q, answer, occasion, i) for i, (q, answer) in enumerate(zip(questions, answers, strict=True))]


def _chance(found: Known, q: ChanceQuestion, answer: Chance, occasion: Occasion, place: int) -> PlanAnswered:
    """One chance as JSON and ledger row."""
    status, reasons = found.status(q.stages)
    verdict: str = answer.verdict
    if answer.verdict is Verdict.HOLDS and (doubt := found.doubt(q.stages, status, q.level)):
        verdict, reasons = Verdict.CANNOT_CERTIFY, [*reasons, doubt]
    told = {
        "plan_id": q.plan_id,
        "attempt_id": q.attempt_id,
        "deadline_s": q.deadline_s,
        "level": q.level,
        "probability": answer.probability,
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
    return found.answered(told, columns, q, occasion, place)


def ask_latest_starts(
    serving: Serving | None, questions: Sequence[LatestStartQuestion], occasion: Occasion
) -> list[PlanAnswered]:
    """The latest safe start of every load, in order."""
    found = known(serving, [stage for q in questions for stage in (q.load, *q.predecessors)])
    return [_latest(found, q, occasion, i) for i, q in enumerate(questions)]


def _latest(found: Known, q: LatestStartQuestion, occasion: Occasion, place: int) -> PlanAnswered:
    """One latest start as JSON and ledger row."""
    seen = foreseen(q.forecasts, occasion.seed, q.key) if q.forecasts else None
    need, load, p_complete = _drawn(found, q, seen, occasion.seed)
    p_right = 1.0 if seen is None else seen.p_right
    answer = latest_start(need, load, q.delta, independent=_assumed_independent(q), p_complete=p_complete * p_right)
    status, reasons = found.status((q.load, *q.predecessors))
    verdict: str = answer.safety
    if answer.safety is Safety.SAFE and (doubt := found.doubt((q.load, *q.predecessors), status, 1.0 - q.delta)):
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
    return found.answered(told, columns, q, occasion, place)


def _assumed_independent(q: LatestStartQuestion) -> bool:
    """Whether need and load were not drawn together though both are uncertain."""
    return not q.predecessors and not (q.forecasts and all(record.release_s is not None for record in q.forecasts))


def _drawn(found: Known, q: LatestStartQuestion, seen: Foreseen | None, seed: int) -> tuple[Array, Array, float]:
    """Need and load in s, paired by scenario, and the load's probability of completing."""
    if seen is not None:
        return seen.need_s, *_load_alone(found, q, seed)
    if q.predecessors:
        plan = found.plan((*q.predecessors, q.load), q.key)
        return draw_need_and_load(plan, q.load.name, found.timings, seed, bend=found.serving.model.dependence.bend)
    if not q.samples_s:
        return need_from_quantiles(q.levels, q.values_s, seed, q.key), *_load_alone(found, q, seed)
    return need_from_samples(q.samples_s, seed, q.key), *_load_alone(found, q, seed)


def _load_alone(found: Known, q: LatestStartQuestion, seed: int) -> tuple[Array, float]:
    """Load in s drawn beside nothing else, and its probability of completing."""
    alone = found.plan((PlannedStage(f"before {q.load.name}", StageKind.WAIT, planned_s=0.0), q.load), q.key)
    _, load, p_complete = draw_need_and_load(alone, q.load.name, found.timings, seed)
    return load, p_complete


def ask_again(serving: Serving, row: PlanAnswer) -> PlanAnswered:
    """The answer to a ledger row's question by the given model."""
    question, occasion = asked_again(row)
    if isinstance(question, ChanceQuestion):
        return ask_chances(serving, [question], occasion)[0]
    return ask_latest_starts(serving, [question], occasion)[0]
