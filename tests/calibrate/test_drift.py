"""Changes are found soon and placed well; streams that do not change raise no more alarms than the budget says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.evidence.drift import (
    BETS,
    N_BINS,
    Alarm,
    Change,
    Ranks,
    Watch,
    bin_of,
    draw,
    threshold,
    winnings,
)
from telemetry.errors import BadField

LIMIT = threshold()


def shown(scores: np.ndarray, seed: int) -> tuple[int, Alarm] | None:
    """The number of outcomes until the first alarm, and the alarm; outcome i starts at i ns."""
    ranks, watch = Ranks(), Watch()
    drawn = np.random.default_rng([seed, 99]).random((len(scores), 2))
    for place, score in enumerate(scores.tolist()):
        ranks, x = ranks.after(score, (drawn[place, 0], drawn[place, 1]))
        watch = watch.after(winnings(x), place)
        if (alarm := watch.alarm(LIMIT)) is not None:
            return place + 1, alarm
    return None


def false_alarms(seed: int, outcomes: int, nodes: int = 60) -> int:
    """Alarms of stationary nodes with heavy tails (Student's t with 1.5 degrees of freedom) of different place and spread."""
    rng = np.random.default_rng(seed)
    node, drawn = rng.integers(nodes, size=outcomes), rng.random((outcomes, 2))
    scores = rng.standard_t(1.5, size=outcomes) * np.exp(rng.normal(size=nodes))[node] + rng.normal(size=nodes)[node]
    ranks, watches, alarms = [Ranks()] * nodes, [Watch()] * nodes, 0
    for place, (where, score) in enumerate(zip(node.tolist(), scores.tolist(), strict=True)):
        ranks[where], x = ranks[where].after(score, (drawn[place, 0], drawn[place, 1]))
        watches[where] = watches[where].after(winnings(x), place)
        if watches[where].alarm(LIMIT) is not None:
            alarms, ranks[where], watches[where] = alarms + 1, Ranks(), Watch()
    return alarms


def test_stationary_nodes_raise_few_alarms() -> None:
    assert sum(false_alarms(seed, 10_000) for seed in range(4)) <= 4


def test_one_node_does_not_tire_nor_add_up() -> None:
    assert false_alarms(11, 20_000, nodes=1) <= 3


@pytest.mark.slow
def test_fifty_runs_of_ten_thousand_stationary_outcomes_raise_at_most_fifty_alarms() -> None:
    assert sum(false_alarms(seed, 10_000) for seed in range(50)) <= 50


@pytest.mark.parametrize("noise", [0.5, 0.25])
def test_a_slow_down_by_half_is_found_within_a_hundred_outcomes_in_95_of_100_seeds(noise: float) -> None:
    before, found, off = 200, 0, []
    for seed in range(100):
        scores = np.random.default_rng(seed).normal(size=before + 100)
        scores[before:] += math.log(1.5) / noise
        first = shown(scores, seed)
        if first is not None and first[0] > before:
            found += 1
            off.append(first[1].since_ns - before)
    assert 95 <= found
    assert 5 >= np.median(np.abs(off))


def test_durations_that_double_at_row_500_raise_an_alarm_within_40_rows() -> None:  # field rule C14
    for seed in range(20):
        scores = np.random.default_rng(1000 + seed).normal(size=540)
        scores[500:] += math.log(2.0) / 0.5
        first = shown(scores, seed)
        assert first is not None
        assert 500 < first[0] <= 540


@pytest.mark.parametrize(
    ("change", "shift", "spread"),
    [(Change.HIGHER, 1.5, 1.0), (Change.LOWER, -1.5, 1.0), (Change.WIDER, 0.0, 4.0), (Change.NARROWER, 0.0, 0.2)],
)
def test_an_alarm_names_what_changed_and_since_when(change: Change, shift: float, spread: float) -> None:
    scores = np.random.default_rng(3).normal(size=700)
    scores[400:] = scores[400:] * spread + shift
    first = shown(scores, 3)
    assert first is not None
    count, alarm = first
    assert change == alarm.change
    assert 400 == pytest.approx(alarm.since_ns, abs=12)
    assert count - alarm.since_ns == alarm.outcomes
    assert LIMIT == alarm.threshold <= alarm.evidence


def test_the_first_rank_is_the_draw_itself_and_the_second_is_worked_by_hand() -> None:
    first, x = Ranks().after(0.0, (0.5, 0.5))
    assert 0.0 == x  # rank 0.5
    assert 0.6745 == pytest.approx(first.after(2.0, (0.5, 0.5))[1], abs=1e-4)  # rank (1 + 0.5 * 1) / 2 = 0.75
    assert -0.6745 == pytest.approx(first.after(0.0, (0.25, 0.5))[1], abs=1e-4)  # two alike: rank 0.25 * 2 / 2
    assert [bet.log(0.0) for bet in BETS] == winnings(0.0).logs


def test_what_a_watch_holds_is_worked_by_hand() -> None:
    one = Watch().after(winnings(0.0), 5)
    assert math.exp(-0.125) / len(BETS) == pytest.approx(one.holds[0])  # a bet on a shift by 0.5 loses where there is none
    assert (1, 0.0, 5, 1) == (one.n, one.rise[0], one.since_ns[0], one.before[0])
    two = one.after(winnings(0.6745), 6)
    assert (one.holds[0] + 1.0 / len(BETS)) * math.exp(0.5 * 0.6745 - 0.125) == pytest.approx(two.holds[0])
    assert (2, 0.21225, 6, 1) == (two.n, pytest.approx(two.rise[0]), two.since_ns[0], two.before[0])
    three = two.after(winnings(0.6745), 7)
    assert (0.4245, 6, 1) == (pytest.approx(three.rise[0]), three.since_ns[0], three.before[0])


def test_every_bet_is_fair() -> None:
    x = np.linspace(-15.0, 15.0, 60_001)
    density = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    for bet in BETS:
        assert 1.0 == pytest.approx(float(np.trapezoid(density * np.exp([bet.log(float(one)) for one in x]), x)), rel=1e-6)


def test_scores_that_are_all_alike_raise_no_alarm() -> None:
    assert shown(np.zeros(3000), 4) is None


def test_what_has_not_ended_is_drawn_from_the_scores_above() -> None:
    ranks = Ranks()
    for score in [-1.0, 1.0, 1.0, 3.0]:
        ranks, _ = ranks.after(score, (0.5, 0.5))
    counted = {place: ranks.after(0.5, (0.5, place), ended=False)[0].counts - ranks.counts for place in (0.1, 0.6, 0.9)}
    assert [bin_of(1.0), bin_of(1.0), bin_of(3.0)] == [int(np.argmax(counts)) for counts in counted.values()]
    beyond, _ = ranks.after(50.0, (0.5, 0.1), ended=False)
    assert 1 == beyond.counts[bin_of(50.0)]


def test_attempts_lost_at_random_raise_no_alarm() -> None:
    rng = np.random.default_rng(6)
    alarms = 0
    for _ in range(10):
        ranks, watch = Ranks(), Watch()
        for place, (score, lost, a, b) in enumerate(zip(*rng.normal(size=(2, 800)), *rng.random((2, 800)), strict=True)):
            ranks, x = ranks.after(float(min(score, lost + 0.7)), (a, b), ended=bool(score <= lost + 0.7))
            watch = watch.after(winnings(x), place)
        alarms += watch.alarm(LIMIT) is not None
    assert 0 == alarms


def test_a_burst_alarms_in_order_of_completion_and_not_in_order_of_start() -> None:
    rng = np.random.default_rng(8)
    history, burst = rng.normal(size=200), rng.normal(size=120)
    assert shown(np.append(history, burst), 8) is None
    by_completion = shown(np.append(history, np.sort(burst)), 8)
    assert by_completion is not None
    assert Change.LOWER == by_completion[1].change


def test_a_restart_forgets() -> None:
    slow = np.random.default_rng(9).normal(size=300) + 5.0
    assert shown(slow, 9) is None


def test_the_state_is_small_and_an_earlier_one_stays_as_it_was() -> None:
    before, _ = Ranks().after(0.3, (0.2, 0.2))
    counts = before.counts.copy()
    before.after(2.0, (0.9, 0.9))
    assert np.array_equal(counts, before.counts)
    assert before.counts.nbytes <= 512


def test_the_threshold_is_outcomes_per_false_alarm() -> None:
    assert 20_000.0 == LIMIT
    assert 60_000.0 == threshold(budget=1.0, span=10_000, nodes_per_outcome=6)
    with pytest.raises(BadField, match="budget"):
        threshold(budget=0.0)


@settings(max_examples=100, deadline=None)
@given(st.floats(allow_nan=False), st.floats(allow_nan=False))
def test_bins_keep_the_order_of_scores(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= bin_of(low) <= bin_of(high) < N_BINS


def test_bins_are_fine_where_scores_lie() -> None:
    assert bin_of(0.3) < bin_of(0.35) < bin_of(1.0) < bin_of(1.2) < bin_of(2.0) < bin_of(2.4)
    with pytest.raises(BadField, match="score"):
        bin_of(float("nan"))


def test_draws_depend_on_the_row_alone() -> None:
    some = [draw(seed, row) for seed in (1, 2) for row in ("x", "y")]
    assert 8 == len({one for pair in some for one in pair})
    assert all(0.0 < one < 1.0 for pair in some for one in pair)
    assert draw(1, "x") == some[0]
