"""Decisions and forecasts of others over HTTP, and who came too late."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from predictors.synthetic import Run, runs
from service.answerers import who
from service.client.sync import http_client
from service.http.routes.decisions import EXAMPLE as DECISIONS
from service.http.routes.shadow import FORECASTS
from telemetry.words import TERMINAL_KINDS
from tests.service.living import Served, until
from tests.service.watching import moved


@pytest.fixture(scope="module")
def api(start_server: Callable[[Path], Served], tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server that has learned from 40 attempts."""
    served = start_server(tmp_path_factory.mktemp("shadow") / "store.duckdb")
    with http_client(served.url, timeout_s=30) as http:
        for run in runs(40, seed=3):
            happen(http, run, time.time_ns())
        until(lambda: http.get("/readyz").status_code == 200)
        yield http


def happen(http: httpx.Client, run: Run, start_ns: int) -> int:
    """Have an attempt run; returns the commit."""
    told = post(http, "/v1/events", moved(run, start_ns))
    assert all(item["result"] == "new" for item in told["events"])
    return int(told["commit"])


def post(http: httpx.Client, path: str, body: Any, status: int = 200) -> dict[str, Any]:
    answer = http.post(path, json=body)
    assert status == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


def forecast(run: Run, **values: Any) -> dict[str, Any]:
    sent = {"predictor": "mine-1", "attempt_id": run.attempt.attempt_id, "phase": "service", **values}
    return {"forecasts": [sent if values.keys() & {"point_s", "samples_s", "quantiles_s"} else {**sent, "point_s": 1.0}]}


def predict(http: httpx.Client, run: Run) -> None:
    context = run.attempt.model_dump(include={"host", "family", "model", "state", "batch", "size_in"}, exclude_none=True)
    post(http, "/v1/predict", {"contexts": [context], "phases": ["service"], "attempt_ids": [run.attempt.attempt_id]})


def shadow(http: httpx.Client) -> dict[str, Any]:
    found: dict[str, Any] = http.get("/v1/reports/shadow").json()
    return found


def standing(http: httpx.Client, predictor: str) -> dict[str, Any]:
    return next(one for one in shadow(http)["standings"] if one["predictor"] == predictor and one["phase"] is None)


def fresh(n: int, seed: int) -> list[Run]:
    """Attempts with ids of their own, all of which complete."""
    found = []
    for run in [run for run in runs(n * 4, seed=seed) if not {event.kind for event in run.events} & TERMINAL_KINDS][:n]:
        name = f"{seed}-{run.attempt.attempt_id}"
        events = tuple(
            event.model_copy(update={"attempt_id": name, "event_id": f"{seed}-{event.event_id}"}) for event in run.events
        )
        found.append(replace(run, attempt=run.attempt.model_copy(update={"attempt_id": name}), events=events))
    return found


