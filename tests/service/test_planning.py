"""Chances and latest starts from a taught model: against brute force over its marginal laws, and against the truth."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr, ndtri

from predictors.synthetic import World, runs
from service.engine import Serving
from service.plan_questions import ChanceQuestion, LatestStartQuestion, PlannedStage, asked_again
from service.planning import PlanAnswered, ask_again, ask_chances, ask_latest_starts
from telemetry.errors import BadField, NoEvidence
from tests.service.taught import (
    SERVICE,
    SETUP,
    WAIT,
    context_of,
    correlated,
    dependent,
    durations,
    occasion,
    plain,
    score_at,
    serving_of,
    told,
)

SURE = World(failure_mean_s=None, cancel_mean_s=None)
MADE = runs(300, seed=4, world=SURE)
SEEN = next(
    context_of(run) for run in MADE if run.attempt.state == "cold" and run.attempt.batch == 8 and run.attempt.size_in == 128
)
N = 400_000


@pytest.fixture(scope="module")
def sure(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """A model of a world in which everything completes."""
    return serving_of(tmp_path_factory.mktemp("sure") / "store.duckdb", MADE)


def chance(
    serving: Serving, stages: tuple[PlannedStage, ...], deadline_s: float, level: float = 0.9, **more: Any
) -> dict[str, Any]:
    """One plan's answer."""
    return told(ask_chances(serving, [ChanceQuestion(stages, deadline_s, level, "plan")], occasion(**more))[0])


def latest(serving: Serving, question: LatestStartQuestion, **more: Any) -> dict[str, Any]:
    """One load's answer."""
    return told(ask_latest_starts(serving, [question], occasion(**more))[0])


def near(expected: float, answer: dict[str, Any]) -> None:
    """Within five standard errors and what tables and brute force may cost."""
    assert expected == pytest.approx(answer["probability"], abs=5 * answer["mc_se"] + 4e-3)


@pytest.mark.parametrize("rho", [0.0, 0.7])
def test_a_chance_agrees_with_brute_force_over_the_served_marginals(sure: Serving, rho: float) -> None:
    serving = dependent(sure, rho=rho)
    eps = correlated(rho, N, seed=1)
    total_s = 0.3 + durations(serving, SEEN, "setup", eps[0]) + durations(serving, SEEN, "service", eps[1])
    for p in (0.1, 0.5, 0.95):
        deadline_s = float(np.quantile(total_s, p))
        answer = chance(serving, plain(SEEN, wait_s=0.3), deadline_s)
        near(p, answer)
    assert np.quantile(total_s, [0.5, 0.9, 0.95]) == pytest.approx(answer["completion_s"][:3], rel=0.03)
    assert np.maximum(total_s - deadline_s, 0).mean() == pytest.approx(answer["expected_lateness_s"], rel=0.25)


def test_the_sum_of_p95s_says_longer_than_the_95_percent_quantile_of_the_sum(sure: Serving) -> None:
    answer = chance(sure, plain(SEEN, wait_s=0.3), 5.0)
    apart = [float(sure.model.predict([SEEN], [phase]).quantile(0.95)[0, 0]) for phase in ("setup", "service")]
    assert 0.3 + sum(apart) == pytest.approx(answer["sum_of_p95_s"], rel=1e-3)
    assert answer["completion_s"][2] < answer["sum_of_p95_s"]


def test_served_chances_come_near_the_true_ones(sure: Serving) -> None:
    rng = np.random.default_rng(2)
    total_s = sum(SURE.law(phase, [SEEN]).sample(rng, 40_000)[0] for phase in ("setup", "service"))
    for p in (0.25, 0.5, 0.9):
        assert p == pytest.approx(chance(sure, plain(SEEN), float(np.quantile(total_s, p)))["probability"], abs=0.1)


def test_where_failure_is_fast_it_is_not_answered_as_fast_completion(tmp_path: Path) -> None:
    """Services fail after 0.3 s on average. By twice its median nearly each has ended, and one in three has completed."""
    world = World(failure_mean_s=0.3, cancel_mean_s=None)
    serving = serving_of(tmp_path / "store.duckdb", runs(600, seed=5, world=world))
    contexts = [context_of(run) for run in runs(400, seed=6, world=world)]
    law, rng = world.law("service", contexts), np.random.default_rng(3)
    service_s, fail_s, deadline_s = law.sample(rng, 500), rng.exponential(0.3, (400, 500)), 2 * law.quantile(0.5)
    completed = np.mean((service_s <= deadline_s) & (service_s < fail_s))
    ended = np.mean(np.minimum(service_s, fail_s) <= deadline_s)
    stages = [(PlannedStage("compute", SERVICE, (), None, context, "service"),) for context in contexts]
    asked = [ChanceQuestion(s, float(d), 0.9, "key") for s, d in zip(stages, deadline_s[:, 0], strict=True)]
    answers = [told(answered) for answered in ask_chances(serving, asked, occasion(400))]
    assert ended > completed + 0.5
    assert completed == pytest.approx(np.mean([answer["probability"] for answer in answers]), abs=0.05)
    verdicts = [answer["verdict"] for answer in answers]
    assert "holds" not in verdicts
    assert verdicts.count("does_not_hold") > 0.9 * len(verdicts)  # of a few contexts next to nothing was seen
    assert all(answer["probability"] <= answer["p_complete"] for answer in answers)


