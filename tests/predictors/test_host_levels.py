"""The chain of levels: what it conserves, how fast it spreads, and that looking back is looking forward."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from predictors.host_levels import REACH, levels_of

CHAIN = levels_of(unit=0.2, tau=0.1)


def around(level: float, spread: float) -> np.ndarray:
    """Relative density of a normal law about a level, its total 1."""
    bump = np.exp(-0.5 * ((CHAIN.level - level) / spread) ** 2) * CHAIN.width / CHAIN.prior
    return CHAIN.normed(bump)[0]


def test_the_prior_is_a_probability_over_levels_that_reach_far_both_ways() -> None:
    assert 1.0 == pytest.approx(CHAIN.prior.sum())
    assert (-REACH, REACH) == pytest.approx((CHAIN.level[0], CHAIN.level[-1]))
    assert_allclose(CHAIN.level, -CHAIN.level[::-1], atol=1e-12)


def test_what_is_not_known_stays_unknown_however_long_one_waits() -> None:
    nothing = np.ones(len(CHAIN.level))
    for time in (0.0, 0.01, 1.0, 1e6):
        assert_allclose(nothing, CHAIN.moved(nothing, time, jump=0.1), atol=1e-9)


@pytest.mark.parametrize("time", [0.01, 0.3, 5.0])
def test_a_density_keeps_its_total_and_never_falls_below_zero(time: float) -> None:
    later = CHAIN.moved(around(0.7, 0.05), time, jump=0.02)
    assert later.min() >= 0.0
    assert 1.0 == pytest.approx(CHAIN.prior @ later, abs=1e-6)


def test_two_waits_are_one_long_wait() -> None:
    start = around(0.2, 0.1)
    assert_allclose(CHAIN.moved(start, 0.5, 0.0), CHAIN.moved(CHAIN.moved(start, 0.2, 0.0), 0.3, 0.0), atol=1e-9)


def test_what_is_told_of_an_earlier_level_is_moved_as_a_density_is() -> None:
    density, likelihood = around(0.3, 0.1), around(-0.1, 0.2)
    forward = CHAIN.prior @ (CHAIN.moved(density, 0.4, 0.1) * likelihood)
    assert forward == pytest.approx(CHAIN.prior @ (density * CHAIN.moved(likelihood, 0.4, 0.1)), rel=1e-6)


def test_variance_relaxes_to_tau_squared_at_twice_the_rate_of_the_level() -> None:
    narrow, time = around(0.0, 0.03), 0.02  # so that it grows by 2 tau^2 per unit of time where little is left to relax
    before, after = (float(CHAIN.prior @ (d * CHAIN.level**2)) for d in (narrow, CHAIN.moved(narrow, time, 0.0)))
    assert (0.1**2 - before) * (1.0 - np.exp(-2.0 * time)) == pytest.approx(after - before, rel=0.03)


def test_in_the_end_nothing_of_what_was_known_is_left() -> None:
    assert_allclose(np.ones(len(CHAIN.level)), CHAIN.moved(around(0.7, 0.05), 1e6, 0.0), atol=1e-6)


def test_moments_are_those_of_a_normal_law() -> None:
    mean, variance = CHAIN.moments(around(0.1, 0.08))
    assert (0.1, 0.08**2) == pytest.approx((mean, variance), rel=0.05)


def test_a_rare_far_level_moves_the_variance_little() -> None:
    mixed = 0.96 * around(0.0, 0.05) + 0.04 * around(1.5, 0.05)
    assert CHAIN.moments(mixed)[1] < 1.3 * 0.05**2


def test_several_are_moved_as_each_alone() -> None:
    rng = np.random.default_rng(3)
    told, time, jump = rng.random((4, len(CHAIN.level))), np.array([0.0, 0.1, 1.0, 5.0]), np.array([0.0, 0.02, 0.5, 1.0])
    alone = [CHAIN.moved(one, float(t), float(j)) for one, t, j in zip(told, time, jump, strict=True)]
    assert np.allclose(alone, CHAIN.moved_each(told, time, jump), atol=1e-10)
