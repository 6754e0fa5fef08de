"""The finite-window judge: each of its rules decides at its own edge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.evidence.window_judge import Run, Verdict, judge, sampled_at
from telemetry.errors import BadField

T = 1800.0


def steady(n: int = 900, service_s: float = 10.0, **values: object) -> Run:
    """Units released evenly over the window, each done after the same time."""
    released_s = np.arange(n) * T / n
    run = Run(["chain"] * n, released_s, released_s + service_s, np.zeros(n, dtype=bool), np.full(n, 30.0), T)
    return replace(run, **values)  # type: ignore[arg-type]


def test_a_run_that_keeps_up_passes() -> None:
    found = judge(steady())
    assert (Verdict.PASS, (), {"chain": 1.0}) == (found.verdict, found.reasons, found.attainment)
    assert (9.0, 54.0, 8.0) == (found.backlog_limit, found.drain_limit_s, found.drain_s)  # 0.01 N; 0.03 T; the last one's


def test_the_least_limits_are_6_units_and_20_s() -> None:
    found = judge(steady(400, window_s=T / 3, released_s=np.arange(400) * 1.5, finished_s=np.arange(400) * 1.5 + 1.0))
    assert (6.0, 20.0) == (found.backlog_limit, found.drain_limit_s)


@pytest.mark.parametrize("lost", ["failed", "finished_s"])
def test_one_failure_or_one_that_never_finished_fails(lost: str) -> None:
    run = steady()
    values = run.failed.copy() if lost == "failed" else run.finished_s.copy()
    values[5] = True if lost == "failed" else np.nan
    found = judge(replace(run, **{lost: values}))
    assert (Verdict.FAIL, ("1 of 900 failed or never finished",)) == (found.verdict, found.reasons)


def test_each_class_must_reach_99_percent_of_all_offered() -> None:
    finished_s = steady().finished_s.copy()
    kinds = ["fork"] * 100 + ["chain"] * 800
    finished_s[:1] += 25.0
    assert Verdict.PASS is judge(steady(kinds=kinds, finished_s=finished_s)).verdict
    finished_s[1:2] += 25.0
    found = judge(steady(kinds=kinds, finished_s=finished_s))
    assert ("fork: 98.0% met their objective",) == found.reasons


def test_a_backlog_that_grows_fails_though_every_objective_is_met() -> None:
    run = steady(objective_s=np.full(900, 1e6))
    finished_s = run.released_s * 1.02 + 1.0  # served 2 % too slowly: the backlog ends at 18
    found = judge(replace(run, finished_s=finished_s))
    assert Verdict.FAIL is found.verdict
    assert found.growth == pytest.approx(0.6 * 18, abs=1.0)  # between the middles of the outer sevenths
    assert found.slope == pytest.approx(18, abs=1.0)
    assert ["backlog grew by", "backlog rose at"] == [" ".join(why.split()[:3]) for why in found.reasons]


def test_a_drain_past_its_limit_fails() -> None:
    finished_s = steady().finished_s.copy()
    finished_s[-1] = T + 54.1
    found = judge(steady(finished_s=finished_s, objective_s=np.full(900, 1e6)))
    assert ("drain took s 54.1, at most 54",) == found.reasons


def test_samples_are_141_points_of_the_middle_or_the_cycle_boundaries_in_it() -> None:
    even = sampled_at(T, None)
    assert (141, 360.0, 1620.0) == (len(even), even[0], even[-1])
    cycles = sampled_at(T, 60.0)
    assert (22, 360.0, 1620.0) == (len(cycles), cycles[0], cycles[-1])


def test_bursts_are_no_growth_when_looked_at_once_a_cycle() -> None:
    offsets_s = np.concatenate([np.arange(30) * 0.5, 15.0 + np.arange(30) * 1.5])
    released_s = (np.arange(30)[:, None] * 60.0 + offsets_s).ravel()
    run = Run(["burst"] * 1800, released_s, released_s + 5.0, np.zeros(1800, dtype=bool), np.full(1800, 30.0), T, 60.0)
    assert Verdict.PASS is judge(run).verdict


def test_fewer_than_five_samples_are_inconclusive() -> None:
    found = judge(steady(cycle_s=400.0))
    assert (Verdict.INCONCLUSIVE, ("4 samples of the backlog, 5 are needed",)) == (found.verdict, found.reasons)


@pytest.mark.parametrize(("field", "value"), [("finished_s", -1.0), ("released_s", -1.0), ("released_s", np.inf)])
def test_clocks_that_contradict_themselves_are_inconclusive(field: str, value: float) -> None:
    values = getattr(steady(), field).copy()
    values[3] = value
    assert Verdict.INCONCLUSIVE is judge(steady(**{field: values})).verdict


def test_nothing_released_is_no_run() -> None:
    with pytest.raises(BadField, match="window_s"):
        Run([], np.empty(0), np.empty(0), np.empty(0, dtype=bool), np.empty(0), T)
