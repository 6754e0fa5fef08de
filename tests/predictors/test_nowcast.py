"""Slow periods of hosts: followed when they last, not seen in single stalls, forgotten overnight, and nobody else's business."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from predictors.host_levels import levels_of
from predictors.nowcast import STEADY, HostOutcome, Memory, NowCast, _likelihoods, fit, shifted
from telemetry.errors import BadField

TWICE = math.log(2.0)
GAP_S = 10.0
HOSTS = ("north", "south", "east")
LEVELS = norm.ppf(np.array([[0.5, 0.9]]))


def outcomes(
    rng: np.random.Generator, n: int, noise: float, *, slow: str | None = None, start_s: float = 0.0
) -> list[HostOutcome]:
    """N outcomes, hosts taking turns; those of `slow` take twice as long."""
    return [
        HostOutcome(
            HOSTS[i % 3],
            start_s + GAP_S * i,
            noise * rng.normal() + (TWICE if HOSTS[i % 3] == slow else 0.0),
            noise,
        )
        for i in range(n)
    ]


def blank(noise: float, memory: Memory = STEADY) -> NowCast:
    return NowCast(memory, noise, levels_of(noise, memory.tau * noise))


def covered(now: NowCast, host: str, at_s: float, noise: float, truth: float) -> float:
    """F_true of the answered 90 % quantile where log time is normal about `truth`."""
    mean, variance = now.state(host, at_s)
    q90 = shifted(noise * LEVELS, 0.0, mean, variance, noise)[0, 1]
    return float(norm.cdf((q90 - truth) / noise))


@pytest.mark.parametrize("noise", [0.2, 0.5])
def test_a_host_twice_as_slow_is_followed_within_twenty_outcomes_and_no_other_host_is_touched(noise: float) -> None:
    at_ten, at_twenty, others = [], [], []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        before = fit(outcomes(rng, 90, noise))
        start_s = 90 * GAP_S
        later = outcomes(rng, 60, noise, slow="north", start_s=start_s)
        after, end_s = before.after(later), start_s + 60 * GAP_S
        at_ten.append(covered(before.after(later[:30]), "north", end_s, noise, TWICE))
        at_twenty.append(covered(after, "north", end_s, noise, TWICE))
        others.append(covered(after, "south", end_s, noise, 0.0))
        without = before.after([outcome for outcome in later if outcome.host != "north"])
        assert without.state("south", end_s) == after.state("south", end_s)
    unmoved = norm.cdf(norm.ppf(0.9) - TWICE / noise)
    assert np.mean(at_ten) > 0.6 * 0.9 + 0.4 * unmoved
    assert np.mean(at_twenty) >= 0.87
    assert 0.9 == pytest.approx(np.mean(others), abs=0.01)


@pytest.mark.parametrize("noise", [0.05, 0.5])
def test_three_stalls_of_hundreds_of_times_the_length_do_not_make_a_device_slow(noise: float) -> None:
    usual = blank(noise).after(outcomes(np.random.default_rng(1), 30, noise))
    stalls = [HostOutcome("north", 1e3 + i, math.log(80e-3 / 190e-6), noise) for i in range(3)]
    one = usual.after(stalls[:1])
    assert abs(one.state("north", 1e3)[0]) < 0.2 * noise
    recovered = usual.after(stalls).after([replace(stall, at_s=2e3 + i, residual=0.0) for i, stall in enumerate(stalls * 2)])
    assert abs(recovered.state("north", 2e3)[0]) < 0.2 * noise


def test_a_slow_period_that_ends_is_over_within_ten_outcomes() -> None:
    slow = blank(0.2).after([HostOutcome("north", GAP_S * i, TWICE, 0.2) for i in range(20)])
    assert TWICE == pytest.approx(slow.state("north", 200.0)[0], abs=0.05)
    back = slow.after([HostOutcome("north", 200.0 + GAP_S * i, 0.0, 0.2) for i in range(10)])
    assert 0.0 == pytest.approx(back.state("north", 300.0)[0], abs=0.05)


def test_a_silent_night_ages_the_evidence() -> None:
    now = blank(0.2, Memory(0.7, 30.0, 7200.0)).after([HostOutcome("north", GAP_S * i, TWICE, 0.2) for i in range(20)])
    (evening, sure), (morning, unsure) = now.state("north", 200.0), now.state("north", 200.0 + 8 * 3600.0)
    assert TWICE == pytest.approx(evening, abs=0.05)
    assert abs(morning) < 0.25 * TWICE
    assert unsure > 3.0 * sure
    never = now.state("never seen", 0.0)
    assert now.state("north", 1e9) == pytest.approx(never, abs=1e-6)


def test_a_late_outcome_says_less_than_a_fresh_one_and_never_turns_the_clock_back() -> None:
    now = blank(0.2, Memory(0.7, 30.0, 600.0)).after([HostOutcome("north", 10_000.0, 0.0, 0.2)])
    fresh, late = (now.after([HostOutcome("north", at_s, 0.3, 0.2)]) for at_s in (10_000.0, 9_000.0))
    assert 0.0 <= now.state("north", 10_000.0)[0] + 1e-9 < late.state("north", 10_000.0)[0] < fresh.state("north", 10_000.0)[0]
    assert 10_000.0 == late.hosts["north"].at_s


def test_a_cancelled_run_proves_that_it_lasted_so_long() -> None:
    now = blank(0.2, Memory(0.7, 30.0, math.inf))
    long, short = (now.after([HostOutcome("north", 0.0, z, 0.2, completed=False)]).state("north", 0.0)[0] for z in (0.3, -1.0))
    assert 0.0 < long
    assert 0.0 == pytest.approx(short, abs=0.02)


def test_outcomes_that_share_one_weight_say_what_one_says() -> None:
    now = blank(0.2, Memory(0.7, 30.0, 600.0))
    one = now.after([HostOutcome("north", 0.0, 0.3, 0.2)])
    nine = now.after([HostOutcome("north", 0.0, 0.3, 0.2, weight=1.0 / 9.0)] * 9)
    assert_allclose(one.state("north", 0.0), nine.state("north", 0.0), rtol=0.03)
    spread = now.after([HostOutcome("north", 0.0, z, 0.2, weight=1.0 / 9.0) for z in np.linspace(0.1, 0.5, 9).tolist()])
    assert_allclose(one.state("north", 0.0)[0], spread.state("north", 0.0)[0], rtol=0.05)


def test_a_value_stays_as_it_was_and_a_fold_can_be_cut_anywhere() -> None:
    told_all = outcomes(np.random.default_rng(3), 40, 0.3)
    start = blank(0.3)
    at_once, in_parts = start.after(told_all), start.after(told_all[:17]).after(told_all[17:])
    assert {} == dict(start.hosts)
    for host in HOSTS:
        assert_array_equal(at_once.hosts[host].density, in_parts.hosts[host].density)


def test_memory_is_short_where_levels_wander_and_long_where_they_do_not() -> None:
    rng = np.random.default_rng(4)
    steady = outcomes(rng, 600, 0.2)
    paths = 0.15 * np.cumsum(rng.normal(size=(3, 200)) * np.sqrt(2.0 / 20.0), axis=1)
    wandering = [replace(o, residual=o.residual + float(paths[i % 3, i // 3])) for i, o in enumerate(steady)]
    assert STEADY == fit(steady).memory
    found = fit(wandering).memory
    assert found.tau > STEADY.tau
    assert fit([]).memory == STEADY


def test_levels_that_wander_with_the_hours_are_told_from_those_that_wander_with_the_work() -> None:
    rng = np.random.default_rng(5)
    bursts = [HostOutcome("north", 7200.0 * k + i, 0.0, 0.2) for k in range(80) for i in range(6)]
    by_hour = np.repeat(0.2 * rng.normal(size=80), 6)
    noise = 0.2 * rng.normal(size=len(bursts))
    moved = [replace(o, residual=float(z + e)) for o, z, e in zip(bursts, by_hour, noise, strict=True)]
    assert fit(moved).memory.seconds <= 7200.0


def test_following_a_wandering_host_predicts_better_than_its_long_run() -> None:
    rng = np.random.default_rng(6)
    level = np.cumsum(0.05 * rng.normal(size=500)) * np.exp(-np.arange(500) / 1e4)
    series = [HostOutcome("north", GAP_S * i, float(z + 0.2 * rng.normal()), 0.2) for i, z in enumerate(level)]
    now, gain = fit(series[:250]), []
    for outcome in series[250:]:
        mean, variance = now.state("north", outcome.at_s)
        followed = norm.logpdf(outcome.residual, mean, math.sqrt(0.04 + variance))
        gain.append(followed - norm.logpdf(outcome.residual, 0.0, 0.2))
        now = now.after([outcome])
    assert np.mean(gain) > 3.0 * np.std(gain) / math.sqrt(len(gain))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(-1e3, 1e3),
            st.floats(-40.0, 40.0),
            st.floats(1e-4, 20.0),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_whatever_is_told_the_state_is_finite(rows: list[tuple[float, float, float, bool]]) -> None:
    now = blank(0.2).after([HostOutcome("north", *row) for row in rows])
    mean, variance = now.state("north", 2e3)
    assert math.isfinite(mean)
    assert 0.0 < variance < 20.0


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("scale", 0.0), ("scale", math.nan), ("residual", -math.inf), ("at_s", math.nan)],
)
def test_numbers_that_would_spoil_a_host_are_refused(field: str, wrong: float) -> None:
    with pytest.raises(BadField, match=field):
        blank(0.2).after([replace(HostOutcome("north", 0.0, 0.0, 0.2), **{field: wrong})])


def test_quantiles_move_by_the_mean_and_widen_about_the_median_by_the_variance() -> None:
    found = shifted(np.array([[1.0, 2.0, 4.0]]), 2.0, 0.5, 0.75, 0.5)  # sqrt(1 + 0.75 / 0.25) = 2
    assert_array_equal(np.array([[0.5, 2.5, 6.5]]), found)


def test_memories_are_compared_by_what_each_outcome_was_worth_after_those_before_it() -> None:
    rng = np.random.default_rng(5)
    told = outcomes(rng, 90, 0.2, slow="south")
    told[40] = replace(told[40], at_s=told[40].at_s - 25 * GAP_S)  # known late, about an earlier time
    memories = [STEADY, replace(STEADY, outcomes=3.0, seconds=600.0)]
    expected = []
    for memory in memories:
        cast, total = blank(0.2, memory), 0.0
        for outcome in told:
            known = cast._host(outcome.host, outcome.at_s, cast.hosts)
            total += cast._next(known, outcome)[1]
            cast = cast.after([outcome])
        expected.append(total)
    assert expected == pytest.approx(_likelihoods(blank(0.2).levels, memories, told), abs=1e-8)
