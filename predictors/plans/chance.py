"""The chance that a plan completes by its deadline, and how sure that number is.

Per scenario the last stages are integrated, P(C <= d | s) = product over them of F_last(d - start_s | s); the others are drawn on
a keyed lattice, the first one stratified. The mean over scenarios times the probability of completing at all is the answer: a
failure or cancellation by d is not a completion. Scenarios are added until the Monte Carlo half-width 1.64 mc_se is at most a
tenth of 1 - level, or of the distance to the level where that is more. A plan's answer depends on nothing else in the batch, to
the last bit.

Where earlier chances came out otherwise than said, the answer is turned accordingly (`turn`), never above the chance of
completing. That is true on the whole, not of each plan: whatever is certified must hold of the chance as it was said as well.

A law learned from n outcomes is known no better than a share of them: the chance of a plan of independent stages, each learned
from n of its own, has a variance of at most p (1 - p) / n (Hoeffding's, of a U-statistic). Its root stands beside other errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri, stdtrit

from predictors.distribution import Array
from predictors.joint.bend import Bend
from predictors.joint.linked import draw_scores, remaining, within
from predictors.joint.quantile_table import Timings
from predictors.joint.streams import REPLICATES, lattice
from predictors.plans.batches import Batch, batch_of, last_of
from predictors.plans.graph import Plan, Shape, by_shape
from predictors.plans.turn import AS_SAID, Turn
from telemetry.errors import BadField

ONE_SIDED = 1.64
"""Normal score of a one-sided 95 % bound."""
T_BOUND = float(stdtrit(REPLICATES - 1, 0.95))
"""The same bound where the standard error is estimated from the replicates."""
SCENARIOS = (256, 1024, 4096, 16384)
CELLS_AT_ONCE = 32768
"""Plans times scenarios of a chunk: its arrays stay in a core's cache, and calls cost little beside what they do."""
COMPLETION_LEVELS: Array = np.array([0.5, 0.9, 0.95, 0.99])
MET = 1.0 + 1e-12
"""A deadline missed by rounding alone is met."""


class Verdict(StrEnum):
    """Whether P(C <= d) reaches the level asked for, as far as it is known."""

    HOLDS = "holds"
    DOES_NOT_HOLD = "does_not_hold"
    CANNOT_CERTIFY = "cannot_certify"


class Chance(NamedTuple):
    """Answer for one plan.

    `probability` is P(completed by the deadline), `said` the same before it was turned by how earlier ones came out; `lower`
    takes 1.64 standard errors from the less of both, of Monte Carlo, calibration and evidence together. Times are in s from now,
    given completion: quantiles at COMPLETION_LEVELS, E[(C - d)+], and the mean of the worst 1 - cvar_level where asked for.
    `sum_of_p95_s` is what adding up each stage's own p95 would say, for comparison.
    """

    probability: float
    said: float
    mc_se: float
    calibration_se: float
    evidence_se: float
    lower: float
    verdict: Verdict
    p_complete: float
    quantiles_s: tuple[float, ...]
    expected_lateness_s: float
    cvar_s: float | None
    sum_of_p95_s: float
    n_scenarios: int


@dataclass(frozen=True)
class _Question:
    """Arrays over all plans of a request, each (n_plans,), and cvar_level for all.

    `calibration_se` tells how far chances may have been said too high, `above_se` too low.
    """

    deadline_s: Array
    level: Array
    calibration_se: Array
    above_se: Array
    behind: Array
    cvar_level: float | None
    turn: Turn


