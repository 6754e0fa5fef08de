"""Rows cancelled, lost or running count by what they outlasted; shares worked by hand, and taken back to the last bit."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from calibrate.conformal import pit
from calibrate.conformal.pit import EDGES, WIDTHS, Histogram, Placed, Recalibration, Seen, lasting, passed_in
from calibrate.conformal.wrap import Calibrated
from predictors.distribution import GRID, Array
from predictors.frames import Frame
from predictors.model import Change
from telemetry.words import Ended
from tests.predictors.experts_taught import PAIRS, begun, fitted, part, recorded

EVEN: Array = np.linspace(-1.0, 1.0, len(GRID))
HERE = PAIRS[0][0]


@pytest.fixture(autouse=True)
def nothing_is_outlearned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers below are worked without it."""
    monkeypatch.setattr(pit, "LEARNED", 0.0)


def placed(u: float, seen: Seen = Seen.ENDED, share: float = 1.0) -> Placed:
    return Placed(("phase",), (share,), u, seen)


def above(recalibration: Recalibration, level: float) -> float:
    """Share of outcomes that lay past a level."""
    return float(1.0 - np.interp(level, EDGES, recalibration.at(("phase",))))


def test_shares_are_those_of_kaplan_and_meier() -> None:
    # Of 10, 2 end in the first bin and 4 leave it, at risk for half of it: 2 / (10 - 4 / 2). Then 1 of the 4 left, then the rest.
    found = lasting(np.array([2.0, 1.0, 3.0]), np.array([4.0, 0.0, 0.0]))
    assert_allclose([1 / 4, 3 / 4 * 1 / 4, 3 / 4 * 3 / 4], found)


def test_without_survivors_shares_are_counts() -> None:
    assert_allclose([0.2, 0.3, 0.5], lasting(np.array([2.0, 3.0, 5.0]), np.zeros(3)))


def test_a_lost_row_lies_above_its_bound_and_not_in_any_one_place() -> None:
    known = Recalibration().having([placed(0.5, Seen.LOST) for _ in range(100)])
    # 100 even pseudo-outcomes and 100 that left at one half: 3 in 4 pass it, and above it they lie evenly.
    assert_allclose(0.75, above(known, 0.5), atol=0.01)
    assert_allclose(0.375, above(known, 0.75), atol=0.01)


def test_dropping_lost_rows_would_ask_for_too_low_a_level() -> None:
    # Everything past 0.6 is given up there; what is seen ends evenly below.
    rng = np.random.default_rng(4)
    u = rng.random(1500)
    told = [placed(float(x)) if x < 0.6 else placed(0.6, Seen.LOST) for x in u]
    dropped = Recalibration().having([one for one in told if one.seen == Seen.ENDED])
    kept = Recalibration().having(told)
    assert_allclose(0.5, kept.asked(("phase",), np.array([0.5]))[0], atol=0.04)
    assert dropped.asked(("phase",), np.array([0.5]))[0] < 0.35


def test_a_running_row_adds_mass_above_it_and_leaves_nothing_when_taken_back() -> None:
    before = Recalibration().having([placed(0.3), placed(0.8), placed(0.95)])
    during = before.having([placed(0.9, Seen.RUNNING, 1 / 3), placed(0.5, Seen.RUNNING, 1 / 7)])
    assert above(before, 0.9) < above(during, 0.9)
    after = during.having([placed(0.5, Seen.NOT_RUNNING, 1 / 7), placed(0.9, Seen.NOT_RUNNING, 1 / 3)])
    assert before.nodes["phase"].n == after.nodes["phase"].n
    assert () == after.nodes["phase"].running
    assert_array_equal(before.at(("phase",)), after.at(("phase",)))


def test_lost_rows_fade_as_outcomes_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pit, "HALF_LIFE", 2.0)
    node = Histogram(0.0, np.zeros(len(WIDTHS))).losing(50, 1.0).having(10, 1.0).having(10, 1.0)
    assert_allclose((0.5, 1.0 + 0.5**0.5), (node.lost[50], node.n))


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.sampled_from([Seen.ENDED, Seen.LOST, Seen.RUNNING])), max_size=40),
    st.floats(0.01, 1.0),
)
@settings(max_examples=60, deadline=None)
def test_shares_add_up_and_levels_never_cross_whatever_was_seen(told: list[tuple[float, Seen]], share: float) -> None:
    known = Recalibration().having([placed(u, seen, share) for u, seen in told])
    cumulative = known.at(("phase",))
    assert (0.0, 1.0) == (cumulative[0], pytest.approx(cumulative[-1]))
    assert np.all(np.diff(cumulative) > 0.0)
    assert np.all(np.diff(known.asked(("phase",), GRID)) >= 0.0)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.floats(0.001, 1.0)), min_size=1, max_size=30), st.randoms())
