"""Stages tried again after a failure, channels that stages share, and offers that have aged: what they make of a chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from predictors.synthetic import World, runs
from service.engine import Serving
from service.plan_known import known
from service.plan_questions import ChanceQuestion, PlannedStage
from service.planning import ask_again, ask_chances
from service.replay import again
from tests.service.taught import SERVICE, SETUP, context_of, dependent, occasion, plain, serving_of, told

MADE = runs(600, seed=5, world=World(failure_mean_s=1.0, cancel_mean_s=None))
SEEN = next(context_of(run) for run in MADE if run.attempt.state == "cold" and run.attempt.batch == 8)
COMPUTE = PlannedStage("compute", SERVICE, (), None, SEEN, "service", "a")


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """A model of a world in which services fail after a second on average."""
    return serving_of(tmp_path_factory.mktemp("failing") / "store.duckdb", MADE)


def chance(serving: Serving, *stages: PlannedStage, deadline_s: float = 4.0, **more: Any) -> dict[str, Any]:
    return told(ask_chances(serving, [ChanceQuestion(stages, deadline_s, 0.9, "plan")], occasion(**more))[0])


def test_with_time_enough_a_stage_completes_unless_every_try_fails(failing: Serving) -> None:
    once = chance(failing, COMPUTE, deadline_s=1e6)["probability"]
    assert 0.1 < once < 0.9
    for retries in (1, 3):
        again = chance(failing, COMPUTE._replace(retries=retries), deadline_s=1e6)
        assert 1 - (1 - once) ** (retries + 1) == pytest.approx(again["probability"], abs=1e-6)
        assert again["probability"] == pytest.approx(again["p_complete"], abs=1e-6)


@pytest.mark.parametrize("age_s", [None, 0.3])
def test_a_chance_with_retries_agrees_with_brute_force_over_the_served_laws(failing: Serving, age_s: float | None) -> None:
    rng, n, wait_s, model = np.random.default_rng(3), 200_000, 0.2, failing.model
    law, incidence = model.predict([SEEN], ["service"]), model.incidence(SEEN, "service")
    assert incidence is not None
    total_s, done = np.zeros(n), np.zeros(n, dtype=bool)
    for k in range(3):
        left, aged = np.flatnonzero(~done), (age_s or 0.0) if k == 0 else 0.0
        total_s[left] += wait_s if k else 0.0
        ok = rng.random(len(left)) < float(model.p_complete([SEEN], ["service"], np.array([aged]))[0])
        completes_s = (law.residual(aged) if aged else law).quantile(rng.random(len(left)))[0]
        total_s[left] += np.where(ok, completes_s, incidence.quantile_given_failure(rng.random(len(left)), aged))
        done[left] = ok
    stage = COMPUTE._replace(elapsed_s=age_s, retries=2, retry_wait_s=wait_s)
    for deadline_s in (0.5, 1.5, 4.0):
        expected = float(np.mean(done & (total_s <= deadline_s)))
        assert expected == pytest.approx(chance(failing, stage, deadline_s=deadline_s)["probability"], abs=8e-3)


def test_the_longer_the_wait_before_a_retry_the_less_it_is_worth(failing: Serving) -> None:
    once = chance(failing, COMPUTE)["probability"]
    late, later = (chance(failing, COMPUTE._replace(retries=1, retry_wait_s=w))["probability"] for w in (0.0, 2.0))
    assert late > later > once
    assert once == pytest.approx(chance(failing, COMPUTE._replace(retries=1, retry_wait_s=1e3))["probability"], abs=5e-3)


def test_a_ledger_row_of_a_plan_with_retries_and_a_channel_is_answered_again_to_the_byte(failing: Serving) -> None:
    load = PlannedStage("load", SETUP, (), None, SEEN, "setup", "a", channel="nfs")
    other = load._replace(name="other", attempt="b")
    compute = COMPUTE._replace(after=("load",), retries=2, retry_wait_s=0.1)
    question = ChanceQuestion((load, other, compute), 4.0, 0.9, "plan")
    answered = ask_chances(failing, [question], occasion())[0]
    assert answered.body == ask_again(failing, answered.row).body
    assert answered.row.answer_sha256 == again(failing.model, answered.row)


def test_loads_through_one_channel_are_late_together_and_alone_as_ever(failing: Serving) -> None:
    serving = dependent(failing, share=0.6)
    loads = [
        PlannedStage(f"load-{host}", SETUP, (), None, replace(SEEN, host=host), "setup", host, channel="nfs") for host in "xy"
    ]
    median_s = float(known(serving, [loads]).timings.table.at(np.zeros(1, dtype=np.intp), np.zeros((1, 1)))[0, 0])
    apart = [load._replace(channel="") for load in loads]
    each, alone = (chance(serving, stage, deadline_s=median_s) for stage in (loads[0], apart[0]))
    assert 0.5 * alone["p_complete"] == pytest.approx(alone["probability"], abs=1e-3)
    assert each["probability"] == alone["probability"]
    for stages, expected in ((apart, 1 / 4), (loads, 1 / 4 + np.arcsin(0.6) / (2 * np.pi))):
        both = chance(serving, *stages, deadline_s=median_s)
        assert expected * both["p_complete"] == pytest.approx(both["probability"], abs=4 * both["mc_se"] + 2e-3)


def test_a_service_keeps_its_law_and_its_correlation_where_its_load_shares_a_channel(failing: Serving) -> None:
    """The other load is sure to be over by the deadline, so only what it could do to the first attempt's law would show."""
    serving = dependent(failing, rho=0.6, share=0.5)
    other = PlannedStage("other", SETUP, (), None, replace(SEEN, host="y"), "setup", "b", channel="nfs")
    deadline_s = float(serving.model.predict([replace(SEEN, host="y")], ["setup"]).quantile(0.9999)[0, 0])
    median_s = chance(serving, *plain(SEEN))["completion_s"][0]
    wait, load, compute = plain(SEEN, wait_s=deadline_s - median_s)
    alone = chance(serving, wait, load, compute, deadline_s=deadline_s)
    shared = chance(serving, wait, load._replace(channel="nfs"), compute, other, deadline_s=deadline_s)
    completes = chance(serving, other, deadline_s=1e6)["p_complete"]
    assert 0.1 < alone["probability"] < 0.9 * alone["p_complete"]
    room = 4 * (alone["mc_se"] + shared["mc_se"]) + 2e-3
    assert completes * alone["probability"] == pytest.approx(shared["probability"], abs=room)
