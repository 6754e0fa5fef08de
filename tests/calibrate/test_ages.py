"""Recalibration of what remains, worked by hand: which ages a row is placed at, and what that does to answers given an age."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from calibrate.conformal import ages
from calibrate.conformal.ages import AGES, EDGES, Ages, Lasted, groups_aged
from calibrate.conformal.remaining import Aging, moved
from predictors.contexts import Context
from predictors.distribution import GRID, Support
from predictors.grids import Curve

A, B = Context(host="h", family="a"), Context(host="h", family="b")
GROUPS_A, GROUPS_B = groups_aged(A, "service"), groups_aged(B, "service")
CURVE = Curve(np.log([1.0, 2.0, 4.0]), np.array([0.2, 0.7, 2.0]), 0.0, 2.0, Support("phase", 9, 9.0, 4.0))


def lasting(duration_s: float, *reached: tuple[float, float], groups: tuple[str, ...] = GROUPS_A, ended: bool = True) -> Lasted:
    """A row of a duration, with (F(e), u) of each age that it reached."""
    return Lasted(groups, duration_s, ended, [used for used, _ in reached], [u for _, u in reached])


def reaching(age: int, used: float, u: float) -> list[tuple[float, float]]:
    """As far as an age of AGES, alike at all."""
    return [(used, u)] * (age + 1)


def test_what_is_typical_is_a_median_of_log_times_shrunk_to_wider_groups() -> None:
    known = Ages().having([lasting(1.0), lasting(math.e**2)])
    assert 1.0 == known.centre(GROUPS_A)
    # The phase's median of 1 stands for a family of which nothing is known.
    assert 1.0 == known.centre(GROUPS_B)
    both = known.having([lasting(math.e**4, groups=GROUPS_B)])
    # A third of 1.57 mean deviations up. Of one outcome's spread nothing is known but the wider group's, three outcomes' worth.
    phase = 1.0 + 1.57 / 3.0
    weight = ages.WIDER * 0.75**2
    family = (1 * 4.0 + weight * phase) / (1 + weight)
    expected = (1 * 4.0 + weight * family) / (1 + weight)
    assert_allclose(expected, both.centre(GROUPS_B))
    assert Ages().centre(GROUPS_A) is None


def test_the_running_median_is_one_whatever_the_tail() -> None:
    rng = np.random.default_rng(3)
    for draw in (rng.normal(1.0, 0.003, 4_000), rng.standard_t(2, 4_000) * 0.1 + 1.0, 1.0 + rng.exponential(0.5, 4_000)):
        known = ages.NOTHING
        for value in draw.tolist():
            known = known.having(value)
        assert (4_000, True) == (known.n, abs((draw[-400:] < known.median).mean() - 0.5) < 0.12)


def test_steady_groups_are_not_drawn_to_wider_ones() -> None:
    rng = np.random.default_rng(4)
    steady = [lasting(math.exp(1.0 + 0.003 * draw)) for draw in rng.normal(size=60)]
    other = [lasting(math.exp(3.0 + 0.003 * draw), groups=GROUPS_B) for draw in rng.normal(size=60)]
    known = Ages().having([one for pair in zip(steady, other, strict=True) for one in pair])
    assert_allclose([1.0, 3.0], [known.centre(GROUPS_A), known.centre(GROUPS_B)], atol=0.002)


def test_rows_given_up_and_rows_of_no_length_say_nothing_of_what_is_typical() -> None:
    assert Ages().having([lasting(3.0, ended=False), lasting(0.0)]).centre(GROUPS_A) is None


def test_a_row_reaches_the_ages_it_outlasted() -> None:
    known = Ages().having([lasting(2.0)])
    assert_allclose([0.5, 1.0, 2.0], known.reached(GROUPS_A, 2.5))
    assert [] == known.reached(GROUPS_A, 0.5)
    assert [] == Ages().reached(GROUPS_A, 2.5)


def test_nothing_is_changed_at_young_ages_and_where_nothing_is_known() -> None:
    known = Ages().having([lasting(2.0, (0.1, 0.9))])
    assert known.at(GROUPS_A, 0.0, 0.0) is None
    assert known.at(GROUPS_A, 2.0 * ages.YOUNGEST, 0.0) is None
    assert Ages().at(GROUPS_A, 2.0, 0.5) is None


def test_a_curve_is_what_came_true_shrunk_down_the_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "PSEUDO", (1.0,) * 4)
    known = Ages().having([lasting(2.0, *reaching(2, 0.3, 0.02)) for _ in range(200)])
    curve = known.at(GROUPS_A, 2.0, 0.3)
    assert curve is not None
    n = sum(0.5 ** ((200 - m) / 800.0) * (m / 200.0) ** 3 for m in range(1, 201))
    # Four nodes, each leaving 1 / (n + 1) of its parent, hold but this share outside the bin from 0 to 0.05.
    assert_allclose(0.95 * (1.0 / (n + 1.0)) ** 4, 1.0 - curve[1], rtol=1e-6)
    assert (0.0, 1.0) == (curve[0], curve[-1])


def test_rows_that_began_together_count_for_one() -> None:
    """The first of a crowd to end lie low in their answers: nine of them would make those that still run end too soon."""
    even = Ages().having([lasting(2.0, *reaching(2, 0.3, (0.5 + i) / 40.0)) for i in range(40)])
    low = lasting(2.0, *reaching(2, 0.3, 0.02))
    curves = [even.having(rows).at(GROUPS_A, 2.0, 0.3) for rows in ([low], [replace(low, shares=(1 / 9,) * 3)] * 9, [low] * 9)]
    assert all(curve is not None for curve in curves)
    one, together, apart = (float(curve[1]) for curve in curves if curve is not None)
    assert abs(together - one) < 0.01
    assert apart > one + 0.05


def test_what_came_when_half_as_much_was_known_weighs_an_eighth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "PSEUDO", (1.0,) * 4)
    known = Ages().having([lasting(2.0, *reaching(2, 0.3, 0.02)) for _ in range(10)])
    # Ten more outcomes of the phase that reached no age: of another family, so that they are in no node but the phase's mean.
    later = known.having([lasting(2.0, groups=GROUPS_B) for _ in range(10)])
    node, other = known.nodes.get(GROUPS_A[0]), later.nodes.get(GROUPS_A[0])
    assert node is not None
    assert node is other
    assert_allclose(
        (0.125 * node.counts[2, 0] + EDGES[1]) / (0.125 * node.n[2] + 1.0), node.shrunk(2, np.diff(EDGES), 20, 1.0)[0]
    )
    curves = [one.at(GROUPS_A, 2.0, 0.3) for one in (known, later)]
    assert curves[0] is not None
    assert curves[1] is not None
    assert curves[1][1] < curves[0][1]


def test_what_earlier_programs_kept_weighs_in_full() -> None:
    known = Ages().having([lasting(2.0, *reaching(2, 0.3, 0.02)) for _ in range(10)]).nodes.get(GROUPS_A[0])
    assert known is not None
    earlier = ages.Reached(known.n, known.counts, known.lost)
    assert_array_equal(known.shrunk(2, np.diff(EDGES), 10, 15.0), earlier.shrunk(2, np.diff(EDGES), 500, 15.0))


def test_a_quarter_of_the_answer_is_told_apart() -> None:
    known = Ages().having([lasting(2.0, *reaching(2, 0.3, 0.02)) for _ in range(50)])
    same, other = known.at(GROUPS_A, 2.0, 0.26), known.at(GROUPS_A, 2.0, 0.6)
    assert same is not None
    assert other is not None
    assert same[1] > other[1] > EDGES[1]


def test_between_two_ages_curves_are_mixed() -> None:
    known = Ages().having([lasting(1.0, *reaching(2, 0.3, 0.9)), lasting(1.0, *reaching(3, 0.3, 0.1))])
    at = [known.at(GROUPS_A, age_s, 0.3) for age_s in (1.0, math.sqrt(1.5), 1.5, AGES[-1], 100.0)]
    first, between, second, last, old = (np.asarray(one) for one in at)
    assert_allclose((first + second) / 2.0, between, atol=1e-12)
    assert_array_equal(last, old)


def test_a_row_that_was_lost_moves_what_lies_past_its_bound_alone() -> None:
    known = Ages().having([lasting(1.0, *reaching(2, 0.3, u)) for u in (0.2, 0.4, 0.6, 0.8)])
    more = known.having([lasting(1.0, *reaching(2, 0.3, 0.5), ended=False) for _ in range(20)])
    before, after = (np.asarray(one.at(GROUPS_A, 1.0, 0.3)) for one in (known, more))
    assert after[EDGES.searchsorted(0.9)] < before[EDGES.searchsorted(0.9)]


@given(st.floats(1e-6, 60.0), st.integers(0, 3))
@settings(max_examples=100, deadline=None)
def test_moving_levels_there_and_back_changes_nothing(h: float, seed: int) -> None:
    curve = np.append(0.0, np.cumsum(np.random.default_rng(seed).dirichlet(np.ones(len(EDGES) - 1) * 5.0)))
    curve[-1] = 1.0
    there = moved(np.array([h]), curve, EDGES)
    assert np.isfinite(there[0])
    assert_allclose(h, moved(there, EDGES, curve)[0], rtol=1e-6, atol=1e-9)


def test_answers_given_an_age_are_read_at_the_levels_that_came_true() -> None:
    known = Ages().having(
        [lasting(2.0, *reaching(2, 0.5, u)) for u in np.linspace(0.001, 0.5, 400)]
    )  # twice as fast as was thought
    whole = Aging((CURVE,), known, (GROUPS_A,))
    plain = Aging((CURVE,), Ages(), (GROUPS_A,))
    aged, conditional = whole.residual(2.0), plain.residual(2.0)
    assert (("recalibrated",), ("conditional",)) == (aged.forms, conditional.forms)
    curve = known.at(GROUPS_A, 2.0, float(whole.cdf(2.0)[0, 0]))
    assert curve is not None
    level = float(np.interp(0.9, curve, EDGES))
    assert level < 0.6
    assert_allclose(conditional.quantile(level), aged.quantile(0.9), rtol=1e-9)
    assert_allclose(0.1, aged.sf(aged.quantile(0.9)), atol=1e-9)
    assert (np.diff(aged.quantile(GRID)[0]) >= 0.0).all()


def test_an_age_of_zero_leaves_the_law_as_it_is() -> None:
    known = Ages().having([lasting(2.0, (0.1, 0.1))])
    whole = Aging((CURVE,), known, (GROUPS_A,))
    assert_array_equal(whole.quantile(GRID), whole.residual(0.0).quantile(GRID))


def test_members_of_a_batch_are_answered_as_if_alone() -> None:
    known = Ages().having([lasting(2.0, *reaching(2, 0.5, 0.1)) for _ in range(40)])
    both = Aging((CURVE, CURVE), known, (GROUPS_A, GROUPS_B)).residual([2.0, 0.0])
    assert ("recalibrated", "conditional") == both.forms
    for row, (groups, age_s) in enumerate(((GROUPS_A, 2.0), (GROUPS_B, 0.0))):
        alone = Aging((CURVE,), known, (groups,)).residual(age_s)
        assert_array_equal(alone.quantile(GRID)[0], both.take(np.array([row])).quantile(GRID)[0])
        assert_array_equal(alone.quantile(GRID)[0], both.quantile(GRID)[row])


def test_waiting_longer_is_answered_at_the_older_age() -> None:
    known = Ages().having([lasting(2.0, *reaching(2, 0.5, 0.1), (0.6, 0.9)) for _ in range(40)])
    whole = Aging((CURVE,), known, (GROUPS_A,))
    assert_array_equal(whole.residual(3.0).quantile(GRID), whole.residual(2.0).residual(1.0).quantile(GRID))
