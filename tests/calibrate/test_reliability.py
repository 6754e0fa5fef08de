"""How far answered probabilities were off, by hand: large after misses, small after hits, never nothing."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.evidence.reliability import PRIOR_SD, Reliability


def after(*outcomes: tuple[float, bool]) -> Reliability:
    found = Reliability()
    for probability, met in outcomes:
        found = found.after(probability, met=met)
    return found


def test_before_any_outcome_the_prior_stands() -> None:
    assert 0.05 == Reliability().calibration_se == PRIOR_SD


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        # g = 0.1, v = 0.09: mean 0.1 x 0.0025 / 0.0925, variance 0.0025 x 0.09 / 0.0925
        ([(0.9, True)], 0.049394),
        # the same v, but a gap of 0.9 the other way
        ([(0.9, False)], 0.054992),
        # g = 0.25, v = 4 x 0.25 / 16
        ([(0.5, True)] * 3 + [(0.5, False)], 0.049963),
        # g = 0, v = 0.05 x 0.95: an answer of 1 is not taken to be surer than 0.95
        ([(1.0, True)], 0.048734),
        # g = 0, v = 0.0475 / 100: 0.0025 x 0.000475 / 0.002975
        ([(1.0, True)] * 100, 0.019979),
        ([(0.0, False)] * 100, 0.019979),
    ],
)
def test_by_hand(outcomes: list[tuple[float, bool]], expected: float) -> None:
    found = after(*outcomes)
    assert expected == pytest.approx(max(found.calibration_se, found.above_se), abs=1e-6)


def test_a_bias_counts_on_its_own_side_alone() -> None:
    # g = 0.1, v = 0.09: variance 0.0025 x 0.09 / 0.0925, and a mean of 0.0027 above, none below
    more_often, seldomer = after((0.9, True)), after((0.9, False))
    assert (0.049320, 0.049394) == pytest.approx((more_often.calibration_se, more_often.above_se), abs=1e-6)
    assert (0.054992, 0.049320) == pytest.approx((seldomer.calibration_se, seldomer.above_se), abs=1e-6)


def test_it_grows_with_misses_and_shrinks_with_hits() -> None:
    missed = [after(*[(0.95, False)] * n).calibration_se for n in range(1, 30)]
    met = [after(*[(0.99, True)] * n).calibration_se for n in range(30)]
    assert all(before < now for before, now in pairwise([PRIOR_SD, *missed]))
    assert all(before > now for before, now in pairwise(met))


def test_right_answers_bring_it_down_as_one_over_the_root_of_their_number_and_biased_ones_to_the_bias() -> None:
    right = after(*[(0.9, True)] * 9_000, *[(0.9, False)] * 1_000)
    assert 0.003 == pytest.approx(right.calibration_se, rel=0.01)  # sqrt(0.09 / 10,000), no gap
    biased = after(*[(0.9, True)] * 8_000, *[(0.9, False)] * 2_000)
    assert 0.1 == pytest.approx(biased.calibration_se, rel=0.01)


@settings(max_examples=100)
@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), max_size=40))
def test_it_is_never_nothing_and_never_more_than_the_gap_and_the_prior_together(outcomes: list[tuple[float, bool]]) -> None:
    found = after(*outcomes)
    gap = abs(found.gap) / max(found.n, 1)
    assert 0.0 < found.calibration_se <= float(np.hypot(gap, PRIOR_SD)) + 1e-12


def test_order_does_not_matter_but_for_rounding() -> None:
    outcomes = [(0.9, True), (0.3, False), (0.7, False), (1.0, True)]
    assert after(*outcomes).calibration_se == pytest.approx(after(*reversed(outcomes)).calibration_se, rel=1e-12)


def test_an_outcome_taken_back_leaves_the_others() -> None:
    kept = after((0.9, True), (1.0, False))
    found = after((0.9, True), (0.3, True), (1.0, False)).without(0.3, met=True)
    assert (kept.n, kept.gap, kept.variance) == (found.n, pytest.approx(found.gap), pytest.approx(found.variance))