def test_the_lower_bound_takes_all_errors_from_the_probability(sure: Serving) -> None:
    deadline_s = float(sure.model.predict([SEEN], ["setup"]).quantile(0.9)[0, 0] + 3.0)
    answer = chance(sure, plain(SEEN), deadline_s, calibration_se=0.05)
    errors = answer["mc_se"] ** 2 + 0.05**2 + answer["evidence_se"] ** 2
    expected = answer["probability"] - 1.64 * errors**0.5
    assert expected == pytest.approx(answer["lower"], abs=1e-12)
    assert 0.05 == answer["calibration_se"]
    assert 0.0 == chance(sure, plain(SEEN), 0.001, calibration_se=0.05)["lower"]


def test_of_the_outcomes_behind_a_plan_the_fewest_count_and_of_a_running_stage_those_that_got_so_far(sure: Serving) -> None:
    fewest = min(one.n_eff for one in sure.model.predict([SEEN] * 2, ["setup", "service"]).support)
    deadline_s = float(sure.model.predict([SEEN], ["setup"]).quantile(0.9)[0, 0] + 3.0)
    behind = [
        p * (1 - p) / se**2
        for p, se in (
            (told["probability"], told["evidence_se"])
            for told in (
                chance(sure, plain(SEEN), deadline_s),
                chance(sure, plain(SEEN, setup_elapsed_s=1e-9), deadline_s),
                chance(sure, plain(SEEN, setup_elapsed_s=float(sure.model.predict([SEEN], ["setup"]).quantile(0.75)[0, 0])), 3.0),
            )
        )
    ]
    assert [fewest, fewest, fewest / 4] == pytest.approx(behind, rel=0.01)


def test_verdicts_hold_only_above_the_level_and_never_for_what_was_never_seen(sure: Serving) -> None:
    new = replace(SEEN, host="elsewhere")
    said = {
        (name, deadline_s, se): chance(sure, plain(context), deadline_s, calibration_se=se)
        for name, context in (("seen", SEEN), ("new", new))
        for deadline_s in (0.01, 1e4)
        for se in (0.0, 0.07)
    }
    verdicts = {key: answer["verdict"] for key, answer in said.items()}
    assert "holds" == verdicts["seen", 1e4, 0.0]
    assert "cannot_certify" == verdicts["seen", 1e4, 0.07]  # 1 - 1.64 x 0.07 < 0.9
    assert "cannot_certify" == verdicts["new", 1e4, 0.0]
    assert {"does_not_hold"} == {verdicts[name, 0.01, se] for name in ("seen", "new") for se in (0.0, 0.07)}
    sure_but_new = said["new", 1e4, 0.0]
    assert ("shadow", 1.0) == (sure_but_new["status"], sure_but_new["probability"])
    assert {"unseen_configuration", "shadow_cannot_certify"} <= set(sure_but_new["reasons"])
    assert ("thin", ["not_recalibrated"]) == (said["seen", 1e4, 0.0]["status"], said["seen", 1e4, 0.0]["reasons"])


def test_one_unseen_stage_makes_the_whole_plan_shadow_and_an_old_one_extrapolated(sure: Serving) -> None:
    wait, load, compute = plain(SEEN)
    mixed = (wait, load, compute._replace(context=replace(SEEN, model="never@1")))
    assert "shadow" == chance(sure, mixed, 5.0)["status"]
    old = (wait, load._replace(elapsed_s=1e4), compute)
    answer = chance(sure, old, 1e6)
    assert ("extrapolated", True) == (answer["status"], "older_than_any_known" in answer["reasons"])


