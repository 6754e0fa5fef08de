"""What the API answers to requests that are wrong, too large or not from here: quickly, with the field and the remedy."""

from __future__ import annotations

import collections
import json
import socket
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from service.http import problems
from service.http.heads import MOST_HEAD_BYTES
from service.settings import Settings
from telemetry import errors
from tests.service.living import Served

MIB = 2**20
LIMITS = Settings(store=Path("unused"))
ASK = {"/v1/predict": {"contexts": [{}], "phases": ["service"]}, "/v1/residual": {"running": [{"phase": "service"}]}}
SMALL = [*ASK, "/v1/tokens"]
"""Take bodies up to the smaller limit."""
ROUTES = ["/v1/events", "/v1/chance", "/v1/latest-start", "/v1/scenarios", *SMALL]


def refused(answer: httpx.Response, status: int) -> dict[str, Any]:
    """The problem document of an answer; it is finite, names its field, and shows nothing of the inside."""
    assert status == answer.status_code, answer.text
    assert "application/problem+json" == answer.headers["content-type"]
    for inside in ("Traceback", ".py", ":NaN", ":Infinity"):
        assert inside not in answer.text
    told: dict[str, Any] = answer.json()
    assert {"type", "title", "status", "detail", "field", "got", "fix"} == told.keys()
    assert status == told["status"]
    assert told["type"].startswith("urn:phasecast:problem:")
    assert told["field"]
    assert told["fix"]
    return told


def subclasses(kind: type[Exception]) -> set[type[Exception]]:
    return {below for child in kind.__subclasses__() for below in (child, *subclasses(child))}


def test_every_error_has_a_status() -> None:
    assert subclasses(errors.PhasecastError) == set(problems.STATUS)


def test_nothing_known_is_a_problem_that_says_what_to_ingest(asked: httpx.Client) -> None:
    answer = asked.post("/v1/predict", json={"contexts": [{"host": "node-1"}], "phases": ["service", "setup"]})
    told = refused(answer, 409)
    assert ("phase", "service, setup") == (told["field"], told["got"])
    assert "/v1/events" in told["fix"]


def test_an_attempt_asked_for_by_name_must_be_known(asked: httpx.Client) -> None:
    told = refused(asked.post("/v1/residual", json={"running": [{"attempt_id": "nobody", "phase": "service"}]}), 404)
    assert ("attempt_id", "nobody") == (told["field"], told["got"])


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/predict", {"contexts": [{"batch": 0}], "phases": ["service"]}, "contexts.0.batch"),
        ("/v1/predict", {"contexts": [{}, {"size_in": -1}], "phases": ["service"]}, "contexts.1.size_in"),
        ("/v1/predict", {"contexts": [{"size_in": "64 MB"}], "phases": ["service"]}, "contexts.0.size_in"),
        ("/v1/predict", {"contexts": [{"hostname": "n"}], "phases": ["service"]}, "contexts.0.hostname"),
        ("/v1/predict", {"contexts": [{}], "phases": ["service"], "level": 0.5}, "level"),
        ("/v1/predict", {"contexts": [{}], "phases": []}, "phases"),
        ("/v1/predict", {"contexts": [], "phases": ["service"]}, "contexts"),
        ("/v1/predict", {"phases": ["service"]}, "contexts"),
        ("/v1/predict", {"contexts": [{}], "phases": ["service"], "levels": [0.5, 1.0]}, "levels.1"),
        ("/v1/predict", {"contexts": [{}], "phases": ["service"], "levels": [95]}, "levels.0"),
        ("/v1/predict", {"contexts": [{}, {}], "phases": ["service"], "attempt_ids": ["a"]}, "attempt_ids"),
        ("/v1/residual", {"running": [{"context": {}, "phase": "service", "elapsed_s": -0.1}]}, "running.0.elapsed_s"),
        ("/v1/residual", {"running": [{"context": {}, "phase": "service", "elapsed_ms": 1}]}, "running.0.elapsed_ms"),
        ("/v1/residual", {"running": [{"context": {}, "phase": "service"}]}, "running.0"),
        ("/v1/residual", {"running": [{"attempt_id": "a", "elapsed_s": 1}]}, "running.0.phase"),
        ("/v1/events", {"events": {}}, "events"),
        ("/v1/events", {"traces": []}, "traces"),
    ],
)
def test_a_wrong_field_is_named(asked: httpx.Client, path: str, body: dict[str, Any], field: str) -> None:
    assert field == refused(asked.post(path, json=body), 422)["field"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", '"NaN"', '"inf"', '"-Infinity"'])
@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/predict", '{"contexts": [{"size_in": %s}], "phases": ["service"]}', "contexts.0.size_in"),
        ("/v1/predict", '{"contexts": [{}], "phases": ["service"], "levels": [%s]}', "levels.0"),
        ("/v1/residual", '{"running": [{"context": {}, "phase": "service", "elapsed_s": %s}]}', "running.0.elapsed_s"),
    ],
)
def test_what_is_no_finite_number_is_refused(asked: httpx.Client, path: str, body: str, field: str, text: str) -> None:  # H01
    answer = asked.post(path, content=body % text)
    assert 422 == answer.status_code
    assert field == answer.json()["field"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "1e999"])
