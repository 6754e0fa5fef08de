"""scikit-learn's histogram gradient boosting of seven quantiles of log time.

Categories are encoded by the mean of what was known of the same value before each row, so that no row sees its own outcome and
a value never seen is no novelty to the trees. Fitted in memory on at most designs.MOST_ROWS completed rows; levels that cross are
put in order. One thread: a machine that works has no use for threads that spin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from predictors.baselines.alone import Alone, Pair, alone
from predictors.baselines.designs import WORDS, Rows, Scale, numbers_of, rows_of, words_of
from predictors.baselines.quantile_curves import Knots, from_levels, on_grid
from predictors.distribution import Array
from predictors.effects import Ints
from predictors.frames import Frame

LEVELS: Array = np.array([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
PSEUDO = 5.0
"""Rows that the phase's mean, which is 0, weighs in the code of a value."""
TREES = 100
LEARNING_RATE = 0.1
LEAVES = 31
LEAST_LEAF = 20
SEED = 20_261_129


@dataclass(frozen=True)
class Codes:
    """Sum of standardised log time and count of rows by value, for each name in WORDS, then the exact configuration."""

    sums: tuple[Mapping[str, tuple[float, int]], ...]

    def features(self, pairs: Sequence[Pair]) -> Array:
        """Codes, logs of counts and numbers of pairs, shape (n_pairs, n_features), as far as all rows say."""
        known = [[sums.get(value, (0.0, 0)) for sums, value in zip(self.sums, _values(pair), strict=True)] for pair in pairs]
        found = np.array(known, dtype=np.float64).reshape(len(pairs), -1, 2)
        return np.concatenate([_code(found[..., 0], found[..., 1]), np.log1p(found[..., 1]), _numbers(pairs)], axis=1)


def _values(pair: Pair) -> list[str]:
    """Values that are encoded: each within its phase, then the exact configuration."""
    phase = pair[1]
    return [*(f"{phase}/{word}" for word in words_of(pair)), pair[0].path(phase)[-1]]


def _code(total: Array, n: Array) -> Array:
    """The mean shrunk to that of the phase."""
    return np.asarray(total / (n + PSEUDO))


def _numbers(pairs: Sequence[Pair]) -> Array:
    """Logs of numbers, which are 0 or more, and -1 where one is unknown."""
    known = np.array([numbers_of(context) for context, _ in pairs]).reshape(len(pairs), -1)
    return np.where(np.isnan(known), -1.0, known)


def encoded(rows: Rows) -> tuple[Codes, Array]:
    """The codes after all rows, and features (n_rows, n_features) of each as they were before it."""
    values = np.array([_values(pair) for pair in rows.pairs], dtype=object).reshape(-1, len(WORDS) + 1)
    sums, before = [], []
    for column in values.T:
        names, code = np.unique(column.astype(np.str_), return_inverse=True)
        group = code[rows.pair]
        total, n = np.bincount(group, rows.z, len(names)), np.bincount(group, minlength=len(names))
        sums.append({str(name): (float(s), int(k)) for name, s, k in zip(names, total, n, strict=True)})
        before.append(_before(group, rows.z))
    earlier = [_code(total, n) for total, n in before]
    seen = [np.log1p(n) for _, n in before]
    return Codes(tuple(sums)), np.column_stack([*earlier, *seen, _numbers(rows.pairs)[rows.pair]])


def _before(group: Ints, z: Array) -> tuple[Array, Array]:
    """Sum of z and number of the rows of the same group that came before each row."""
    order = np.argsort(group, kind="stable")
    total, place = np.cumsum(z[order]) - z[order], np.arange(len(z))
    first = np.flatnonzero(np.append(True, group[order][1:] != group[order][:-1])) if len(z) else place
    start = np.repeat(first, np.diff(np.append(first, len(z))))
    sums, n = np.empty(len(z)), np.empty(len(z))
    sums[order], n[order] = total - total[start], place - start
    return sums, n


@cache
def _threads() -> Any:
    """The thread pools of libraries that were loaded by the first fit."""
    from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

    return ThreadpoolController()


def one_thread() -> AbstractContextManager[Any]:
    """While it lasts, trees are grown and asked by one thread."""
    limited: AbstractContextManager[Any] = _threads().limit(limits=1, user_api="openmp")
    return limited


def grown(features: Array, z: Array) -> tuple[Any, ...]:
    """One boosted regressor per level in LEVELS, of features (n_rows, n_features) and z (n_rows,)."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    with one_thread():
        return tuple(
            HistGradientBoostingRegressor(
                loss="quantile",
                quantile=level,
                max_iter=TREES,
                learning_rate=LEARNING_RATE,
                max_leaf_nodes=LEAVES,
                min_samples_leaf=LEAST_LEAF,
                early_stopping=False,
                random_state=SEED,
            ).fit(features, z)
            for level in LEVELS.tolist()
        )


@dataclass(frozen=True)
class BoostedQuantiles:
    """Regressors of standardised log time at LEVELS. `shift` (n_levels,) is added to each; `kept` are the levels answered by."""

    codes: Codes
    regressors: tuple[Any, ...]
    scales: Mapping[str, Scale]
    shift: Array
    kept: Ints

    def knots(self, pairs: Sequence[Pair]) -> list[Knots]:
        """Law of durations above zero of each pair."""
        z = self.z_quantiles(self.codes.features(pairs)) + self.shift
        made = []
        for row, (_, phase) in zip(z[:, self.kept], pairs, strict=True):
            scale = self.scales[phase]
            made.append(on_grid(scale.centre + scale.sd * from_levels(row, LEVELS[self.kept])))
        return made

    def z_quantiles(self, features: Array) -> Array:
        """What the regressors say of features (n, n_features), shape (n, n_levels)."""
        with one_thread():
            return np.column_stack([regressor.predict(features) for regressor in self.regressors])


def fit(frame: Frame, commit: int) -> Alone:
    """The model as of `commit`."""
    rows = rows_of(frame).completed
    return alone(boosted(rows), frame, commit)


def boosted(rows: Rows) -> BoostedQuantiles:
    """Regressors fitted on completed rows."""
    codes, features = encoded(rows)
    regressors = grown(features, rows.z) if len(rows.z) else ()
    return BoostedQuantiles(codes, regressors, rows.scales, np.zeros(len(LEVELS)), np.arange(len(LEVELS)))
