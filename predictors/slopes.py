"""How log time moves with the numbers of a context: slopes, partially pooled over state, family and model.

Features are log(batch), log(1 + size_in), log(1 + corunners) and log(1 + corunners / MANY), in natural log units. Work over rate
has slope 1 there, a fixed overhead slope 0, so a normal prior of unit variance on the common slope needs no scaling by the data's
spread: a feature that barely varied stays near 0 instead of blowing up. Groups deviate by b_g ~ N(0, tau^2), tau^2 from the data.

Slope 1 in the third says that each co-runner adds as much as the work itself, in the fourth that MANY of them do. Both together
learn how the slow-down bends: by the third alone, a host that is busy as a rule would be too fast by far when it is idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictors.contexts import Context
from predictors.distribution import Array
from predictors.effects import Fields, Ints, Label, label, summed

LEVELS: tuple[Fields, ...] = ((), ("state",), ("family",), ("family", "model"))
MANY = 8.0
"""Co-runners that take as much together as the work itself, where the fourth feature has slope 1."""
MOST = 0.25
"""Largest tau^2: slopes lie between an overhead's 0 and a rate's 1, so groups differ by one half or so."""


@dataclass(frozen=True)
class Level:
    """Slopes of the groups of one key. The last row of each array is for groups never seen.

    `centre` and `slope` have shape (n_groups + 1, n_features), `covariance` (n_groups + 1, n_features, n_features);
    `variance` is tau^2 per feature. Levels from earlier files have no fourth feature.
    """

    key: Fields
    groups: dict[Label, int]
    centre: Array
    slope: Array
    covariance: Array
    variance: Array


@dataclass(frozen=True)
class Slopes:
    """Levels from the common slope down. An empty tuple answers 0."""

    levels: tuple[Level, ...]

    def codes(self, contexts: Sequence[Context]) -> Ints:
        """Group of each context at each level, shape (n_levels, n_contexts); -1 where never seen."""
        found = [[level.groups.get(label(c, level.key), -1) for c in contexts] for level in self.levels]
        return np.array(found, dtype=np.int64).reshape(len(self.levels), len(contexts))

    def effect(self, x: Array, codes: Ints) -> tuple[Array, Array]:
        """Sum of the slopes' effects and its variance, each of shape (n_contexts,); x has shape (n_features, n_contexts)."""
        total, variance = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for level, code in zip(self.levels, codes, strict=True):
            used = np.flatnonzero(level.variance)
            d = [np.where(np.isnan(x[j]), 0.0, x[j] - level.centre[code, j]) for j in used]
            for j, dj in zip(used, d, strict=True):
                total += level.slope[code, j] * dj
                for k, dk in zip(used, d, strict=True):
                    variance += level.covariance[code, j, k] * dj * dk
        return total, variance


def features(contexts: Sequence[Context]) -> Array:
    """Numbers of each context in log units, shape (n_features, n_contexts); NaN where unknown or no number of anything."""
    table = np.array(
        [[np.nan if v is None else v for v in (c.batch, c.size_in, c.corunners)] for c in contexts], dtype=np.float64
    )
    table = table.reshape(len(contexts), 3).T
    batch = np.where(table[0] > 0.0, table[0], np.nan)
    size_in, corunners = np.where(table[1:] >= 0.0, table[1:], np.nan)
    return np.stack([np.log(batch), np.log1p(size_in), np.log1p(corunners), np.log1p(corunners / MANY)])


def start(contexts: Sequence[Context], x: Array) -> tuple[Slopes, Ints]:
    """Flat slopes at every level that tells the contexts apart, with the contexts' groups."""
    levels: list[Level] = []
    codes: list[Ints] = []
    p = len(x)
    varied = np.array([np.ptp(row[~np.isnan(row)]) > 0.0 if (~np.isnan(row)).any() else False for row in x])
    for key in LEVELS if varied.any() else ():
        groups: dict[Label, int] = {}
        code = np.array([groups.setdefault(label(c, key), len(groups)) for c in contexts], dtype=np.int64)
        if any(np.array_equal(code, other) for other in codes):
            continue
        variance = np.where(varied, 1.0 if not key else 0.1, 0.0)
        zero = np.zeros((len(groups) + 1, p))
        levels.append(Level(key, groups, zero, zero, np.zeros((len(groups) + 1, p, p)), variance))
        codes.append(code)
    return Slopes(tuple(levels)), np.array(codes, dtype=np.int64).reshape(len(levels), len(contexts))