def test_events_without_finite_numbers_are_no_json(asked: httpx.Client, text: str) -> None:  # H01
    told = refused(asked.post("/v1/events", content=f'{{"events": [{{"device_elapsed_s": {text}}}]}}'), 422)
    assert "body" == told["field"]
    assert "line 1 column" in told["got"]


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-inf"])
def test_a_number_written_as_text_that_is_not_finite_spoils_its_own_event_only(asked: httpx.Client, text: str) -> None:  # H01
    bad = {"event_id": f"bad-{text}", "attempt_id": "a", "kind": "heartbeat", "wall_ns": 1764400000000000000, "source": "t"}
    good = {**bad, "event_id": f"good-{text}"}
    told = asked.post("/v1/events", json={"events": [{**bad, "device_elapsed_s": text}, good]}).json()["events"]
    assert [(f"bad-{text}", "refused"), (f"good-{text}", "new")] == [(one["id"], one["result"]) for one in told]
    assert told[0]["problem"].startswith("device_elapsed_s")


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"7", b'"text"', b'{"contexts": [', b"\xff\xfe{}", b'{"x": "\xc3\x28"}', b"[" * 100_000]
)
def test_a_body_that_is_no_json_object_is_refused(asked: httpx.Client, path: str, body: bytes) -> None:
    assert "body" == refused(asked.post(path, content=body), 422)["field"]


@pytest.mark.parametrize("path", ROUTES)
def test_deep_nesting_below_a_field_is_refused(asked: httpx.Client, path: str) -> None:  # H08
    refused(asked.post(path, content=b'{"contexts":' + b'{"host":' * 50_000 + b"1" + b"}" * 50_001), 422)


@pytest.mark.parametrize("path", ROUTES)
def test_an_announced_body_over_the_limit_is_not_read(asked: httpx.Client, path: str) -> None:  # H08
    limit = LIMITS.question_limit_bytes if path in SMALL else LIMITS.body_limit_bytes
    told = refused(asked.post(path, content=b" " * (limit + 1)), 413)
    assert ("body", f"{limit + 1} bytes") == (told["field"], told["got"])
    assert str(limit) in told["fix"]


def test_a_stream_without_length_ends_at_the_limit_with_bounded_memory(served: Served, asked: httpx.Client) -> None:  # H08
    server, held_bytes = psutil.Process(served.process.pid), list[int]()

    def long() -> Iterator[bytes]:
        for _ in range(200):
            held_bytes.append(server.memory_info().rss)
            yield b" " * MIB

    told = refused(asked.post("/v1/events", content=long()), 413)
    assert f"more than {LIMITS.body_limit_bytes} bytes" == told["got"]
    assert max(held_bytes) - held_bytes[0] < 3 * LIMITS.body_limit_bytes


@pytest.mark.parametrize(
    ("path", "field", "item"),
    [
        ("/v1/chance", "plans", '{"deadline_s":1}'),
        ("/v1/chance", "plans", "{}"),
        ("/v1/latest-start", "questions", "{}"),
        ("/v1/scenarios", "attempts", "{}"),
    ],
)
def test_a_million_plans_are_refused_with_bounded_memory(
    served: Served, asked: httpx.Client, path: str, field: str, item: str
) -> None:  # H08
    server = psutil.Process(served.process.pid)
    before_bytes = server.memory_info().rss
    body = f'{{"{field}":[' + ",".join([item] * 10**6) + "]}"
    told = refused(asked.post(path, content=body), 413 if len(body) > LIMITS.body_limit_bytes else 422)
    assert told["field"] in {field, "body"}
    assert server.memory_info().rss - before_bytes < 200 * MIB


