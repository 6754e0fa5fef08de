"""Joint draws: exact marginals, the correlation asked for, conditions as brute force has them, and no draw moved by another."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import kstest

from predictors.families import LogNormal, Mixture, Steps
from predictors.joint.quantile_table import Timings, timings_of
from predictors.joint.scenarios import Attempts, Joint, draw
from telemetry.errors import BadField

N = 4000
SETUP, SERVICE = LogNormal(1.0, 0.4), LogNormal(3.0, 0.6)


def fresh(n: int) -> tuple[Timings, Timings]:
    """Setup and service of n attempts not yet started."""
    return timings_of(SETUP.take(np.zeros(n, dtype=int))), timings_of(SERVICE.take(np.zeros(n, dtype=int)))


def ids(n: int, hosts: int = 1) -> Attempts:
    return Attempts(tuple(f"host-{i % hosts}" for i in range(n)), ("request",) * n, tuple(f"attempt-{i}" for i in range(n)))


def correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Of log times: normal scores up to scale, the laws being log-normal."""
    return float(np.corrcoef(np.log(x), np.log(y))[0, 1])


def test_marginals_stay_exact_under_sharing() -> None:
    times = draw(*fresh(8), Joint(0.5, 0.4, 0.6), ids(8, hosts=2), N, seed=1)
    for attempt in range(8):
        for stage, law in enumerate((SETUP, SERVICE)):
            assert kstest(law.cdf(times[attempt, stage])[0], "uniform").pvalue > 0.001


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_correlation_asked_for_is_recovered_whatever_the_host_shares(rho: float, share: float) -> None:
    times = draw(*fresh(1), Joint(rho, share, share), ids(1), 40_000, seed=2)
    assert correlation(times[0, 0], times[0, 1]) == pytest.approx(rho, abs=0.02)


def test_attempts_of_a_host_share_its_state_and_no_others_do() -> None:
    times = draw(*fresh(3), Joint(0.5, 0.4, 0.6), Attempts(("a", "a", "b"), ("r",) * 3, ("1", "2", "3")), 40_000, seed=3)
    assert correlation(times[0, 0], times[1, 0]) == pytest.approx(0.4, abs=0.02)
    assert correlation(times[0, 0], times[1, 1]) == pytest.approx(np.sqrt(0.4 * 0.6), abs=0.02)
    assert correlation(times[0, 0], times[2, 0]) == pytest.approx(0.0, abs=0.02)


def test_adding_removing_and_reordering_attempts_changes_no_bit() -> None:
    whole = draw(*fresh(6), Joint(0.3, 0.2, 0.2), ids(6, hosts=2), 300, seed=4)
    order = np.array([4, 0, 3])
    names = ids(6, hosts=2)
    part = Attempts(*(tuple(column[i] for i in order) for column in (names.hosts, names.requests, names.attempts)))
    assert_array_equal(whole[order], draw(*fresh(3), Joint(0.3, 0.2, 0.2), part, 300, seed=4))
    assert_array_equal(whole[:, :, :100], draw(*fresh(6), Joint(0.3, 0.2, 0.2), names, 100, seed=4))


def test_a_late_setup_tells_of_its_service() -> None:
    """Finished at s: log service is normal with mean rho eps_S and variance 1 - rho^2, in units of sigma."""
    took_s = np.exp(0.4 * 1.5)  # eps_S = 1.5
    setup = timings_of(SETUP, took_s=[took_s])
    for share in (0.0, 0.3):
        times = draw(setup, timings_of(SERVICE), Joint(0.6, share, share), ids(1), 40_000, seed=5)
        eps = np.log(times[0, 1] / 3.0) / 0.6
        assert_array_equal(np.zeros(40_000), times[0, 0])
        assert_allclose([0.9, 0.8], [eps.mean(), eps.std()], atol=0.015)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_service_after_a_setup_still_running_agrees_with_brute_force(share: float) -> None:
    rng, elapsed_s, rho = np.random.default_rng(6), 1.6, -0.5
    eps = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], 1_000_000)
    kept = eps[np.exp(0.4 * eps[:, 0]) > elapsed_s]
    times = draw(timings_of(SETUP, elapsed_s=[elapsed_s]), timings_of(SERVICE), Joint(rho, share, share), ids(1), 160_000, seed=7)
    for mine, theirs in ((times[0, 0], np.exp(0.4 * kept[:, 0]) - elapsed_s), (times[0, 1], 3.0 * np.exp(0.6 * kept[:, 1]))):
        assert_allclose(np.quantile(theirs, [0.1, 0.5, 0.9]), np.quantile(mine, [0.1, 0.5, 0.9]), rtol=0.03)
    assert np.corrcoef(kept.T)[0, 1] == pytest.approx(correlation(times[0, 0] + elapsed_s, times[0, 1]), abs=0.03)


