"""Latest starts against exhaustive search, with ties and atoms, and what is said when it is too late."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import binom, kstest

from predictors.families import Exponential, LogNormal, Steps
from predictors.joint.quantile_table import timings_of
from predictors.plans.graph import Plan, Stage, StageKind
from predictors.plans.latest_start import (
    LatestStart,
    Safety,
    draw_need_and_load,
    latest_start,
    misses_allowed,
    need_from_quantiles,
    need_from_samples,
)
from telemetry.errors import BadField

LOAD = Stage("load", StageKind.SETUP, timing=0, host="h", attempt="new")


def exact(need: list[int], load: list[int], delta: float) -> LatestStart:
    """Every pair once: the draws are the law of independent need and load."""
    pairs = np.array(list(product(need, load)), dtype=float)
    return latest_start(pairs[:, 0], pairs[:, 1], delta, independent=True, confidence=None)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=8),
    st.lists(st.integers(0, 8), min_size=1, max_size=8),
    st.sampled_from([0.05, 0.1, 0.5]),
)
def test_exhaustive_search_over_discrete_laws_with_ties(need: list[int], load: list[int], delta: float) -> None:
    pairs = list(product(need, load))

    def safe(b: float) -> bool:
        return sum(b + s <= t for t, s in pairs) >= (1 - delta) * len(pairs) - 1e-9

    grid = np.arange(-20, 14, 0.5)
    largest = max(b for b in grid if all(safe(earlier) for earlier in grid if earlier <= b))
    assert largest == exact(need, load, delta).start_s


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=4, max_size=4), st.lists(st.integers(0, 8), min_size=4, max_size=4))
def test_the_frechet_bound_is_the_worst_pairing(need: list[int], load: list[int]) -> None:
    def on_time(start_s: float) -> list[float]:
        return [float(np.mean([start_s + s <= t for t, s in zip(need, order, strict=True)])) for order in permutations(load)]

    answer = latest_start(need, load, 0.5, independent=True, confidence=None)
    assert min(on_time(max(answer.start_s or 0.0, 0.0))) == answer.p_at_least
    assert answer.start_any_s is not None
    assert min(on_time(answer.start_any_s)) >= 0.5 > min(on_time(answer.start_any_s + 0.5))


def test_an_exponential_need_by_closed_form() -> None:
    """Need 10 s, load exponential of mean 1 s: b* = 10 + log(delta)."""
    load = Exponential(1.0).quantile((np.arange(20_000) + 0.5) / 20_000)[0]
    answer = latest_start(np.full(20_000, 10.0), load, 0.05, independent=False, confidence=None)
    assert answer.start_s == pytest.approx(10 + np.log(0.05), abs=1e-3)
    assert answer.p_on_time == pytest.approx(0.95, abs=1e-4)
    assert answer.expected_late_s == pytest.approx(0.05, rel=0.01)  # memoryless: delta times a mean
    assert answer.expected_idle_s == pytest.approx(0.05 - (1 + np.log(0.05)), rel=0.01)
    assert (answer.p_at_least, answer.start_any_s, answer.safety) == (None, None, Safety.SAFE)


def test_the_allowance_is_the_largest_count_with_an_exact_bound_below_delta() -> None:
    for n, delta in ((100, 0.05), (1000, 0.05), (1000, 0.01), (50, 0.5)):
        k = misses_allowed(n, delta, 0.95)
        assert binom.cdf(k, n, delta) <= 0.05 < binom.cdf(k + 1, n, delta)
    assert misses_allowed(58, 0.05, 0.95) == -1  # 0.95^58 > 0.05
    assert misses_allowed(59, 0.05, 0.95) == 0
    assert misses_allowed(30, 0.1, None) == 3


def test_too_few_draws_are_said_and_not_answered() -> None:
    answer = latest_start(np.full(20, 5.0), np.ones(20), 0.05, independent=False)
    assert (answer.safety, answer.start_s) == (Safety.TOO_FEW_SCENARIOS, None)
    assert (answer.p_on_time, answer.expected_idle_s) == (1.0, 4.0)  # of starting now


def test_the_allowance_keeps_the_promise_19_times_in_20() -> None:
    rng, kept = np.random.default_rng(1), 0
    for _ in range(400):
        answer = latest_start(np.full(400, 10.0), rng.exponential(size=400), 0.05, independent=False)
        kept += np.exp(-(10.0 - (answer.start_s or 0.0))) <= 0.05
    assert kept / 400 >= 0.93


def test_too_late_is_said_with_the_chance_of_starting_now() -> None:
    answer = latest_start([1.0, 1.0, 3.0, 3.0], [2.0, 2.0, 2.0, 2.0], 0.25, independent=False, confidence=None)
    assert (answer.safety, answer.start_s) == (Safety.TOO_LATE, -1.0)
    assert (answer.p_on_time_now, answer.p_on_time, answer.expected_late_s, answer.expected_idle_s) == (0.5, 0.5, 0.5, 0.5)


def test_a_load_that_may_fail_uses_up_risk_and_may_leave_none() -> None:
    need, load = np.full(100, 50.0), np.arange(100.0) / 10
    whole, half = (latest_start(need, load, 0.1, independent=False, p_complete=p, confidence=None) for p in (1.0, 0.95))
    assert whole.start_s == pytest.approx(50.0 - 8.9)
    assert half.start_s == pytest.approx(50.0 - 9.4)  # 1 - 0.9 / 0.95 leaves five of a hundred
    never = latest_start(need, load, 0.1, independent=False, p_complete=0.8)
    assert (never.safety, never.start_s, never.p_on_time_now) == (Safety.NEVER, None, 0.8)


def test_a_need_by_quantiles_keeps_them_and_goes_on_beyond() -> None:
    drawn = need_from_quantiles([0.1, 0.5, 0.9], [4.0, 10.0, 12.0], 1, "r", 100_000)
    assert_allclose([4.0, 10.0, 12.0], np.quantile(drawn, [0.1, 0.5, 0.9]), rtol=0.02)
    assert drawn.min() == 0.0
    assert drawn.max() > 13.0
    assert_array_equal(np.full(5, 7.0), need_from_quantiles([0.5], [7.0], 1, "r", 5))


def test_a_need_by_samples_is_drawn_from_them_alike() -> None:
    drawn = need_from_samples([1.0, 2.0, 2.0, 5.0], 2, "r", 40_000)
    assert_allclose([0.25, 0.5, 0.25], [np.mean(drawn == value) for value in (1.0, 2.0, 5.0)], atol=0.01)


def test_running_predecessors_enter_by_their_residual_and_the_latest_counts() -> None:
    law = LogNormal([0.5, 2.0, 3.0], [0.3, 0.5, 0.5])
    timings = timings_of(law, elapsed_s=[np.nan, 2.5, 1.0])
    running = [Stage(f"p{i}", StageKind.SERVICE, timing=i, host="other", attempt=f"p{i}") for i in (1, 2)]
    need, load, p = draw_need_and_load(Plan((LOAD, *running), "r"), "load", timings, seed=3, n_scenarios=4000)
    left = law.residual([0.0, 2.5, 1.0])
    assert kstest(need, lambda t: left.cdf(t)[1] * left.cdf(t)[2]).pvalue > 0.001
    assert kstest(load, lambda t: law.cdf(t)[0]).pvalue > 0.001
    assert p == 1.0


def test_a_known_wait_beside_a_running_predecessor_bounds_the_need_from_below() -> None:
    wait, running = Stage("wait", StageKind.WAIT, planned_s=1.0), Stage("p", StageKind.SERVICE, timing=0, host="o", attempt="p")
    need, _, _ = draw_need_and_load(Plan((LOAD, wait, running)), "load", timings_of(Exponential(1.0)), seed=6, n_scenarios=4000)
    assert need.min() == 1.0
    assert np.mean(need == 1.0) == pytest.approx(1 - np.exp(-1.0), abs=0.03)


def test_a_predecessor_on_the_same_host_shares_its_state() -> None:
    load, running = (
        Stage(name, StageKind.SERVICE, timing=place, host="h", attempt=name, share=0.6)
        for place, name in enumerate(("load", "p"))
    )
    timings = timings_of(LogNormal([1.0, 1.0], 0.5))
    need, took, _ = draw_need_and_load(Plan((load, running)), "load", timings, seed=4, n_scenarios=20_000)
    assert np.corrcoef(np.log(need), np.log(took))[0, 1] == pytest.approx(0.6, abs=0.02)


def test_draws_of_a_load_do_not_move_with_its_predecessors() -> None:
    timings = timings_of(Steps([[1.0, 2.0, 3.0]]))
    more = [Stage(f"p{i}", StageKind.SERVICE, timing=0, host="h", attempt=f"p{i}") for i in range(3)]
    one, three = (draw_need_and_load(Plan((LOAD, *more[:n])), "load", timings, 5, 50)[1] for n in (1, 3))
    assert_array_equal(one, three)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: latest_start([1.0], [1.0], 0.0, independent=False), "delta"),
        (lambda: latest_start([1.0], [1.0], 0.1, independent=False, p_complete=0.0), "p_complete"),
        (lambda: latest_start([np.nan], [1.0], 0.1, independent=False), "need_s"),
        (lambda: latest_start([1.0], [np.inf], 0.1, independent=False), "load_s"),
        (lambda: latest_start([1.0, 2.0], [1.0], 0.1, independent=False), "need_s"),
        (lambda: need_from_quantiles([0.9, 0.5], [1.0, 2.0], 1, "r"), "levels"),
        (lambda: need_from_quantiles([0.5, 0.9], [2.0, 1.0], 1, "r"), "values_s"),
        (lambda: need_from_samples([], 1, "r"), "samples_s"),
        (lambda: draw_need_and_load(Plan((LOAD,)), "load", timings_of(Exponential(1.0)), 1), "load"),
    ],
)
def test_what_cannot_be_answered_is_refused_by_field(call, field: str) -> None:  # noqa: ANN001
    with pytest.raises(BadField, match=field):
        call()