@pytest.mark.parametrize("score", [-1.5, 1.5])
def test_a_finished_setup_moves_its_service_as_far_as_the_correlation_says(sure: Serving, score: float) -> None:
    rho, serving = 0.7, dependent(sure, rho=0.7)
    setup_took_s = float(sure.model.predict([SEEN], ["setup"]).quantile(float(ndtr(score)))[0, 0])
    deadline_s = float(sure.model.predict([SEEN], ["service"]).quantile(0.6)[0, 0])
    exact = float(ndtr((ndtri(0.6) - rho * score) / np.sqrt(1 - rho**2)))
    near(exact, chance(serving, plain(SEEN, setup_took_s=setup_took_s), deadline_s))
    near(0.6, chance(dependent(sure), plain(SEEN, setup_took_s=setup_took_s), deadline_s))
    apart = list(plain(SEEN, setup_took_s=setup_took_s))
    apart[1] = apart[1]._replace(attempt="another")
    near(0.6, chance(serving, tuple(apart), deadline_s))


def test_a_running_setup_counts_from_now_and_tells_of_its_service_by_brute_force(sure: Serving) -> None:
    rho, serving = 0.7, dependent(sure, rho=0.7)
    age_s = float(sure.model.predict([SEEN], ["setup"]).quantile(0.6)[0, 0])
    eps = correlated(rho, 2 * N, seed=6)
    setup_s = durations(serving, SEEN, "setup", eps[0])
    late = setup_s > age_s
    left_s = setup_s[late] - age_s + durations(serving, SEEN, "service", eps[1][late])
    for p in (0.3, 0.9):
        near(p, chance(serving, plain(SEEN, setup_elapsed_s=age_s), float(np.quantile(left_s, p))))


def test_a_service_running_beside_a_finished_setup_is_conditioned_on_both(sure: Serving) -> None:
    serving = dependent(sure, rho=0.7)
    took_s = float(sure.model.predict([SEEN], ["setup"]).quantile(0.9)[0, 0])
    age_s = float(sure.model.predict([SEEN], ["service"]).quantile(0.3)[0, 0])
    mean, left = 0.7 * score_at(sure, SEEN, "setup", took_s), np.sqrt(1 - 0.7**2)
    sf = [float(ndtr((mean - score_at(sure, SEEN, "service", t)) / left)) for t in (age_s, age_s + 0.4)]
    near(1 - sf[1] / sf[0], chance(serving, plain(SEEN, setup_took_s=took_s, service_elapsed_s=age_s), 0.4))


def test_no_answer_depends_on_what_else_is_asked(sure: Serving) -> None:
    serving = dependent(sure, rho=0.5, share=0.4)
    contexts = [context_of(run) for run in MADE[:12]]
    asked = [ChanceQuestion(plain(c, attempt=f"a{i}"), 1.0 + i / 4, 0.9, f"key-{i}") for i, c in enumerate(contexts)]

    def answers(questions: list[ChanceQuestion]) -> dict[str, bytes]:
        made = ask_chances(serving, questions, replace(occasion(len(questions)), answer_ids=tuple(q.key for q in questions)))
        return {q.key: answer.body for q, answer in zip(questions, made, strict=True)}

    whole = answers(asked)
    assert whole == answers(asked[::-1])
    assert {q.key: whole[q.key] for q in asked[3:7]} == answers(asked[3:7])
    assert all(answers([q]) == {q.key: whole[q.key]} for q in asked[:3])
    other_key = answers([replace(asked[0], key="other")])["other"].replace(b"other", b"key-0")
    assert whole["key-0"] != other_key  # the key decides the draws


LOAD = PlannedStage("load", SETUP, (), None, SEEN, "setup", "new")


def start_of(serving: Serving, **need: Any) -> dict[str, Any]:
    return latest(serving, LatestStartQuestion(LOAD, **({"delta": 0.1, "key": "q"} | need)))


def test_a_latest_start_before_a_need_known_exactly_is_the_need_less_the_loads_quantile(sure: Serving) -> None:
    load = sure.model.predict([SEEN], ["setup"])
    for form in ({"levels": (0.5,), "values_s": (20.0,)}, {"samples_s": (20.0,)}):
        answer = start_of(sure, **form)
        assert 20.0 - float(load.quantile(0.9)[0, 0]) == pytest.approx(answer["latest_start_s"], rel=0.01)
        assert 0.9 <= answer["p_on_time"] <= 0.915  # the allowance for drawing
        assert ("safe", True, 1.0) == (answer["verdict"], answer["assumed_independent"], answer["p_on_time_now"])
        # With the need known exactly there is nothing to depend on, so the bound is no weaker but for the allowance.
        assert answer["p_on_time"] == pytest.approx(answer["p_at_least"], abs=1e-9)
        assert answer["latest_start_s"] == pytest.approx(answer["latest_start_any_s"], abs=1e-9)


