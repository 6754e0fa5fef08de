"""Shrinkage and its strength, by hand and by simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import beta

from predictors.shrink import DEFAULT_STRENGTH, _log_likelihood, normal_hazards, shrunk, strength


def test_a_child_lies_between_its_counts_and_its_parent() -> None:
    # 3 events of 4 at risk, parent 1/5, worth 6: (3 + 1.2) / 10.
    np.testing.assert_allclose(shrunk(np.array([3.0]), np.array([4.0]), np.array([0.2]), 6.0), [0.42])


def test_without_pseudo_counts_only_its_own_counts_speak_or_else_the_parent() -> None:
    np.testing.assert_allclose(shrunk(np.array([1.0, 0.0]), np.array([4.0, 0.0]), np.array([0.9, 0.9]), 0.0), [0.25, 0.9])


def test_beta_binomial_likelihood_by_hand() -> None:
    # kappa h = 1, kappa (1 - h) = 3: B(1 + 2, 3 + 1) / B(1, 3) = (2! 3! / 6!) / (0! 2! / 3!) = 1 / 20.
    assert math.isclose(_log_likelihood(np.array([2.0]), np.array([3.0]), np.array([0.25]), 4.0), math.log(1 / 20))
    assert math.isclose(beta(3, 4) / beta(1, 3), 1 / 20)


@pytest.mark.parametrize("true", [4.0, 32.0])
def test_strength_is_recovered_from_children(true: float) -> None:
    rng = np.random.default_rng(2)
    h = 0.2
    p = rng.beta(true * h, true * (1 - h), size=(400, 8))
    at_risk = np.full((400, 9), 50.0)
    events = np.concatenate([rng.binomial(50, p), np.zeros((400, 1))], axis=1).astype(float)
    found = strength(events, at_risk, np.zeros(400, dtype=np.int64), np.full(9, h))
    assert true / 2 <= found <= true * 2


def test_equal_children_are_shrunk_hard_and_an_only_child_tells_nothing() -> None:
    rng = np.random.default_rng(3)
    events = np.append(rng.binomial(50, 0.2, size=(300, 8)), np.zeros((300, 1)), axis=1).astype(float)
    assert strength(events, np.full((300, 9), 50.0), np.zeros(300, dtype=np.int64), np.full(9, 0.2)) >= 256
    assert DEFAULT_STRENGTH == strength(events[:1], np.full((1, 9), 50.0), np.zeros(1, dtype=np.int64), np.full(9, 0.2))


def test_normal_hazards_multiply_to_the_normal_law() -> None:
    hazards = normal_hazards(np.array([-1.0, 0.0, 1.0]), 2.0)
    np.testing.assert_allclose(np.cumprod(1.0 - hazards[:-1]), [1.0, 0.841345, 0.5, 0.158655], atol=1e-6)
    assert (0.0, 2.0) == (hazards[0], hazards[-1])


def test_a_parent_is_judged_without_the_child() -> None:
    # Pairs of children: a parent that holds the child itself would lie halfway to it and look twice as near.
    rng = np.random.default_rng(4)
    p = rng.beta(16.0 * 0.2, 16.0 * 0.8, size=(500, 8))
    events = np.append(rng.binomial(50, p), np.zeros((500, 1)), axis=1).astype(float)
    assert strength(events, np.full((500, 9), 50.0), np.repeat(np.arange(250), 2), np.full(9, 0.2)) <= 16.0
