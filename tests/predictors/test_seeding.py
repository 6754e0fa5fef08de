"""A host without history is predicted from its profile, widely before it has one, and its own runs take over."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import ndtri

from predictors.seeding import Centre, Form, Rows, Seed, Spread, _Data, _spread, fit, handed_over, start
from telemetry.errors import BadField, NoEvidence

RESOURCES = ("flop_per_s", "bytes_per_s", "read_bytes_per_s")
FACTOR = np.array([1.4, 1.2, 1.1])
OVERHEAD_S = 0.2
RUNS = (0, 1, 5, 20, 100)
WORLDS, NEW = 10, 10
Floats = NDArray[np.float64]
Make = Callable[[str, int], tuple[Floats, Floats]]


def world(seed: int, form: Form, n_hosts: int = 8) -> tuple[Rows, dict[str, dict[str, float]], Make]:
    """Hosts, some of them new, whose rates are known to 3 %, each 5 % off for reasons of its own; outcomes with 10 % noise."""
    rng = np.random.default_rng(seed)
    names = [*(f"h-{n}" for n in range(n_hosts)), "new", *(f"new-{n}" for n in range(NEW))]
    true = {name: np.array([5e10, 1e10, 1e9]) * np.exp(rng.normal(0, 0.5, 3)) for name in names}
    own = {name: math.exp(rng.normal(0, 0.05)) for name in names}
    rates = {name: dict(zip(RESOURCES, true[name] * np.exp(rng.normal(0, 0.03, 3)), strict=True)) for name in names}

    def make(name: str, n: int) -> tuple[Floats, Floats]:
        work = np.exp(rng.normal(np.log([2e10, 3e9, 2e8]), 0.7, (n, 3)))
        taken = FACTOR * work / true[name]
        busy = taken.sum(axis=1) if form == "serial" else taken.max(axis=1)
        return work, (OVERHEAD_S + busy) * own[name] * np.exp(rng.normal(0, 0.1, n))

    made = {name: make(name, 60) for name in names[:n_hosts]}
    host = tuple(name for name in made for _ in range(60))
    rows = Rows(host, np.vstack([work for work, _ in made.values()]), np.concatenate([time_s for _, time_s in made.values()]))
    return rows, rates, make


def judged(centre: Centre, time_s: Floats) -> tuple[float, float, float]:
    """Median absolute relative error, share within p90, spread in log time."""
    error = float(np.median(np.abs(np.exp(centre.log_s) - time_s) / time_s))
    within = float(np.mean(np.log(time_s) <= centre.log_s + ndtri(0.9) * centre.spread))
    return error, within, centre.spread


@pytest.mark.parametrize("form", ["serial", "pipelined"])
def test_a_new_host_is_predicted_within_12_percent_from_its_profile_and_its_runs_take_over(form: Form) -> None:
    found: dict[Any, list[tuple[float, float, float]]] = {}
    chosen = 0
    for seed in range(WORLDS):
        rows, rates, make = world(seed, form)
        fitted = fit(RESOURCES, rows, rates)
        chosen += fitted.line.form == form
        for host in (f"new-{n}" for n in range(NEW)):
            (own_work, own_s), (work, time_s) = make(host, RUNS[-1]), make(host, 200)
            found.setdefault("no profile", []).append(judged(start(fitted, work, None), time_s))
            for n in RUNS:
                own = Rows((host,) * n, own_work[:n], own_s[:n])
                found.setdefault(n, []).append(judged(handed_over(fitted, work, rates[host], own), time_s))
    error, coverage, width = ({case: float(np.mean([one[k] for one in told])) for case, told in found.items()} for k in range(3))
    assert chosen >= 0.8 * WORLDS
    assert max(error[n] for n in RUNS) <= 0.12, error
    assert all(0.85 <= coverage[n] <= 0.95 for n in RUNS), coverage
    assert 0.80 <= coverage["no profile"] <= 0.97, "each host is one draw: 100 of them tell it to 3 points"
    assert [width[n] for n in RUNS] == sorted((width[n] for n in RUNS), reverse=True)
    assert width["no profile"] > 2.5 * width[0], "wide before any profile"
    assert error[100] < error[0] < error["no profile"] / 2


def test_overhead_and_factors_are_found_and_their_form_is_chosen_by_hosts_left_out() -> None:
    rows, rates, _ = world(3, "serial")
    seed = fit(RESOURCES, rows, rates)
    assert "serial" == seed.line.form
    assert seed.left_out["serial"] < seed.left_out["pipelined"]
    assert seed.line.factor == pytest.approx(FACTOR, rel=0.12)
    assert seed.line.overhead_s == pytest.approx(OVERHEAD_S, rel=0.3)


def test_without_noise_the_law_is_found_exactly() -> None:
    work = np.array([[1e9, 0.0, 2e8], [4e9, 3e9, 0.0], [2e9, 1e9, 1e8], [1e8, 5e9, 3e8]] * 3)
    host = tuple(f"h-{n // 4}" for n in range(12))
    rates = {f"h-{n}": dict(zip(RESOURCES, (1e9 * (n + 1), 2e9 / (n + 1), 1e8 * (3 - n)), strict=True)) for n in range(3)}
    ideal_s = work / np.array([[rates[name][resource] for resource in RESOURCES] for name in host])
    seed = fit(RESOURCES, Rows(host, work, 0.5 + (FACTOR * ideal_s).sum(axis=1)), rates)
    assert seed.line.factor == pytest.approx(FACTOR, rel=1e-4)
    assert seed.line.overhead_s == pytest.approx(0.5, rel=1e-4)
    centre = start(seed, np.array([[1e9, 2e9, 3e8]]), {"flop_per_s": 1e9, "bytes_per_s": 1e9, "read_bytes_per_s": 1e8})
    assert math.exp(centre.log_s[0]) == pytest.approx(0.5 + 1.4 + 2.4 + 3.3, rel=1e-3)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10_000), st.integers(3, 6))
def test_nothing_is_negative_or_more_than_finite_whatever_the_times_are(seed: int, n_hosts: int) -> None:
    rng = np.random.default_rng(seed)
    host = tuple(f"h-{n % n_hosts}" for n in range(6 * n_hosts))
    work = np.exp(rng.normal(0, 3, (len(host), 3))) * rng.integers(0, 2, (len(host), 3))
    rates = {name: dict(zip(RESOURCES, np.exp(rng.normal(0, 2, 3)), strict=True)) for name in host}
    found = fit(RESOURCES, Rows(host, work, np.exp(rng.normal(0, 4, len(host)))), rates)
    assert found.line.overhead_s >= 0
    assert np.all(found.line.factor >= 0)
    for told in (rates["h-0"], None):
        centre = start(found, work, told)
        assert np.all(np.isfinite(centre.log_s))
        assert math.isfinite(centre.spread)
        assert centre.unsure > 0


@pytest.mark.parametrize(("n_hosts", "t_quantile"), [(3, 1.8856), (12, 1.3634)])
def test_fewer_hosts_make_a_new_one_less_sure(n_hosts: int, t_quantile: float) -> None:
    code = np.repeat(np.arange(n_hosts), 4)
    data = _Data(np.ones((len(code), 1)), np.zeros(len(code)), code, n_hosts)
    off = np.where(code % 2 == 0, 0.3, -0.3) + np.tile([-0.1, 0.1, -0.1, 0.1], n_hosts)
    spread = _spread(off, data)
    assert spread.within == pytest.approx(0.01 * 4 / 3)
    assert spread.between == pytest.approx((0.09 - 0.01 / 3) * (t_quantile / 1.28155) ** 2, rel=1e-3)


def test_a_profile_that_lacks_a_resource_is_none() -> None:
    rows, rates, _ = world(1, "serial")
    seed = fit(RESOURCES, rows, rates)
    work = rows.work[:2]
    lacking = {name: rate for name, rate in rates["new"].items() if name != "bytes_per_s"}
    assert start(seed, work, None).spread == start(seed, work, lacking).spread > start(seed, work, rates["new"]).spread


def test_a_host_takes_over_by_its_share_of_what_is_known() -> None:
    rows, rates, _ = world(2, "serial")
    seed = replace(fit(RESOURCES, rows, rates), profiled=Spread(0.04, 0.01))
    work = np.array([[2e10, 3e9, 2e8]])
    first = start(seed, work, rates["new"])
    twice = np.exp(first.log_s) * 2.0
    own = Rows(("new",) * 4, np.repeat(work, 4, axis=0), np.repeat(twice, 4))
    then = handed_over(seed, work, rates["new"], own)
    assert then.log_s[0] - first.log_s[0] == pytest.approx(math.log(2) * 0.04 / (0.04 + 0.01 / 4))
    assert then.unsure == pytest.approx(0.04 * 0.0025 / (0.04 + 0.0025))
    assert 0.01 == then.within


def test_one_stalled_run_does_not_make_a_host_slow() -> None:
    rows, rates, make = world(5, "serial")
    seed = fit(RESOURCES, rows, rates)
    work, time_s = make("new", 9)
    plain = handed_over(seed, work, rates["new"], Rows(("new",) * 9, work, time_s))
    time_s[4] *= 400
    stalled = handed_over(seed, work, rates["new"], Rows(("new",) * 9, work, time_s))
    assert abs(stalled.log_s[0] - plain.log_s[0]) < 0.1


def test_a_fit_is_the_same_to_the_bit_in_whatever_order_hosts_have_their_names() -> None:
    rows, rates, _ = world(4, "pipelined")
    assert str(fit(RESOURCES, rows, rates)) == str(fit(RESOURCES, rows, dict(reversed(rates.items()))))


def test_too_few_measured_hosts_are_no_evidence() -> None:
    rows, rates, _ = world(1, "serial")
    with pytest.raises(NoEvidence, match="2 with history"):
        fit(RESOURCES, rows, {name: rates[name] for name in ("h-0", "h-1", "new")})


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"work": np.ones((2, 3))}, "work"),
        ({"work": np.full((480, 3), -1.0)}, "work"),
        ({"work": np.full((480, 3), np.nan)}, "work"),
        ({"time_s": np.zeros(480)}, "time_s"),
        ({"time_s": np.full(480, np.inf)}, "time_s"),
    ],
)
def test_work_and_times_that_are_none_are_refused_by_name(change: dict[str, Floats], field: str) -> None:
    rows, rates, _ = world(1, "serial")
    with pytest.raises(BadField) as caught:
        fit(RESOURCES, replace(rows, **change), rates)
    assert field == caught.value.field


def test_a_seed_tells_on_how_many_hosts_it_rests() -> None:
    rows, rates, _ = world(1, "serial", 5)
    seed: Seed = fit(RESOURCES, rows, rates)
    assert 5 == seed.n_hosts
    assert seed.unprofiled.between > seed.profiled.between
