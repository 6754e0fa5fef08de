"""What rows share that run at one time: known correlations come back, and what is sorted by length is not taken for one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from predictors.together import FURTHEST, MOST, neighbours

RNG_SEED = 11
Floats = NDArray[np.float64]


def shared(z: Floats, started: NDArray[np.int64], *, host: NDArray[np.int64] | None = None, pooling: float = 0.0) -> float:
    """Autocorrelation of completed rows of one family."""
    n = len(z)
    one = np.zeros(n, dtype=np.int64)
    pairs = neighbours(one if host is None else host, one, started, np.ones(n, dtype=bool), 1)
    return float(pairs.shared(z, np.ones(n), pooling)[0])


def wandering(rng: np.random.Generator, n: int, rho: float) -> Floats:
    """A stationary autoregressive series of unit variance."""
    z = rng.normal(size=n)
    for i in range(1, n):
        z[i] = rho * z[i - 1] + np.sqrt(1.0 - rho**2) * z[i]
    return z


def test_a_hand_worked_pair() -> None:
    assert shared(np.array([1.0, 2.0]), np.array([0, 1])) == pytest.approx(2.0 / 2.5)
    assert shared(np.array([1.0, 2.0]), np.array([0, 1]), pooling=2.5) == pytest.approx(2.0 / 5.0)
    assert shared(np.array([1.0, -2.0]), np.array([0, 1])) == 0.0
    assert shared(np.array([9.0, 9.0]), np.array([0, 1]), pooling=FURTHEST**2) == pytest.approx(0.5)


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_autocorrelation_of_a_host_is_found_whatever_the_order_in_which_rows_became_known(rho: float) -> None:
    rng = np.random.default_rng(RNG_SEED)
    z, n = wandering(rng, 8_000, rho), 8_000
    order = rng.permutation(n)
    found = shared(z[order], order.astype(np.int64))
    assert found == pytest.approx(rho, abs=0.04)


def test_hosts_with_their_own_periods_are_told_apart() -> None:
    rng = np.random.default_rng(RNG_SEED)
    z = np.stack([wandering(rng, 4_000, 0.8), -wandering(rng, 4_000, 0.8)], axis=1).ravel()
    host = np.tile(np.arange(2), 4_000)
    assert shared(z, np.arange(8_000), host=host) == pytest.approx(0.8, abs=0.05)
    assert shared(z, np.arange(8_000)) < 0.05


def test_rows_of_one_instant_that_are_known_in_order_of_length_share_nothing_by_that() -> None:
    """Forty crowds of fifty, independent: in the order in which they ended, neighbours would be alike."""
    rng = np.random.default_rng(RNG_SEED)
    z = np.sort(rng.normal(size=(40, 50)), axis=1).ravel()
    assert shared(z, np.repeat(np.arange(40), 50)) < 0.06
    assert shared(z, np.arange(2_000)) > 0.7


def test_crowds_that_have_their_speed_in_common_are_seen_to() -> None:
    rng = np.random.default_rng(RNG_SEED)
    z = np.sort(rng.normal(size=(200, 20)) * 0.6 + 0.8 * rng.normal(size=(200, 1)), axis=1).ravel()
    assert shared(z, np.repeat(np.arange(200), 20)) == pytest.approx(0.64 * 19 / 20, abs=0.08)


def test_an_instant_of_which_some_still_run_and_rows_without_a_start_say_nothing() -> None:
    one = np.zeros(6, dtype=np.int64)
    started = np.array([1, 1, 1, 2, -1, 3])
    completed = np.array([True, True, False, True, True, True])
    pairs = neighbours(one, one, started, completed, 1)
    assert [(3, 5)] == list(zip(pairs.first.tolist(), pairs.second.tolist(), strict=True))
    none = neighbours(one, one, np.full(6, -1), completed, 1)
    assert none.shared(np.ones(6), np.ones(6), 5.0).tolist() == [0.0]


def test_only_the_newest_are_looked_at() -> None:
    n = MOST + 10
    one = np.zeros(n, dtype=np.int64)
    pairs = neighbours(one, one, np.arange(n), np.ones(n, dtype=bool), 1)
    assert pairs.first.min() == 10
