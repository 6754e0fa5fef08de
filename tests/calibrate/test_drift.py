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
    Waiting,
    Watch,
    bin_of,
    draws,
    in_start_order,
    threshold,
)
from telemetry.errors import BadField

LIMIT = threshold()


def shown(scores: np.ndarray, seed: int, watch: Watch | None = None) -> tuple[int, Alarm] | None:
    """The number of outcomes until the first alarm, and the alarm; outcome i starts at i ns."""
    watch = Watch() if watch is None else watch
    draw = np.random.default_rng([seed, 99]).random((len(scores), 2))
    for place, score in enumerate(scores.tolist()):
        watch = watch.after(score, place, (draw[place, 0], draw[place, 1]))
        if (alarm := watch.alarm(LIMIT)) is not None:
            return place + 1, alarm
    return None


def false_alarms(seed: int, outcomes: int, nodes: int = 60) -> int:
    """Alarms of stationary nodes with heavy tails (Student's t with 1.5 degrees of freedom) of different place and spread."""
    rng = np.random.default_rng(seed)
    node, draw = rng.integers(nodes, size=outcomes), rng.random((outcomes, 2))
    scores = rng.standard_t(1.5, size=outcomes) * np.exp(rng.normal(size=nodes))[node] + rng.normal(size=nodes)[node]
    watches, alarms = [Watch()] * nodes, 0
    for place, (where, score) in enumerate(zip(node.tolist(), scores.tolist(), strict=True)):
        watches[where] = watches[where].after(score, place, (draw[place, 0], draw[place, 1]))
        if watches[where].alarm(LIMIT) is not None:
            alarms, watches[where] = alarms + 1, Watch()
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
    first = Watch().after(0.0, 5, (0.5, 0.5))  # rank 0.5, x = 0
    assert [bet.log(0.0) for bet in BETS] == pytest.approx([math.log(run.holds * len(BETS)) for run in first.runs])
    second = first.after(2.0, 6, (0.5, 0.5))  # rank (1 + 0.5 * 1) / 2 = 0.75, x = 0.6745
    staked = first.runs[0].holds + 1.0 / len(BETS)
    assert staked * math.exp(0.5 * 0.6745 - 0.125) == pytest.approx(second.runs[0].holds, rel=1e-4)
    tied = first.after(0.0, 6, (0.25, 0.5))  # two alike: rank 0.25 * 2 / 2
    assert staked * math.exp(0.5 * -0.6745 - 0.125) == pytest.approx(tied.runs[0].holds, rel=1e-4)


def test_every_bet_is_fair() -> None:
    x = np.linspace(-15.0, 15.0, 60_001)
    density = np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
    for bet in BETS:
        assert 1.0 == pytest.approx(float(np.trapezoid(density * np.exp([bet.log(float(one)) for one in x]), x)), rel=1e-6)


def test_scores_that_are_all_alike_raise_no_alarm() -> None:
    assert shown(np.zeros(3000), 4) is None


def test_what_has_not_ended_is_drawn_from_the_scores_above() -> None:
    watch = Watch()
    for place, score in enumerate([-1.0, 1.0, 1.0, 3.0]):
        watch = watch.after(score, place, (0.5, 0.5))
    counted = {draw: watch.after(0.5, 9, (0.5, draw), ended=False).counts - watch.counts for draw in (0.1, 0.6, 0.9)}
    assert [bin_of(1.0), bin_of(1.0), bin_of(3.0)] == [int(np.argmax(counts)) for counts in counted.values()]
    beyond = watch.after(50.0, 9, (0.5, 0.1), ended=False)
    assert 1 == beyond.counts[bin_of(50.0)]


def test_attempts_lost_at_random_raise_no_alarm() -> None:
    rng = np.random.default_rng(6)
    alarms = 0
    for _ in range(10):
        watch = Watch()
        for place, (score, lost, a, b) in enumerate(zip(*rng.normal(size=(2, 800)), *rng.random((2, 800)), strict=True)):
            watch = watch.after(float(min(score, lost + 0.7)), place, (a, b), ended=bool(score <= lost + 0.7))
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
    assert shown(slow, 9, Watch()) is None


def test_the_state_is_small_and_an_earlier_one_stays_as_it_was() -> None:
    before = Watch().after(0.3, 1, (0.2, 0.2))
    counts = before.counts.copy()
    before.after(2.0, 2, (0.9, 0.9))
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


def test_draws_depend_on_node_and_attempt_alone() -> None:
    some = draws(1, ["a", "a", "b"], ["x", "y", "x"])
    assert (3, 2) == some.shape
    assert np.array_equal(some[[2, 0]], draws(1, ["b", "a"], ["x", "x"]))
    assert 6 == len(np.unique(some))
    assert not np.any(some == draws(2, ["a", "a", "b"], ["x", "y", "x"]))


def test_an_attempt_waits_for_those_that_started_before_it() -> None:
    first, second, third = Waiting(1, "a", 0.1, True), Waiting(2, "b", 0.2, False), Waiting(3, "c", 0.3, True)
    assert ([first], [second, third]) == in_start_order([third, second, first])
    assert ([first, Waiting(2, "b", 2.0, True), third], []) == in_start_order([third, Waiting(2, "b", 2.0, True), first])


def test_one_that_hangs_holds_the_others_up_for_so_long_only() -> None:
    hangs = Waiting(1, "a", 4.0, False)
    later = [Waiting(2 + place, f"b{place}", 0.0, True) for place in range(3)]
    assert ([], [hangs, *later]) == in_start_order([hangs, *later], patience=4)
    assert ([hangs, *later], []) == in_start_order([hangs, *later], patience=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=30), st.integers(0, 10))
def test_turns_come_in_order_and_nobody_is_lost(rows: list[tuple[int, bool]], patience: int) -> None:
    waiting = [Waiting(start, str(place), 0.0, ended) for place, (start, ended) in enumerate(rows)]
    turn, wait = in_start_order(waiting, patience)
    assert sorted(waiting, key=lambda one: (one.start_ns, one.attempt)) == turn + wait
    assert not wait or not wait[0].ended
