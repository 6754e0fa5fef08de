"""A quantile forest: randomised trees on what was known when each row was asked, the rows of its leaves pooled.

Trees come from scikit-learn (extremely randomised, Geurts et al. 2006) and are kept as plain arrays. A leaf keeps KEPT evenly
spaced order statistics of its rows, so that every tree speaks with one weight; an answer sorts what its leaves hold
(Meinshausen 2006) and reads quantiles off it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import GRID, Array
from predictors.effects import Ints

TREES = 48
LEAST_LEAF = 8
DEEPEST = 14
KEPT = 8
MOST_ROWS = 20_000
"""Rows a forest is grown on, the newest: what it costs must not grow with history."""
LEAST_ROWS = 60
SEED = 20_261_129


@dataclass(frozen=True)
class Forest:
    """Trees as arrays: (n_nodes,) over all trees, `root` (n_trees,); `leaf` (n_nodes, KEPT) holds residuals, ascending.

    `feature` is -1 in leaves, whose children are themselves.
    """

    root: Ints
    feature: Ints
    threshold: Array
    left: Ints
    right: Ints
    leaf: Array

    def log_quantiles(self, features: Array) -> Array:
        """Quantiles at GRID of the residual in log time, shape (n, len(GRID)), of features (n, n_features)."""
        known = self.leaf[self._leaves(features)].reshape(len(features), -1)
        known.sort(axis=1)
        place = GRID * known.shape[1] - 0.5
        low = np.clip(np.floor(place).astype(np.int64), 0, known.shape[1] - 1)
        high = np.minimum(low + 1, known.shape[1] - 1)
        share = np.clip(place - low, 0.0, 1.0)
        return np.asarray(known[:, low] * (1.0 - share) + known[:, high] * share)

    def _leaves(self, features: Array) -> Ints:
        """The leaf each row falls into, shape (n, n_trees)."""
        if len(features) == 1:
            return self._leaves_of(features[0])[None, :]
        row = np.arange(len(features))[:, None]
        at = np.broadcast_to(self.root, (len(features), len(self.root)))
        for _ in range(DEEPEST):
            feature = self.feature[at]
            if not (feature >= 0).any():
                break
            goes_left = features[row, feature] <= self.threshold[at]
            at = np.where(goes_left, self.left[at], self.right[at])
        return at

    def _leaves_of(self, row: Array) -> Ints:
        """The leaves of a single row, shape (n_trees,): the same as among others, with less to pay for each level."""
        at = self.root
        for _ in range(DEEPEST):
            feature = self.feature.take(at)
            if feature.max() < 0:
                break
            at = np.where(row.take(feature) <= self.threshold.take(at), self.left.take(at), self.right.take(at))
        return at


def grow(features: Array, residual: Array) -> Forest | None:
    """A forest grown on rows asked earlier: features (n, n_features), residual (n,) in log time; None of too few rows.

    Deterministic: the same rows give the same trees.
    """
    if len(residual) < LEAST_ROWS:
        return None
    from sklearn.ensemble import ExtraTreesRegressor  # takes a second to import: only where a forest is grown

    x, y = features[-MOST_ROWS:], residual[-MOST_ROWS:]
    grown = ExtraTreesRegressor(
        TREES, min_samples_leaf=LEAST_LEAF, max_depth=DEEPEST, max_features=0.5, random_state=SEED, n_jobs=1
    ).fit(x, y)
    places = grown.apply(x)
    parts: list[tuple[NDArray[Any], ...]] = []
    start = 0
    for number, tree in enumerate(grown.estimators_):
        parts.append(_flat(tree.tree_, places[:, number], y, start))
        start += tree.tree_.node_count
    roots = np.cumsum([0, *(len(part[0]) for part in parts[:-1])])
    feature, threshold, left, right, leaf = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return Forest(roots.astype(np.int64), feature, threshold, left, right, leaf)


def _flat(tree: Any, place: Ints, y: Array, start: int) -> tuple[NDArray[Any], ...]:
    """One tree's nodes, numbered from `start`, and what its leaves hold."""
    count = tree.node_count
    own = np.arange(count, dtype=np.int64)
    inner = tree.children_left >= 0
    left = np.where(inner, tree.children_left, own) + start
    right = np.where(inner, tree.children_right, own) + start
    feature = np.where(inner, tree.feature, -1).astype(np.int64)
    threshold = np.where(inner, tree.threshold, 0.0)
    order = np.lexsort((y, place))
    nodes, first, n = np.unique(place[order], return_index=True, return_counts=True)
    picked = first[:, None] + ((np.arange(KEPT) + 0.5) / KEPT * n[:, None]).astype(np.int64)
    leaf = np.zeros((count, KEPT), dtype=np.float32)
    leaf[nodes] = y[order][picked]
    return feature, threshold, left, right, leaf
