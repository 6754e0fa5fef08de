"""The latest start of a load that is still safe: P(b + S <= T_need) at least 1 - delta, and so for every earlier b.

With D = T_need - S the latest safe start is b* = inf{x : P(D <= x) > delta}, which is right where D has atoms. From n draws in
order it is d_(floor(delta n) + 1); with the allowance for drawing, d_(k + 1), k the largest count whose one-sided 95 % upper
bound (Clopper-Pearson) of k in n is at most delta. Where need and load were not drawn together the answer says so and adds what
holds under every dependence: the Frechet bound P(S <= T_need - b) >= sup_x P(S <= x) + P(T_need >= b + x) - 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincinv, ndtri

from predictors.distribution import Array
from predictors.joint.bend import Bend
from predictors.joint.linked import draw_scores, remaining
from predictors.joint.quantile_table import Timings
from predictors.joint.streams import Keys, key_of, stream, uniforms
from predictors.plans.batches import batch_of, last_of
from predictors.plans.graph import Plan, shape_of
from telemetry.errors import BadField

CONFIDENCE = 0.95
SCENARIOS = 4096


class Safety(StrEnum):
    """What can be said of the start: a safe one lies ahead, has passed, doesn't exist, or can't be shown with so few draws."""

    SAFE = "safe"
    TOO_LATE = "too_late"
    NEVER = "never"
    TOO_FEW_SCENARIOS = "too_few_scenarios"


@dataclass(frozen=True, slots=True)
class LatestStart:
    """When a load must start at the latest, in s from now.

    `start_s` is b*, negative where it has passed, None where there is none. The rest is about starting at max(b*, 0), or now
    where there is none: `p_on_time` that the load completes by the need, expected late availability E[(b + S - T_need)+] and
    early idle residency E[(T_need - b - S)+]. `p_on_time_now` is about starting now. Where `assumed_independent`, `p_at_least`
    holds under every dependence of need and load, and `start_any_s` is the latest start that is safe under every one.
    """

    safety: Safety
    start_s: float | None
    p_on_time: float
    p_on_time_now: float
    expected_late_s: float
    expected_idle_s: float
    assumed_independent: bool
    p_at_least: float | None
    start_any_s: float | None
    n_scenarios: int


def latest_start(
    need_s: ArrayLike,
    load_s: ArrayLike,
    delta: float,
    *,
    independent: bool,
    p_complete: float = 1.0,
    confidence: float | None = CONFIDENCE,
) -> LatestStart:
    """From draws of need and load, (n_scenarios,) each, paired by scenario; in s from now and from the start.

    A load that fails is not available: p_complete below 1 uses up part of delta. confidence None takes the draws as the law.
    """
    need, load = _checked(need_s, load_s, delta, p_complete)
    slack = np.sort(need - load)
    spare = 1.0 - (1.0 - delta) / p_complete
    misses = misses_allowed(len(slack), spare, confidence)
    start_s = float(slack[misses]) if misses >= 0 else None
    begin_s = max(start_s or 0.0, 0.0)
    return LatestStart(
        safety=_safety(start_s, spare),
        start_s=start_s,
        p_on_time=p_complete * float(np.mean(slack >= begin_s)),
        p_on_time_now=p_complete * float(np.mean(slack >= 0.0)),
        expected_late_s=float(np.maximum(begin_s - slack, 0.0).mean()),
        expected_idle_s=float(np.maximum(slack - begin_s, 0.0).mean()),
        assumed_independent=independent,
        p_at_least=p_complete * _frechet(need, load, begin_s) if independent else None,
        start_any_s=_start_any(need, load, misses) if independent and misses >= 0 else None,
        n_scenarios=len(slack),
    )


def _checked(need_s: ArrayLike, load_s: ArrayLike, delta: float, p_complete: float) -> tuple[Array, Array]:
    """Needs and loads as arrays of one length; refuses impossible risks and probabilities."""
    if not 0.0 < delta < 1.0:
        raise BadField("delta", delta, "give a risk between 0 and 1")
    if not 0.0 < p_complete <= 1.0:
        raise BadField("p_complete", p_complete, "give a probability above 0")
    need, load = _draws("need_s", need_s), _draws("load_s", load_s)
    if len(need) != len(load):
        raise BadField("need_s", len(need), f"give one need for each of {len(load)} loads")
    return need, load


def _safety(start_s: float | None, spare: float) -> Safety:
    """What a start means, `spare` being the risk left once the load's own failures are paid for."""
    if start_s is None:
        return Safety.TOO_FEW_SCENARIOS if spare > 0.0 else Safety.NEVER
    return Safety.SAFE if start_s >= 0.0 else Safety.TOO_LATE


def misses_allowed(n: int, delta: float, confidence: float | None) -> int:
    """Largest count k of n draws that may lie below the start, -1 where none may.

    Its Clopper-Pearson bound is at most delta; without a confidence the draws are the law itself and k = floor(delta n), where
    a product that is an integer but for rounding counts as that integer.
    """
    if delta < 0.0:
        return -1
    most = min(math.floor(delta * n + 1e-9), n - 1)
    if confidence is None:
        return most
    counts = np.arange(most + 1)
    return int(np.sum(betaincinv(counts + 1.0, n - counts, confidence) <= delta)) - 1


