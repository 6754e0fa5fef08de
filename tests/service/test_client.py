from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import duckdb
import httpx
import pytest

from service.client import calls
from service.client.sync import Client, http_client
from service.http import problems
from telemetry import errors
from tests.service.living import Served


def client(handler: Callable[[httpx.Request], httpx.Response]) -> Client:
    """A client whose API is a function."""
    return Client(httpx.Client(base_url="http://127.0.0.1:1", transport=httpx.MockTransport(handler)))


def test_calls_are_plain_http() -> None:
    assert calls.Call("POST", "/v1/predict", b'{"contexts":[{"host":"n"}],"phases":["service"]}') == calls.predict(
        [{"host": "n"}], ["service"]
    )
    asked = calls.predict([{}], ["service"], levels=[0.5], attempt_ids=["a"])
    assert {"contexts": [{}], "phases": ["service"], "levels": [0.5], "attempt_ids": ["a"]} == json.loads(asked.body)
    assert b'{"running":[{"attempt_id":"a","phase":"service"}],"levels":[0.9]}' == (
        calls.residual([{"attempt_id": "a", "phase": "service"}], [0.9]).body
    )


@pytest.mark.parametrize(
    "error", [errors.BadField, errors.UnknownId, errors.TooLarge, errors.NoEvidence, errors.Busy, errors.DiskFull]
)
def test_a_refusal_is_raised_as_the_error_it_stands_for(error: type[errors.PhasecastError]) -> None:
    document = problems.of_error(error("batch", "0", "give a positive number"))
    with pytest.raises(error) as refusal:
        client(lambda _asked: httpx.Response(document.status_code, content=document.body)).predict([{}], ["service"])
    assert ("batch", "0", "give a positive number") == (refusal.value.field, refusal.value.got, refusal.value.fix)
    assert type(refusal.value) is error


def test_something_else_at_the_address_is_no_api() -> None:
    with pytest.raises(errors.NotReached, match="not a Phasecast API"):
        client(lambda _asked: httpx.Response(404, html="<h1>hello</h1>")).predict([{}], ["service"])


def test_an_api_that_is_away_is_not_reached() -> None:
    with http_client("http://127.0.0.1:1") as http, pytest.raises(errors.NotReached) as refusal:
        Client(http).ready()
    assert "127.0.0.1:1" in refusal.value.got
    assert "phasecast serve" in refusal.value.fix


def test_a_proxy_of_the_environment_is_not_used(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    with http_client(served.url) as http:
        assert not Client(http).ready()["ready"]


def test_a_snapshot_is_whole(answering: Served, tmp_path: Path) -> None:
    with http_client(answering.url) as http:
        commit = Client(http).snapshot(tmp_path / "copy.duckdb")
        assert commit <= Client(http).ready()["last_commit"]
    with duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as copy:
        assert [(commit,)] == copy.execute("SELECT max(known_from) FROM commits").fetchall()
    assert [tmp_path / "copy.duckdb"] == list(tmp_path.iterdir())
    assert [] == list(answering.store.parent.glob(".snapshot-*")), "the server's own copy is gone"


def test_a_snapshot_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def half(_asked: httpx.Request) -> httpx.Response:
        def body() -> object:
            yield b"the first half"
            raise httpx.ReadError("gone")

        return httpx.Response(200, content=body(), headers={"X-Phasecast-Commit": "7"})

    with pytest.raises(errors.NotReached):
        client(half).snapshot(tmp_path / "copy.duckdb")
    assert [] == list(tmp_path.iterdir())


def test_a_snapshot_never_replaces_a_file(answering: Served, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with http_client(answering.url) as http, pytest.raises(FileExistsError):
        Client(http).snapshot(tmp_path / "mine")
    assert "precious" == (tmp_path / "mine").read_text()
    assert [tmp_path / "mine"] == list(tmp_path.iterdir())
