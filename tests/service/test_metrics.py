"""What Prometheus is told: names with units, counts that follow the answers, and the state as it is when asked."""

from __future__ import annotations

import re

import httpx
from prometheus_client.parser import text_string_to_metric_families

from predictors.contexts import Context
from predictors.synthetic import runs
from service.client.sync import Client
from service.http.routes.traces import EXAMPLE
from tests.service.living import Served, until

SEEN = next(run for run in runs(80, seed=7) if run.attempt.host == "north" and run.events[-1].kind == "resource_released")
KNOWN = Context.of(SEEN.attempt.model_dump()).known()
UNITS = (
    *("seconds", "bytes", "rows", "items", "commits", "attempts", "ratio", "number", "answers", "fds"),
    *("fits", "workers", "restarts", "questions"),
)
STATES = {"phasecast_ready", "phasecast_troubled"}
"""Either 0 or 1: without a unit."""


def scraped(http: httpx.Client) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Samples by name and labels."""
    reply = http.get("/metrics")
    assert (200, "text/plain; version=0.0.4; charset=utf-8") == (reply.status_code, reply.headers["content-type"])
    families = text_string_to_metric_families(reply.text)
    return {(one.name, tuple(sorted(one.labels.items()))): one.value for family in families for one in family.samples}


def value(http: httpx.Client, name: str, **labels: str) -> float:
    return scraped(http).get((f"phasecast_{name}", tuple(sorted(labels.items()))), 0.0)


def test_every_name_ends_in_its_unit(http: httpx.Client) -> None:
    for family in text_string_to_metric_families(http.get("/metrics").text):
        assert family.documentation
        assert family.name in STATES or family.name.endswith(UNITS), family.name


def test_answers_are_counted_by_kind_and_status(http: httpx.Client) -> None:
    client = Client(http)
    before = scraped(http)
    client.predict([KNOWN, {"host": "nowhere"}], ["service"])
    client.residual([{"context": KNOWN, "phase": "service", "elapsed_s": 1e6}])
    client.chance([{"deadline_s": 3.0, "stages": [{"name": "a", "kind": "service", "context": KNOWN}]}])
    client.latest_start([{"load": {"name": "a", "kind": "setup", "context": KNOWN}, "need": {"samples_s": [9.0]}}])
    client.scenarios([{"attempt": "a", "context": KNOWN}], 2)
    after = scraped(http)
    grown = {key: after[key] - before.get(key, 0.0) for key in after if key[0] == "phasecast_answers_total"}
    by_kind = {kind: sum(n for key, n in grown.items() if ("kind", kind) in key[1]) for kind in ("predict", "residual", "chance")}
    assert {"predict": 2, "residual": 1, "chance": 1} == by_kind
    assert 1 == grown["phasecast_answers_total", (("kind", "predict"), ("status", "shadow"))]
    assert 1 == grown["phasecast_answers_total", (("kind", "residual"), ("status", "extrapolated"))]
    assert 6 == sum(grown.values())


def test_times_of_requests_are_told_by_route_not_by_path(http: httpx.Client) -> None:
    name, labels = (
        "http_request_duration_seconds_count",
        {"method": "GET", "route": "/v1/hosts/{host:path}/profile", "status": "404"},
    )
    before = value(http, name, **labels)
    for host in ("a", "b", "c"):
        http.get(f"/v1/hosts/{host}/profile")
    assert before + 3 == value(http, name, **labels)
    other = {"method": "any", "route": "unmatched", "status": "404"}
    before = value(http, name, **other)
    http.get("/no/such/path")
    http.request("PATCH", "/no/such/path")
    assert before + 2 == value(http, name, **other), "nobody can make names without end"


def test_items_sent_are_counted_by_what_became_of_them(http: httpx.Client) -> None:
    before = {result: value(http, "ingest_items_total", kind="events", result=result) for result in ("new", "repeat", "refused")}
    event = {
        "event_id": "of-metrics",
        "attempt_id": "of-metrics",
        "kind": "heartbeat",
        "wall_ns": 1764400000000000000,
        "source": "t",
    }
    Client(http).ingest([], [event, event, {**event, "kind": "nap"}])
    after = {result: value(http, "ingest_items_total", kind="events", result=result) for result in before}
    assert {result: n + 1 for result, n in before.items()} == after


def test_spans_are_counted_as_well(http: httpx.Client) -> None:
    before = {result: value(http, "ingest_items_total", kind="spans", result=result) for result in ("taken", "refused")}
    example = EXAMPLE["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    good = {
        **example,
        "traceId": "7bf92f3577b34da6a3ce929d0e0e4737",
    }  # the example itself may have been sent before
    spans = [good, {**good, "spanId": "00f067aa0ba902b7", "startTimeUnixNano": "soon"}]
    Client(http).traces({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    after = {result: value(http, "ingest_items_total", kind="spans", result=result) for result in before}
    assert {result: n + 1 for result, n in before.items()} == after


def test_the_state_is_that_of_the_moment(http: httpx.Client, asked: httpx.Client) -> None:
    assert (1.0, 0.0) == (value(http, "ready"), value(asked, "ready"))
    assert 0.0 == value(http, "troubled")
    assert 0.0 < value(http, "model_age_seconds") < 3600.0
    assert 1.0 <= value(http, "fits_total")
    assert 0.0 < value(http, "last_fit_seconds") <= value(http, "fit_seconds_total")
    assert ("phasecast_last_fit_seconds", ()) not in scraped(asked)
    assert ("phasecast_model_age_seconds", ()) not in scraped(asked), "no model has no age"
    until(lambda: value(http, "upkeep_lag_commits") == 0.0)
    assert Client(http).ready()["last_commit"] <= value(http, "last_commit_number")
    assert 0.0 <= value(http, "answers_calibrated_ratio") <= 1.0
    assert 0.0 == value(http, "store_pending_rows")


def test_readiness_tells_the_share_of_calibrated_answers(http: httpx.Client, answering: Served) -> None:
    assert Client(http).ready()["share_calibrated"] == value(http, "answers_calibrated_ratio")


def test_help_names_no_inside(http: httpx.Client) -> None:
    assert not re.search(r"service\.|telemetry\.|<", http.get("/metrics").text)