def sweep(slopes: Slopes, x: Array, codes: Ints, mean: Array, weight: Array) -> Slopes:
    """One pass over the levels, given context means of log time and their precisions `weight`."""
    levels = list(slopes.levels)
    for i, code in enumerate(codes):
        others = Slopes(tuple(level for j, level in enumerate(levels) if j != i))
        rest = mean - others.effect(x, np.delete(codes, i, axis=0))[0]
        levels[i] = _solve(levels[i], x, code, rest, weight)
    return Slopes(tuple(levels))


def _solve(level: Level, x: Array, code: Ints, rest: Array, weight: Array) -> Level:
    """Ridge within each group: b_g = C_g X'W r with C_g = (X'W X + diag(1 / tau^2))^-1, centred per group."""
    n, p = len(level.groups), len(x)
    centre, moment = np.zeros((n + 1, p)), np.zeros((n, p, p))
    known = ~np.isnan(x)
    total = np.maximum(summed(code, weight, n), np.finfo(np.float64).tiny)
    rest = rest - (summed(code, weight * rest, n) / total)[code]
    d = np.zeros_like(x)
    for j in range(p):
        w = np.where(known[j], weight, 0.0)
        mass = summed(code, w, n)
        centre[:n, j] = summed(code, w * np.where(known[j], x[j], 0.0), n) / np.where(mass > 0.0, mass, 1.0)
        centre[n, j] = (w * np.where(known[j], x[j], 0.0)).sum() / max(float(w.sum()), 1e-300)
        d[j] = np.where(known[j], x[j] - centre[code, j], 0.0)
    for j in range(p):
        for k in range(p):
            moment[:, j, k] = summed(code, weight * d[j] * d[k], n)
    pull = np.stack([summed(code, weight * d[j] * rest, n) for j in range(p)], axis=1)
    inverse = _inverse(moment, level.variance)
    slope, covariance = np.zeros((n + 1, p)), np.zeros((n + 1, p, p))
    covariance[:n] = inverse
    slope[:n] = np.einsum("gjk,gk->gj", inverse, pull)
    variance = _component(level, slope[:n], covariance[:n]) if level.key else level.variance
    covariance[n] = np.diag(variance)
    return replace(level, centre=centre, slope=slope, covariance=covariance, variance=variance)


def _inverse(moment: Array, variance: Array) -> Array:
    """(M + diag(1 / tau^2))^-1 per group as R (R M R + I)^-1 R with R = diag(tau): a number without variance has no slope.

    By eigenvalues: few rows of one shape, known very precisely, make M + diag(1 / tau^2) singular to the last digit.
    """
    tau = np.sqrt(variance)
    value, vector = np.linalg.eigh(tau[:, None] * moment * tau)
    inner = np.einsum("gjk,gk,glk->gjl", vector, 1.0 / (1.0 + np.maximum(value, 0.0)), vector)
    return np.asarray(tau[:, None] * inner * tau)


def _component(level: Level, slope: Array, covariance: Array) -> Array:
    """tau^2 per number from posterior means and variances, each group weighted by how much its data told of its slope."""
    own = np.einsum("gjj->gj", covariance)
    prior = np.where(level.variance > 0.0, level.variance, 1.0)
    told = np.maximum(1.0 - own / prior, 1e-9)
    found = (told * (slope**2 + own)).sum(axis=0) / told.sum(axis=0)
    return np.where(level.variance > 0.0, np.clip(found, 1e-6, MOST), 0.0)
