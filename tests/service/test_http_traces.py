"""The OTLP receiver over HTTP: JSON and protobuf, plain and gzip; repeats, conflicts, refusals; what becomes of the spans."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest, ExportTraceServiceResponse

from service.client.sync import Client, http_client
from service.http.app import create_app
from service.http.routes.traces import EXAMPLE
from service.settings import Settings
from telemetry.errors import Busy, DiskFull
from telemetry.store.batch import Batch, Receipt
from telemetry.store.file import Store
from tests.service.living import Served, until

START_NS = 1_764_400_000_000_000_000
TRACE = "5b8efff798038103d269b633813fc60c"


def span(span_id: str, length_ns: int | None = 250_000_000, **latencies: float) -> dict[str, Any]:
    told = [{"key": f"gen_ai.latency.{name}", "value": {"doubleValue": length_s}} for name, length_s in latencies.items()]
    end = {} if length_ns is None else {"endTimeUnixNano": str(START_NS + length_ns)}
    ids = {"traceId": TRACE, "spanId": f"{span_id:0>16}", "name": "generate"}
    return {**ids, "startTimeUnixNano": str(START_NS), **end, "attributes": told}


def request(*spans: object, host: str = "otlp-host") -> dict[str, Any]:
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": host}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": list(spans)}]}]}


def message(span_id: str, length_ns: int = 250_000_000) -> ExportTraceServiceRequest:
    made = ExportTraceServiceRequest()
    scope = made.resource_spans.add().scope_spans.add()
    ids = {"trace_id": bytes.fromhex(TRACE), "span_id": bytes.fromhex(f"{span_id:0>16}")}
    scope.spans.add(name="generate", start_time_unix_nano=START_NS, end_time_unix_nano=START_NS + length_ns, **ids)
    return made


@pytest.fixture(scope="module")
def api(start_server: Callable[[Path], Served], tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    with http_client(start_server(tmp_path_factory.mktemp("traces") / "store.duckdb").url, timeout_s=30) as http:
        yield http


def send(http: httpx.Client, document: object) -> dict[str, Any]:
    reply = http.post("/v1/traces", json=document)
    assert 200 == reply.status_code, reply.text
    told: dict[str, Any] = reply.json()
    return told


def test_spans_are_learned_and_answered_from(api: httpx.Client) -> None:
    assert {} == send(api, request(span("a1"), host="learned"))
    until(lambda: api.get("/readyz").status_code == 200)
    client = Client(api)
    until(lambda: client.predict([{"host": "learned"}], ["service"]).answers[0].support is not None)
    support = client.predict([{"host": "learned"}], ["service"]).answers[0].support
    assert support is not None
    assert (1, 0.25) == (support.n, pytest.approx(support.largest_s))


def test_the_same_spans_again_change_nothing_and_other_content_is_rejected(api: httpx.Client) -> None:  # T08
    latencies = {"time_in_queue": 0.05, "time_in_model_prefill": 0.1}
    assert {} == send(api, request(span("b1", **latencies), span("b2")))
    assert {} == send(api, request(span("b1", **latencies), span("b2")))
    changed = [span("b1", time_in_queue=0.05, time_in_model_prefill=0.2), span("b2", 300_000_000), span("b3")]
    told = send(api, request(*changed))["partialSuccess"]
    assert "2" == told["rejectedSpans"]
    assert "already known with different attributes" in told["errorMessage"]
    assert {} == send(api, request(span("b1", **latencies), span("b2"), span("b3")))


def test_bad_spans_are_rejected_and_the_rest_is_taken(api: httpx.Client) -> None:
    bad = {**span("c1"), "startTimeUnixNano": "soon"}
    told = send(api, request(bad, *[span("c3", time_in_queue=-1.0)] * 7, span("c2")))["partialSuccess"]
    assert "8" == told["rejectedSpans"]
    assert "span 00000000000000c1: startTimeUnixNano" in told["errorMessage"]
    assert told["errorMessage"].endswith("; 3 more")
    assert {} == send(api, request(span("c2")))
    assert {} == send(api, {"resourceSpans": []})


def test_protobuf_is_answered_in_protobuf(api: httpx.Client) -> None:
    def post(body: ExportTraceServiceRequest) -> ExportTraceServiceResponse:
        reply = api.post("/v1/traces", content=body.SerializeToString(), headers={"Content-Type": "application/x-protobuf"})
        assert (200, "application/x-protobuf") == (reply.status_code, reply.headers["content-type"])
        return ExportTraceServiceResponse.FromString(reply.content)

    assert not post(message("d1")).HasField("partial_success")
    assert 1 == post(message("d1", 7)).partial_success.rejected_spans
    assert not post(message("d1")).HasField("partial_success")


def test_gzip_is_taken_within_the_limit(api: httpx.Client) -> None:
    def post(body: bytes, encoding: str = "gzip") -> httpx.Response:
        return api.post("/v1/traces", content=body, headers={"Content-Type": "application/json", "Content-Encoding": encoding})

    body = json.dumps(request(span("e1"))).encode()
    assert (200, {}) == (post(gzip.compress(body)).status_code, post(gzip.compress(body)).json())
    bomb = gzip.compress(b" " * (17 * 2**20))
    assert len(bomb) < 100_000
    assert 413 == post(bomb).status_code
    assert 422 == post(gzip.compress(body)[:-9]).status_code
    assert 422 == post(body).status_code
    assert 422 == post(body, "br").status_code


@pytest.mark.parametrize(
    ("body", "media_type", "status"),
    [
        (b"{", "application/json", 422),
        (b"[1]", "application/json", 422),
        (b'{"resourceSpans": ' + b"[" * 10_000, "application/json; charset=utf-8", 422),
        (b"\xff\xff", "application/x-protobuf", 422),
        (b"{}", "text/plain", 415),
    ],
)
def test_what_is_no_request_is_a_problem_that_says_so(api: httpx.Client, body: bytes, media_type: str, status: int) -> None:
    reply = api.post("/v1/traces", content=body, headers={"Content-Type": media_type})
    assert (status, "application/problem+json") == (reply.status_code, reply.headers["content-type"])
    assert reply.json()["fix"]


def test_too_many_spans_are_refused_whole(api: httpx.Client) -> None:
    assert 413 == api.post("/v1/traces", json=request(*[{}] * 10_001)).status_code


def test_an_open_span_runs_and_its_end_completes_it(api: httpx.Client) -> None:
    def running() -> set[str]:
        return {one["phase"] for one in api.get("/v1/running").json()["phases"]}

    assert {} == send(api, request(span("f2", 400_000_000), span("f1", None)))
    until(lambda: "service" in running())
    assert {} == send(api, request(span("f1", 900_000_000)))
    until(lambda: set() == running())


@pytest.mark.parametrize("fault", [DiskFull, Busy])
def test_an_exporter_keeps_what_finds_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: type[DiskFull | Busy]
) -> None:
    def refuse(batch: Batch) -> Future[Receipt]:
        raise fault("store", "full", "wait")

    async def post() -> httpx.Response:
        here = httpx.ASGITransport(create_app(settings, store))
        async with httpx.AsyncClient(transport=here, base_url="http://127.0.0.1") as http:
            return await http.post("/v1/traces", json=EXAMPLE)

    settings = Settings(store=tmp_path / "store.duckdb", refit_share=1.0)
    with Store.open(settings.store) as store:
        monkeypatch.setattr(store, "submit", refuse)
        reply = asyncio.run(post())
    assert (503, "5") == (reply.status_code, reply.headers["retry-after"])  # a 507 would make it drop them


def test_parts_stand_beside_what_events_tell(start_server: Callable[[Path], Served], tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    served = start_server(path)
    with http_client(served.url, timeout_s=30) as http:
        for length_s in (0.1, 0.1, 0.2):
            send(http, request(span("a1", time_in_queue=0.05, time_in_model_prefill=length_s)))
        until(lambda: http.get("/readyz").status_code == 200)
        send(http, EXAMPLE)
    served.process.terminate()
    assert 0 == served.process.wait(timeout=20)
    sql = """SELECT phase, duration_s FROM observations JOIN attempts USING (attempt_id)
             WHERE host = 'otlp-host' AND known_until IS NULL AND duration_s IS NOT NULL ORDER BY phase"""
    with Store.open(path) as store, store.reader() as rows:
        assert [("completion", 0.25), ("prefill", 0.1), ("queue", 0.05), ("service", 0.2)] == rows.rows(sql)
        assert [(2,)] == rows.rows("SELECT count(*) FROM attempts")
