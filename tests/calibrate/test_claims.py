"""Where few outcomes back a level the claim is not made; where it is made, it holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom

from calibrate.conformal.claims import claim, claimed_to, needs_n
from telemetry.errors import BadField

RUNS = 4000


@pytest.mark.parametrize(("level", "n"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)])
def test_a_level_needs_as_many_outcomes_as_its_rank(level: float, n: int) -> None:
    assert n == needs_n(level)
    assert claim(np.full(n - 1, 0.5), level).asked is None
    assert 0.5 == claim(np.full(n, 0.5), level).asked


def test_a_level_with_too_few_outcomes_is_open_and_says_how_many_it_needs() -> None:  # field rule C01
    one = claim(np.linspace(0.01, 0.99, 18), 0.95)
    assert (None, 18.0, 19) == (one.asked, one.n, one.needs_n)
    assert not one.holds_for(1.0)


def test_the_rank_is_that_of_n_plus_one() -> None:
    u = np.arange(1, 20) / 100.0
    assert 0.18 == claim(u[::-1], 0.9).asked  # ceil(20 * 0.9) = 18
    assert 0.19 == claim(u, 0.95).asked
    assert 0.10 == claim(u, 0.5).asked


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("n", [9, 19, 99])
def test_where_the_claim_is_made_it_holds_under_a_wrong_base(n: int, level: float, spread: float) -> None:  # field rule C07
    # The base believes in a standard normal; the truth is `spread` times as wide. All outcomes are exchangeable.
    u = ndtr(np.random.default_rng(n).normal(size=(RUNS, n + 1)) * spread)
    claims = [claim(row[:n], level) for row in u]
    if n < needs_n(level):
        assert all(one.asked is None for one in claims)
        return
    held = sum(row[n] <= one.asked for row, one in zip(u, claims, strict=True) if one.asked is not None)
    rank = int(np.ceil((n + 1) * level - 1e-9))
    assert binom.ppf(0.0005, RUNS, level) <= held
    assert held <= binom.ppf(0.9995, RUNS, rank / (n + 1))


def test_the_expected_level_is_never_below_nominal_however_few_outcomes_there_are() -> None:  # field rule C03
    for n in range(1, 51):
        mean_u = np.arange(1, n + 1) / (n + 1.0)  # order statistics of n uniforms, in expectation
        asked = claim(mean_u, 0.9).asked
        assert (asked is None) == (n < 9)
        assert asked is None or 0.9 - 1e-12 <= asked <= 0.9 + 1.0 / (n + 1)


def test_small_groups_at_a_high_level_are_open_and_raise_nothing() -> None:  # field rule C04
    groups = np.random.default_rng(1).random((6, 8))
    assert [(None, 8.0, 99)] * 6 == [(one.asked, one.n, one.needs_n) for one in (claim(row, 0.99) for row in groups)]
    assert claim([], 0.5).asked is None


def test_decayed_outcomes_prove_less() -> None:
    u = np.arange(1, 20) / 20.0
    assert 0.9 == claim(u, 0.9).asked
    halved = claim(u, 0.9, np.full(19, 0.5))  # 9.5 in all: 0.9 of 10.5 is 9.45, reached at the last
    assert (0.95, 9.5) == (halved.asked, halved.n)
    assert claim(u, 0.95, np.full(19, 0.5)).asked is None


def test_a_histogram_by_its_upper_edges_is_never_too_low() -> None:
    u = np.random.default_rng(2).random(57)
    counts, edges = np.histogram(u, bins=100, range=(0.0, 1.0))
    exact, binned = claim(u, 0.9).asked, claim(edges[1:], 0.9, counts).asked
    assert exact is not None
    assert binned is not None
    assert exact <= binned <= exact + 0.01


def test_the_highest_level_claimed_is_that_below_the_first_one_that_fails() -> None:
    u = np.linspace(0.05, 0.95, 30)
    claims = [claim(u, level) for level in (0.5, 0.9, 0.95, 0.99)]
    assert 0.95 == claimed_to(claims, [0.9, 0.95, 0.95, 0.99])  # 0.99 needs 99
    assert 0.5 == claimed_to(claims, [0.9, 0.3, 0.95, 0.99])  # served below what is needed
    assert 0.0 == claimed_to(claims, [0.1, 0.95, 0.95, 0.99])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), st.floats(0.01, 0.98), st.floats(0.0, 0.01))
def test_a_higher_level_never_asks_for_less(u: list[float], level: float, more: float) -> None:
    low, high = claim(u, level).asked, claim(u, level + more).asked
    assert high is None or (low is not None and low <= high)


@pytest.mark.parametrize(("u", "weight"), [([0.5, float("nan")], None), ([0.5], [-1.0]), ([0.5], [1.0, 1.0])])
def test_broken_outcomes_are_refused(u: list[float], weight: list[float] | None) -> None:
    with pytest.raises(BadField, match="u, weight"):
        claim(u, 0.9, weight)


@pytest.mark.parametrize("level", [0.0, 1.0, float("nan")])
def test_a_level_lies_between_0_and_1(level: float) -> None:
    with pytest.raises(BadField, match="level"):
        needs_n(level)
