"""One path keeps its bound on any sequence, however late outcomes come, and is defined at both ends."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.conformal.levels import ADVERTISED, End, Level, miss_rate_bound, served_at
from calibrate.evidence.coverage import LEVELS
from telemetry.errors import BadField

Adversary = Callable[[Level, int], float]


def run(path: Level, misses: Adversary, n: int, delay: int, rng: np.random.Generator) -> tuple[Level, list[float], int]:
    """Play n answers against an adversary who sees the state; at most `delay` are outstanding, and come in any order."""
    waiting: list[tuple[Level, float]] = []
    counted: list[float] = []
    for t in range(n):
        waiting.append((path, misses(path, t)))
        while len(waiting) > delay:
            gave, miss = waiting.pop(int(rng.integers(len(waiting))))
            counted.append(gave.formal(miss))
            path = path.after(counted[-1])
    return path, counted, len(waiting)


ADVERSARIES: dict[str, Adversary] = {
    "always misses": lambda path, t: 1.0,
    "never misses": lambda path, t: 0.0,
    "misses when asked for little": lambda path, t: float(path.alpha < 1.0 - path.coverage),
    "misses when asked for much": lambda path, t: float(path.alpha > 1.0 - path.coverage),
    "misses in long turns": lambda path, t: float(t // 150 % 2),
    "half known": lambda path, t: 0.5,
}


@pytest.mark.parametrize("delay", [0, 7, 60])
@pytest.mark.parametrize("gamma", [0.002, 0.05, 0.4])
@pytest.mark.parametrize("coverage", [0.5, 0.9, 0.99])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_the_miss_rate_keeps_its_bound_against_an_adversary(name: str, coverage: float, gamma: float, delay: int) -> None:
    path, counted, _ = run(Level.start(coverage, gamma), ADVERSARIES[name], 700, delay, np.random.default_rng(1))
    limit = miss_rate_bound(1.0 - coverage, gamma, len(counted), delay)
    assert abs(float(np.mean(counted)) - (1.0 - coverage)) <= limit + 1e-12
    assert -gamma * (delay + 1) <= path.alpha <= 1.0 + gamma * (delay + 1)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=150),
    st.floats(0.01, 0.99),
    st.floats(0.0, 1.0),
    st.floats(0.001, 1.0),
    st.integers(0, 20),
    st.integers(0, 2**31),
)
def test_the_miss_rate_keeps_its_bound_on_any_sequence(
    misses: list[float], coverage: float, start: float, gamma: float, delay: int, seed: int
) -> None:
    path = Level(coverage, start, gamma)
    _, counted, _ = run(path, lambda _, t: misses[t], len(misses), delay, np.random.default_rng(seed))
    if counted:
        limit = miss_rate_bound(start, gamma, len(counted), delay)
        assert abs(float(np.mean(counted)) - (1.0 - coverage)) <= limit + 1e-9


def test_counting_what_an_open_end_missed_would_break_the_state() -> None:
    path = Level.start(0.9, 0.05)
    for _ in range(200):
        path = path.after(1.0)  # observed, not formal: below alpha = 0 nothing turns it
    assert -8.9 == pytest.approx(path.alpha)


def test_the_bound_is_the_one_worked_by_hand() -> None:
    assert (0.9 + 0.05 * 4) / (0.05 * 100) == pytest.approx(miss_rate_bound(0.1, 0.05, 100, outstanding=3))


def test_a_step_is_gamma_times_what_was_unexpected() -> None:
    path = Level.start(0.9, 0.05)
    assert 0.1 - 0.045 == pytest.approx(path.after(1.0).alpha)
    assert 0.105 == pytest.approx(path.after(0.0).alpha)
    assert 0.1 - 0.02 == pytest.approx(path.after(0.5).alpha)
    assert 0.1 - 0.0225 == pytest.approx(path.after(1.0, weight=0.5).alpha)


def test_forty_misses_in_a_row_then_four_hundred_hits_break_nothing() -> None:  # field rule C13
    path, levels, ends = Level.start(0.9, 0.05), [], []
    for miss in [1.0] * 40 + [0.0] * 400:
        level, end = served_at(path.alpha)
        levels.append(level)
        ends.append(end)
        path = path.after(path.formal(miss))
        assert -0.05 <= path.alpha <= 1.05
    assert (End.OPEN, End.EMPTY) == (ends[3], ends[-1])
    assert set(ends) == {None, End.OPEN, End.EMPTY}
    assert all(0.01 <= level <= 0.999 for level in levels)


def test_ends_are_served_finitely_and_marked() -> None:
    assert (0.999, End.OPEN) == served_at(-3.0)
    assert (0.999, End.OPEN) == served_at(0.0005)  # past the last quantile that is answered
    assert (0.01, End.EMPTY) == served_at(1.0)
    assert (0.9, None) == served_at(0.1)


def test_at_the_ends_the_formal_miss_is_certain_whatever_was_observed() -> None:
    assert 1.0 == Level(0.9, 1.0, 0.1).formal(0.0)
    assert 0.0 == Level(0.9, 0.0, 0.1).formal(1.0)
    assert 0.3 == Level(0.9, 0.5, 0.1).formal(0.3)


@pytest.mark.parametrize("wrong", [(-0.1, 1.0), (1.1, 1.0), (float("nan"), 1.0), (0.5, 2.0)])
def test_misses_and_weights_out_of_range_are_refused(wrong: tuple[float, float]) -> None:
    with pytest.raises(BadField, match="miss, weight"):
        Level.start(0.9, 0.05).after(*wrong)


@pytest.mark.parametrize(("coverage", "gamma"), [(0.0, 0.1), (1.0, 0.1), (0.9, 0.0)])
def test_a_path_needs_a_coverage_and_a_step(coverage: float, gamma: float) -> None:
    with pytest.raises(BadField, match="coverage, gamma"):
        Level.start(coverage, gamma)


def test_the_advertised_levels_are_those_that_coverage_judges() -> None:
    assert LEVELS == ADVERTISED
