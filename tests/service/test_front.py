"""The door of the API: who is let in, how fast, under which name, and what every answer carries."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from service.http import front as door
from service.http import limits
from service.http.app import create_app
from service.http.auth import scope_of
from service.http.bodies import Bodies
from service.http.logs import REQUESTS, JsonFormatter
from service.http.rates import MOST_CALLERS, Rates
from service.http.tracing import named
from service.settings import Settings
from telemetry import tokens
from telemetry.errors import Busy
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.words import Scope

Call = Callable[..., httpx.Response]
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as opened:
        yield opened


def calling(store: Store, change: Callable[[FastAPI], None] = lambda _app: None, **settings: Any) -> Call:
    """Function that calls an app of these settings as its own machine does, or another client at `peer`."""
    app = create_app(Settings(store=store.path, **settings), store)
    change(app)

    def call(method: str, path: str, peer: str = "127.0.0.1", **sent: Any) -> httpx.Response:
        async def within() -> httpx.Response:
            transport = httpx.ASGITransport(app, client=(peer, 4000))
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
                return await http.request(method, path, **sent)

        return asyncio.run(within())

    return call


def token(store: Store, *scopes: str) -> dict[str, str]:
    """The header of a new token."""
    text, row = tokens.minted("test", scopes, 1)
    store.write(Batch((row,)))
    return {"Authorization": f"Bearer {text}"}


CALLS = [
    ("GET", "/readyz", "query"),
    ("GET", "/metrics", "query"),
    ("GET", "/", "query"),
    ("GET", "/openapi.json", "query"),
    ("GET", "/v1/hosts", "query"),
    ("GET", "/v1/nothing", "query"),
    ("POST", "/v1/predict", "query"),
    ("POST", "/v1/residual", "query"),
    ("POST", "/v1/chance", "query"),
    ("POST", "/v1/latest-start", "query"),
    ("POST", "/v1/scenarios", "query"),
    ("POST", "/v1/events", "ingest"),
    ("POST", "/v1/traces", "ingest"),
    ("GET", "/v1/snapshot", "admin"),
    ("GET", "/v1/tokens", "admin"),
    ("DELETE", "/v1/tokens/abc", "admin"),
    ("POST", "/v1/grants", "admin"),
    ("GET", "/v1/calibrations", "admin"),
    ("DELETE", "/v1/calibrations/abc", "admin"),
    ("POST", "/v1/nothing", "admin"),
    ("GET", "/v1/tokensmith", "query"),
]


@pytest.mark.parametrize(("method", "path", "scope"), CALLS)
def test_every_call_has_a_scope(method: str, path: str, scope: str) -> None:
    assert Scope(scope) == scope_of(method, path)


def test_the_description_tells_the_scope_of_every_call(store: Store) -> None:
    described = calling(store)("GET", "/openapi.json").json()
    told = {
        (method.upper(), path): call["security"] for path, ways in described["paths"].items() for method, call in ways.items()
    }
    assert [] == told.pop(("GET", "/healthz"))
    assert [{}, {"token": ["ingest"]}] == told["POST", "/v1/events"]
    assert [{}, {"token": ["admin"]}] == told["DELETE", "/v1/tokens/{token_id}"]
    assert all(one[1]["token"] == [scope_of(*call)] for call, one in told.items())
    assert "bearer" == described["components"]["securitySchemes"]["token"]["scheme"]


def test_without_a_token_everything_but_healthz_is_401(store: Store) -> None:
    call = calling(store, host="0.0.0.0")
    assert 200 == call("GET", "/healthz", peer="10.0.0.9").status_code
    for method, path, _ in CALLS:
        told = call(method, path, peer="10.0.0.9")
        assert 401 == told.status_code, path
        assert told.headers["www-authenticate"].startswith("Bearer, Basic ")
        assert ("Authorization", "urn:phasecast:problem:no-token") == (told.json()["field"], told.json()["type"])
        assert "phasecast token add" in told.json()["fix"]


@pytest.mark.parametrize("scope", list(Scope))
def test_a_token_opens_the_calls_of_its_scope_and_no_other(store: Store, scope: Scope) -> None:
    call, shown = calling(store, host="0.0.0.0"), token(store, scope)
    for method, path, needed in CALLS:
        told = call(method, path, headers=shown, peer="10.0.0.9")
        if needed == scope or scope is Scope.ADMIN:
            assert told.status_code not in {401, 403}, path
        else:
            assert (403, "urn:phasecast:problem:wrong-scope") == (told.status_code, told.json()["type"]), path
            assert needed in told.json()["fix"]


@pytest.mark.parametrize(
    "sent",
    ["Basic dXNlcjpwYXNz", "Basic ?", "Digest x", "Bearer", "Bearer  ", "Bearer phc_00000000_0", b"Bearer \xff\xfe", b"\xe9"],
)
def test_a_bad_token_is_401_and_no_fault_also_where_none_is_needed(store: Store, sent: str | bytes) -> None:  # H11
    for settings in ({}, {"host": "0.0.0.0"}):
        told = calling(store, **settings)("GET", "/readyz", headers={"Authorization": sent})
        assert (401, "Authorization") == (told.status_code, told.json()["field"])


def test_this_machine_needs_no_token_unless_it_is_said(store: Store) -> None:
    assert 503 == calling(store)("GET", "/readyz").status_code
    assert 401 == calling(store, require_token=True)("GET", "/readyz").status_code
    assert 503 == calling(store, require_token=True)("GET", "/readyz", headers=token(store, "query")).status_code


def test_other_names_and_pages_are_no_matter_where_every_call_shows_a_token(store: Store) -> None:
    shown = token(store, "query") | {"Host": "phasecast.example.org", "Origin": "https://example.org"}
    for settings in ({"host": "0.0.0.0"}, {"require_token": True}):
        assert 503 == calling(store, **settings)("GET", "/readyz", headers=shown).status_code
    assert 421 == calling(store)("GET", "/readyz", headers=shown).status_code


def test_a_browser_shows_its_users_token_as_a_password_but_not_for_other_sites(store: Store) -> None:
    call, bearer = calling(store, host="0.0.0.0"), token(store, "query")["Authorization"].removeprefix("Bearer ")
    shown = {"Authorization": "Basic " + base64.b64encode(f"anybody:{bearer}".encode()).decode(), "Host": "phasecast:8787"}
    assert 200 == call("GET", "/", headers=shown).status_code
    assert 503 == call("GET", "/readyz", headers={**shown, "Origin": "https://phasecast:8787"}).status_code
    told = call("POST", "/v1/predict", headers={**shown, "Origin": "https://example.org"})
    assert (401, "Origin", "https://example.org") == (told.status_code, told.json()["field"], told.json()["got"])


def test_a_caller_past_its_rate_is_429_and_told_when_to_go_on(store: Store) -> None:
    call, shown, other = calling(store, host="0.0.0.0", rate_per_s=0.5), token(store, "query"), token(store, "query")
    assert 503 == call("GET", "/readyz", headers=shown).status_code
    told = call("GET", "/readyz", headers=shown)
    assert (429, "urn:phasecast:problem:too-many") == (told.status_code, told.json()["type"])
    assert told.headers["retry-after"] in {"1", "2"}
    assert 503 == call("GET", "/readyz", headers=other).status_code, "each token has its own rate"
    assert 200 == call("GET", "/healthz", headers=shown).status_code


def test_whoever_tries_tokens_is_held_to_the_rate_of_its_address(store: Store) -> None:
    call = calling(store, host="0.0.0.0", rate_per_s=1.0)
    seen = [call("GET", "/readyz", peer="10.0.0.9", headers={"Authorization": f"Bearer phc_{i}_x"}).status_code for i in range(4)]
    assert [401, 401, 429, 429] == seen
    assert 401 == call("GET", "/readyz", peer="10.0.0.8").status_code


def test_rates_fill_up_again_and_are_bounded() -> None:
    rates = Rates(10.0)
    assert 20 == sum(rates.wait_s("a", 0.0) == 0.0 for _ in range(50)), "what it could have sent in two seconds"
    assert pytest.approx(0.1) == rates.wait_s("a", 0.0)
    assert pytest.approx(0.05) == rates.wait_s("a", 0.05)
    assert 0.0 == rates.wait_s("a", 0.1)
    for n in range(2 * MOST_CALLERS):
        rates.wait_s(str(n), 0.2)
    assert MOST_CALLERS == len(rates._left)
    assert 0.0 == Rates(0.0).wait_s("a", 0.0)


def test_a_body_that_trickles_in_is_given_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "READ_WITHIN_S", 0.05)

    async def slow() -> AsyncIterator[bytes]:
        yield b'{"contexts":'
        await asyncio.Event().wait()

    for path in ("/v1/predict", "/v1/events"):
        told = trickling(create_app(Settings(store=store.path), store), path, slow())
        assert (408, "body", "12 bytes") == (told[0], told[1]["field"], told[1]["got"])


def trickling(app: FastAPI, path: str, body: AsyncIterator[bytes]) -> tuple[int, dict[str, Any]]:
    """Status and answer of a request whose body arrives piece by piece, as a server hands it on."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": await anext(body), "more_body": True}

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"127.0.0.1")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers, "client": ("127.0.0.1", 1)}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], json.loads(sent[1]["body"])