def chances(
    plans: Sequence[Plan],
    timings: Timings,
    deadline_s: ArrayLike,
    level: ArrayLike,
    *,
    seed: int,
    calibration_se: ArrayLike = 0.0,
    above_se: ArrayLike | None = None,
    behind: ArrayLike = np.inf,
    cvar_level: float | None = None,
    most_scenarios: int = SCENARIOS[-1],
    bend: Bend | None = None,
    turn: Turn = AS_SAID,
) -> list[Chance]:
    """One answer per plan, in order.

    deadline_s (s from now), level, calibration_se, above_se (its like if None) and behind, the outcomes (count) that a plan's
    laws were learned from, are scalars or (n_plans,); most_scenarios, 256 or more, caps the effort; bend is how setup and service
    of an attempt hang together beyond their correlation; turn is what chances are turned by.
    """
    above = calibration_se if above_se is None else above_se
    question = _question(len(plans), deadline_s, level, calibration_se, above, behind, cvar_level, turn)
    answers: dict[int, Chance] = {}
    for shape, places in by_shape(plans):
        left = places
        for n_scenarios in (n for n in SCENARIOS if n <= max(most_scenarios, SCENARIOS[0])):
            size = CELLS_AT_ONCE // n_scenarios
            for at in range(0, len(left), size):
                batch = batch_of(shape, plans, np.array(left[at : at + size]), timings, seed, bend)
                answers.update(zip(batch.places.tolist(), _answer(batch, question, n_scenarios), strict=True))
            left = [place for place in left if _wide(answers[place], float(question.level[place]))]
    return [answers[place] for place in range(len(plans))]


def _wide(answer: Chance, level: float) -> bool:
    """Whether more scenarios are wanted: the nearer the chance to the level, the more finely it must be known."""
    return ONE_SIDED * answer.mc_se > max(1.0 - level, abs(answer.probability - level)) / 10.0


def _question(
    n: int,
    deadline_s: ArrayLike,
    level: ArrayLike,
    calibration_se: ArrayLike,
    above_se: ArrayLike,
    behind: ArrayLike,
    cvar_level: float | None,
    turn: Turn,
) -> _Question:
    """Broadcast and check what was asked."""
    deadline, levels, error, above, known = (
        np.array(np.broadcast_to(np.asarray(x, dtype=np.float64), (n,)))
        for x in (deadline_s, level, calibration_se, above_se, behind)
    )
    if not np.all(np.isfinite(deadline)):
        raise BadField("deadline_s", deadline_s, "give finite times in s from now")
    if not np.all((levels > 0.0) & (levels < 1.0)):
        raise BadField("level", level, "give levels between 0 and 1")
    if not all(np.all(np.isfinite(se) & (se >= 0.0)) for se in (error, above)):
        raise BadField("calibration_se", calibration_se, "give standard errors of 0 or more")
    if not np.all(known >= 0.0):
        raise BadField("behind", behind, "give counts of 0 or more")
    if cvar_level is not None and not 0.0 < cvar_level < 1.0:
        raise BadField("cvar_level", cvar_level, "give a level between 0 and 1")
    return _Question(deadline, levels, error, above, known, cvar_level, turn)


def _answer(batch: Batch, question: _Question, n_scenarios: int) -> list[Chance]:
    """Answers of a batch from n_scenarios scenarios."""
    shape = batch.shape
    own = lattice(batch.own_keys, batch.dimension, len(shape.drawn), n_scenarios)
    scores = draw_scores(batch.timings, batch.links, own, batch.own_keys, batch.host_keys)
    start, end = batch.walk(remaining(batch.timings, scores.eps))
    by = (question.deadline_s[batch.places] * MET)[:, None]
    met: Array = np.ones((batch.n, n_scenarios))
    for i in shape.sinks:
        if i in shape.integrated:
            rows = batch.rows(i)
            left_s = np.broadcast_to(by - start[i], met.shape)
            met *= within(batch.timings, batch.links, scores, rows, left_s)
        else:
            met *= end[i] <= by
    total_s = np.broadcast_to(last_of([end[i] for i in shape.sinks]), met.shape)
    return _summary(batch, question, met, total_s)


