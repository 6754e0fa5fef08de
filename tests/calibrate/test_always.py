"""An interval that may be looked at after every outcome."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from calibrate.evidence.always import share_at_any_look


def ends(misses: int, n: int, alpha: float = 0.05) -> tuple[float, float]:
    low, high = share_at_any_look(misses, n, alpha)
    return float(low), float(high)


def test_before_any_outcome_nothing_is_ruled_out() -> None:
    assert (0.0, 1.0) == ends(0, 0)


def test_one_miss_rules_out_the_chances_below_a_fortieth() -> None:
    # The mean likelihood of one miss is 1/2: over p it passes 20 where p < 1/40.
    assert (pytest.approx(0.025), 1.0) == ends(1, 1)


def test_no_miss_in_ten_is_solved_by_hand() -> None:
    # 1 / 11 over (1 - p)^10 passes 20 where p > 1 - (0.05 / 11)^(1/10).
    assert (0.0, pytest.approx(1.0 - (0.05 / 11.0) ** 0.1)) == ends(0, 10)


def test_misses_and_hits_are_alike() -> None:
    low, high = ends(3, 40)
    assert (pytest.approx(1.0 - high), pytest.approx(1.0 - low)) == ends(37, 40)


def test_a_true_share_is_hardly_ever_lost_at_any_look() -> None:
    rng = np.random.default_rng(1)
    misses = np.cumsum(rng.uniform(size=(400, 500)) < 0.1, axis=1)
    low, high = share_at_any_look(misses, np.broadcast_to(np.arange(1, 501), misses.shape))
    lost = ((low > 0.1) | (high < 0.1)).any(axis=1).sum()
    assert lost <= binom.ppf(0.999, 400, 0.05)
    assert 0 < lost, "the interval is never wrong: it can't be as narrow as it may be"


@given(st.integers(0, 300), st.integers(0, 300), st.sampled_from([0.01, 0.05, 0.2]))
def test_the_share_lies_inside_and_the_ends_in_order(misses: int, hits: int, alpha: float) -> None:
    low, high = ends(misses, misses + hits, alpha)
    assert 0.0 <= low <= high <= 1.0
    if misses + hits:
        assert low <= misses / (misses + hits) <= high