def _draws(field: str, values: ArrayLike) -> Array:
    """Finite draws in s, at least one."""
    draws = np.asarray(values, dtype=np.float64)
    if draws.ndim != 1 or len(draws) == 0 or not np.all(np.isfinite(draws)):
        raise BadField(field, values, "give finite times in s, one per scenario")
    return draws


def _frechet(need: Array, load: Array, begin_s: float) -> float:
    """Least P(begin + load <= need) under any dependence: the best split over x, attained at a load drawn."""
    x, n = np.sort(load), len(load)
    ready = np.searchsorted(x, x, side="right") / n
    open_still = 1.0 - np.searchsorted(np.sort(need), begin_s + x, side="left") / len(need)
    return max(0.0, float(np.max(ready + open_still)) - 1.0)


def _start_any(need: Array, load: Array, misses: int) -> float:
    """Latest start safe under any dependence: the misses split between needs that come early and loads that take long."""
    early, long_s = np.sort(need)[: misses + 1], np.sort(load)[::-1][: misses + 1]
    return float(np.max(early - long_s[::-1]))


def need_from_quantiles(levels: ArrayLike, values_s: ArrayLike, seed: int, request: str, n_scenarios: int = SCENARIOS) -> Array:
    """Keyed draws of a need known by quantiles, shape (n_scenarios,).

    Linear in normal scores, the outer slopes going on beyond, but not below 0 s. A single quantile is a need known exactly.
    """
    p, values = checked_quantiles(levels, values_s)
    return quantiles_at(p, values, uniforms(_need_stream(seed, request), n_scenarios)[0])


def checked_quantiles(levels: ArrayLike, values_s: ArrayLike) -> tuple[Array, Array]:
    """Quantiles of a need as arrays; BadField where they cross or are no numbers."""
    p, values = np.asarray(levels, dtype=np.float64), np.asarray(values_s, dtype=np.float64)
    if p.ndim != 1 or len(p) == 0 or p.shape != values.shape or np.any((p <= 0.0) | (p >= 1.0)) or np.any(np.diff(p) <= 0.0):
        raise BadField("levels", levels, "give increasing levels between 0 and 1, one per value")
    if not np.all(np.isfinite(values)) or np.any(np.diff(values) < 0.0):
        raise BadField("values_s", values_s, "give finite quantiles in s that do not decrease")
    return p, values


def quantiles_at(levels: Array, values_s: Array, u: Array) -> Array:
    """Need in s at uniforms u, from checked quantiles."""
    if len(levels) == 1:
        return np.full(u.shape, values_s[0])
    z, at = ndtri(u), ndtri(levels)
    left = np.clip(np.searchsorted(at, z) - 1, 0, len(levels) - 2)
    slope = np.diff(values_s) / np.diff(at)
    return np.asarray(np.maximum(values_s[left] + slope[left] * (z - at[left]), min(0.0, values_s[0])))


def need_from_samples(samples_s: ArrayLike, seed: int, request: str, n_scenarios: int = SCENARIOS) -> Array:
    """Keyed draws, with replacement, of a need known by samples that were not drawn with our loads; shape (n_scenarios,)."""
    return samples_at(_draws("samples_s", samples_s), uniforms(_need_stream(seed, request), n_scenarios)[0])


def samples_at(samples_s: Array, u: Array) -> Array:
    """One of the samples at each of uniforms u."""
    place = (u * len(samples_s)).astype(np.intp)
    return np.asarray(samples_s[np.minimum(place, len(samples_s) - 1)])


def _need_stream(seed: int, request: str) -> Keys:
    """The stream a request's need is drawn from."""
    return stream(seed, "need", np.array([key_of(request)]))


def draw_need_and_load(
    plan: Plan, load: str, timings: Timings, seed: int, n_scenarios: int = SCENARIOS, bend: Bend | None = None
) -> tuple[Array, Array, float]:
    """Need and load in s, (n_scenarios,) each, drawn together, and the load's p_complete.

    The stage named `load` is the load; it is needed when all other stages have ended. Running predecessors enter by what was
    observed of them (Timings); those on the load's host share its state.
    """
    names = [stage.name for stage in plan.stages]
    if load not in names or len(names) < 2:
        raise BadField("load", load, "name one stage of the plan, beside at least one predecessor")
    position = names.index(load)
    shape = shape_of(plan)
    if position not in shape.drawn or shape.after[position] or any(position in before for before in shape.after):
        raise BadField(
            f"{load}.after", plan.stages[position].after, "give the load a distribution, and nothing before or after it"
        )
    batch = batch_of(shape, [plan], np.zeros(1, dtype=np.intp), timings, seed, bend)
    own = uniforms(batch.own_keys, n_scenarios)
    scores = draw_scores(batch.timings, batch.links, own, batch.own_keys, batch.host_keys)
    times = remaining(batch.timings, scores.eps)
    _, end = batch.walk(times)
    need = last_of([end[i] for i in shape.sinks if i != position])[0]
    row = int(batch.rows(position)[0])
    return np.array(np.broadcast_to(need, (n_scenarios,))), times[row], float(batch.timings.p_complete[row])
