"""MAPIE's adaptive conformal inference as a wrapper, and as the reference that our own step is held to."""

from __future__ import annotations

import math

import numpy as np
import pytest

from calibrate.conformal.levels import Level
from calibrate.conformal.mapie_aci import MapieAci
from telemetry.errors import BadField

N = 98
"""No rank (n + 1) p that either of us meets is a whole number, which rounding would move."""


def history(n: int = N) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    median_s = np.exp(rng.normal(size=n))
    return median_s, median_s * np.exp(rng.normal(size=n))


def test_our_step_walks_the_way_of_mapie() -> None:
    median_s, actual_s = history()
    mapie = MapieAci(median_s, actual_s, level=0.9, gamma=0.0213)
    ours = Level.start(0.8, 0.0213)  # MAPIE's interval at 0.9 above and 0.1 below
    scores = np.concatenate([[-np.inf], np.sort(np.log(actual_s / median_s)), [np.inf]])
    rng = np.random.default_rng(4)
    for turn in range(250):
        low, high = scores[math.floor((N + 1) * ours.alpha / 2 + 1e-9)], scores[math.ceil((N + 1) * (1 - ours.alpha / 2) - 1e-9)]
        if math.isfinite(high):
            assert 3.0 * math.exp(high) == pytest.approx(float(mapie.bound([3.0]).upper_s[0]))
        off = float(rng.normal(scale=1.5 if turn < 120 else 0.7))
        ours = ours.after(ours.formal(float(not low < off < high)))
        mapie.learn([3.0], [3.0 * math.exp(off)])
        assert ours.alpha == pytest.approx(mapie.alpha, abs=1e-9)
    assert 0.2 < ours.alpha < 0.8


def test_the_upper_end_is_the_rank_of_n_plus_one() -> None:
    median_s, actual_s = history(99)
    ninetieth = np.sort(actual_s / median_s)[89]  # ceil(100 * 0.9)
    bound = MapieAci(median_s, actual_s, level=0.9).bound([1.0, 10.0])
    np.testing.assert_allclose(np.array([1.0, 10.0]) * ninetieth, bound.upper_s)
    assert not bound.open.any()


def test_too_few_outcomes_leave_the_bound_open_and_finite() -> None:
    median_s, actual_s = history(5)
    bound = MapieAci(median_s, actual_s, level=0.9).bound([2.0])
    assert [True] == list(bound.open)
    assert 2.0 * (actual_s / median_s).max() == pytest.approx(float(bound.upper_s[0]))


def test_misses_widen_and_asking_changes_nothing() -> None:
    wrapper = MapieAci(*history(), level=0.9, gamma=0.01)
    before = wrapper.bound([1.0])
    assert before.upper_s == wrapper.bound([1.0]).upper_s
    wrapper.learn([1.0] * 4, [1e3] * 4)
    assert before.upper_s < wrapper.bound([1.0]).upper_s
    assert 0.2 - 4 * 0.01 * 0.8 == pytest.approx(wrapper.alpha)


def test_a_wide_bound_around_a_short_median_stays_positive() -> None:  # field rule C12
    wide = MapieAci(np.full(20, 2.0), np.append(np.full(15, 0.1), np.full(5, 5.0)), level=0.6)
    assert 0.1 == pytest.approx(float(wide.bound([2.0]).upper_s[0]))  # 3 s below a median of 2 s would be negative


@pytest.mark.parametrize("level", [0.5, 0.995, 1.0])
def test_a_level_it_cannot_keep_is_refused(level: float) -> None:
    with pytest.raises(BadField, match="level"):
        MapieAci(*history(), level=level)


def test_times_it_cannot_read_are_refused() -> None:
    with pytest.raises(BadField, match="median_s, actual_s"):
        MapieAci([1.0], [-1.0])
    with pytest.raises(BadField, match="actual_s"):
        MapieAci([], [])
