"""A foreseen need is the earliest of what comes true, with the probabilities that were told."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kstest

from predictors.plans.forecast_need import Forecast, foreseen
from predictors.plans.latest_start import need_from_quantiles

N = 20_000


def at(workflow: str, release_s: float, weight: float | None = None, confidence: float = 1.0) -> Forecast:
    return Forecast(workflow, f"{workflow}-{release_s}", samples_s=(release_s,), weight=weight, confidence=confidence)


def test_a_submitted_release_is_a_need_known_exactly() -> None:
    seen = foreseen([Forecast("w", "r", release_s=3.0)], 1, "q", 5)
    assert_array_equal(np.full(5, 3.0), seen.need_s)
    assert (1.0, 1.0) == (seen.p_needed, seen.p_right)


def test_quantiles_are_kept() -> None:
    seen = foreseen([Forecast("w", "r", levels=(0.1, 0.5, 0.9), values_s=(4.0, 10.0, 12.0))], 1, "q", N)
    assert_allclose([4.0, 10.0, 12.0], np.quantile(seen.need_s, [0.1, 0.5, 0.9]), rtol=0.03)
    alike = need_from_quantiles([0.1, 0.5, 0.9], [4.0, 10.0, 12.0], 2, "q", N)
    assert kstest(seen.need_s, alike).pvalue > 0.001


def test_of_several_arrivals_the_first_counts() -> None:
    ready = tuple(np.arange(1_000) / 1_000)
    seen = foreseen([Forecast("w", "r", samples_s=ready, count=4)], 1, "q", N)
    # The least of four uniforms: P(T > t) = (1 - t)^4.
    assert_allclose([1 - 0.75**0.25, 1 - 0.5**0.25, 1 - 0.1**0.25], np.quantile(seen.need_s, [0.25, 0.5, 0.9]), atol=0.01)


def test_branches_exclude_each_other_and_weigh_by_their_probability() -> None:
    seen = foreseen([at("w", 1.0, 0.2), at("w", 2.0, 0.6)], 1, "q", N)
    assert 0.8 == pytest.approx(seen.p_needed)
    # Given that there is a need: 0.2 / 0.8 and 0.6 / 0.8.
    assert_allclose([0.25, 0.75], [np.mean(seen.need_s == value) for value in (1.0, 2.0)], atol=0.01)


def test_workflows_are_independent_and_the_earliest_of_them_counts() -> None:
    seen = foreseen([at("v", 2.0, 0.5), at("w", 1.0, 0.5)], 1, "q", N)
    assert 0.75 == pytest.approx(seen.p_needed)
    # w comes with 1/2, alone or with v: 0.5 / 0.75; v alone with 1/4.
    assert_allclose([2 / 3, 1 / 3], [np.mean(seen.need_s == value) for value in (1.0, 2.0)], atol=0.01)


def test_what_is_sure_comes_beside_any_branch() -> None:
    seen = foreseen([at("v", 5.0), at("w", 1.0, 0.3), at("w", 9.0, 0.7)], 1, "q", N)
    assert 1.0 == seen.p_needed
    assert_allclose([0.3, 0.7], [np.mean(seen.need_s == value) for value in (1.0, 5.0)], atol=0.01)


@pytest.mark.parametrize(
    ("records", "p_right"),
    [
        ([at("w", 1.0, confidence=0.9)], 0.9),
        ([at("w", 1.0, 0.5, confidence=0.9)], 0.9),  # wrong with 0.05 in all, needed with 0.5
        ([at("w", 1.0, 0.5, confidence=0.8), at("w", 2.0, 0.5)], 0.9),
        ([at("v", 1.0, confidence=0.9), at("w", 2.0, confidence=0.8)], 0.72),
    ],
)
def test_doubt_counts_where_a_record_comes_true(records: list[Forecast], p_right: float) -> None:
    assert p_right == pytest.approx(foreseen(records, 1, "q", 10).p_right)


def test_a_record_of_another_workflow_moves_no_draw_of_this_one() -> None:
    one = Forecast("w", "r", levels=(0.1, 0.9), values_s=(1.0, 2.0))
    alone = foreseen([one], 7, "q", 100).need_s
    beside = foreseen([one, at("v", 1e6)], 7, "q", 100).need_s
    assert_array_equal(alone, beside)