def test_bodies_on_their_way_are_bounded_all_together() -> None:
    bodies = Bodies(100)
    bodies.hold(60)
    with pytest.raises(Busy, match="60 bytes of other requests"):
        bodies.hold(41)
    bodies.hold(40)
    assert 100 == bodies.held_bytes


def test_room_is_given_back_whatever_became_of_a_request(store: Store) -> None:
    app = create_app(Settings(store=store.path, body_limit_bytes=50, question_limit_bytes=50), store)

    async def ask(size_bytes: int) -> int:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
            return (await http.post("/v1/events", content=b" " * size_bytes, headers={"Content-Length": ""})).status_code

    assert [422, 413] == [asyncio.run(ask(size_bytes)) for size_bytes in (50, 51)]
    assert 0 == app.state.running.bodies.held_bytes
    app.state.running.bodies.hold(2**28 - 10)
    assert 503 == asyncio.run(ask(11))
    assert 2**28 - 10 == app.state.running.bodies.held_bytes


def test_every_answer_carries_the_headers_that_browsers_should_keep_to(store: Store) -> None:
    def broken(app: FastAPI) -> None:
        @app.get("/v1/broken")
        async def fail() -> None:
            raise RuntimeError("of no concern to callers")

    call = calling(store, broken)
    for path, status in (("/healthz", 200), ("/v1/nothing", 404), ("/v1/broken", 500), ("/readyz", 503)):
        told = call("GET", path)
        assert status == told.status_code
        for name, value in door.SECURITY.items():
            assert value.decode() == told.headers[name.decode()]
        assert told.headers["x-request-id"]
    assert "of no concern" not in call("GET", "/v1/broken").text
    page = call("GET", "/").headers
    assert "'self'" in page["content-security-policy"], "the page says its own"
    assert 1 == len(page.get_list("x-content-type-options"))


