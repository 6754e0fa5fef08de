"""Rank correlations by stratum: by hand, recovered, and shrunk where evidence is thin."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtri

from predictors.joint.ranks import PARENT_PAIRS, correlations, normal_scores
from telemetry.errors import BadField


def pairs(n: int, rho: float, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multivariate_normal([0, 0], [[1, rho], [rho, 1]], n).T


def test_normal_scores_by_hand_with_ties_sharing_a_rank() -> None:
    assert_allclose(ndtri([0.2, 0.5, 0.5, 0.8]), normal_scores([1.0, 2.0, 2.0, 9.0]))


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5])
def test_a_correlation_is_recovered_through_any_monotone_scale(rho: float) -> None:
    x, y = pairs(4000, rho, 1)
    found = correlations(np.exp(3 * x), y**3, [("setup",)] * 4000)
    assert found.at(["setup"]) == pytest.approx(rho, abs=0.04)


def test_shrinking_by_hand() -> None:
    x, y = pairs(33, 0.8, 2)
    z = np.arctanh(np.corrcoef(normal_scores(x), normal_scores(y))[0, 1])
    assert correlations(x, y, [("root",)] * 33).at(["root"]) == pytest.approx(np.tanh(30 * z / (30 + PARENT_PAIRS)))


def test_three_pairs_say_nothing_of_their_own_and_an_unseen_node_has_its_parents() -> None:
    x, y = pairs(503, 0.6, 3)
    found = correlations(x, y, [("root", "a")] * 500 + [("root", "b")] * 3)
    assert found.at(["root"]) == found.at(["root", "b"]) == found.at(["root", "never"])
    assert found.pairs["b"] == 3
    assert found.at(["other"]) == 0.0


def test_strata_keep_their_own_sign() -> None:
    (a, b), (c, d) = pairs(600, 0.6, 4), pairs(600, -0.6, 5)
    found = correlations(np.append(a, c), np.append(b, d), [("r", "up")] * 600 + [("r", "down")] * 600)
    assert found.at(["r", "up"]) == pytest.approx(0.6, abs=0.08)
    assert found.at(["r", "down"]) == pytest.approx(-0.6, abs=0.08)


def test_a_phase_that_never_varies_has_its_parents_correlation() -> None:
    assert correlations(np.ones(20), np.arange(20.0), [("r",)] * 20).at(["r"]) == 0.0


def test_censored_pairs_must_be_left_out_by_the_caller() -> None:
    with pytest.raises(BadField, match="censored"):
        correlations([np.nan], [1.0], [("r",)])