@pytest.mark.parametrize(
    "head",
    [
        [b"GET /", *[b"a" * MIB] * 64],
        [b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: ", *[b"a" * MIB] * 64],
        [b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", *[b"x-many: 1\r\n" * 100_000] * 64],
    ],
    ids=["target", "header", "headers"],
)
def test_a_head_without_end_is_refused_with_bounded_memory(served: Served, asked: httpx.Client, head: list[bytes]) -> None:  # H08
    server, address = psutil.Process(served.process.pid), ("127.0.0.1", int(served.url.rpartition(":")[2]))
    before_bytes = server.memory_info().rss
    with socket.create_connection(address, timeout=20) as raw, pytest.raises(ConnectionError):  # it hangs up before the end
        collections.deque(map(raw.sendall, head), maxlen=0)
    assert server.memory_info().rss - before_bytes < 16 * MIB
    assert 200 == asked.get("/healthz").status_code


def test_a_head_past_the_limit_is_told_so(served: Served) -> None:
    with socket.create_connection(("127.0.0.1", int(served.url.rpartition(":")[2])), timeout=20) as raw:
        raw.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"a" * 100_000)
        answer = HTTPResponse(raw)
        answer.begin()
        told = json.loads(answer.read())
        assert b"" == raw.recv(1), "and hangs up"
    assert (431, "headers", 431) == (answer.status, told["field"], told["status"])
    assert str(MOST_HEAD_BYTES) in told["fix"]


def test_a_head_within_the_limit_is_read(asked: httpx.Client) -> None:
    headers = {f"x-{n}": "a" * 1000 for n in range(60)}
    assert 200 == asked.get("/healthz", headers=headers).status_code
    assert 200 == asked.post("/v1/events", json={}, headers=headers).status_code


def test_a_million_wrong_fields_are_not_told_one_by_one(asked: httpx.Client) -> None:
    body = '{"contexts": [{' + ",".join(f'"a{n}":1' for n in range(300_000)) + '}], "phases": ["service"]}'
    assert len(body) < LIMITS.question_limit_bytes
    told = refused(asked.post("/v1/predict", content=body), 422)
    assert ("body", "300000 faults") == (told["field"], told["got"])


def test_one_field_wrong_in_every_context_is_still_named(asked: httpx.Client) -> None:
    told = refused(asked.post("/v1/predict", json={"contexts": [{"batch": 0}] * 10_000, "phases": ["service"]}), 422)
    assert "contexts.0.batch" == told["field"]
    assert told["fix"].endswith("(9999 more)")


def test_batches_are_bounded(asked: httpx.Client) -> None:
    asks = {"contexts": [{}] * 201, "phases": [f"p{n}" for n in range(50)]}
    told = refused(asked.post("/v1/predict", json=asks), 413)
    assert ("contexts", "10050") == (told["field"], told["got"])
    running = [{"context": {}, "phase": "service", "elapsed_s": 1}] * 10_001
    assert "running" == refused(asked.post("/v1/residual", json={"running": running}), 422)["field"]
    assert "events" == refused(asked.post("/v1/events", content=json.dumps({"events": [{}] * 10_001})), 413)["field"]


@pytest.mark.parametrize(
    "host", ["example.org", "127.0.0.1.example.org", "localhost.example.org:8787", "192.168.0.7", "[fe80::1]"]
)
def test_a_name_that_is_not_this_machine_is_misdirected(asked: httpx.Client, host: str) -> None:
    assert "Host" == refused(asked.get("/healthz", headers={"Host": host}), 421)["field"]


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "127.0.0.2:80", "[::1]", "[::1]:8787"])
def test_every_name_of_this_machine_is_served(asked: httpx.Client, host: str) -> None:
    assert 200 == asked.get("/healthz", headers={"Host": host}).status_code


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://localhost.example.org"])
def test_a_page_of_another_site_may_not_write(asked: httpx.Client, origin: str) -> None:
    told = refused(asked.post("/v1/events", json={"events": []}, headers={"Origin": origin}), 403)
    assert ("Origin", origin) == (told["field"], told["got"])


def test_a_page_of_this_machine_may(asked: httpx.Client) -> None:
    assert 200 == asked.post("/v1/events", json={}, headers={"Origin": "http://localhost:8787"}).status_code


def test_unknown_paths_and_methods_are_problems_too(asked: httpx.Client) -> None:
    assert "/v1/nothing" == refused(asked.get("/v1/nothing"), 404)["got"]
    assert "/v1/predict" == refused(asked.get("/v1/predict"), 405)["got"]


def test_nothing_above_hurt_the_server(asked: httpx.Client) -> None:
    assert {"status": "alive"} == asked.get("/healthz").json()
    told = asked.get("/readyz")
    assert (503, False) == (told.status_code, told.json()["ready"])
