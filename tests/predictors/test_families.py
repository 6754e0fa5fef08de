"""The laws with a known formula: their values by hand, and what every law owes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from predictors.distribution import GRID, Distribution
from predictors.families import Exponential, LogNormal, Mixture, Steps, Weibull
from telemetry.errors import BadField

LAWS: list[Distribution] = [
    Exponential([1.0, 20.0]),
    Weibull([2.0, 3.0], [0.7, 4.0]),
    LogNormal([0.05, 300.0], [0.2, 1.5]),
    Mixture([LogNormal([0.1, 0.1], 0.1), LogNormal([1.0, 4.0], 0.3)], [[0.9, 0.1], [0.2, 0.8]]),
]


def test_exponential_by_hand() -> None:
    assert_allclose([[0.5]], Exponential(1.0).sf(np.log(2.0)))
    assert_allclose([[np.log(2.0) * 3.0]], Exponential(3.0).quantile(0.5))
    assert_allclose([0.999 * 2.0], Exponential(2.0).mean(), rtol=2e-3)  # E[min(T, q999)] = 2 (1 - 0.001)


def test_weibull_of_shape_one_is_exponential() -> None:
    assert_allclose(Exponential(3.0).quantile(GRID), Weibull(3.0, 1.0).quantile(GRID))


def test_log_normal_by_hand() -> None:
    law = LogNormal(2.0, 0.5)
    assert_allclose([[2.0, 2.0 * np.exp(0.5 * 1.6448536269514722)]], law.quantile([0.5, 0.95]))
    assert_allclose([[0.5]], law.cdf(2.0))


def test_log_normal_keeps_its_digits_where_survival_underflows() -> None:
    waiting = LogNormal(1.0, 0.1).residual(1e6)  # S(1e6) is about exp(-9500)
    median_s = waiting.quantile(0.5)
    assert np.isfinite(median_s).all()
    assert (median_s > 0).all()
    assert_allclose([[0.5]], waiting.cdf(median_s), rtol=1e-9)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_quantile_inverts_cdf_and_starts_at_zero(law: Distribution) -> None:
    assert_allclose(np.tile(GRID, (2, 1)), law.cdf(law.quantile(GRID)), atol=1e-12)
    assert_array_equal(np.ones((2, 2)), law.sf([-1.0, 0.0]))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_residual_is_the_conditional_law(law: Distribution) -> None:
    elapsed_s = law.quantile([0.7])[:, 0]
    more_s = np.array([0.01, 0.5, 7.0])
    expected = law.sf(elapsed_s[:, None] + more_s) / law.sf(elapsed_s[:, None])
    assert_allclose(expected, law.residual(elapsed_s).sf(more_s), atol=1e-12)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_taking_contexts_changes_no_digit(law: Distribution) -> None:
    assert_array_equal(law.quantile(GRID)[[1, 0, 1]], law.take(np.array([1, 0, 1])).quantile(GRID))


def test_steps_are_right_at_their_atoms() -> None:
    law = Steps(np.arange(1.0, 11.0))
    levels = np.arange(1, 11) / 10
    assert_array_equal([np.arange(1.0, 11.0)], law.quantile(levels - 1e-12))
    assert_array_equal([np.arange(1.0, 10.0)], law.quantile(levels[:-1]))  # 0.3 is reached at the third of ten
    assert_array_equal([[0.0, 0.0, 0.1, 0.1, 1.0]], law.cdf([-1.0, 0.999, 1.0, 1.5, 10.0]))


def test_steps_may_have_zero_and_ties() -> None:
    waits = Steps([[0.0, 0.0, 0.0, 2.0]])
    assert_array_equal([[0.0, 0.0, 2.0]], waits.quantile([0.0, 0.75, 0.76]))
    assert_array_equal([[0.25]], waits.sf(0.0))


def test_steps_leave_only_what_is_still_possible() -> None:
    left = Steps([[1.0, 3.0, 5.0]], [[2.0, 1.0, 1.0]]).residual(1.0)
    assert_array_equal([[2.0, 4.0]], left.quantile([0.5, 0.51]))
    assert_array_equal([[0.0]], Steps([1.0]).residual(2.0).quantile(0.9))


def test_mixture_finds_the_gap_between_hit_and_miss() -> None:
    law = Mixture([Steps([1.0]), Steps([9.0])], [0.9, 0.1])
    assert_array_equal([[1.0, 1.0, 9.0]], law.quantile([0.1, 0.9, 0.900001]))
    assert_array_equal([[8.0]], law.residual(1.0).quantile(0.5))


@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf"), [[1.0]]])
def test_impossible_parameters_are_refused_by_name(bad: object) -> None:
    with pytest.raises(BadField, match="mean_s"):
        Exponential(bad)  # type: ignore[arg-type]


def test_negative_durations_are_refused() -> None:
    with pytest.raises(BadField, match="values_s"):
        Steps([-1.0, 2.0, 3.0])
