"""Setup and service learned from pairs whose joint law is known: what is answered about their sum, and about one given the other.

Adding up the two p95s stands beside: it holds far more than 95 % unless the two always move together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from scipy.stats import ks_2samp, kstest, norm
from scipy.stats import t as student

from predictors import hazards
from predictors.contexts import Context
from predictors.distribution import Distribution
from predictors.frames import Frame
from predictors.joint.quantile_table import Timings, timings_of
from predictors.joint.scenarios import Attempts, Joint, draw

HERE = Context(host="north", state="cold")
PAIRS, DRAWS = 2000, 20_000
Floats = np.typing.NDArray[np.float64]
Truth = Callable[[np.random.Generator, int], tuple[Floats, Floats]]
"""Normal scores of n setups and their services."""


def gaussian(rho: float) -> Truth:
    def scores(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        x = rng.normal(size=n)
        return x, rho * x + np.sqrt(1.0 - rho**2) * rng.normal(size=n)

    return scores


def t_copula(rho: float, freedom: float = 3.0) -> Truth:
    """Extremes come together, on either side, also where there is no correlation."""

    def scores(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        x, y = gaussian(rho)(rng, n)
        common = np.sqrt(rng.chisquare(freedom, n) / freedom)
        return norm.ppf(student.cdf(x / common, freedom)), norm.ppf(student.cdf(y / common, freedom))

    return scores


def clayton(theta: float, *, late: bool) -> Truth:
    """Extremes come together on one side only: a late setup with a late service, or an early one with an early one."""

    def scores(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
        u, v = rng.random(n), rng.random(n)
        w = (u**-theta * (v ** (-theta / (1.0 + theta)) - 1.0) + 1.0) ** (-1.0 / theta)
        sign = -1.0 if late else 1.0
        return sign * norm.ppf(u), sign * norm.ppf(w)

    return scores


TRUTHS: dict[str, Truth] = {
    "normal -0.5": gaussian(-0.5),
    "normal 0": gaussian(0.0),
    "normal 0.5": gaussian(0.5),
    "t3 -0.5": t_copula(-0.5),
    "t3 0": t_copula(0.0),
    "t3 0.5": t_copula(0.5),
    "clayton late": clayton(1.0, late=True),
    "clayton early": clayton(1.0, late=False),
}


def lengths(truth: Truth, rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    """Setups around 1 s and services around 1.5 s, log-normal both."""
    setup, service = truth(rng, n)
    return np.exp(0.4 * setup), 1.5 * np.exp(0.5 * service)


@dataclass(frozen=True)
class Learned:
    """A model of pairs: its law of setup and service, and their correlation and host shares."""

    law: Distribution
    joint: Joint

    def timings(self, **known: float) -> tuple[Timings, Timings]:
        """Setup, of which something may be known, and service of one attempt."""
        setup, service = (self.law.take(np.array([i])) for i in range(2))
        return timings_of(setup, **known), timings_of(service)

    def draws(self, seed: int, **known: float) -> Floats:
        """Remaining setup and service, shape (2, DRAWS)."""
        return draw(*self.timings(**known), self.joint, Attempts(("north",), ("request",), ("attempt",)), DRAWS, seed)[0]


def learned(truth: Truth, seed: int) -> Learned:
    setup, service = lengths(truth, np.random.default_rng(seed), PAIRS)
    n = 2 * PAIRS
    yes, no = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    frame = Frame(
        contexts=(HERE,),
        phases=("setup", "service"),
        context=np.zeros(n, dtype=np.int64),
        phase=np.repeat([0, 1], PAIRS),
        entry_s=np.zeros(n),
        duration_s=np.concatenate([setup, service]),
        completed=yes,
        failed=no,
        running=no,
        weight=np.ones(n),
        known_from=np.arange(n),
        attempt=np.tile(np.arange(PAIRS), 2),
    )
    model = hazards.fit(frame, n, hazards.FitSettings())
    found = model.dependence
    joint = Joint(found.correlation(HERE), found.share["setup"], found.share["service"], found.bend)
    return Learned(model.predict([HERE, HERE], ["setup", "service"]), joint)


@dataclass(frozen=True)
class Held:
    """What the answered p95 of the sum really holds, its relative error in s, and what the sum of the p95s holds; (n_seeds,)."""

    joint: Floats
    error: Floats
    added: Floats


def held(truth: Truth, seeds: int) -> Held:
    total = np.sort(sum(lengths(truth, np.random.default_rng(10**6), 400_000)))
    exact = float(np.quantile(total, 0.95))
    rows = []
    for seed in range(seeds):
        model = learned(truth, seed)
        p95 = float(np.quantile(model.draws(seed).sum(axis=0), 0.95))
        sum_of_p95s = float(model.law.quantile(0.95).sum())
        rows.append((*(np.searchsorted(total, [p95, sum_of_p95s]) / len(total)), p95 / exact - 1.0))
    joint, added, error = np.array(rows).T
    return Held(joint, error, added)


@pytest.mark.parametrize("name", ["normal -0.5", "t3 0.5", "clayton late"])
def test_the_p95_of_a_sum_holds_nearly_95_percent_and_better_than_the_sum_of_p95s(name: str) -> None:
    found = held(TRUTHS[name], 5)
    assert 0.95 == pytest.approx(found.joint.mean(), abs=0.012)
    assert abs(found.joint.mean() - 0.95) < abs(found.added.mean() - 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("name", TRUTHS)
def test_the_p95_of_a_sum_holds_94_to_96_percent_also_where_tails_hang_together(name: str) -> None:
    found = held(TRUTHS[name], 20)
    rmse = float(np.sqrt(np.mean(found.error**2)))
    assert 0.94 <= found.joint.mean() <= 0.96
    assert rmse <= 0.04
    assert abs(found.joint.mean() - 0.95) < abs(found.added.mean() - 0.95)


def test_marginals_stay_uniform_when_a_host_is_shared() -> None:
    model = learned(gaussian(0.5), 1)
    both = [timings_of(model.law.take(np.full(6, i))) for i in range(2)]
    names = Attempts(("north",) * 3 + ("south",) * 3, ("request",) * 6, tuple(f"attempt-{i}" for i in range(6)))
    times = draw(both[0], both[1], Joint(0.5, 0.4, 0.6), names, 4000, seed=5)
    for attempt in range(6):
        for stage in range(2):
            u = model.law.take(np.array([stage])).cdf(times[attempt, stage])[0]
            assert kstest(u, "uniform").pvalue > 0.001


@pytest.mark.parametrize("rho", [-0.5, 0.5])
def test_service_after_a_setup_that_finished_late_is_what_brute_force_says(rho: float) -> None:
    setup, service = lengths(gaussian(rho), np.random.default_rng(3), 1_000_000)
    late_s = float(np.quantile(setup, 0.95))
    alike = service[np.abs(np.log(setup / late_s)) < 0.01]
    model = learned(gaussian(rho), 2)
    drawn = model.draws(4, took_s=late_s)[1]
    assert ks_2samp(alike, drawn).statistic < 0.07
    assert ks_2samp(service[:DRAWS], drawn).statistic > 0.25


@pytest.mark.parametrize("name", ["normal 0.5", "t3 0.5", "clayton early"])
def test_what_is_left_while_a_setup_runs_late_is_what_brute_force_says(name: str) -> None:
    setup, service = lengths(TRUTHS[name], np.random.default_rng(6), 1_000_000)
    late_s = float(np.quantile(setup, 0.9))
    left = np.sort((setup - late_s + service)[setup > late_s])
    holds = []
    for seed in range(6):
        p95 = np.quantile(learned(TRUTHS[name], seed).draws(seed, elapsed_s=late_s).sum(axis=0), 0.95)
        holds.append(np.searchsorted(left, p95) / len(left))
    assert 0.95 == pytest.approx(np.mean(holds), abs=0.02)