def test_a_request_keeps_the_id_it_came_with_and_gets_one_if_it_has_none(store: Store) -> None:
    call = calling(store)
    assert "job-17.4" == call("GET", "/healthz", headers={"X-Request-Id": "job-17.4"}).headers["x-request-id"]
    made = {call("GET", "/healthz").headers["x-request-id"] for _ in range(2)}
    assert 2 == len(made)
    for bad in ("a b", "x" * 129, "", "\u00e9"):
        assert bad != call("GET", "/healthz", headers={"X-Request-Id": bad.encode()}).headers["x-request-id"]


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        (f"00-{TRACE}-{SPAN}-01", True),
        (f"00-{TRACE}-{SPAN}-00", True),
        (f"cc-{TRACE}-{SPAN}-01-what-comes-later", True),
        (f"00-{TRACE}-{SPAN}-01-more", False),
        (f"ff-{TRACE}-{SPAN}-01", False),
        (f"00-{'0' * 32}-{SPAN}-01", False),
        (f"00-{TRACE}-{'0' * 16}-01", False),
        (f"00-{TRACE.upper()}-{SPAN}-01", False),
        (f"00-{TRACE}-{SPAN}", False),
        ("", False),
    ],
)
def test_trace_context_is_read_as_its_standard_says(sent: str, kept: bool) -> None:
    found = named([(b"traceparent", sent.encode())])
    assert ((TRACE, SPAN) if kept else (None, None)) == (found.trace_id, found.parent_id)


def test_a_request_is_one_line_of_json_with_its_trace(store: Store) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(JsonFormatter())
    log, headers = logging.getLogger(REQUESTS), {"X-Request-Id": "r-1", "traceparent": f"00-{TRACE}-{SPAN}-01"}
    before = log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        calling(store)("GET", "/v1/nothing", headers=headers)
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
    [line] = map(json.loads, written.getvalue().splitlines())
    expected = {"request_id": "r-1", "trace_id": TRACE, "parent_id": SPAN, "method": "GET", "path": "/v1/nothing", "status": 404}
    assert expected.items() <= line.items()
    assert {"level": "info", "message": "request", "peer": "127.0.0.1", "token_id": None}.items() <= line.items()
    assert 0 < line["duration_s"] < 60
    assert line["time"].endswith("Z")


def test_an_error_is_logged_with_what_it_was() -> None:
    record = logging.LogRecord("here", logging.ERROR, __file__, 1, "it failed: %s", ("why",), None)
    record.exc_info = (ValueError, ValueError("inside"), None)
    line = json.loads(JsonFormatter().format(record))
    assert ("error", "here", "it failed: why") == (line["level"], line["logger"], line["message"])
    assert "ValueError: inside" in line["error"]
