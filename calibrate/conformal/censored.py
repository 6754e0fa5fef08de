"""What censored outcomes say of a bound or of a recalibration curve; never that nothing happened.

Of an attempt lost or still running at c it is known that T > c. Whether it missed a bound q is *resolved* iff C >= min(T, q): a
running attempt past its bound is a miss at once. Resolved rows may stand for the others, weighed by 1 / G(min(T, q)-); or an
unresolved row counts by what the node's current curve expects of it, P(T > q | T > c) = S(q) / S(c).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictors.distribution import Array
from predictors.scores import TIE, censoring_weights
from telemetry.errors import BadField


@dataclass(frozen=True, slots=True)
class Resolved:
    """Misses of one bound, rows of shape (n,): `miss` in {0, 1}, and its `weight`, 0 where the row is not resolved."""

    miss: Array
    weight: Array

    @property
    def rate(self) -> float | None:
        """Weighted share of misses, None where no row is resolved."""
        total = float(self.weight.sum())
        return float(self.weight @ self.miss) / total if total > 0.0 else None


def _known(known_s: ArrayLike, lost: ArrayLike, bound_s: ArrayLike) -> tuple[Array, NDArray[np.bool_], Array]:
    """Arrays of one shape (n,), lengths and bounds in s checked."""
    known = np.asarray(known_s, dtype=np.float64)
    gone = np.broadcast_to(np.asarray(lost, dtype=bool), known.shape)
    bound = np.broadcast_to(np.asarray(bound_s, dtype=np.float64), known.shape)
    if not np.all(np.isfinite(known) & np.isfinite(bound) & (known >= 0.0) & (bound >= 0.0)):
        raise BadField("known_s, bound_s", "a negative or non-finite length", "give lengths and bounds in seconds of 0 or more")
    return known, gone, bound


def _missed(known: Array, gone: NDArray[np.bool_], bound: Array) -> NDArray[np.bool_]:
    """Known misses. A bound met to rounding is held by what ended there, and missed by what is known to exceed it."""
    return np.where(gone, known * TIE >= bound, known > bound * TIE)


def resolved(known_s: ArrayLike, lost: ArrayLike, bound_s: ArrayLike, path: Sequence[Sequence[Hashable]]) -> Resolved:
    """Rows resolved for a bound, weighed for those that are not.

    known_s (n,): the length in s where a row ended, else what it is known to exceed; lost (n,): which were not seen to end;
    bound_s () or (n,). `path` holds one label per row and level, coarsest first: G is Kaplan-Meier's within the finest stratum
    with 100 rows. Weights are capped at scores.LARGEST_WEIGHT = 20: where fewer than 1 in 20 stay that long, misses are too few.
    """
    known, gone, bound = _known(known_s, lost, bound_s)
    miss = _missed(known, gone, bound)
    weight = censoring_weights(known, gone, path, at_s=np.minimum(known, bound))
    return Resolved(miss.astype(np.float64), np.where(miss | ~gone, weight, 0.0))


def imputed_misses(known_s: ArrayLike, lost: ArrayLike, bound_s: ArrayLike, sf_bound: ArrayLike, sf_known: ArrayLike) -> Array:
    """Miss in [0, 1] of every row (n,): 1 or 0 where resolved, else S(q) / S(c) by the node's current curve.

    sf_bound, sf_known (n,): the curve's S(q) and S(c). A curve that had given an attempt up (S(c) = 0) counts it as a miss.
    """
    known, gone, bound = _known(known_s, lost, bound_s)
    at_bound, at_known = np.asarray(sf_bound, dtype=np.float64), np.asarray(sf_known, dtype=np.float64)
    left = np.where(at_known > 0.0, np.minimum(at_bound / np.where(at_known > 0.0, at_known, 1.0), 1.0), 1.0)
    miss = _missed(known, gone, bound)
    return np.where(gone & ~miss, left, miss.astype(np.float64))


def spread_above(u: ArrayLike, curve: ArrayLike) -> Array:
    """Mass 1 of each lost attempt over the bins of a recalibration curve, (n, n_bins): above F(c) as the curve lies there.

    u (n,): F(c) in [0, 1]; curve (n_bins,): the node's masses on equal bins of [0, 1], any total. The bin that F(c) falls in
    takes part by its share above F(c). Where the curve has nothing, mass lies evenly on what is left; at F(c) = 1, in the last.
    """
    at, mass = np.asarray(u, dtype=np.float64), np.asarray(curve, dtype=np.float64)
    if not (np.all((at >= 0.0) & (at <= 1.0)) and len(mass) > 0 and np.all(np.isfinite(mass) & (mass >= 0.0))):
        raise BadField("u, curve", "values out of range", "give u within [0, 1] and finite masses of 0 or more")
    above = np.clip(np.arange(1, len(mass) + 1) - at[:, None] * len(mass), 0.0, 1.0)
    above[at >= 1.0, -1] = 1.0
    found = above * mass
    found = np.where(found.sum(axis=1, keepdims=True) > 0.0, found, above)
    return np.asarray(found / found.sum(axis=1, keepdims=True))
