"""Joint laws that are not normal: found where they are, not where they are not, and never at the cost of a marginal."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.stats import kstest

from predictors.distribution import Array
from predictors.families import LogNormal
from predictors.joint.bend import LEAST_PAIRS, Bend, learn
from predictors.joint.linked import Links, draw_scores, remaining, within
from predictors.joint.quantile_table import timings_of
from predictors.joint.ranks import normal_scores
from predictors.joint.scenarios import Attempts, Joint, draw, stacked
from predictors.joint.streams import uniforms

LATE = Bend((-0.2, -0.1, 0.0, 0.0, 0.3, 0.7), (0.1, 0.1, 0.0, -0.1, -0.3, -0.5))
"""A late setup means a late service, an early one means little."""
STRAIGHT = Bend((0.0,) * 6, (0.0,) * 6)


def pairs(rng: np.random.Generator, n: int, rho: float) -> tuple[Array, Array]:
    x = rng.normal(size=n)
    return x, rho * x + np.sqrt(1.0 - rho**2) * rng.normal(size=n)


@pytest.mark.parametrize("rho", [-0.6, 0.0, 0.3, 0.9])
def test_normal_pairs_show_no_bend(rho: float) -> None:
    for seed in range(8):
        x, y = pairs(np.random.default_rng(seed), 2000, rho)
        assert learn(normal_scores(x), normal_scores(y), np.full(2000, rho)) is None


def test_a_bend_is_recovered_from_pairs_that_have_it() -> None:
    x, y = pairs(np.random.default_rng(1), 20_000, 0.3)
    bent = LATE.bent(np.array([0.3]), x[None], y[None])[0]
    found = learn(x, bent, np.full(20_000, 0.3))
    assert found is not None
    again = found.bent(np.array([0.3]), x[None], y[None])[0]
    assert_allclose(bent, again, atol=0.3)
    assert np.mean(np.abs(bent - again)) < 0.05


def test_few_pairs_show_none_however_odd_they_are() -> None:
    x = np.linspace(-2.0, 2.0, LEAST_PAIRS - 1)
    assert learn(x, x**2, np.zeros(len(x))) is None


@pytest.mark.parametrize("rho", [-0.5, 0.2, 0.7])
def test_a_marginal_stays_standard_normal(rho: float) -> None:
    x, y = pairs(np.random.default_rng(2), 20_000, rho)
    assert kstest(LATE.bent(np.array([rho]), x[None], y[None])[0], "norm").pvalue > 0.001


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-1.0, 1.0), min_size=6, max_size=6),
    st.lists(st.floats(-0.7, 0.7), min_size=6, max_size=6),
    st.floats(-0.95, 0.95),
    st.floats(-4.0, 4.0),
)
def test_straightening_undoes_bending_and_order_is_kept(shift: list[float], log_scale: list[float], rho: float, x: float) -> None:
    bend, whole = Bend(tuple(shift), tuple(log_scale)), np.array([rho])
    setup, score = np.full((1, 9), x), np.linspace(-3.0, 3.0, 9)[None]
    straight = bend.straight(whole, setup, score)
    assert np.all(np.diff(straight) > 0.0)
    assert_allclose(score, bend.bent(whole, setup, straight), atol=0.02)


def test_no_bend_changes_nothing_and_ends_stay_ends() -> None:
    x, y = pairs(np.random.default_rng(3), 1000, 0.4)
    assert_allclose(y, STRAIGHT.bent(np.array([0.4]), x[None], y[None])[0], atol=5e-3)
    ends = np.array([[-np.inf, np.inf]])
    assert_allclose(ends, LATE.straight(np.array([0.4]), np.zeros((1, 2)), ends))


def attempt(bend: Bend | None, **known: float) -> tuple[Array, Array]:
    """Remaining setup and service of one attempt, drawn."""
    setup = timings_of(LogNormal([1.0], 0.4), elapsed_s=known.get("setup_s"), took_s=known.get("took_s"))
    service = timings_of(LogNormal([3.0], 0.6), elapsed_s=known.get("service_s"))
    times = draw(setup, service, Joint(0.3, bend=bend), Attempts(("h",), ("r",), ("a",)), 40_000, seed=4)[0]
    return times[0], times[1]


def brute(n: int = 1_000_000) -> tuple[Array, Array]:
    x, y = pairs(np.random.default_rng(5), n, 0.3)
    return np.exp(0.4 * x), 3.0 * np.exp(0.6 * LATE.bent(np.array([0.3]), x[None], y[None])[0])


def test_a_service_is_what_brute_force_says_while_its_setup_runs_and_while_it_runs_itself() -> None:
    setup, service = brute()
    levels = np.array([0.1, 0.5, 0.9, 0.95])
    late = setup > 1.8
    expected = np.quantile((setup - 1.8 + service)[late], levels)
    assert_allclose(expected, np.quantile(sum(attempt(LATE, setup_s=1.8)), levels), rtol=0.03)
    both = (np.abs(np.log(setup / 1.8)) < 0.01) & (service > 4.0)
    expected = np.quantile(service[both] - 4.0, levels)
    assert_allclose(expected, np.quantile(attempt(LATE, took_s=1.8, service_s=4.0)[1], levels), rtol=0.06)


def test_independent_stages_stay_independent() -> None:
    setup, service = timings_of(LogNormal([1.0], 0.4), took_s=4.0), timings_of(LogNormal([3.0], 0.6))
    names = Attempts(("h",), ("r",), ("a",))
    resident = draw(setup, service, Joint(0.0, bend=LATE), names, 500, seed=6)
    assert_allclose(draw(setup, service, Joint(0.0), names, 500, seed=6), resident)


@pytest.mark.parametrize("elapsed_s", [np.nan, 2.0])
def test_the_chance_of_ending_in_time_is_the_share_of_draws_that_do(elapsed_s: float) -> None:
    setup = timings_of(LogNormal([1.0], 0.4), took_s=1.8)
    service = timings_of(LogNormal([3.0], 0.6), elapsed_s=elapsed_s)
    both = stacked(setup, service)
    links = Links(np.zeros(2, dtype=np.intp), np.zeros(2), np.array([-1, 0]), np.array([0.0, 0.3]), LATE)
    keys = np.arange(1, 3, dtype=np.uint64)
    scores = draw_scores(both, links, uniforms(keys, 20_000), keys, keys[:1])
    p = within(both, links, scores, np.array([1]), np.full((1, 20_000), 2.5))
    assert np.mean(remaining(both, scores.eps)[1] <= 2.5) == pytest.approx(p.mean(), abs=0.01)
    assert_allclose(1.0, within(both, links, scores, np.array([1]), np.full((1, 20_000), 1e9)))
