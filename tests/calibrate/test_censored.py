"""Censored outcomes count by what they prove, or by what the curve expects of them; worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.conformal.censored import imputed_misses, resolved, spread_above
from telemetry.errors import BadField


def test_resolved_rows_are_weighed_by_the_chance_of_being_seen_that_long() -> None:
    # Bound 5 s. Kaplan-Meier of being lost: at 2 s one of the four at risk, so G(t-) = 3/4 past 2 s.
    found = resolved([1.0, 2.0, 4.0, 8.0, 9.0], [False, True, False, False, True], 5.0, [["all"] * 5])
    assert [0.0, 0.0, 0.0, 1.0, 1.0] == list(found.miss)
    assert [1.0, 0.0, 4 / 3, 4 / 3, 4 / 3] == pytest.approx(list(found.weight))
    assert (8 / 3) / 5.0 == pytest.approx(found.rate)


def test_a_running_attempt_past_its_bound_is_a_miss_at_once() -> None:
    found = resolved([6.0, 4.0], [True, True], 5.0, [["all"] * 2])
    assert [1.0, 0.0] == list(found.miss)
    assert 0.0 < found.weight[0]
    assert 0.0 == found.weight[1]


def test_known_to_exceed_the_bound_itself_is_a_miss_and_ending_there_is_not() -> None:
    found = resolved([5.0, 5.0], [True, False], 5.0, [["all"] * 2])
    assert [1.0, 0.0] == list(found.miss)


def test_nothing_resolved_is_no_rate() -> None:
    assert resolved([1.0, 2.0], [True, True], 5.0, [["all"] * 2]).rate is None


def test_the_weight_is_capped() -> None:
    n = 400
    known_s = np.append(np.linspace(0.1, 1.0, n), 3.0)
    found = resolved(known_s, np.append(np.ones(n, bool), False), 5.0, [["all"] * (n + 1)])
    assert 20.0 == found.weight[-1]


def test_weights_undo_what_dropping_the_unknown_does() -> None:
    rng = np.random.default_rng(3)
    true_s, lost_s = rng.exponential(10.0, 20_000), rng.exponential(20.0, 20_000)
    gone = lost_s < true_s
    found = resolved(np.minimum(true_s, lost_s), gone, 10.0, [["all"] * 20_000])
    settled = found.weight > 0.0
    assert np.exp(-1.0) == pytest.approx(found.rate, abs=0.015)
    assert found.miss[settled].mean() < np.exp(-1.0) - 0.03


def test_an_unresolved_row_counts_by_what_the_curve_expects() -> None:
    # Lost at 2 s where S = 0.8; the bound lies where S = 0.1: one in eight of those still running would miss it.
    miss = imputed_misses([2.0, 2.0, 12.0, 12.0], [True, False, True, False], 10.0, [0.1] * 4, [0.8, 0.8, 0.05, 0.05])
    assert [0.125, 0.0, 1.0, 1.0] == pytest.approx(list(miss))


def test_a_curve_that_had_given_the_attempt_up_counts_it_as_a_miss() -> None:
    assert [1.0] == list(imputed_misses([2.0], [True], 10.0, [0.0], [0.0]))


def test_imputed_misses_average_to_the_truth_under_the_right_curve() -> None:
    rng = np.random.default_rng(4)
    true_s, lost_s = rng.exponential(1.0, 20_000), rng.exponential(2.0, 20_000)
    known_s = np.minimum(true_s, lost_s)
    miss = imputed_misses(known_s, lost_s < true_s, 2.0, np.full(20_000, np.exp(-2.0)), np.exp(-known_s))
    assert np.exp(-2.0) == pytest.approx(miss.mean(), abs=0.006)


def test_lost_mass_is_spread_above_as_the_curve_lies() -> None:
    # Four bins; F(c) = 0.625 lies half way through the third.
    assert [0.0, 0.0, 0.2, 0.8] == pytest.approx(list(spread_above([0.625], [5.0, 5.0, 2.0, 4.0])[0]))


def test_spreading_at_the_ends() -> None:
    found = spread_above([0.0, 1.0, 0.75], [1.0, 1.0, 2.0, 0.0])
    assert [0.25, 0.25, 0.5, 0.0] == pytest.approx(list(found[0]))
    assert [0.0, 0.0, 0.0, 1.0] == list(found[1])
    assert [0.0, 0.0, 0.0, 1.0] == list(found[2])  # the curve has nothing there


def test_spreading_keeps_a_curve_that_is_right() -> None:
    # Half of uniform outcomes are lost at a uniform place below; what is spread by the uniform curve is uniform again.
    rng = np.random.default_rng(5)
    u = rng.random(40_000)
    seen = rng.random(40_000)
    gone = seen < u
    mass = np.histogram(u[~gone], bins=10, range=(0.0, 1.0))[0] + spread_above(seen[gone], np.ones(10)).sum(axis=0)
    np.testing.assert_allclose(mass / mass.sum(), np.full(10, 0.1), atol=0.004)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20), st.lists(st.floats(0.0, 10.0), min_size=1, max_size=20))
def test_spread_mass_is_one_and_never_below(u: list[float], curve: list[float]) -> None:
    found = spread_above(u, curve)
    np.testing.assert_allclose(np.ones(len(u)), found.sum(axis=1))
    assert np.all(found >= 0.0)
    for row, at in zip(found, u, strict=True):
        assert not row[: min(int(at * len(curve)), len(curve) - 1)].any()


@pytest.mark.parametrize("known_s", [-1.0, float("nan"), float("inf")])
def test_broken_lengths_are_refused(known_s: float) -> None:
    with pytest.raises(BadField, match="known_s, bound_s"):
        resolved([known_s], [False], 5.0, [["all"]])
    with pytest.raises(BadField, match="known_s, bound_s"):
        imputed_misses([known_s], [True], 5.0, [0.1], [0.5])


@pytest.mark.parametrize(("u", "curve"), [([1.5], [1.0]), ([0.5], []), ([0.5], [-1.0]), ([float("nan")], [1.0])])
def test_broken_curves_are_refused(u: list[float], curve: list[float]) -> None:
    with pytest.raises(BadField, match="u, curve"):
        spread_above(u, curve)
