"""Composite questions over HTTP that are refused: senseless plans, needs, numbers and bodies, each named by its place."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.service.test_http_plans import EXAMPLES, KNOWN, LIMITS, plan, question, refused, with_stage


@pytest.mark.parametrize("path", EXAMPLES)
def test_without_evidence_there_is_no_answer(asked: httpx.Client, path: str) -> None:
    told = refused(asked.post(path, json=EXAMPLES[path]), 409)
    assert "phase" == told["field"]
    assert "/v1/events" in told["fix"]


CHAIN = [{"name": str(i), "kind": "wait", "planned_s": 1.0, "after": [str(i - 1)] if i else []} for i in range(32)]


@pytest.mark.parametrize(
    ("wrong", "field", "says"),
    [
        (plan(None, deadline_s=0), "plans.0.deadline_s", "greater than 0"),
        (plan(None, deadline_s=-1.0), "plans.0.deadline_s", "greater than 0"),
        (plan(None, level=1.0), "plans.0.level", "less than 1"),
        (plan(None, level=95), "plans.0.level", "less than 1"),
        (plan(None, deadline_ms=3), "plans.0.deadline_ms", "not permitted"),
        (plan(None, plan_id=""), "plans.0.plan_id", "at least 1 character"),
        (plan(None, stages=[]), "plans.0.stages", "at least 1 item"),
        (plan(None, stages=[*CHAIN, plan(None)["stages"][1]]), "plans.0.stages", "at most 32 items"),
        (plan(None, stages=CHAIN), "plans.0", "only waits"),
        (with_stage(elapsed_s=-0.1), "plans.0.stages.1.elapsed_s", "greater than or equal to 0"),
        (with_stage(took_s=-0.1), "plans.0.stages.1.took_s", "greater than or equal to 0"),
        (with_stage(elapsed_s=0.1, took_s=0.1), "plans.0.stages.1", "took_s of one that has finished"),
        (with_stage(running_attempt_id="a"), "plans.0.stages.1", "exactly one of"),
        (with_stage(context=None), "plans.0.stages.1", "exactly one of"),
        (with_stage(context=None, running_attempt_id="a", elapsed_s=1.0), "plans.0.stages.1", "go with context"),
        (with_stage(kind="loading"), "plans.0.stages.1.kind", "'setup'"),
        (with_stage(0, planned_s=-1.0), "plans.0.stages.0.planned_s", "greater than or equal to 0"),
        (with_stage(0, planned_s=None, context=KNOWN), "plans.0.stages.0", "a wait has planned_s"),
        (with_stage(context={"batch": 0}), "plans.0.stages.1.context.batch", "greater than 0"),
        (with_stage(context={"hostname": "n"}), "plans.0.stages.1.context.hostname", "not permitted"),
        (with_stage(context=KNOWN | {"state": "resident"}), "plans.0.stages.1", "has no setup"),
        (with_stage(after=["nobody"]), "plans.0", "stage load: after names 'nobody'"),
        (with_stage(0, after=["compute"]), "plans.0", "stage wait: after names 'compute'"),  # a cycle
        (with_stage(after=["load"]), "plans.0", "stage load: after names 'load'"),
        (with_stage(name="wait", after=[]), "plans.0", "stage wait: give each stage a name of its own"),
        (with_stage(retries=0), "plans.0.stages.1.retries", "greater than or equal to 1"),
        (with_stage(retries=10), "plans.0.stages.1.retries", "less than or equal to 9"),
        (with_stage(0, retries=1), "plans.0.stages.0", "a wait never fails"),
        (with_stage(took_s=1.0, retries=1), "plans.0.stages.1", "nor does what has finished"),
        (with_stage(retry_wait_s=1.0), "plans.0.stages.1", "retry_wait_s goes with retries"),
        (with_stage(told_ago_s=1.0), "plans.0.stages.1", "goes with planned_s or elapsed_s"),
        (with_stage(0, channel="nfs"), "plans.0.stages.0", "a wait uses no channel"),
    ],
)
def test_a_senseless_plan_is_refused_by_its_place(http: httpx.Client, wrong: dict[str, Any], field: str, says: str) -> None:
    told = refused(http.post("/v1/chance", json={"plans": [wrong]}), 422)
    assert field == told["field"]
    assert says in told["fix"]


def test_the_place_told_is_that_of_the_plan_at_fault(http: httpx.Client) -> None:
    plans = [plan(None), plan(None), with_stage(after=["nobody"])]
    assert "plans.2" == refused(http.post("/v1/chance", json={"plans": plans}), 422)["field"]


@pytest.mark.parametrize(
    ("wrong", "field", "says"),
    [
        ({"delta": 0.0}, "questions.0.delta", "greater than 0"),
        ({"delta": 1.0}, "questions.0.delta", "less than 1"),
        ({"need": {}}, "questions.0.need", "samples_s, or levels"),
        ({"need": {"samples_s": []}}, "questions.0.need.samples_s", "at least 1 item"),
        (
            {"need": {"samples_s": [1.0], "predecessors": [plan(None)["stages"][1] | {"after": []}]}},
            "questions.0.need",
            "give samples_s",
        ),
        ({"need": {"levels": [0.5]}}, "questions.0.need", "go together"),
        ({"need": {"levels": [0.5, 1.0], "values_s": [1.0, 2.0]}}, "questions.0.need.levels.1", "less than 1"),
        ({"need": {"levels": [0.9, 0.5], "values_s": [1.0, 2.0]}}, "levels", "increasing"),
        ({"need": {"levels": [0.5, 0.9], "values_s": [2.0, 1.0]}}, "values_s", "do not decrease"),
        ({"need": {"levels": [0.5, 0.9], "values_s": [2.0]}}, "levels", "one per value"),
        ({"load": {"name": "w", "kind": "wait", "planned_s": 1.0}}, "questions.0", "give a setup"),
        ({"load": {"name": "l", "kind": "setup", "context": {}, "after": ["p"]}}, "questions.0", "nothing before it"),
        ({"need": {"predecessors": [{"name": "load", "kind": "service", "context": {}}]}}, "questions.0", "a name of its own"),
        ({"need": {"predecessors": [{"name": "p", "kind": "service", "context": {}, "after": ["q"]}]}}, "questions.0", "'q'"),
    ],
)
def test_a_senseless_need_or_load_is_refused(http: httpx.Client, wrong: dict[str, Any], field: str, says: str) -> None:
    told = refused(http.post("/v1/latest-start", json={"questions": [question(None) | wrong]}), 422)
    assert field == told["field"]
    assert says in told["fix"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", '"NaN"'])
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/chance", '{"plans": [{"stages": [%s], "deadline_s": VALUE}]}', "plans.0.deadline_s"),
        (
            "/v1/chance",
            '{"plans": [{"stages": [{"name": "w", "kind": "wait", "planned_s": VALUE}, %s], "deadline_s": 1}]}',
            "plans.0.stages.0.planned_s",
        ),
        ("/v1/latest-start", '{"questions": [{"load": %s, "need": {"samples_s": [VALUE]}}]}', "questions.0.need.samples_s.0"),
        ("/v1/scenarios", '{"attempts": [{"attempt": "a", "context": {"size_in": VALUE}}]}', "attempts.0.context.size_in"),
    ],
)
def test_what_is_no_finite_number_is_refused(http: httpx.Client, path: str, body: str, field: str, text: str) -> None:  # H01
    stage = json.dumps(plan(None)["stages"][1] | {"after": []})
    told = refused(http.post(path, content=body.replace("%s", stage).replace("VALUE", text)), 422)
    assert field == told["field"]


@pytest.mark.parametrize("path", EXAMPLES)
@pytest.mark.parametrize("body", [b"", b"null", b"[]", b'{"plans": [', b"\xff\xfe{}", b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(http: httpx.Client, path: str, body: bytes) -> None:
    assert "body" == refused(http.post(path, content=body), 422)["field"]


def test_numbers_of_things_asked_at_once_are_bounded(http: httpx.Client) -> None:  # H08
    waits = {"stages": [CHAIN[0]], "deadline_s": 1.0}
    assert "plans" == refused(http.post("/v1/chance", json={"plans": [waits] * 10_001}), 422)["field"]
    assert "questions" == refused(http.post("/v1/latest-start", json={"questions": [question(None)] * 1_001}), 422)["field"]
    many = {"attempts": [{"attempt": str(i), "context": {}} for i in range(1000)]}
    told = refused(http.post("/v1/scenarios", json=many | {"n_scenarios": 1001}), 422)
    assert "more than 1,000,000 draws" in told["fix"]
    assert "n_scenarios" == refused(http.post("/v1/scenarios", json=many | {"n_scenarios": 10**6}), 422)["field"]
    for path in EXAMPLES:
        assert "body" == refused(http.post(path, content=b" " * (LIMITS.body_limit_bytes + 1)), 413)["field"]


def test_stages_and_retries_of_a_request_are_bounded_together(http: httpx.Client) -> None:
    stages = [{"name": f"s{i}", "kind": "setup", "context": KNOWN, "retries": 9} for i in range(32)]
    told = refused(http.post("/v1/chance", json={"plans": [{"stages": stages, "deadline_s": 1.0}] * 320}), 413)
    assert ("plans", "102400 stages and retries") == (told["field"], told["got"])


@pytest.mark.parametrize(("path", "name"), [("/v1/chance", "plans"), ("/v1/scenarios", "attempts")])
@pytest.mark.parametrize("nothing", ["{}", "1"])
def test_a_small_body_of_a_million_nothings_is_refused_before_it_is_read(
    http: httpx.Client, path: str, name: str, nothing: str
) -> None:
    told = refused(http.post(path, content=f'{{"{name}":[{",".join([nothing] * 1_000_002)}]}}'), 413)
    assert ("body", "1000001 values") == (told["field"], told["got"])


def test_of_many_senseless_items_only_their_number_is_told(http: httpx.Client) -> None:
    assert "a list of 900000" == refused(http.post("/v1/chance", json={"plans": [1] * 900_000}), 422)["got"]


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, "seven"])
def test_a_seed_is_a_whole_number_of_63_bits(http: httpx.Client, seed: Any) -> None:
    assert "seed" == refused(http.post("/v1/chance", json={"plans": [plan(None)], "seed": seed}), 422)["field"]


def test_a_phase_nobody_ever_finished_is_named(http: httpx.Client) -> None:
    told = refused(http.post("/v1/chance", json={"plans": [with_stage(phase="prefill")]}), 409)
    assert ("phase", "prefill") == (told["field"], told["got"])
