"""scikit-learn's histogram gradient boosting of seven quantiles of log time, as they lie about the mean of rows like it.

Categories, and nodes of the context's path, are encoded by the mean of what was known of the same value before each row: no row
sees its own outcome, and a value never seen is no novelty to the trees. Means shrunk down the path are what trees correct, so
that few leaves suffice for times of any spread. Fitted in memory on at most designs.MOST_ROWS completed rows; levels that cross
are put in order. One thread: a machine that works has no use for threads that spin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from predictors.baselines.alone import Alone, Pair, alone
from predictors.baselines.designs import ROUND, WORDS, Rows, Scale, numbers_of, rows_of, words_of
from predictors.baselines.quantile_curves import Knots, from_levels, on_grid
from predictors.contexts import LEVELS as LEVELS_OF_PATH
from predictors.contexts import NUMBERS
from predictors.distribution import Array
from predictors.effects import Ints
from predictors.frames import Frame

LEVELS: Array = np.array([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99])
PSEUDO = 1.0
"""Rows that the phase's mean, which is 0, weighs in the code of a value, and a parent's in that of its child on the path."""
TREES = 100
LEARNING_RATE = 0.1
LEAVES = 31
LEAST_LEAF = 20
COARSE = 0.1
"""Step of codes in standardised log time: finer ones would tell trees the time, and so what the last few rows had by chance."""
FAMILIAR = 20
"""Rows of a value past which counts are alike, for the same reason."""
SEED = 20_261_129


@dataclass(frozen=True)
class Codes:
    """Sum of standardised log time and count of rows by value: for each name in WORDS, then for each level of the path."""

    sums: tuple[Mapping[str, tuple[float, int]], ...]

    def features(self, pairs: Sequence[Pair]) -> tuple[Array, Array]:
        """Features (n_pairs, n_features) and the mean (n_pairs,) of rows like each pair, as far as all rows say."""
        known = [[sums.get(value, (0.0, 0)) for sums, value in zip(self.sums, _values(pair), strict=True)] for pair in pairs]
        found = np.array(known, dtype=np.float64).reshape(len(pairs), len(self.sums), 2)
        return _features(found[..., 0], found[..., 1], pairs)


def _values(pair: Pair) -> list[str]:
    """Values that are encoded: words within their phase, then nodes of the path."""
    context, phase = pair
    return [*(f"{phase}/{word}" for word in words_of(pair)), *context.path(phase)]


def _features(total: Array, n: Array, pairs: Sequence[Pair]) -> tuple[Array, Array]:
    """Features and means of rows like each pair, from sums and counts (n_pairs, n_values)."""
    mean = np.zeros(len(pairs))
    for level in range(len(WORDS), total.shape[1]):
        mean = (total[:, level] + PSEUDO * mean) / (n[:, level] + PSEUDO)
    known = np.array([numbers_of(context) for context, _ in pairs]).reshape(len(pairs), len(NUMBERS))
    numbers = np.where(np.isnan(known), -1.0, known)
    codes = np.round(np.column_stack([total / (n + PSEUDO), mean]) / COARSE) * COARSE
    return np.column_stack([codes, np.log1p(np.minimum(n, FAMILIAR)), numbers]), mean


def encoded(rows: Rows) -> tuple[Codes, Array, Array]:
    """The codes after all rows, and features (n_rows, n_features) and mean (n_rows,) of each as they were before it."""
    values = np.array([_values(pair) for pair in rows.pairs], dtype=object).reshape(-1, len(WORDS) + len(LEVELS_OF_PATH))
    sums, before = [], []
    for column in values.T:
        names, code = np.unique(column.astype(np.str_), return_inverse=True)
        group = code[rows.pair]
        total, n = np.bincount(group, rows.z, len(names)), np.bincount(group, minlength=len(names))
        sums.append({str(name): (float(s), int(k)) for name, s, k in zip(names, total, n, strict=True)})
        before.append(_before(group, rows.z))
    earlier, seen = (np.column_stack(columns) for columns in zip(*before, strict=True))
    return Codes(tuple(sums)), *_features(earlier, seen, [rows.pairs[i] for i in rows.pair.tolist()])


def _before(group: Ints, z: Array) -> tuple[Array, Array]:
    """Sum of z and number of the rows of the same group that came before each row; exact, as z is in steps of 10^-ROUND."""
    order = np.argsort(group, kind="stable")
    summed = np.cumsum(np.rint(z[order] * 10.0**ROUND).astype(np.int64))
    total, place = np.append(0, summed)[: len(z)], np.arange(len(z))
    first = np.flatnonzero(np.append(True, group[order][1:] != group[order][:-1])) if len(z) else place
    start = np.repeat(first, np.diff(np.append(first, len(z))))
    sums, n = np.empty(len(z)), np.empty(len(z))
    sums[order], n[order] = (total - total[start]) / 10.0**ROUND, place - start
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
    """Regressors of standardised log time at LEVELS, about the mean of rows like it.

    `shift` (n_levels,) is added to each; `kept` are the levels answered by.
    """

    codes: Codes
    regressors: tuple[Any, ...]
    scales: Mapping[str, Scale]
    shift: Array
    kept: Ints

    def knots(self, pairs: Sequence[Pair]) -> list[Knots]:
        """Law of durations above zero of each pair."""
        z = self.z_quantiles(pairs) + self.shift
        made = []
        for row, (_, phase) in zip(z[:, self.kept], pairs, strict=True):
            scale = self.scales[phase]
            made.append(on_grid(scale.centre + scale.sd * from_levels(row, LEVELS[self.kept])))
        return made

    def z_quantiles(self, pairs: Sequence[Pair]) -> Array:
        """What the regressors say of pairs, put in order, shape (n_pairs, n_levels)."""
        features, mean = self.codes.features(pairs)
        with one_thread():
            found = np.column_stack([regressor.predict(features) for regressor in self.regressors])
        return np.sort(found, axis=1) + mean[:, None]


def fit(frame: Frame, commit: int) -> Alone:
    """The model as of `commit`."""
    rows = rows_of(frame).completed
    return alone(boosted(rows), frame, commit)


def boosted(rows: Rows) -> BoostedQuantiles:
    """Regressors fitted on completed rows."""
    codes, features, mean = encoded(rows)
    regressors = grown(features, np.round(rows.z - mean, ROUND)) if len(rows.z) else ()
    return BoostedQuantiles(codes, regressors, rows.scales, np.zeros(len(LEVELS)), np.arange(len(LEVELS)))