def test_needs_by_samples_and_quantiles_agree_with_brute_force_and_bound_the_dependence(sure: Serving) -> None:
    load_s = durations(sure, SEEN, "setup", np.random.default_rng(7).normal(size=N))
    z = np.random.default_rng(8).normal(size=N)
    need_s = 10.0 + 2.0 * z
    expected = float(np.quantile(need_s - load_s, 0.1))
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    by_quantiles = start_of(sure, levels=levels, values_s=tuple((10.0 + 2.0 * ndtri(levels)).tolist()))
    by_samples = start_of(sure, samples_s=tuple(need_s[:20_000].tolist()))
    for answer in (by_quantiles, by_samples):
        assert expected == pytest.approx(answer["latest_start_s"], abs=0.15)
        assert answer["p_at_least"] < answer["p_on_time"]
        assert answer["latest_start_any_s"] < answer["latest_start_s"]
        ready_s = answer["latest_start_s"] + load_s
        assert np.maximum(ready_s - need_s, 0).mean() == pytest.approx(answer["expected_late_s"], rel=0.15)
        assert np.maximum(need_s - ready_s, 0).mean() == pytest.approx(answer["expected_idle_s"], rel=0.05)


def test_predecessors_enter_by_their_residual_and_nothing_is_assumed_of_them(sure: Serving) -> None:
    service = sure.model.predict([SEEN], ["service"])
    age_s = float(service.quantile(0.2)[0, 0])
    before = tuple(PlannedStage(n, SERVICE, (), None, replace(SEEN, host="south"), "service", n, age_s) for n in ("p", "q"))
    answer = start_of(sure, predecessors=before, needed_by=("p", "q"))
    rng = np.random.default_rng(9)
    left = sure.model.predict([replace(SEEN, host="south")], ["service"]).residual(age_s)
    need_s = np.maximum(left.sample(rng, N)[0], left.sample(rng, N)[0])
    expected = float(np.quantile(need_s - durations(sure, SEEN, "setup", rng.normal(size=N)), 0.1))
    assert expected == pytest.approx(answer["latest_start_s"], abs=0.1)
    assert (False, None, None) == (answer["assumed_independent"], answer["p_at_least"], answer["latest_start_any_s"])


def test_a_predecessor_on_the_loads_host_shares_its_state(sure: Serving) -> None:
    """What slows the load also delays its need, so it may start later than if the two were independent."""
    before = (PlannedStage("p", SERVICE, (), None, SEEN, "service", "p"),)
    apart, together = (start_of(dependent(sure, share=share), predecessors=before) for share in (0.0, 0.8))
    assert together["latest_start_s"] > apart["latest_start_s"] + 0.05


def test_more_risk_is_a_later_start_and_too_late_is_said(sure: Serving) -> None:
    starts = [start_of(sure, delta=delta, samples_s=(20.0, 21.0))["latest_start_s"] for delta in (0.01, 0.05, 0.1, 0.5)]
    assert starts == sorted(set(starts))
    late = start_of(sure, samples_s=(0.01,))
    assert ("too_late", 0.0, 0.0) == (late["verdict"], late["p_on_time"], late["p_on_time_now"])
    assert late["latest_start_s"] < 0 < late["expected_late_s"]
    assert 0.0 == late["expected_idle_s"]


def test_a_load_may_bear_any_name(sure: Serving) -> None:
    named = LatestStartQuestion(LOAD._replace(name="need"), 0.1, "q", samples_s=(20.0,))
    assert "safe" == latest(sure, named)["verdict"]


def test_a_load_that_often_fails_is_never_safe(tmp_path: Path) -> None:
    serving = serving_of(tmp_path / "store.duckdb", runs(200, seed=5, world=World(failure_mean_s=0.5, cancel_mean_s=None)))
    compute = PlannedStage("compute", SERVICE, (), None, SEEN, "service", "new")
    answer = latest(serving, LatestStartQuestion(compute, 0.1, "q", samples_s=(1e4,)))
    assert ("never", None) == (answer["verdict"], answer["latest_start_s"])
    assert answer["p_complete"] == answer["p_on_time_now"] < 0.9


def kept(answered: PlanAnswered, serving: Serving) -> PlanAnswered:
    """The same answer asked for again, from what the ledger keeps alone."""
    assert hashlib.sha256(answered.body).hexdigest() == answered.row.answer_sha256
    return ask_again(serving, type(answered.row)(**json.loads(answered.row.model_dump_json())))