def _mc_se(shape: Shape, met: Array) -> Array:
    """Standard error of the mean chance from the spread of its replicates, scaled so that 1.64 of it is their t bound.

    No number of scenarios sees what is rarer than one in n, and where each is plain success or failure the exact bound at n of n
    is 1 - 3/n: so at least that much uncertainty stands.
    """
    n_plans, n = met.shape
    if not shape.sampled and not any(shape.crowded):
        return np.zeros(n_plans)
    means = met.reshape(n_plans, REPLICATES, -1).mean(axis=2)
    se = means.std(axis=1, ddof=1) / math.sqrt(REPLICATES) * (T_BOUND / ONE_SIDED)
    plain = ((met <= 0.0) | (met >= 1.0)).all(axis=1)
    return np.asarray(np.maximum(se, np.where(plain, 3.0, 1.0) / (n * ONE_SIDED)))


def _evidence_se(probability: Array, behind: Array) -> Array:
    """Standard error of chances whose laws were learned from so many outcomes; infinitely many leave none."""
    return np.asarray(np.sqrt(np.maximum(probability * (1.0 - probability), 0.0) / np.maximum(behind, 1.0)))


def _summary(batch: Batch, question: _Question, met: Array, total_s: Array) -> list[Chance]:
    """Reduce scenarios to answers, plan by plan."""
    complete, turn = batch.p_complete, question.turn
    said = complete * met.mean(axis=1)
    probability, mc_se = np.minimum(turn.of(said), complete), turn.spread(said, complete * _mc_se(batch.shape, met))
    calibration_se, level = question.calibration_se[batch.places], question.level[batch.places]
    evidence_se = _evidence_se(probability, question.behind[batch.places])
    other_se = np.hypot(mc_se, evidence_se)
    lower = np.clip(np.minimum(said, probability) - ONE_SIDED * np.hypot(other_se, calibration_se), 0.0, 1.0)
    certain = [Verdict.HOLDS if held else Verdict.CANNOT_CERTIFY for held in (lower >= level).tolist()]
    higher = np.maximum(said, probability) + ONE_SIDED * np.hypot(other_se, question.above_se[batch.places])
    refuted = (higher < level).tolist()
    ordered = np.sort(total_s, axis=1)
    columns = (
        probability.tolist(),
        said.tolist(),
        mc_se.tolist(),
        calibration_se.tolist(),
        evidence_se.tolist(),
        lower.tolist(),
        [Verdict.DOES_NOT_HOLD if no else verdict for no, verdict in zip(refuted, certain, strict=True)],
        complete.tolist(),
        map(tuple, _at_levels(ordered).tolist()),
        np.maximum(total_s - question.deadline_s[batch.places][:, None], 0.0).mean(axis=1).tolist(),
        _worst(ordered, question.cvar_level),
        _sum_of_p95(batch).tolist(),
        [total_s.shape[1]] * batch.n,
    )
    return list(map(Chance._make, zip(*columns, strict=True)))


def _at_levels(ordered: Array) -> Array:
    """Order statistics at COMPLETION_LEVELS, shape (n_plans, 4)."""
    n_scenarios = ordered.shape[1]
    return ordered[:, [math.ceil(p * n_scenarios) - 1 for p in COMPLETION_LEVELS]]


def _worst(ordered: Array, level: float | None) -> list[float] | list[None]:
    """Mean of the worst 1 - level of the scenarios, or None where not asked for."""
    if level is None:
        return [None] * len(ordered)
    worst = math.ceil((1.0 - level) * ordered.shape[1])
    return [float(mean_s) for mean_s in ordered[:, -worst:].mean(axis=1)]


def _sum_of_p95(batch: Batch) -> Array:
    """Critical path in s with each stage at its own p95, shape (n_plans,)."""
    timings = batch.timings
    _, end = batch.walk(timings.table.at(timings.row, np.full((timings.n, 1), ndtri(0.95))))
    return np.asarray(last_of([end[i] for i in batch.shape.sinks])[:, 0])