def test_several_running_setups_speak_about_their_host_as_brute_force_has_it() -> None:
    rng, share, elapsed_s = np.random.default_rng(8), 0.5, np.array([1.5, 1.8, np.nan])
    state = rng.normal(size=(1_000_000, 1))
    eps = np.sqrt(share) * state + np.sqrt(1 - share) * rng.normal(size=(1_000_000, 3))
    kept = eps[(np.exp(0.4 * eps[:, :2]) > elapsed_s[:2]).all(axis=1)]
    setup = timings_of(SETUP.take(np.zeros(3, dtype=int)), elapsed_s=elapsed_s)
    times = draw(setup, fresh(3)[1], Joint(share, share, share), ids(3), 40_000, seed=9)
    for attempt in range(3):
        theirs = np.exp(0.4 * kept[:, attempt]) - np.nan_to_num(elapsed_s[attempt])
        assert_allclose(np.quantile(theirs, [0.1, 0.5, 0.9]), np.quantile(times[attempt, 0], [0.1, 0.5, 0.9]), rtol=0.05)


def test_a_service_running_after_a_known_setup_agrees_with_brute_force() -> None:
    rng, elapsed_s, rho, known = np.random.default_rng(10), 4.0, 0.6, 1.0
    eps = rho * known + np.sqrt(1 - rho**2) * rng.normal(size=1_000_000)
    kept = 3.0 * np.exp(0.6 * eps)
    kept = kept[kept > elapsed_s] - elapsed_s
    setup = timings_of(SETUP, took_s=[np.exp(0.4 * known)])
    times = draw(setup, timings_of(SERVICE, elapsed_s=[elapsed_s]), Joint(rho, 0.3, 0.3), ids(1), 40_000, seed=11)
    assert_allclose(np.quantile(kept, [0.1, 0.5, 0.9]), np.quantile(times[0, 1], [0.1, 0.5, 0.9]), rtol=0.05)


def test_starting_another_attempt_is_no_evidence_but_its_running_is() -> None:
    alone = draw(*fresh(1), Joint(0.3, 0.4, 0.4), ids(1), 200, seed=12)
    assert_array_equal(alone[0], draw(*fresh(2), Joint(0.3, 0.4, 0.4), ids(2), 200, seed=12)[0])
    late = timings_of(SETUP.take(np.zeros(2, dtype=int)), elapsed_s=[np.nan, 3.0])
    beside_a_late_one = draw(late, fresh(2)[1], Joint(0.3, 0.4, 0.4), ids(2), 200, seed=12)
    assert beside_a_late_one[0, 0].mean() > 1.2 * alone[0, 0].mean()


def test_atoms_and_gaps_keep_their_shares() -> None:
    setup = Mixture([Steps([0.0]), LogNormal(2.0, 0.1)], [0.7, 0.3])
    times = draw(timings_of(setup), timings_of(SERVICE), Joint(0.5), ids(1), 40_000, seed=13)
    assert np.mean(times[0, 0] == 0.0) == pytest.approx(0.7, abs=0.01)
    assert np.mean((times[0, 0] > 0.0) & (times[0, 0] < 1.2)) < 0.001


def test_a_stage_running_far_beyond_everything_seen_still_has_finite_times() -> None:
    times = draw(timings_of(SETUP, elapsed_s=[1e9]), timings_of(SERVICE), Joint(0.5, 0.4, 0.4), ids(1), 100, seed=14)
    assert np.isfinite(times).all()
    assert (times >= 0.0).all()


def test_impossible_dependence_is_refused_by_name() -> None:
    with pytest.raises(BadField, match="rho"):
        draw(*fresh(1), Joint(1.5), ids(1), 10, seed=1)
    with pytest.raises(BadField, match="share"):
        draw(*fresh(1), Joint(0.0, -0.1), ids(1), 10, seed=1)
    with pytest.raises(BadField, match="ids"):
        draw(*fresh(2), Joint(), ids(1), 10, seed=1)