@settings(max_examples=60, deadline=None)
def test_rows_taken_back_in_any_order_leave_nothing(told: list[tuple[float, float]], order: object) -> None:
    before = Recalibration().having([placed(0.25)])
    during = before.having([placed(u, Seen.RUNNING, share) for u, share in told])
    order.shuffle(told)  # type: ignore[attr-defined]
    after = during.having([placed(u, Seen.NOT_RUNNING, share) for u, share in told])
    assert_array_equal(before.at(("phase",)), after.at(("phase",)))


def test_an_age_between_two_quantiles_has_passed_the_level_between() -> None:
    half_way = math.exp((EVEN[49] + EVEN[50]) / 2.0)
    assert_allclose([0.505, 0.3 + 0.7 * 0.505], [passed_in(EVEN, zero, half_way) for zero in (0.0, 0.3)], atol=1e-9)


def test_an_age_outside_the_outermost_quantiles_has_passed_no_more_than_is_told() -> None:
    assert [0.0, 0.0, 0.3] == [passed_in(EVEN, zero, age) for zero, age in ((0.0, math.exp(-5)), (0.3, 0.0), (0.3, math.exp(-5)))]
    assert_allclose(0.999, passed_in(EVEN, 0.0, math.exp(5.0)))


def test_an_age_at_a_jump_has_passed_all_of_it() -> None:
    atom = EVEN.copy()
    atom[19:60] = 0.1  # levels 0.20 to 0.60 say the same time
    atom[60:] = np.linspace(0.2, 1.0, len(GRID) - 60)
    assert_allclose(0.60, passed_in(atom, 0.0, math.exp(0.1)))


def running(frame: Frame, row: int, age_s: float, sign: int = 1, ended: Ended = Ended.RUNNING) -> Change:
    context, phase = frame.contexts[frame.context[row]], frame.phases[frame.phase[row]]
    return Change(sign, 61, phase, context, 0.0, age_s, ended, 1.0, 61, begun(frame, row).key)


@pytest.fixture(scope="module")
def model() -> Calibrated:
    return Calibrated(fitted(part(recorded(), slice(60))))


def row_of(frame: Frame) -> int:
    return next(row for row in range(60, 240) if frame.context[row] == 0 and frame.phase[row] == 0 and frame.completed[row])


def level(model: Calibrated, p: float) -> float:
    """The raw level that is asked so that p comes true."""
    return float(model.recalibration.asked(model.inner.ask([HERE], ["setup"])[0].path, np.array([p]))[0])


def test_a_row_seen_to_run_past_its_answer_counts_until_it_ends(model: Calibrated) -> None:
    frame = recorded()
    row = row_of(frame)
    asked = model.after([begun(frame, row)], 61)
    age_s = float(asked.predict([HERE], ["setup"]).quantile(0.9)[0, 0])
    late = asked.after([running(frame, row, age_s)], 62)
    assert level(asked, 0.9) < level(late, 0.9)
    later = late.after([running(frame, row, age_s, -1), running(frame, row, 2 * age_s)], 63)
    assert level(late, 0.9) < level(later, 0.9)
    done = later.after([running(frame, row, 2 * age_s, -1), running(frame, row, age_s / 9, 1, Ended.COMPLETED)], 64)
    alone = asked.after([running(frame, row, age_s / 9, 1, Ended.COMPLETED)], 64)
    assert all(() == node.running for node in done.recalibration.nodes.values())
    assert_array_equal(level(alone, 0.9), level(done, 0.9))


def test_what_was_never_counted_is_not_taken_back(model: Calibrated) -> None:
    frame = recorded()
    row = row_of(frame)
    after = model.after([running(frame, row, 1.0, -1), running(frame, row, 2.0)], 61)
    assert all(min(node.running) >= 0 for node in after.recalibration.nodes.values())


def test_a_cancelled_row_is_a_bound_and_a_failed_one_says_nothing_of_completion(model: Calibrated) -> None:
    frame = recorded()
    row = row_of(frame)
    asked = model.after([begun(frame, row)], 61)
    age_s = float(asked.predict([HERE], ["setup"]).quantile(0.9)[0, 0])
    cancelled, failed = (asked.after([running(frame, row, age_s, 1, end)], 62) for end in (Ended.CANCELLED, Ended.FAILED))
    assert level(asked, 0.9) < level(cancelled, 0.9)
    assert_array_equal(level(asked, 0.9), level(failed, 0.9))
