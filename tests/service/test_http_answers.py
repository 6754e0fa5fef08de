"""Answers over HTTP from a server that has learned: their form, their numbers, and what an unseen context gets."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from predictors.contexts import Context
from predictors.synthetic import runs
from service.schemas import AnswersOut
from telemetry.recorder.ids import clock_id, uuid7
from telemetry.store.reader import open_reader
from tests.service.living import until

SEEN = next(run for run in runs(80, seed=7) if run.attempt.host == "north" and run.events[-1].kind == "resource_released")
KNOWN = {name: value for name in Context.__dataclass_fields__ if (value := getattr(SEEN.attempt, name)) is not None}
"""The context of an attempt the server has learned from."""


def numbers(node: Any) -> Iterator[float]:
    """Every number of a JSON value."""
    if isinstance(node, dict | list):
        for below in node.values() if isinstance(node, dict) else node:
            yield from numbers(below)
    elif isinstance(node, int | float):
        yield node


def answered(reply: httpx.Response) -> list[dict[str, Any]]:
    """Answers of a reply, strict JSON and finite throughout."""
    assert 200 == reply.status_code, reply.text
    told = json.loads(reply.text, parse_constant=lambda text: pytest.fail(f"{text} was sent out"))
    assert all(map(math.isfinite, numbers(told)))
    assert AnswersOut.model_validate_json(reply.content).model_dump(mode="json", exclude_unset=True) == told
    return list(told["answers"])


def test_answers_come_context_by_context_and_phase_by_phase(http: httpx.Client) -> None:
    asked = {"contexts": [KNOWN, {**KNOWN, "host": "south"}], "phases": ["setup", "service"], "attempt_ids": ["a-1", "a-2"]}
    found = answered(http.post("/v1/predict", json=asked))
    assert [("a-1", "setup"), ("a-1", "service"), ("a-2", "setup"), ("a-2", "service")] == [
        (a["attempt_id"], a["phase"]) for a in found
    ]
    assert 4 == len({a["prediction_id"] for a in found})
    north, south = found[1], found[3]
    assert north["mean_s"] < south["mean_s"]  # south is 1.6 times slower in truth
    for a in found:
        assert a["quantiles_s"] == sorted(a["quantiles_s"])
        assert [0.5, 0.9, 0.95, 0.99] == a["levels"]
        assert a["support"]["checked"]["n"] > 0.0
        assert a["support"]["checked"]["enough"] == ("too_few_outcomes" not in a["reasons"])
        backed_to = a["support"]["n"] / (a["support"]["n"] + 1.0)
        assert [b["level"] for b in a["beyond"]] == [p for p in a["levels"] if p > backed_to]
        assert a["claimed_to"] in {0.0, 0.8, 0.9, 0.95, 0.99}
        assert a["claimed_to"] <= backed_to
        assert 0 < a["p_complete"] <= 1
        assert 0 < a["support"]["n"] <= 80
    status = ("calibrated", []) if north["support"]["checked"]["enough"] else ("thin", ["too_few_outcomes"])
    assert status == (north["status"], north["reasons"])


@pytest.mark.parametrize("unseen", [{"host": "west"}, {"model": "other@2"}, {"family": "decoder"}, {"state": "warm"}, {}])
def test_an_unseen_context_is_answered_from_its_parents_and_says_so(http: httpx.Client, unseen: dict[str, str]) -> None:
    context = {**KNOWN, **unseen} if unseen else {"host": "west", "family": "decoder"}
    a = answered(http.post("/v1/predict", json={"contexts": [context], "phases": ["service"]}))[0]
    assert "shadow" == a["status"]
    assert "unseen_configuration" in a["reasons"]
    assert a["quantiles_s"][0] > 0


def test_an_unknown_phase_beside_a_known_one_gets_no_made_up_number(http: httpx.Client) -> None:
    known, unknown = answered(http.post("/v1/predict", json={"contexts": [KNOWN], "phases": ["service", "polishing"]}))
    assert known["quantiles_s"] is not None
    assert ("shadow", None, None) == (unknown["status"], unknown["quantiles_s"], unknown["prediction_id"])
    assert "/v1/events" in unknown["needs"]


def test_unknown_phases_alone_are_a_problem(http: httpx.Client) -> None:
    reply = http.post("/v1/predict", json={"contexts": [KNOWN], "phases": ["polishing"]})
    assert (409, "polishing") == (reply.status_code, reply.json()["got"])


def test_a_residual_at_zero_is_the_whole_and_an_old_one_is_extrapolated(http: httpx.Client) -> None:
    whole = answered(http.post("/v1/predict", json={"contexts": [KNOWN], "phases": ["service"]}))[0]
    ages = [0.0, 0.3, 1e6]
    running = [{"context": KNOWN, "phase": "service", "elapsed_s": age} for age in ages]
    new, young, old = answered(http.post("/v1/residual", json={"running": running}))
    assert whole["quantiles_s"] == pytest.approx(new["quantiles_s"], rel=1e-6)
    assert ages == [a["elapsed_s"] for a in (new, young, old)]
    assert {"given"} == {a["elapsed_source"] for a in (new, young, old)}
    assert ("extrapolated", True) == (old["status"], "older_than_any_known" in old["reasons"])
    assert whole["quantiles_s"][0] - 0.3 < young["quantiles_s"][0]  # not the whole minus its age
    assert old["quantiles_s"][0] > 0


def test_a_running_attempt_is_asked_by_id_and_aged_by_the_clock(http: httpx.Client) -> None:
    attempt_id, now_ns = f"a-{uuid7()}", time.monotonic_ns()
    start = {"event_id": uuid7(), "attempt_id": attempt_id, "kind": "compute_start", "source": "test", "clock_id": clock_id()}
    start |= {"wall_ns": time.time_ns(), "monotonic_ns": now_ns - 2 * 10**9}
    http.post("/v1/events", json={"attempts": [{"attempt_id": attempt_id, **KNOWN}], "events": [start]}).raise_for_status()
    asked = {"running": [{"attempt_id": attempt_id, "phase": "service"}]}
    until(lambda: http.post("/v1/residual", json=asked).status_code == 200)
    aged = answered(http.post("/v1/residual", json=asked))[0]
    assert "monotonic" == aged["elapsed_source"]
    assert 2.0 <= aged["elapsed_s"] <= (time.monotonic_ns() - now_ns) / 1e9 + 2.0
    # A context beside the id does not make the age unknown.
    both = answered(http.post("/v1/residual", json={"running": [{**asked["running"][0], "context": KNOWN}]}))[0]
    assert aged["elapsed_s"] <= both["elapsed_s"]
    said = answered(http.post("/v1/residual", json={"running": [{**asked["running"][0], "elapsed_s": 0.1}]}))[0]
    assert (0.1, "given") == (said["elapsed_s"], said["elapsed_source"])
    wrong = http.post("/v1/residual", json={"running": [{"attempt_id": attempt_id, "phase": "setup"}]})
    assert (422, "phase") == (wrong.status_code, wrong.json()["field"])
    assert "service" in wrong.json()["fix"]


def test_an_attempt_that_has_ended_is_not_running(http: httpx.Client) -> None:
    reply = http.post("/v1/residual", json={"running": [{"attempt_id": "synthetic-7-000000", "phase": "service"}]})
    assert (404, "attempt_id") == (reply.status_code, reply.json()["field"])


def test_every_answer_ends_in_the_ledger_and_a_copy_asked_for_holds_it(http: httpx.Client, tmp_path: Path) -> None:
    given = [answered(http.post("/v1/predict", json={"contexts": [KNOWN], "phases": ["service"]}))[0] for _ in range(8)]
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(http.get("/v1/snapshot").content)
    with open_reader(copy) as reader:
        kept = {key for (key,) in reader.rows("SELECT prediction_id FROM predictions")}
    assert {answer["prediction_id"] for answer in given} <= kept
    until(lambda: http.get("/readyz").json()["ledger_pending"] == 0)


def test_ready_names_what_it_knows(http: httpx.Client) -> None:
    told = http.get("/readyz").json()
    assert told["ready"]
    assert {"setup", "service", "completion"} <= set(told["phases"])
    assert told["learned_to"] <= told["last_commit"]


def test_commits_that_hold_nothing_to_learn_from_are_passed_too(http: httpx.Client) -> None:
    answered(
        http.post("/v1/predict", json={"contexts": [KNOWN], "phases": ["service"]})
    )  # kept in a commit of its own, after which nothing comes
    until(lambda: not http.get("/readyz").json()["ledger_pending"])
    until(lambda: (told := http.get("/readyz").json())["learned_to"] == told["last_commit"])


def test_every_example_of_the_documentation_works(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()["paths"]
    calls_of = {(method.upper(), path): call for path, methods in described.items() for method, call in methods.items()}
    assert {"/v1/events", "/v1/predict", "/v1/residual"} <= {path for method, path in calls_of if method == "POST"}
    for (method, path), call in calls_of.items():
        if method == "POST":
            body = call["requestBody"]["content"]["application/json"]
            assert body["example"].keys() <= body["schema"]["properties"].keys()
            assert {"200", "409", "413", "422"} <= call["responses"].keys()
            if "{" in path:
                continue  # tells of one thing by name
            reply = http.post(path, json=body["example"])
            if path == "/v1/calibrations":  # it names a grant that nobody gave
                assert (403, "grant") == (reply.status_code, reply.json()["field"])
                continue
        elif "{" in path or any(one["required"] for one in call.get("parameters", [])):
            continue  # asks for one thing by name
        else:
            reply = http.get(path)
        assert 200 == reply.status_code, (path, reply.text)


def test_documentation_says_what_every_field_of_an_answer_is(http: httpx.Client) -> None:
    described = http.get("/openapi.json").json()["components"]["schemas"]
    a = answered(http.post("/v1/predict", json={"contexts": [KNOWN], "phases": ["service"]}))[0]
    assert a.keys() == described["Answer"]["properties"].keys() - {"causes", "operational_age_s", "pace", "problem"}, (
        "those are there where they are asked or needed"
    )
    assert a["support"].keys() == described["SupportOut"]["properties"].keys()


def test_a_horizon_asks_for_the_causes_of_every_end(http: httpx.Client) -> None:
    asked = {"contexts": [KNOWN], "phases": ["service", "polishing"], "horizon_s": 0.5}
    known, unknown = answered(http.post("/v1/predict", json=asked))
    assert 1.0 == pytest.approx(sum(known["causes"][name] for name in ("completed", "failed", "cancelled", "running")))
    assert "causes" not in unknown
    refused = http.post("/v1/predict", json={**asked, "horizon_s": 0})
    assert (422, True) == (refused.status_code, "horizon_s" in refused.text)
