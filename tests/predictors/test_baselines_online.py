"""Rules that learn online, by hand: recent history, pooled Kaplan-Meier curves, and the evidence behind an answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lifelines import KaplanMeierFitter
from numpy.testing import assert_allclose, assert_array_equal

from predictors import tails
from predictors.baselines import kaplan_meier, median_of_nine, moving_average
from predictors.baselines.evidence import evidence_of
from predictors.baselines.histories import Histories
from predictors.baselines.kaplan_meier import PSEUDO, shrunk, steps
from predictors.baselines.moving_average import MovingAverage
from predictors.baselines.quantile_curves import Knots, curve_through, from_levels, on_grid
from predictors.contexts import Context
from predictors.distribution import GRID, Support
from predictors.frames import Frame
from predictors.grids import GridHazard
from predictors.model import Change
from telemetry.words import Ended

HERE, THERE = Context(host="a", family="encoder"), Context(host="b", family="decoder")
ROWS = np.array([[0.0, 1.0, 1.0, 1.0], [0.0, 2.0, 1.0, 1.0], [0.0, 2.0, 0.0, 1.0], [0.0, 3.0, 1.0, 1.0], [1.5, 4.0, 1.0, 1.0]])
"""Entry, exit, event, weight: one ends at 1, one at 2 as another is censored there, one at 3, and a late one at 4."""


def frame(duration_s: Sequence[float], contexts: Sequence[Context] = (HERE,), **other: Any) -> Frame:
    """Completed setups, in order, round robin over the contexts, but for what is said otherwise."""
    n = len(duration_s)
    plain: dict[str, Any] = {
        "context": np.arange(n) % len(contexts),
        "phase": np.zeros(n, dtype=np.int64),
        "entry_s": np.zeros(n),
        "completed": np.ones(n, dtype=bool),
        "failed": np.zeros(n, dtype=bool),
        "running": np.zeros(n, dtype=bool),
        "weight": np.ones(n),
        "known_from": np.arange(1, n + 1),
    }
    return Frame(tuple(contexts), ("setup",), duration_s=np.asarray(duration_s, dtype=np.float64), **plain | other)


def completed(duration_s: float, known_at: int, sign: int = 1) -> Change:
    return Change(sign, known_at, "setup", HERE, 0.0, duration_s, Ended.COMPLETED, 1.0, known_at)


def median_s(model: Any, context: Context = HERE) -> float:
    return float(model.predict([context], ["setup"]).quantile(0.5)[0, 0])


def test_moving_average_by_hand() -> None:
    rule = MovingAverage()
    for log_s in (0.0, 8.0, 9.0):
        rule.learn("a", "setup", float(np.exp(log_s)))
    assert pytest.approx(2.0) == rule.centre("a", "setup")  # 0, then 0 + 8/8, then 1 + (9 - 1)/8


def test_moving_average_answers_the_average_of_its_configuration() -> None:
    model = moving_average.fit(frame(np.exp([0.0, 5.0, 8.0, 5.0, 9.0, 5.0]).tolist(), [HERE, THERE]), 6)
    assert pytest.approx(np.exp(2.0)) == median_s(model)
    assert pytest.approx(np.exp(5.0)) == median_s(model, THERE)


def test_outcomes_after_half_a_minute_of_silence_start_history_anew() -> None:
    rows = frame([1.0, 1.0, 1.0])
    at_s = {1: 0.0, 2: 1.0, 3: 2.0, 4: 32.0, 5: 63.0}.__getitem__
    fresh = median_of_nine.fit(rows, 3, at_s).after([completed(8.0, 4)], 4)
    assert pytest.approx(1.0) == median_s(fresh)  # 30 s later: the median of 1, 1, 1, 8
    assert pytest.approx(9.0) == median_s(fresh.after([completed(9.0, 5)], 5))  # 31 s later: nothing before it counts
    untimed = median_of_nine.fit(rows, 3).after([completed(8.0, 4)], 4).after([completed(9.0, 5)], 5)
    assert pytest.approx(1.0) == median_s(untimed)


def test_a_duration_taken_back_leaves_the_median() -> None:
    model = median_of_nine.fit(frame([1.0, 2.0, 9.0]), 3)
    assert pytest.approx(2.0) == median_s(model)
    corrected = model.after([completed(9.0, 4, -1), completed(1.0, 4)], 4)
    assert pytest.approx(1.0) == median_s(corrected)
    assert pytest.approx(2.0) == median_s(model)


def test_forks_learn_apart() -> None:
    first: Histories[str] = Histories(3)
    for value in (1.0, 2.0, 3.0, 4.0):
        first.add("a", value)
    second = first.fork()
    second.add("a", 5.0)
    first.take_back("a", 3.0)
    third = second.fork()
    third.start_anew("a")
    assert [[2.0, 4.0], [3.0, 4.0, 5.0], []] == [list(histories.of("a")) for histories in (first, second, third)]


def test_the_last_of_a_history_can_be_made_to_stay() -> None:
    histories: Histories[str] = Histories(3)
    histories.add("a", 1.0)
    histories.take_back("a", 1.0, least=1)
    assert [1.0] == list(histories.of("a"))


def test_kaplan_meier_by_hand() -> None:
    found = steps(ROWS)
    assert_array_equal([1.0, 2.0, 3.0, 4.0], found.time_s)
    assert_array_equal([1.0, 1.0, 1.0, 1.0], found.ended)
    # The late row is at risk from its entry on; the one censored at 2 is still there when another ends at 2.
    assert_array_equal([4.0, 4.0, 2.0, 1.0], found.at_risk)
    assert_allclose([0.75, 0.5625, 0.28125, 0.0], np.cumprod(1.0 - found.hazard))


def test_kaplan_meier_answers_the_steps_of_the_curve() -> None:
    ended = ROWS[:, 2] == 1.0
    model = kaplan_meier.fit(frame(ROWS[:, 1].tolist(), entry_s=ROWS[:, 0], completed=ended), 5)
    # F(1) = 0.25, F(2) = 0.4375, F(3) = 0.71875, F(4) = 1
    answer = model.predict([HERE], ["setup"]).quantile([0.25, 0.26, 0.43, 0.44, 0.71, 0.72, 0.99])
    assert_allclose([[1.0, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0]], answer, rtol=1e-6)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=25, deadline=None)
def test_kaplan_meier_agrees_with_lifelines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entry = np.where(rng.random(60) < 0.3, rng.integers(0, 5, 60), 0).astype(float)
    rows = np.stack([entry, entry + rng.integers(1, 12, 60), rng.random(60) < 0.6, rng.choice([0.5, 1.0], 60)], axis=1)
    found = steps(rows)
    fitter = KaplanMeierFitter()
    fitter.fit(rows[:, 1], rows[:, 2] > 0.0, entry=entry, weights=2.0 * rows[:, 3])  # halves would only earn a warning
    expected = fitter.survival_function_at_times(found.time_s)
    assert_allclose(expected, np.cumprod(1.0 - found.hazard), atol=1e-12)


def test_a_family_is_shrunk_to_its_phase() -> None:
    own = ROWS[3:]
    found = shrunk(own, steps(ROWS))
    # At 1 only the row from 0 is at risk and ends nothing; at 3 one of two ends, as 1/2 of the phase does.
    assert_array_equal([1.0, 2.0, 3.0, 4.0], found.time_s)
    assert_allclose([PSEUDO * 0.25 / (PSEUDO + 1), PSEUDO * 0.25 / (PSEUDO + 2)], found.hazard[:2])
    assert_allclose((1.0 + PSEUDO * 0.5) / (2.0 + PSEUDO), found.hazard[2])


def test_running_rows_raise_the_curve_until_they_end() -> None:
    # Ten that took 1 s, forty that have run for 2 s: most take longer than 2 s, where the declared tail begins.
    rows = frame([1.0] * 10 + [2.0] * 40, completed=np.arange(50) < 10, running=np.arange(50) >= 10)
    model = kaplan_meier.fit(rows, 50)
    early, late = model.predict([HERE], ["setup"]).quantile([0.2, 0.5])[0].tolist()
    assert pytest.approx(1.0, rel=1e-6) == early  # F(1) = 10/50
    assert late > 2.0
    changes = [
        change
        for i in range(10, 50)
        for change in (
            Change(-1, 51, "setup", HERE, 0.0, 2.0, Ended.RUNNING, 1.0, i + 1),
            Change(1, 51, "setup", HERE, 0.0, 3.0, Ended.COMPLETED, 1.0, 51),
        )
    ]
    assert pytest.approx(3.0, rel=1e-6) == median_s(model.after(changes, 51))


def test_nothing_kept_that_ended_leaves_half_by_the_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kaplan_meier, "MOST", 5)
    rows = frame([1.0] + [7.0] * 8, completed=np.arange(9) < 1, running=np.arange(9) >= 1)
    assert pytest.approx(7.0) == median_s(kaplan_meier.fit(rows, 9))


def test_shares_of_zeros_and_failures_by_hand() -> None:
    # HERE: 0, 0, 4 s completed, a failure and one running; THERE: 1 s and 2 s.
    rows = frame(
        [0.0, 0.0, 4.0, 3.0, 5.0, 1.0, 2.0],
        [HERE, THERE],
        context=np.array([0, 0, 0, 0, 0, 1, 1]),
        completed=np.array([1, 1, 1, 0, 0, 1, 1], dtype=bool),
        failed=np.arange(7) == 3,
        running=np.arange(7) == 4,
        weight=np.array([1.0, 0.5, 1.0, 1.0, 1.0, 1.0, 1.0]),
    )
    known = evidence_of(rows)
    root_zeros = 2 / 6  # of six that did not fail, the running one among them
    assert pytest.approx((2 + 5 * root_zeros) / (4 + 5)) == known.zero_share(HERE, "setup")
    assert pytest.approx((0 + 5 * root_zeros) / (2 + 5)) == known.zero_share(THERE, "setup")
    assert pytest.approx((3 + 5 * (5 / 6)) / (4 + 5)) == known.p_complete(HERE, "setup")
    assert pytest.approx(5 / 6) == known.p_complete(Context(host="c"), "setup")
    assert Support("configuration", 3, 2.5, 5.0, 3, matched=True) == known.support(HERE, "setup")
    assert Support("phase", 5, 4.5, 5.0, 7, matched=False) == known.support(Context(state="cold"), "setup")


@given(st.lists(st.floats(-5.0, 5.0), min_size=3, max_size=3))
@settings(max_examples=50, deadline=None)
def test_levels_are_met_and_never_cross(log_q: list[float]) -> None:
    levels = np.array([0.1, 0.5, 0.9])
    found = from_levels(np.array(log_q), levels)
    assert_allclose(sorted(log_q), found[[9, 49, 89]], atol=1e-9)
    assert np.all(np.diff(found) >= -1e-12)


def test_levels_are_interpolated_in_normal_scores() -> None:
    # A normal law is met everywhere from three of its quantiles, past the outermost ones as well.
    normal = from_levels(np.array([-1.2815515655446004, 0.0, 1.2815515655446004]), np.array([0.1, 0.5, 0.9]))
    assert_allclose([-2.3263478740408408, 0.6744897501960817, 3.090232306167813], normal[[0, 74, 100]])


def test_no_quantile_lies_far_past_the_longest_known_unless_its_own_centre_does() -> None:
    support = Support("phase", 9, 9.0, 10.0)
    wide = on_grid(np.linspace(-5.0, 50.0, len(GRID)))  # median at e^22.5
    narrow = on_grid(np.append(np.zeros(60), np.linspace(0.0, 50.0, 41)))
    far_s = [GridHazard((curve_through(knots, 0.0, support, 1.0),)).quantile(0.999)[0, 0] for knots in (wide, narrow)]
    assert far_s[1] <= 10.0 * tails.LIMIT
    assert np.exp(22.0) < far_s[0] <= np.exp(22.5) * tails.LIMIT * (1.0 + 1e-6)


def test_what_took_no_time_is_put_before_the_rest() -> None:
    knots = Knots(np.log([1.0, 2.0]), -np.log([0.5, 0.25]))
    dist = GridHazard((curve_through(knots, 0.4, Support("phase", 9, 9.0, 2.0), 0.9),))
    assert_allclose([[0.6, 0.3, 0.15]], dist.sf([0.0, 1.0, 2.0]))
    assert_array_equal([[0.0]], dist.quantile(0.39))
