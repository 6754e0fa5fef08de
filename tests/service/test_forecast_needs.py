"""Forecast records of a need over HTTP: what stands is answered, what does not is refused with its reason."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from predictors.contexts import Context
from predictors.synthetic import runs
from service.plan_schemas import LatestStartsOut
from service.replay import replay
from telemetry.store.reader import open_reader
from tests.service.test_http_plans import snapshot

SEEN = next(run for run in runs(80, seed=7) if run.attempt.host == "north" and run.events[-1].kind == "resource_released")
KNOWN = Context.of(SEEN.attempt.model_dump()).known()
LOAD = {"name": "load", "kind": "setup", "context": KNOWN, "attempt": "b"}
NOW = {"workflow_id": "w", "graph_version": "g1", "generation": 3}


def record(**changed: Any) -> dict[str, Any]:
    """A forecast that stands for an hour."""
    whole = {
        "workflow_id": "w",
        "owner": "planner",
        "graph_version": "g1",
        "generation": 3,
        "invalidation_id": "i-1",
        "expires_ns": time.time_ns() + 3_600 * 10**9,
        "levels": [0.1, 0.5, 0.9],
        "values_s": [4.0, 5.0, 7.0],
    }
    return {name: value for name, value in (whole | changed).items() if value is not None}


def known(**release: Any) -> dict[str, Any]:
    """The record of a release that was submitted."""
    return record(**{"levels": None, "values_s": None, "release_s": 6.0} | release)


def ask(
    http: httpx.Client, *records: dict[str, Any], workflows: list[dict[str, Any]] | None = None, **more: Any
) -> httpx.Response:
    need = {"forecasts": list(records), "workflows": [NOW] if workflows is None else workflows}
    return http.post("/v1/latest-start", json={"questions": [{"load": LOAD, "need": need} | more]})


def answer(http: httpx.Client, *records: dict[str, Any], **more: Any) -> dict[str, Any]:
    reply = ask(http, *records, **more)
    assert 200 == reply.status_code, reply.text
    LatestStartsOut.model_validate(reply.json())
    return dict(reply.json()["answers"][0])


def refused(reply: httpx.Response) -> dict[str, Any]:
    assert 422 == reply.status_code, reply.text
    return dict(reply.json())


def test_a_forecast_that_stands_is_answered_as_a_need_by_quantiles(http: httpx.Client) -> None:
    told = answer(http, record(), delta=0.1)
    quantiles = {"levels": [0.1, 0.5, 0.9], "values_s": [4.0, 5.0, 7.0]}
    (alike,) = http.post("/v1/latest-start", json={"questions": [{"load": LOAD, "need": quantiles, "delta": 0.1}]}).json()[
        "answers"
    ]
    assert alike["latest_start_s"] == pytest.approx(told["latest_start_s"], abs=0.15)
    assert (True, 1.0, 1.0) == (told["assumed_independent"], told["p_needed"], told["p_forecast_right"])


def test_a_submitted_release_is_no_guess(http: httpx.Client) -> None:
    told = answer(http, known(), delta=0.1)
    assert (False, None) == (told["assumed_independent"], told["p_at_least"])
    sampled = {"questions": [{"load": LOAD, "need": {"samples_s": [6.0]}, "delta": 0.1}]}
    alike = http.post("/v1/latest-start", json=sampled).json()["answers"][0]
    assert alike["latest_start_s"] == pytest.approx(told["latest_start_s"], abs=0.05)


def test_an_expired_record_is_refused(http: httpx.Client) -> None:
    told = refused(ask(http, known(), record(invalidation_id="i-2", expires_ns=time.time_ns() - 1)))
    assert "need.forecasts.1.expires_ns" == told["field"]
    assert "expired" in told["fix"]


def test_a_cancelled_record_is_refused(http: httpx.Client) -> None:
    told = refused(ask(http, record(), workflows=[NOW | {"cancelled": ["i-0", "i-1"]}]))
    assert ("need.forecasts.0.invalidation_id", "i-1") == (told["field"], told["got"])
    assert "cancelled" in told["fix"]


@pytest.mark.parametrize("generation", [2, 4])
def test_a_record_of_another_generation_is_refused(http: httpx.Client, generation: int) -> None:
    told = refused(ask(http, record(generation=generation)))
    assert ("need.forecasts.0.generation", str(generation)) == (told["field"], told["got"])
    assert "generation 3" in told["fix"]


@pytest.mark.parametrize(
    ("changed", "field"),
    [({"graph_version": "g0"}, "graph_version"), ({"model": "another"}, "model"), ({"modes": ["night"]}, "modes")],
)
def test_a_record_of_another_graph_model_or_mode_is_refused(http: httpx.Client, changed: dict[str, Any], field: str) -> None:
    assert f"need.forecasts.0.{field}" == refused(ask(http, record(**changed)))["field"]


def test_the_loads_own_model_and_mode_are_no_matter(http: httpx.Client) -> None:
    answer(http, record(model=KNOWN.get("model"), modes=[KNOWN["mode"]] if "mode" in KNOWN else None))


def test_one_that_does_not_stand_keeps_no_other_answer_back(http: httpx.Client) -> None:
    need = {"forecasts": [record(generation=9)], "workflows": [NOW]}
    questions = [{"load": LOAD, "need": need}, {"load": LOAD, "need": {"samples_s": [6.0]}}]
    gone, answered = http.post("/v1/latest-start", json={"questions": questions}).json()["answers"]
    assert "need.forecasts.0.generation" == gone["problem"]["field"]
    assert "safe" == answered["verdict"]


@pytest.mark.parametrize(
    ("records", "workflows", "says"),
    [
        ([known(weight=0.5)], [NOW], "submitted release is known"),
        ([known(confidence=0.5)], [NOW], "submitted release is known"),
        ([known(samples_s=[1.0])], [NOW], "exactly one of release_s"),
        ([record(values_s=[1.0])], [NOW], "one value per level"),
        ([record(weight=0.6), record(weight=0.6, invalidation_id="i-2")], [NOW], "more than 1"),
        ([record(), record()], [NOW], "of its own"),
        ([record()], [], "tell how 'w' stands"),
        ([record()], [NOW, NOW], "tell once"),
    ],
)
def test_senseless_records_are_refused(
    http: httpx.Client, records: list[dict[str, Any]], workflows: list[dict[str, Any]], says: str
) -> None:
    assert says in refused(ask(http, *records, workflows=workflows))["fix"]


def test_branches_weigh_and_doubt_takes_from_the_risk(http: httpx.Client) -> None:
    sure = answer(http, record(), delta=0.1)
    doubted = answer(http, record(confidence=0.95), delta=0.1)
    assert doubted["latest_start_s"] < sure["latest_start_s"]
    assert 0.95 == doubted["p_forecast_right"]
    assert "never" == answer(http, record(confidence=0.8), delta=0.1)["verdict"]
    branches = [record(weight=0.05), record(weight=0.4, invalidation_id="i-2", values_s=[40.0, 50.0, 70.0])]
    seldom = answer(http, *branches, delta=0.2)
    assert 0.45 == pytest.approx(seldom["p_needed"])
    assert seldom["latest_start_s"] > 30.0 > sure["latest_start_s"]  # the early branch is a ninth of the needs


def test_an_answer_from_forecasts_comes_out_of_the_ledger_to_the_byte(http: httpx.Client, tmp_path: Path) -> None:
    told = answer(http, record(weight=0.5), known(invalidation_id="i-2", release_s=8.0), delta=0.1)
    with open_reader(snapshot(http, tmp_path, [told["answer_id"]])) as reader:
        found = replay(reader, 2**62)
        [(asked,)] = reader.rows("SELECT asked FROM plan_answers WHERE answer_id = ?", [told["answer_id"]])
    assert ["i-1", "i-2"] == [one["key"] for one in json.loads(asked)["forecasts"]]
    assert [] == found.different_answers