def test_a_chance_is_asked_again_from_its_row_to_the_byte(sure: Serving) -> None:
    serving = dependent(sure, rho=0.5, share=0.3)
    stages = plain(SEEN, wait_s=0.25, setup_elapsed_s=0.0) + plain(context_of(MADE[0]), attempt="b", setup_took_s=1.5)
    stages = tuple(stage._replace(name=f"{i}", after=(f"{i - 1}",) if i % 3 else ()) for i, stage in enumerate(stages))
    asked = [ChanceQuestion(stages, 5.5, 0.9, "#0", None, "a-1"), ChanceQuestion(plain(SEEN), 3.0, 0.8, "id", "id")]
    made = ask_chances(serving, asked, occasion(2, seed=2**63 - 1, calibration_se=0.031, cvar_level=0.9))
    for question, answered in zip(asked, made, strict=True):
        assert question == asked_again(answered.row)[0]
        assert answered == kept(answered, serving)
    row, answer = made[0].row, told(made[0])
    assert ("chance", "a-1", 5.5, 0.9, []) == (row.question, row.attempt_id, row.deadline_s, row.level, row.needed_by)
    assert answer["completion_s"][2] == row.completion_p95_s
    for name in ("probability", "mc_se", "lower", "p_complete", "sum_of_p95_s", "status", "reasons", "verdict", "calibration_se"):
        assert answer[name] == getattr(row, name)


@pytest.mark.parametrize(
    "need",
    [
        {"samples_s": (8.0, 9.5)},
        {"levels": (0.1, 0.9), "values_s": (8.0, 9.5)},
        {"predecessors": (PlannedStage("p", SERVICE, (), None, SEEN, "service", "p", 0.2),), "needed_by": ("p",)},
    ],
)
def test_a_latest_start_is_asked_again_from_its_row_to_the_byte(sure: Serving, need: dict[str, Any]) -> None:
    question = LatestStartQuestion(LOAD, 0.1, "#3", "question", "new", **need)
    answered = ask_latest_starts(sure, [question], occasion(calibration_se=0.05))[0]
    assert question == asked_again(answered.row)[0]
    assert answered == kept(answered, sure)
    row, answer = answered.row, told(answered)
    assert ("latest_start", 0.9, list(need.get("needed_by", ()))) == (row.question, row.level, row.needed_by)
    assert answer["latest_start_s"] == row.start_s
    assert answer["p_on_time"] == row.probability
    assert row.lower == pytest.approx(row.probability - 1.64 * np.hypot(row.mc_se, 0.05), abs=1e-12)
    assert (answer["expected_late_s"], answer["expected_idle_s"]) == (row.expected_late_s, row.expected_idle_s)


def test_another_model_or_seed_gives_other_bytes(sure: Serving) -> None:
    answered = ask_chances(sure, [ChanceQuestion(plain(SEEN), 3.0, 0.9, "key")], occasion())[0]
    assert answered.body != ask_again(replace(sure, model_id="another"), answered.row).body
    reseeded = answered.row.model_copy(update={"asked": answered.row.asked.replace('"seed":7', '"seed":8')})
    assert answered.body != ask_again(sure, reseeded).body


def test_phases_without_evidence_are_named_and_a_plan_of_waits_is_refused(sure: Serving) -> None:
    stages = (*plain(SEEN), PlannedStage("last", SERVICE, (), None, SEEN, "prefill"))
    with pytest.raises(NoEvidence, match=r"prefill.*v1/events"):
        chance(sure, stages, 3.0)
    with pytest.raises(NoEvidence, match="service, setup"):
        ask_chances(None, [ChanceQuestion(plain(SEEN), 3.0, 0.9, "key")], occasion())
    with pytest.raises(BadField, match="stages"):
        chance(sure, (PlannedStage("wait", WAIT, planned_s=1.0),), 3.0)


@pytest.mark.parametrize(("n", "holding", "safe"), [(3, "cannot_certify", "cannot_certify"), (60, "holds", "safe")])
def test_few_outcomes_certify_nothing_however_sure_they_look(tmp_path: Path, n: int, holding: str, safe: str) -> None:
    made = runs(n, seed=2, world=SURE)
    serving, seen = serving_of(tmp_path / "store.duckdb", made), context_of(made[0])
    answer = chance(serving, plain(seen), 1e4)
    load = PlannedStage("load", SETUP, (), None, seen, "setup", "next")
    start = latest(serving, LatestStartQuestion(load, 0.1, "q", samples_s=(1e4,)))
    assert (holding, safe) == (answer["verdict"], start["verdict"])
    assert [n == 3] * 2 == ["too_few_outcomes" in told["reasons"] for told in (answer, start)]
