"""Plans of known chance have the chance they say, and what was answered of them is judged by it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.stats import kstest, spearmanr

from benchmarks import truth_plans
from benchmarks.truth_plan_worlds import FAILING_HOST, FAILS, GRAPHS, HELD_S, PlanWorld, key, pairs, plan_world, scales
from benchmarks.truth_plans import FAMILIES, REACH, Told, answers, failing, judged, planned
from benchmarks.truth_shapes import heavy
from telemetry.words import Ended

SMALL = PlanWorld(history=40, plans=60)


def test_setup_and_service_keep_their_laws_and_hang_together() -> None:
    shape = heavy()
    setup, service = pairs(shape, 20_000, np.random.default_rng(1))
    assert kstest(setup, shape.cdf).pvalue > 0.001
    assert kstest(service, shape.cdf).pvalue > 0.001
    assert 0.4 < spearmanr(setup, service).statistic < 0.6


def test_the_same_seed_gives_the_same_plans_and_another_gives_others() -> None:
    rows, plans = plan_world("heavy", SMALL, 3)
    again_rows, again = plan_world("heavy", SMALL, 3)
    assert [plan.deadline_s for plan in plans] == [plan.deadline_s for plan in again]
    assert np.array_equal(rows.duration_s, again_rows.duration_s)
    assert [plan.deadline_s for plan in plan_world("heavy", SMALL, 4)[1]] != [plan.deadline_s for plan in plans]


def test_rows_begin_in_order_and_every_plan_is_asked_at_one_of_them() -> None:
    rows, plans = plan_world("bimodal", SMALL, 3)
    assert np.all(np.diff(rows.begun_s) >= 0.0)
    place = {rows.key(row): row for row in range(len(rows))}
    for plan in plans:
        row = place[key(plan.first, "setup")]
        assert rows.begun_s[row] == plan.first.begun_s
        assert plan.age_s is None or 0.0 < plan.age_s < rows.duration_s[row]
    assert {2, 3, 4} == {len(plan.stages) for plan in plans}
    assert any(plan.age_s for plan in plans)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_plans_complete_in_time_as_often_as_their_chance_says(family: str, graph: str) -> None:
    _, plans = plan_world(family, PlanWorld(0, 400, graphs=(graph,)), 5)
    chance = np.array([plan.chance for plan in plans])
    spread = np.sqrt(np.sum(chance * (1.0 - chance)))
    assert 0.499 < chance.min() < 0.6
    assert chance.max() > 0.998
    assert abs(sum(plan.met for plan in plans) - chance.sum()) < 4.0 * spread


def test_a_plan_that_waits_takes_that_long_as_well() -> None:
    _, plans = plan_world("heavy", PlanWorld(0, 20, graphs=("held",)), 5)
    for plan in plans:
        assert plan.took_s == pytest.approx(plan.first.ready_s + HELD_S + plan.first.spent_s)
        assert [None, HELD_S, None] == [stage.planned_s for stage in plan.stages]


def test_where_services_fail_fast_chances_are_low_though_ends_are_early() -> None:
    _, plans = plan_world("heavy", PlanWorld(0, 600, graphs=("serial",), failing=True), 5)
    there = [plan for plan in plans if plan.first.context.host == FAILING_HOST]
    failed = [plan for plan in there if plan.first.ended is Ended.FAILED]
    assert FAILS == pytest.approx(len(failed) / len(there), abs=0.15)
    assert all(plan.took_s is None and not plan.met for plan in failed)
    assert max(plan.chance for plan in there) <= 1.0 - FAILS
    assert np.median([plan.first.spent_s / scales(plan.first.context)[1] for plan in failed]) < 0.1


def test_figures_are_shares_of_what_was_told() -> None:
    one = plan_world("heavy", PlanWorld(0, 1), 1)[1][0]
    sure, doubtful = replace(one, chance=0.99, took_s=0.0), replace(one, chance=0.6, took_s=None)
    told = [
        Told(sure, 0.98, 0.9, 0.96, True, 1.0),
        Told(sure, 0.99, 0.9, 0.94, False, 1.0),
        Told(doubtful, 0.9, 0.9, 0.7, True, 1.0),
    ]
    assert_allclose(
        [2 / 3, 2 / 3, 0.5, 0.5, (-0.01 + 0.0 + 0.3) / 3],
        [planned(told)[name] for name in ("lower below", "holds", "in time", "refused", "gap")],
    )
    assert {"in time", "refused"}.isdisjoint(planned([Told(doubtful, 0.6, 0.6, 0.5, False, 1.0)]))


def test_of_the_host_that_fails_fast_no_other_is_judged() -> None:
    _, plans = plan_world("heavy", PlanWorld(0, 40, graphs=("serial",), failing=True), 5)
    told = [
        Told(plan, plan.chance, plan.chance, 0.0, plan.first.context.host != FAILING_HOST, 2.0 * plan.median_s) for plan in plans
    ]
    assert {"held there": 0.0, "chance there": 1.0, "median there": 2.0} == pytest.approx(failing(told))


def test_every_figure_has_a_reach() -> None:
    found = {"in time", "lower below", "refused", "holds", "gap", "held there", "chance there", "median there"}
    assert found == set(REACH)


def test_plans_are_answered_through_the_engine_from_what_was_known_when_they_were_asked() -> None:
    found = list(answers("heavy", SMALL, 6))
    assert SMALL.plans == len(found)
    off = np.array([told.probability - told.plan.chance for told in found])
    assert np.abs(off).mean() < 0.15
    assert not any(told.holds for told in found)  # no plan had been checked often enough


@pytest.mark.slow
@pytest.mark.parametrize(("family", "plans"), [("heavy", 500), ("bimodal", 300)])
def test_what_holds_is_in_time_and_bounds_lie_below_the_truth(family: str, plans: int) -> None:
    found = planned(list(answers(family, PlanWorld(400, plans), 11)))
    assert found["lower below"] >= 0.93
    assert found.get("in time", 1.0) >= 0.93


@pytest.mark.slow
def test_a_host_that_fails_fast_does_not_look_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(truth_plans.SITUATIONS, "fails fast", PlanWorld(300, 150, graphs=("serial",), failing=True))
    found = judged("fails fast", "bimodal", 12)
    assert 0.0 == found["held there"]
    assert 0.75 < found["chance there"] < 1.25
    assert 0.8 < found["median there"] < 1.4
