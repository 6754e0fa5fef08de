"""Stages that are tried again: against closed forms, brute force, and what must not change."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.special import gammainc

from predictors.distribution import Array, Distribution
from predictors.families import Exponential, LogNormal, Steps
from predictors.plans.retries import FAILING_AT, Tries, with_another


def tried(law: Distribution, p: float, failing: Distribution, retries: int, wait_s: float = 0.0) -> Tries:
    """The same try again and again."""
    once = found = Tries(law, p)
    for _ in range(retries):
        found = with_another(once, failing.quantile(FAILING_AT)[0], found, wait_s)
    return found


def within(found: Tries, t_s: Array) -> Array:
    """P(completed by t)."""
    return np.asarray(found.p_complete * found.law.cdf(t_s)[0])


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_with_failures_as_long_as_completions_the_sum_is_a_mixture_of_erlangs(retries: int) -> None:
    p, t_s = 0.6, np.array([0.1, 0.5, 1.0, 2.0, 4.0, 8.0])
    expected = sum(p * (1 - p) ** k * gammainc(k + 1, t_s) for k in range(retries + 1))
    found = tried(Exponential(1.0), p, Exponential(1.0), retries)
    assert 1 - (1 - p) ** (retries + 1) == pytest.approx(found.p_complete, abs=1e-12)
    assert expected == pytest.approx(within(found, t_s), abs=2e-3)


def test_lengths_that_are_known_exactly_stay_exact() -> None:
    """2 s where it completes, 0.5 s where it fails, 1 s of waiting: done at 2, 3.5 or 5 s."""
    found = tried(Steps([[2.0, 2.0]]), 0.5, Steps([[0.5, 0.5]]), 2, wait_s=1.0)
    assert 0.875 == found.p_complete
    at = np.array([1.999, 2.0, 3.499, 3.501, 4.999, 5.001])
    assert [0.0, 0.5, 0.5, 0.75, 0.75, 0.875] == pytest.approx(within(found, at), abs=5e-3)


def test_brute_force_with_short_failures_and_a_wait() -> None:
    rng, n, p, wait_s = np.random.default_rng(1), 400_000, 0.7, 0.4
    completing, failing = LogNormal(1.5, 0.5), LogNormal(0.2, 1.0)
    total_s, done = np.zeros(n), np.zeros(n, dtype=bool)
    for k in range(3):
        left = np.flatnonzero(~done)
        total_s[left] += wait_s if k else 0.0
        ok = rng.random(len(left)) < p
        total_s[left] += np.where(ok, completing.sample(rng, len(left))[0], failing.sample(rng, len(left))[0])
        done[left] = ok
    found = tried(completing, p, failing, 2, wait_s)
    for t_s in (1.0, 2.0, 3.0, 5.0):
        assert np.mean(done & (total_s <= t_s)) == pytest.approx(within(found, np.array([t_s]))[0], abs=4e-3)


def test_what_cannot_fail_is_as_it_was_and_what_always_fails_is_as_hopeless() -> None:
    for p in (1.0, 0.0):
        once = Tries(LogNormal(1.0, 0.5), p)
        assert with_another(once, np.ones(len(FAILING_AT)), once, 1.0) is once


def test_more_tries_are_never_worse_by_any_time() -> None:
    t_s, law, failing = np.geomspace(0.05, 60.0, 40), LogNormal(1.0, 0.8), LogNormal(0.5, 0.8)
    chances = [within(tried(law, 0.4, failing, retries, 0.2), t_s) for retries in range(5)]
    assert all(np.all(more >= fewer - 1e-3) for fewer, more in pairwise(chances))
