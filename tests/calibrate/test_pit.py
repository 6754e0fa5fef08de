"""Which level to ask, worked by hand; places in answers with jumps; and that levels come true where answers were off."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from calibrate.conformal import pit
from calibrate.conformal.pit import EDGES, WIDTHS, Placed, Recalibration, place_in
from predictors.contexts import Context, judged_path
from predictors.distribution import GRID, Array

LEVELS = np.array([0.05, 0.5, 0.9, 0.99])
EVEN: Array = np.linspace(-1.0, 1.0, len(GRID))
"""Log quantiles an equal step apart."""


@pytest.fixture(autouse=True)
def settings_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers below are worked with these."""
    monkeypatch.setattr(pit, "HALF_LIFE", 800.0)
    monkeypatch.setattr(pit, "PSEUDO", 100.0)
    monkeypatch.setattr(pit, "LEARNED", 0.0)


def told(*places: float, path: tuple[str, ...] = ("phase",), share: float = 1.0) -> list[Placed]:
    return [Placed(path, (share,) * len(path), u) for u in places]


def at(recalibration: Recalibration, edge: float, *path: str) -> float:
    """Share of outcomes up to an edge."""
    return float(recalibration.at(path)[np.argmin(np.abs(EDGES - edge))])


def test_before_any_outcome_a_level_asks_for_itself() -> None:
    assert_allclose(LEVELS, Recalibration().asked(("phase", "host"), LEVELS), atol=1e-12)
    assert_allclose(1.0, WIDTHS.sum())


def test_one_outcome_weighs_one_among_a_hundred() -> None:
    known = Recalibration().having(told(0.305))
    # 100 even pseudo-outcomes and one in [0.30, 0.31): (30, 31 + 1, 100 + 1) / 101.
    assert_allclose([30 / 101, 32 / 101, 1.0], [at(known, edge, "phase") for edge in (0.30, 0.31, 1.0)])
    assert_allclose([0.30, 0.305, 0.31], known.asked(("phase",), np.array([30, 31, 32]) / 101))


def test_a_node_is_shrunk_to_its_parent() -> None:
    known = Recalibration().having(told(0.305)).having(told(0.505, path=("phase", "host")))
    # The root has 2 (the first faded to 0.99913), the host one, over 100 pseudo-outcomes of the root's shares.
    kept = 0.5 ** (1.0 / 800.0)
    root_lower = (30 + kept) / (100 + kept + 1)
    assert_allclose(root_lower + (1 / (101 + kept)), at(known, 0.31, "phase") + 0 * kept + 0.0, atol=0.01)
    assert_allclose((0 + 100 * at(known, 0.31, "phase")) / 101, at(known, 0.31, "phase", "host"))
    assert_allclose((1 + 100 * at(known, 0.51, "phase")) / 101, at(known, 0.51, "phase", "host"))
    assert_array_equal(known.at(("phase",)), known.at(("phase", "never met")))


def test_old_outcomes_fade_by_half_in_a_half_life() -> None:
    known = Recalibration().having(told(0.305)).having(told(*[0.905] * 800))
    histogram = known.nodes["phase"]
    assert_allclose(0.5, histogram.counts[np.searchsorted(EDGES, 0.305) - 1])
    assert_allclose(histogram.n, histogram.counts.sum())


def test_what_was_placed_when_half_as_much_was_known_weighs_a_quarter_until_enough_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pit, "LEARNED", 2.0)
    monkeypatch.setattr(pit, "HALF_LIFE", math.inf)
    monkeypatch.setattr(pit, "EARLY", 100)
    one = Recalibration().having(told(*[0.905] * 50)).having(told(0.305)).having(told(*[0.905] * 51))
    first = int(np.searchsorted(EDGES, 0.305)) - 1
    node = one.nodes["phase"]
    assert_allclose((51 / 100) ** 2, node.counts[first])  # and no less once 102 are known
    assert_allclose(102.0, node.n)
    assert_allclose(node.weight, node.counts.sum())
    assert_allclose((node.counts[first] + 1.0) / (node.weight + 100.0), at(one, 0.31, "phase") - at(one, 0.30, "phase"))
    assert_allclose(0.5 * node.counts.sum(), one.forgetting(["phase"], 0.5).nodes["phase"].weight)


def test_of_what_was_never_seen_and_of_a_configuration_itself_nothing_is_outlearned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pit, "LEARNED", 2.0)
    monkeypatch.setattr(pit, "HALF_LIFE", math.inf)
    context = Context("ash", "cpu", "decode", "v1")
    new, known = judged_path(context, "service", 0), judged_path(context, "service", 3)
    learned = Recalibration().having([Placed(path, (1.0,) * 6, u) for path in (new, known) for u in (0.2, 0.4, 0.9)])
    whole = {node: learned.nodes[node].counts.max() for node in (*new, *known)}
    assert {new[1], new[2], new[5]} == {node for node, most in whole.items() if most >= 1.0 and learned.nodes[node].faded == 0.0}
    assert all(learned.nodes[node].faded > 0.0 for node in (known[0], *known[1:5]))


