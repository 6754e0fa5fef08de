"""A forest kept as arrays says what scikit-learn's own trees say."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.ensemble import ExtraTreesRegressor

from predictors.distribution import GRID, Array
from predictors.experts import forest
from predictors.experts.forest import DEEPEST, KEPT, LEAST_LEAF, LEAST_ROWS, SEED, TREES, Forest


def rows(n: int, seed: int = 3) -> tuple[Array, Array]:
    """Features, as exact as single precision, and residuals that depend on two of them."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5)).astype(np.float32).astype(np.float64)
    return x, np.where(x[:, 0] > 0.0, 2.0, -1.0) + 0.5 * x[:, 1] + 0.1 * rng.normal(size=n)


def stump(left: Array, right: Array) -> Forest:
    """One tree that asks whether feature 0 is at most 0.5."""
    return Forest(
        root=np.array([0]),
        feature=np.array([0, -1, -1]),
        threshold=np.array([0.5, 0.0, 0.0]),
        left=np.array([1, 1, 2]),
        right=np.array([2, 1, 2]),
        leaf=np.stack([np.zeros(KEPT), left, right]),
    )


def at(quantiles: Array, p: float) -> float:
    return float(quantiles[np.argmin(np.abs(GRID - p))])


def test_a_tree_of_one_question_by_hand() -> None:
    low, high = stump(np.arange(8.0), np.arange(10.0, 18.0)).log_quantiles(np.array([[0.5], [0.6]]))
    # Eight values lie at levels 1/16, 3/16 ... 15/16; flat past the outer ones.
    assert_allclose([0.0, 3.5, 7.0], [at(low, 0.01), at(low, 0.5), at(low, 0.999)])
    assert_allclose([10.0, 11.5, 17.0], [at(high, 0.05), at(high, 0.25), at(high, 0.99)])


def test_two_trees_pool_what_their_leaves_hold() -> None:
    one, other = stump(np.zeros(8), np.zeros(8)), stump(np.ones(8), np.ones(8))
    both = Forest(
        np.array([0, 3]),
        np.append(one.feature, other.feature),
        np.append(one.threshold, other.threshold),
        np.append(one.left, other.left + 3),
        np.append(one.right, other.right + 3),
        np.concatenate([one.leaf, other.leaf]),
    )
    pooled = both.log_quantiles(np.array([[0.0]]))[0]
    assert_allclose([0.0, 0.5, 1.0], [at(pooled, 0.4), at(pooled, 0.5), at(pooled, 0.6)], atol=1e-9)


def test_rows_fall_into_the_leaves_of_the_library() -> None:
    x, y = rows(400)
    grown = forest.grow(x, y)
    assert grown is not None
    own = ExtraTreesRegressor(
        TREES, min_samples_leaf=LEAST_LEAF, max_depth=DEEPEST, max_features=0.5, random_state=SEED, n_jobs=1
    ).fit(x, y)
    fresh = rows(150, seed=4)[0]
    for asked in (x, fresh):
        assert_array_equal(own.apply(asked), grown._leaves(asked) - grown.root)


def test_leaves_hold_evenly_spaced_order_statistics_of_their_rows() -> None:
    x, y = rows(400)
    grown = forest.grow(x, y)
    assert grown is not None
    place = grown._leaves(x)
    for tree in (0, TREES - 1):
        for leaf in np.unique(place[:, tree]):
            held = np.sort(y[place[:, tree] == leaf])
            picked = held[((np.arange(KEPT) + 0.5) / KEPT * len(held)).astype(int)]
            assert_allclose(picked, grown.leaf[leaf], rtol=1e-6)


def test_answers_follow_what_residuals_depend_on() -> None:
    grown = forest.grow(*rows(1500))
    assert grown is not None
    asked = np.zeros((2, 5))
    asked[:, 0] = [1.0, -1.0]
    upper, lower = grown.log_quantiles(asked)
    assert_allclose([2.0, -1.0], [at(upper, 0.5), at(lower, 0.5)], atol=0.25)
    assert np.all(np.diff(upper) >= 0.0)


def test_the_same_rows_grow_the_same_trees() -> None:
    first, second = forest.grow(*rows(200)), forest.grow(*rows(200))
    assert first is not None
    assert second is not None
    for name in ("root", "feature", "threshold", "left", "right", "leaf"):
        assert_array_equal(getattr(first, name), getattr(second, name))


def test_too_few_rows_grow_nothing() -> None:
    x, y = rows(LEAST_ROWS)
    assert forest.grow(x[:-1], y[:-1]) is None
    assert forest.grow(x, y) is not None


def test_only_the_newest_rows_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "MOST_ROWS", 100)
    x, y = rows(300)
    whole, newest = forest.grow(x, y), forest.grow(x[-100:], y[-100:])
    assert whole is not None
    assert newest is not None
    assert_array_equal(newest.threshold, whole.threshold)
    assert_array_equal(newest.leaf, whole.leaf)
