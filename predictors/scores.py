"""How good an answer was, once the truth is known: proper scores, exceedance, and intervals that say how sure we are.

Durations in seconds, scores in log time in nats, lower is better. Censored rows have no score of their own: completed rows are
weighted by the inverse probability of not having been censored by then.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaincinv, stdtrit

from predictors.distribution import GRID, Array
from telemetry.errors import BadField

LEVELS: Array = GRID[:99]
"""Levels the CRPS is computed from: 0.01 ... 0.99."""
FLOOR_S = 1e-6
"""The shortest duration a log score tells from zero, where the clock's own step is not coarser."""
LARGEST_WEIGHT = 20.0
"""Cap on the weight 1/G of a row that was likely to be censored."""
TIE = 1.0 + 1e-9
"""A bound met to this relative precision is not exceeded."""


def pinball(actual: ArrayLike, quantile: ArrayLike, level: ArrayLike) -> Array:
    """Loss of a quantile q at level p for the truth y: max(p (y - q), (p - 1)(y - q)); arguments broadcast."""
    above = np.asarray(actual, dtype=np.float64) - np.asarray(quantile, dtype=np.float64)
    p = np.asarray(level, dtype=np.float64)
    return np.maximum(p * above, (p - 1.0) * above)


def crps_log(actual_s: ArrayLike, quantiles_s: ArrayLike, floor_s: float = FLOOR_S) -> Array:
    """Continuous ranked probability score of log time, one per row: twice the mean pinball loss over LEVELS.

    actual_s: (n,), quantiles_s: (n, 99) at LEVELS, both raised to floor_s first.
    """
    actual = np.log(np.maximum(np.asarray(actual_s, dtype=np.float64), floor_s))
    quantiles = np.log(np.maximum(np.asarray(quantiles_s, dtype=np.float64), floor_s))
    return np.asarray(2.0 * pinball(actual[:, None], quantiles, LEVELS).mean(axis=1))


@dataclass(frozen=True)
class Interval:
    """An estimate with its interval, and the number of independent units (rows or blocks) behind it."""

    estimate: float
    low: float
    high: float
    n: int


def binomial_interval(k: int, n: int, confidence: float = 0.95) -> Interval:
    """Exact (Clopper-Pearson) interval of a share k of n: beta quantiles; [0, 1] when n is 0."""
    if not 0 <= k <= n:
        raise BadField("k", k, f"give a count between 0 and n = {n}")
    tail = (1.0 - confidence) / 2.0
    low = float(betaincinv(k, n - k + 1, tail)) if k > 0 else 0.0
    high = float(betaincinv(k + 1, n - k, 1.0 - tail)) if k < n else 1.0
    return Interval(k / n if n else 0.0, low, high, n)


def exceedance(actual_s: ArrayLike, bound_s: ArrayLike, confidence: float = 0.95) -> Interval:
    """Share of durations above their bound, with its exact interval; 0.1 is right for a p90 of continuous times."""
    actual, bound = np.broadcast_arrays(np.asarray(actual_s, dtype=np.float64), np.asarray(bound_s, dtype=np.float64))
    return binomial_interval(int(np.sum(actual > bound * TIE)), actual.size, confidence)