def test_the_outermost_places_have_bins() -> None:
    counts = Recalibration().having(told(0.0, 1.0, 0.9995)).nodes["phase"].counts
    assert ([0], [len(WIDTHS) - 1]) == (np.flatnonzero(counts[:50]).tolist(), (50 + np.flatnonzero(counts[50:])).tolist())


def test_a_burst_counts_once() -> None:
    known = Recalibration().having(told(*[0.905] * 400, share=1.0 / 400))
    assert_allclose(1.0, known.nodes["phase"].n, rtol=1e-3)


def test_answers_that_were_too_long_are_read_lower_until_levels_come_true() -> None:
    # The true place in the answer is v^2, v uniform: P(u <= a) = sqrt(a), so that 0.9 is reached at 0.81.
    v = np.random.default_rng(8).random(4000)
    known = Recalibration().having(told(*(v * v).tolist()))
    assert_allclose([0.25, 0.81], known.asked(("phase",), np.array([0.5, 0.9])), atol=0.03)


@given(st.lists(st.floats(0.0, 1.0), max_size=80), st.lists(st.floats(0.0, 1.0), max_size=20))
@settings(max_examples=100, deadline=None)
def test_levels_never_cross_and_stay_levels(places: list[float], deeper: list[float]) -> None:
    known = Recalibration().having(told(*places)).having(told(*deeper, path=("phase", "host")))
    for path in (("phase",), ("phase", "host")):
        asked = known.asked(path, np.linspace(0.0, 1.0, 201))
        assert np.all(np.diff(asked) >= 0.0)
        assert (0.0, 1.0) == (asked[0], asked[-1])
        assert np.all(np.diff(known.at(path)) > 0.0)


def test_the_place_between_two_quantiles_is_linear() -> None:
    half_way = math.exp((EVEN[49] + EVEN[50]) / 2.0)  # between the quantiles at 0.50 and 0.51
    assert_allclose(0.505, place_in(EVEN, 0.0, half_way, 0.9), atol=1e-9)
    assert_allclose(0.3 + 0.7 * 0.505, place_in(EVEN, 0.3, half_way, 0.9), atol=1e-9)


def test_where_the_answer_jumps_the_draw_decides() -> None:
    atom = EVEN.copy()
    atom[19:60] = 0.1  # levels 0.20 to 0.60 say the same time
    atom[60:] = np.linspace(0.2, 1.0, len(GRID) - 60)
    assert_allclose([0.19, 0.40, 0.61], [place_in(atom, 0.0, math.exp(0.1), draw) for draw in (0.0, 0.5, 1.0)])


def test_outside_the_outermost_quantiles_the_draw_decides_too() -> None:
    assert_allclose([0.0, 0.005, 0.01], [place_in(EVEN, 0.0, math.exp(-5.0), draw) for draw in (0.0, 0.5, 1.0)])
    assert_allclose([0.999, 0.9995, 1.0], [place_in(EVEN, 0.0, math.exp(5.0), draw) for draw in (0.0, 0.5, 1.0)])


def test_no_time_at_all_lies_in_the_chance_of_none() -> None:
    assert_allclose([0.0, 0.15, 0.3], [place_in(EVEN, 0.3, 0.0, draw) for draw in (0.0, 0.5, 1.0)])


@given(st.floats(0.0, 0.9), st.floats(-9.0, 9.0), st.floats(0.0, 1.0))
@settings(max_examples=150, deadline=None)
def test_a_place_is_a_share_and_rises_with_the_duration(zero: float, log_time: float, draw: float) -> None:
    near, far = (place_in(EVEN, zero, math.exp(log_time + more), draw) for more in (0.0, 0.5))
    assert 0.0 <= near <= far <= 1.0


def test_places_of_what_the_answer_itself_draws_are_even() -> None:
    rng = np.random.default_rng(9)
    levels = rng.random(6000)
    log_time = np.interp(levels, GRID, EVEN, left=-3.0, right=3.0)
    zero = 0.25
    durations = np.where(rng.random(6000) < zero, 0.0, np.exp(log_time))
    places = np.sort([place_in(EVEN, zero, float(d), float(v)) for d, v in zip(durations, rng.random(6000), strict=True)])
    assert np.abs(places - (np.arange(6000) + 0.5) / 6000).max() < 1.63 / math.sqrt(6000)  # Kolmogorov-Smirnov, 1 %
