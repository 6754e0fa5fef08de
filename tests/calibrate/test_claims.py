"""Where few outcomes back a level the claim is not made; where it is made, it holds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr
from scipy.stats import binom

from calibrate.conformal.claims import CLAIMED, claimed_to, needs_n, outlasted, proven, ranks
from calibrate.conformal.pit import Placed, Recalibration, Seen
from telemetry.errors import BadField

RUNS = 4000
HERE = (*"abcde", "here")
"""A judged path: its last node is an exact configuration."""


def asked(u: object, level: float, weight: object = None) -> float:
    return float(ranks(u, [level], weight)[0])


@pytest.mark.parametrize(("level", "n"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99), (0.999, 999)])
def test_a_level_needs_as_many_outcomes_as_its_rank(level: float, n: int) -> None:
    assert n == needs_n(level)
    assert np.inf == asked(np.full(n - 1, 0.5), level)
    assert 0.5 == asked(np.full(n, 0.5), level)


def test_the_rank_is_that_of_n_plus_one() -> None:
    u = np.arange(1, 20) / 100.0
    assert [0.18, 0.19, 0.10] == ranks(u[::-1], [0.9, 0.95, 0.5]).tolist()  # ceil(20 * 0.9) = 18


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("level", [0.8, 0.9, 0.95])
@pytest.mark.parametrize("n", [9, 19, 99])
def test_where_the_claim_is_made_it_holds_under_a_wrong_base(n: int, level: float, spread: float) -> None:  # field rule C07
    # The base believes in a standard normal; the truth is `spread` times as wide. All outcomes are exchangeable.
    u = ndtr(np.random.default_rng(n).normal(size=(RUNS, n + 1)) * spread)
    claims = np.array([asked(row[:n], level) for row in u])
    if n < needs_n(level):
        assert np.all(np.isinf(claims))
        return
    held = int(np.sum(u[:, n] <= claims))
    rank = int(np.ceil((n + 1) * level - 1e-9))
    assert binom.ppf(0.0005, RUNS, level) <= held
    assert held <= binom.ppf(0.9995, RUNS, rank / (n + 1))


def test_the_expected_level_is_never_below_nominal_however_few_outcomes_there_are() -> None:  # field rule C03
    for n in range(1, 51):
        mean_u = np.arange(1, n + 1) / (n + 1.0)  # order statistics of n uniforms, in expectation
        least = asked(mean_u, 0.9)
        assert np.isinf(least) == (n < 9)
        assert np.isinf(least) or 0.9 - 1e-12 <= least <= 0.9 + 1.0 / (n + 1)


def test_small_groups_at_a_high_level_are_open_and_raise_nothing() -> None:  # field rules C01, C04
    groups = np.random.default_rng(1).random((6, 8))
    assert [np.inf] * 6 == [asked(row, 0.99) for row in groups]
    assert np.inf == asked([], 0.5)
    assert np.all(np.isinf(proven(None, CLAIMED)))


def test_decayed_outcomes_prove_less() -> None:
    u = np.arange(1, 20) / 20.0
    assert 0.9 == asked(u, 0.9)
    assert 0.95 == asked(u, 0.9, np.full(19, 0.5))  # 9.5 in all: 0.9 of 10.5 is 9.45, reached at the last
    assert np.inf == asked(u, 0.95, np.full(19, 0.5))


def test_a_histogram_by_its_upper_edges_is_never_too_low() -> None:
    u = np.random.default_rng(2).random(57)
    counts, edges = np.histogram(u, bins=100, range=(0.0, 1.0))
    assert asked(u, 0.9) <= asked(edges[1:], 0.9, counts) <= asked(u, 0.9) + 0.01


def test_rows_of_which_only_a_bound_is_known_may_end_above_all_others() -> None:
    ended = [Placed(HERE, (1.0,) * len(HERE), 0.305) for _ in range(9)]
    bounds = [Placed(HERE, (1.0,) * len(HERE), 0.1, seen) for seen in (Seen.LOST, Seen.RUNNING)]
    known = Recalibration().having(ended)
    before, after = (one.nodes.get("here") for one in (known, known.having(bounds)))
    assert (0.31, np.inf) == (proven(before, [0.8])[0], proven(after, [0.8])[0])  # 9 of 12 lie below: 0.75
    times = np.arange(9.0).tolist()
    assert (7.0, 8.0) == (outlasted(times, before, [0.8])[0], outlasted(times, None, [0.9])[0])
    assert np.inf == outlasted(times, after, [0.8])[0]  # one lost, for which a draw may stand, and one that runs: 9 of 13


def test_outcomes_past_all_that_answers_tell_apart_prove_nothing() -> None:
    far = Recalibration().having([Placed(HERE, (1.0,) * len(HERE), 0.9995) for _ in range(9)])
    assert np.inf == proven(far.nodes.get("here"), [0.8])[0]


def test_the_highest_level_claimed_is_that_below_the_first_one_that_fails() -> None:
    needed = [0.8, 0.9, 0.95, np.inf]
    assert 0.95 == claimed_to(needed, [0.9, 0.95, 0.95, 0.99])
    assert 0.8 == claimed_to(needed, [0.9, 0.3, 0.95, 0.99])  # served below what is needed
    assert 0.0 == claimed_to(needed, [0.1, 0.95, 0.95, 0.99])
    assert 0.99 == claimed_to([0.0] * 4, CLAIMED)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=60), st.floats(0.01, 0.98), st.floats(0.0, 0.01))
def test_a_higher_level_never_asks_for_less(u: list[float], level: float, more: float) -> None:
    low, high = ranks(u, [level, level + more])
    assert low <= high


@pytest.mark.parametrize(("u", "weight"), [([0.5, float("nan")], None), ([0.5], [-1.0]), ([0.5], [1.0, 1.0])])
def test_broken_outcomes_are_refused(u: list[float], weight: list[float] | None) -> None:
    with pytest.raises(BadField, match="u, weight"):
        ranks(u, [0.9], weight)


@pytest.mark.parametrize("level", [0.0, 1.0, float("nan")])
def test_a_level_lies_between_0_and_1(level: float) -> None:
    with pytest.raises(BadField, match="level"):
        needs_n(level)
