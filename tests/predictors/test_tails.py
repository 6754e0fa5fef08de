"""The declared tail: from upper order statistics, and never past four times the longest duration known."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.tails import FAR_HAZARD, LIMIT, PRIOR_RATE, bounded, extended, hill_rate


def test_rate_without_evidence_is_the_prior() -> None:
    assert PRIOR_RATE == hill_rate(np.zeros(0))


def test_rate_by_hand() -> None:
    # The upper 2 % of 100 are 3 and 5: one exceedance by 2, with five more events over 2.5 from the prior.
    z = np.concatenate([np.zeros(98), [3.0, 5.0]])
    assert (1 + 5) / (2.0 + 2.5) == hill_rate(z)


def test_rate_of_an_exponential_tail_is_found() -> None:
    z = np.random.default_rng(1).exponential(1 / 1.5, 200_000)
    np.testing.assert_allclose(hill_rate(z), 1.5, rtol=0.03)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-20.0, 1000.0), min_size=2, max_size=30, unique=True))
def test_knots_stay_in_order_and_within_the_limit(raw: list[float]) -> None:
    knots = np.sort(raw)
    drawn_in = bounded(knots, 3.0)
    assert np.all(np.diff(drawn_in) >= 0.0)
    assert np.all(drawn_in <= 3.0 + np.log(LIMIT))
    np.testing.assert_array_equal(drawn_in[knots <= 3.0], knots[knots <= 3.0])


def test_a_light_tail_ends_by_its_own_slope() -> None:
    knots, height = extended(np.array([0.0, 1.0]), np.array([1.0, FAR_HAZARD - 4.0]), 2.0, 10.0)
    np.testing.assert_allclose(knots, [0.0, 1.0, 3.0])
    assert FAR_HAZARD == height[-1]


def test_a_heavy_tail_keeps_its_slope_up_to_the_longest_known_and_ends_within_the_limit() -> None:
    knots, height = extended(np.array([0.0, 1.0]), np.array([1.0, 2.0]), 0.01, 6.0)
    np.testing.assert_allclose(knots[2], 6.0)
    np.testing.assert_allclose(height[2], 2.05)
    assert 6.0 < knots[3] <= 6.0 + np.log(LIMIT)


def test_a_grid_that_reaches_far_enough_needs_no_tail() -> None:
    knots, _ = extended(np.array([0.0, 1.0]), np.array([1.0, FAR_HAZARD]), 2.0, 10.0)
    assert [0.0, 1.0] == knots.tolist()