def ratio_by_blocks(score: ArrayLike, reference: ArrayLike, block: Sequence[Hashable], confidence: float = 0.9) -> Interval:
    """Ratio of two mean scores on the same rows, with a t interval that lets rows of one block move together.

    Linearised: with d_b the block's sum of score - ratio * reference, var = B/(B-1) sum d_b^2 / (sum reference)^2, on B - 1
    degrees of freedom. Below two blocks nothing is known of the spread: refused.
    """
    mine, other = np.asarray(score, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    _, place = np.unique(_codes(block), return_inverse=True)
    n_blocks = int(place.max(initial=-1)) + 1
    if n_blocks < 2:
        raise BadField("block", n_blocks, "give rows of two blocks or more")
    if other.sum() <= 0.0:
        raise BadField("reference", float(other.sum()), "a ratio needs a reference with a positive mean score")
    ratio = float(mine.sum() / other.sum())
    off = np.bincount(place, mine - ratio * other)
    spread = float(np.sqrt(n_blocks / (n_blocks - 1) * (off @ off)) / other.sum())
    half = float(stdtrit(n_blocks - 1, (1.0 + confidence) / 2.0)) * spread
    return Interval(ratio, ratio - half, ratio + half, n_blocks)


def uncensored_before(duration_s: ArrayLike, lost: ArrayLike, at_s: ArrayLike) -> Array:
    """G(t-): Kaplan-Meier probability of not having been censored strictly before t, shape of `at_s`.

    `lost` marks durations at which a row was censored; at ties an ending precedes a censoring.
    """
    times, gone = np.asarray(duration_s, dtype=np.float64), np.asarray(lost, dtype=bool)
    values, place = np.unique(times, return_inverse=True)
    n_lost = np.bincount(place, gone, len(values))
    n_ended = np.bincount(place, ~gone, len(values))
    at_risk = len(times) - np.append(0.0, np.cumsum(n_lost + n_ended)[:-1]) - n_ended
    kept = np.where(n_lost > 0, 1.0 - n_lost / np.maximum(at_risk, 1.0), 1.0)
    return np.append(1.0, np.cumprod(kept))[np.searchsorted(values, np.asarray(at_s, dtype=np.float64))]


def _codes(labels: Sequence[Hashable]) -> NDArray[np.intp]:
    """Labels as integers, in order of first appearance."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(label, len(seen)) for label in labels], dtype=np.intp)


def censoring_weights(
    duration_s: ArrayLike,
    lost: ArrayLike,
    path: Sequence[Sequence[Hashable]],
    *,
    at_s: ArrayLike | None = None,
    least: int = 100,
) -> Array:
    """Weight 1 / G(t-) per row, at most LARGEST_WEIGHT, shape (n,); t is the row's duration, or `at_s` where given.

    `path` holds one label per row for each level, coarsest first; G is that of the finest stratum with `least` rows. Pooling
    strata of different speed would be biased: long rows of fast strata are lost more often than a pooled G says.
    For a miss of bound q, resolved once min(T, q) is reached, weigh at that time: at_s = min(T, q).
    """
    times, gone = np.asarray(duration_s, dtype=np.float64), np.asarray(lost, dtype=bool)
    at = times if at_s is None else np.asarray(at_s, dtype=np.float64)
    weights = np.ones(len(times))
    for depth in range(1, len(path) + 1):
        stratum = _codes(list(zip(*path[:depth], strict=True)))
        for rows in np.split(np.argsort(stratum, kind="stable"), np.cumsum(np.bincount(stratum))[:-1]):
            if depth == 1 or len(rows) >= least:
                left = uncensored_before(times[rows], gone[rows], at[rows])
                weights[rows] = 1.0 / np.maximum(left, 1.0 / LARGEST_WEIGHT)
    return weights


def weighted_mean(score: ArrayLike, weight: ArrayLike) -> float:
    """Mean score of completed rows under their censoring weights, which are normalised to one."""
    w = np.asarray(weight, dtype=np.float64)
    return float(w @ np.asarray(score, dtype=np.float64) / w.sum())


def resolved_misses(duration_s: ArrayLike, lost: ArrayLike, bound_s: ArrayLike) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """(miss, resolved) per row: whether the duration passed its bound, and whether that is known.

    A censored row that outlived the bound is a miss for certain; one that did not is unresolved, whatever became of it later.
    """
    times, bound = np.asarray(duration_s, dtype=np.float64), np.asarray(bound_s, dtype=np.float64)
    miss = times > bound * TIE
    return miss, miss | ~np.asarray(lost, dtype=bool)