def test_decisions_are_logged_each_with_its_own_result(api: httpx.Client) -> None:
    [good] = DECISIONS["decisions"]
    bad = {**good, "decision_id": "d-2", "choice": "nowhere"}
    told = post(api, "/v1/decisions", {"decisions": [good, bad, {**good, "decision_id": "d-3"}]})
    assert ["new", "refused", "new"] == [item["result"] for item in told["items"]]
    assert "alternatives: the choice 'nowhere' is not among" in told["items"][1]["problem"]
    assert ["repeat", "conflict"] == [
        item["result"] for item in post(api, "/v1/decisions", {"decisions": [good, {**good, "policy": "other"}]})["items"]
    ]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/decisions", {"decisions": []}, "decisions"),
        ("/v1/decisions", {"decisions": [{**DECISIONS["decisions"][0], "secret": 1}]}, "decisions.0.secret"),
        ("/v1/shadow/forecasts", {"forecasts": [{**FORECASTS["forecasts"][0], "point_s": 1.0}]}, "forecasts.0"),
        ("/v1/shadow/forecasts", {"forecasts": [{**FORECASTS["forecasts"][1], "point_s": -1.0}]}, "forecasts.0.point_s"),
        ("/v1/promotions", {"predictor": "x", "action": "love", "operator": "ada", "reason": "r"}, "action"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(api: httpx.Client, path: str, body: Any, field: str) -> None:
    assert field == post(api, path, body, 422)["field"]


def test_quantiles_that_cross_are_refused_and_the_rest_is_taken(api: httpx.Client) -> None:
    first, second = FORECASTS["forecasts"]
    told = post(api, "/v1/shadow/forecasts", {"forecasts": [{**first, "quantiles_s": [2.0, 1.0]}, second]})
    assert ["refused", "new"] == [item["result"] for item in told["items"]]
    assert "quantiles do not cross" in told["items"][0]["problem"]


def test_a_forecast_before_the_answer_is_scored_and_one_after_it_is_late(api: httpx.Client) -> None:
    early, late, begun = fresh(3, seed=91)
    post(api, "/v1/shadow/forecasts", forecast(early, predictor="timed-1"))
    for run in (early, late):
        predict(api, run)
    post(api, "/v1/shadow/forecasts", forecast(late, predictor="timed-1"))
    for run in (early, late, begun):
        happen(api, run, time.time_ns())
    post(api, "/v1/shadow/forecasts", forecast(begun, predictor="timed-1"))
    until(
        lambda: standing(api, "timed-1")["counts"]["scored"] == 1 and standing(api, "timed-1")["counts"]["late_after_event"] == 1
    )
    found = standing(api, "timed-1")
    assert ("outside", 1, 0) == (found["source"], found["counts"]["late_after_answer"], found["counts"]["waiting"])
    told = {row["attempt_id"]: row["why"] for row in shadow(api)["late"] if row["predictor"] == "timed-1"}
    assert {late.attempt.attempt_id: "late_after_answer", begun.attempt.attempt_id: "late_after_event"} == told


def test_each_form_is_scored(api: httpx.Client) -> None:
    forms: dict[str, dict[str, Any]] = {
        "as-point": {"point_s": 1.0},
        "as-samples": {"samples_s": [0.5, 1.0, 2.0]},
        "as-levels": {"levels": [0.1, 0.9], "quantiles_s": [0.5, 2.0]},
    }
    [run] = fresh(1, seed=92)
    for predictor, values in forms.items():
        post(api, "/v1/shadow/forecasts", forecast(run, predictor=predictor, **values))
    predict(api, run)
    happen(api, run, time.time_ns())
    until(lambda: all(standing(api, predictor)["counts"]["scored"] == 1 for predictor in forms))
    assert [] == standing(api, "as-point")["passed"]
    assert [0.5, 0.9, 0.95, 0.99] == [one["level"] for one in standing(api, "as-samples")["passed"]]
    assert "too little is known: 1 outcomes of 1 runs" == standing(api, "as-levels")["reason"]


def answered_by(http: httpx.Client) -> str:
    told = post(http, "/v1/predict", {"contexts": [{"host": "north"}], "phases": ["service"]})
    return who(told["answers"][0]["model_id"])


def test_an_operator_overrules_and_withdraws_on_record_and_serving_follows(api: httpx.Client) -> None:
    assert "default" == shadow(api)["in_office"]
    asked = {"predictor": "hazards", "action": "promote", "operator": "ada", "reason": "canary"}
    assert "predictor" == post(api, "/v1/promotions", {**asked, "predictor": "planner-3"}, 422)["field"]
    made = post(api, "/v1/promotions", asked)
    assert "hazards" == shadow(api)["in_office"]
    until(lambda: answered_by(api) == "hazards")
    over = api.delete(f"/v1/promotions/{made['change_id']}", params={"reason": "it was slow"})
    assert (200, "it was slow") == (over.status_code, over.json()["undone_reason"])
    found = shadow(api)
    until(lambda: answered_by(api) == "default")
    assert ("default", "ada", "it was slow") == (
        found["in_office"],
        found["promotions"][-1]["decided_by"],
        found["promotions"][-1]["undone_reason"],
    )
    assert 422 == api.delete(f"/v1/promotions/{made['change_id']}", params={"reason": "again"}).status_code
    assert 404 == api.delete("/v1/promotions/nothing", params={"reason": "x"}).status_code
