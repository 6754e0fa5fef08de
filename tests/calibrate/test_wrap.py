"""The calibrated model obeys every law, reads answers at levels that came true, and counts a burst once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from calibrate.conformal.pit import Placed, Recalibration
from calibrate.conformal.wrap import Calibrated, placed_of, read_at
from calibrate.evidence.reactions import Action, Reaction
from calibrate.evidence.watching import nodes_of
from predictors import laws
from predictors.contexts import groups_of
from predictors.distribution import GRID, Distribution
from predictors.experts import forest
from predictors.experts.asked import Told
from predictors.experts.histories import EXACT, SMALL
from predictors.experts.windows import Window
from predictors.frames import Frame
from predictors.layered import Layered
from tests.predictors.experts_taught import PAIRS, begun, ended, fitted, learned, part, recorded

HERE = PAIRS[0][0]


def taught(frame: Frame) -> Calibrated:
    """A calibrated model fitted on the first rows, asked about and told the others, with a forest grown on them."""
    known = learned(Calibrated(fitted(part(frame, slice(60)))), frame)
    return known.refounded(known.inner.record, forest.grow(*known.inner.lessons.arrays()))


@pytest.fixture(scope="module")
def known() -> Calibrated:
    return taught(recorded())


@pytest.mark.parametrize("law", laws.DISTRIBUTION_LAWS, ids=lambda law: law.__name__)
def test_answers_obey(law: Callable[[Distribution], None], known: Calibrated) -> None:
    law(known.predict(*PAIRS))


@pytest.mark.parametrize("law", laws.MODEL_LAWS, ids=lambda law: law.__name__)
def test_models_obey(law: Callable[[laws.Fit, Frame, laws.Pairs], None]) -> None:
    law(taught, recorded(120), PAIRS)


def test_before_any_outcome_it_says_what_the_ensemble_says() -> None:
    inner = fitted(part(recorded(), slice(60)))
    levels = GRID[:99]
    assert_allclose(inner.predict(*PAIRS).quantile(levels), Calibrated(inner).predict(*PAIRS).quantile(levels), rtol=1e-9)


def test_levels_between_and_past_the_grid_continue_normal_scores() -> None:
    log_quantiles = 2.0 + 3.0 * ndtri(GRID)
    levels = np.array([0.002, 0.013, 0.5, 0.955, 0.9995])
    assert_allclose(2.0 + 3.0 * ndtri(levels), read_at(log_quantiles, levels), rtol=1e-9)


def test_no_level_past_the_outermost_is_asked() -> None:
    log_quantiles = ndtri(GRID)
    assert_allclose([ndtri(1e-4), ndtri(1.0 - 1e-4)], read_at(log_quantiles, np.array([0.0, 1.0])))


@given(
    st.lists(st.floats(0.0, 2.0), min_size=len(GRID), max_size=len(GRID)), st.lists(st.floats(0.0, 1.0), min_size=2, max_size=30)
)
@settings(max_examples=60, deadline=None)
def test_levels_in_order_read_times_in_order(steps: list[float], levels: list[float]) -> None:
    read = read_at(np.cumsum(steps), np.sort(levels))
    assert np.all(np.isfinite(read))
    assert np.all(np.diff(read) >= 0.0)


def test_answers_that_were_too_long_are_read_at_lower_levels() -> None:
    inner = fitted(part(recorded(), slice(60)))
    path = inner.ask([HERE], ["setup"])[0].path
    v = np.random.default_rng(2).random(2000)
    recalibration = Recalibration().having([Placed(path, (1.0,) * len(path), float(u)) for u in v * v])
    levels = np.array([0.1, 0.5, 0.9])
    asked = recalibration.asked(path, levels)
    assert_allclose([0.01, 0.25, 0.81], asked, atol=0.04)
    found = Calibrated(inner, recalibration).predict([HERE], ["setup"]).quantile(levels)
    assert_allclose(inner.predict([HERE], ["setup"]).quantile(asked), found, rtol=0.01)


def test_rows_of_one_instant_say_once_that_they_were_slow() -> None:
    model = Calibrated(fitted(part(recorded(), slice(60))))
    frame = recorded()
    rows = [row for row in range(60, 240) if frame.context[row] == 0 and frame.phase[row] == 0 and frame.completed[row]][:12]
    together = model.after([begun(frame, row) for row in rows], 60).after([ended(frame, row) for row in rows], 61)
    root = together.inner.ask([HERE], ["setup"])[0].path[0]
    assert_allclose(1.0, together.recalibration.nodes[root].n, rtol=0.01)
    apart = model
    for row in rows:
        apart = apart.after([begun(frame, row)], 60).after([ended(frame, row)], 61)
    assert_allclose(12.0, apart.recalibration.nodes[root].n, rtol=0.01)


def test_where_an_outcome_lay_is_drawn_by_its_name_alone() -> None:
    frame = recorded()
    row = next(row for row in range(60, 240) if frame.duration_s[row] == 0.0)
    model = Calibrated(fitted(part(frame, slice(60)))).after([begun(frame, row)], 60)
    [first], [second] = (model.after([ended(frame, row)], 61).inner.told for _ in range(2))
    one, other = placed_of([first, second])
    assert one == other
    assert 0.0 <= one.u <= first.asked.zero


def test_the_memo_of_answers_holds_until_the_next_outcome(known: Calibrated) -> None:
    fresh = Calibrated(known.inner, known.recalibration)
    first = fresh.predict(*PAIRS).quantile(GRID)
    assert 5 == len(fresh.curves)
    assert_array_equal(first, fresh.predict(*PAIRS).quantile(GRID))
    assert {} == fresh.after([], known.commit + 1).curves


def test_what_is_known_is_that_of_the_ensemble(known: Calibrated) -> None:
    inner = known.inner
    assert (inner.commit, inner.fit_commit, inner.phases) == (known.commit, known.fit_commit, known.phases)
    assert (inner.outcomes("setup"), True, False) == (known.outcomes("setup"), known.knows("setup"), known.knows("service"))
    assert inner.dependence is known.dependence


@pytest.mark.parametrize("spread", [0.5, 2.0])
@pytest.mark.parametrize("n", [9, 19, 99])
def test_where_a_level_is_claimed_it_holds_though_the_base_is_half_or_twice_as_wide_as_the_truth(n: int, spread: float) -> None:
    # field rules C01, C07: the truth's p-quantile is the base's at Phi(spread Phi^-1(p)), and n outcomes of it are known.
    inner, rng, runs = fitted(part(recorded(), slice(60))), np.random.default_rng(n), 300
    one_alone = inner.ask([HERE], ["setup"])[0]
    asked, exact = replace(one_alone, crowd=(1,) * len(one_alone.path)), groups_of(HERE, "setup")[EXACT]
    levels, least = np.array([0.8, 0.9, 0.95]), np.array([4, 9, 19])
    held: list[tuple[float, np.ndarray]] = []
    for _ in range(runs):
        scores = spread * rng.normal(size=n + 1)
        times = read_at(asked.mixed, ndtr(scores))
        told = [Told("", asked, float(np.exp(at)), ended=True) for at in times[:n]]
        windows = Layered({exact: Window(SMALL, tuple(times[:n][-SMALL:].tolist()))})
        setups = inner.record.strata["setup"]
        longest_s = max(setups.longest_s, float(np.exp(times[:n].max())))
        record = replace(inner.record, strata={**inner.record.strata, "setup": replace(setups, longest_s=longest_s, curves={})})
        base = replace(inner, record=record, histories=replace(inner.histories, windows=windows))
        known = Calibrated(base, Recalibration().having(placed_of(told)))
        answered = known.predict([HERE], ["setup"])
        support = answered.support[0]
        held.append((support.claimed_to, times[n] <= np.log(answered.quantile(levels)[0])))
        assert support.checked is not None
        assert support.checked.enough == (support.claimed_to >= 0.9)
    for i, level in enumerate(levels):
        mine = [bool(true[i]) for claimed, true in held if claimed >= level]
        assert len(mine) == (runs if n >= least[i] else 0)
        assert not mine or binom.ppf(0.001, runs, level) <= sum(mine)


def test_widened_answers_are_no_wider_than_their_phase(known: Calibrated) -> None:
    asked = known.inner.ask(*PAIRS)[0]
    limit = np.where(GRID > 0.95, asked.mixed + 0.01, np.inf)
    node = nodes_of(asked.context, asked.phase)[0]
    widen = Reaction(node, Action.WIDEN, 1.5, 1, 2, "passed too often")
    plain, wide = known.calibrated(asked), replace(known, watching=replace(known.watching, standing=(widen,))).calibrated(asked)
    held = replace(known, watching=replace(known.watching, standing=(widen,))).calibrated(replace(asked, limit=limit))
    assert (plain[GRID > 0.9] < wide[GRID > 0.9]).all()
    assert (wide[GRID > 0.95] > limit[GRID > 0.95]).any()
    assert (held <= np.maximum(limit, held[GRID <= 0.95].max())).all()
