"""Tokens from end to end: made on the command line, taken by a server that others could reach, revoked while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest

from service.cli import main as command_line
from service.client.sync import Client, http_client
from telemetry.errors import NoToken, WrongScope
from telemetry.recorder.marks import Recorder
from telemetry.recorder.shipper import Shipper
from tests.service.living import Served

Start = Callable[..., Served]
Command = Callable[..., str]


@pytest.fixture
def phasecast(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Run a command in this process; what it printed, or how it failed. `token` is that of the environment."""

    def run(*arguments: object, code: int = 0, token: str = "") -> str:
        monkeypatch.setattr(sys, "argv", ["phasecast", *map(str, arguments)])
        monkeypatch.setenv("PHASECAST_TOKEN", token)
        with pytest.raises(SystemExit) as end:
            command_line.main()
        out, err = capfd.readouterr()
        assert code == int(end.value.code or 0), err
        return out if code == 0 else err

    return run


def listed(phasecast: Command, store: Path, token: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(phasecast("token", "list", "--store", store, "--json", token=token))["tokens"]
    return found


@pytest.mark.parametrize("option", [("--host", "0.0.0.0"), ("--require-token",)])
def test_a_server_that_needs_tokens_does_not_start_without_one(
    tmp_path: Path, phasecast: Command, option: tuple[str, ...]
) -> None:
    store = tmp_path / "s.duckdb"
    arguments = ("serve", "--store", store, "--port", 0, *option)
    assert "phasecast token add" in phasecast(*arguments, code=1)
    ended = json.loads(phasecast("token", "add", "old", "--scope", "query", "--store", store, "--json"))
    phasecast("token", "revoke", ended["token_id"], "--store", store)
    assert "phasecast token add" in phasecast(*arguments, code=1), "one that has ended does not count"


def test_tokens_from_the_command_line_to_their_end(start_server: Start, phasecast: Command, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    admin = phasecast("token", "add", "operator", "--scope", "admin", "--store", store).strip()
    planner = json.loads(
        phasecast("token", "add", "planner", "--scope", "query", "--expires-days", 1, "--store", store, "--json")
    )
    served = start_server(store, "--require-token")
    with http_client(served.url) as bare, pytest.raises(NoToken):
        Client(bare).ready()
    with http_client(served.url, token=planner["token"]) as http:
        assert not Client(http).ready()["ready"]
        with pytest.raises(WrongScope):
            Client(http).ingest([], [])
        with pytest.raises(WrongScope):
            Client(http).snapshot(tmp_path / "copy.duckdb")
        assert "no-token" not in phasecast("token", "list", "--store", store, code=1)
        assert ["operator", "planner"] == [one["name"] for one in listed(phasecast, store, token=admin)]
        made = json.loads(phasecast("token", "add", "recorder", "--scope", "ingest", "--store", store, "--json", token=admin))
        assert (["ingest"], None, True) == (made["scopes"], made["expires_ns"], made["in_force"])
        with http_client(served.url, token=made["token"]) as sending:
            assert 0 <= Client(sending).ingest([{"attempt_id": "a"}], [])["commit"]
        assert "revoked" in phasecast("token", "revoke", planner["token_id"], "--store", store, token=admin)
        with pytest.raises(NoToken, match="was revoked"):
            Client(http).ready()
    phasecast("snapshot", tmp_path / "copy.duckdb", "--store", store, token=admin)
    kept = (tmp_path / "copy.duckdb").read_bytes() + store.read_bytes()
    for text in (admin, planner["token"], made["token"]):
        assert text.split("_")[2].encode() not in kept, "no secret is on disk"
    with duckdb.connect(str(tmp_path / "copy.duckdb"), read_only=True) as copy:
        assert [(3,)] == copy.execute("SELECT count(*) FROM tokens WHERE known_until IS NULL").fetchall()


def test_tokens_as_text_tell_how_they_end_and_until_when(phasecast: Command, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    text = phasecast("token", "add", "planner", "--scope", "query", "--scope", "ingest", "--expires-days", 2, "--store", store)
    line = phasecast("token", "list", "--store", store)
    [row] = listed(phasecast, store)
    assert line.startswith(f"{row['token_id']} ...{text.strip()[-4:]} planner: ingest, query; made 20")
    assert "in force until 20" in line
    assert row["expires_ns"] - row["created_ns"] == 2 * 86_400 * 10**9
    phasecast("token", "revoke", row["token_id"], "--store", store)
    assert "; revoked until" in phasecast("token", "list", "--store", store)
    assert "token_id: nobody" in phasecast("token", "revoke", "nobody", "--store", store, code=1)


def test_a_store_that_is_not_there_has_no_tokens_and_is_not_made(phasecast: Command, tmp_path: Path) -> None:
    for command in (("list",), ("revoke", "1a2b3c4d")):
        assert "no such file" in phasecast("token", *command, "--store", tmp_path / "s.duckdb", code=1)
    assert [] == list(tmp_path.iterdir())


def test_what_was_recorded_waits_for_a_token_that_is_good_for_it(start_server: Start, phasecast: Command, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    query, ingest = (phasecast("token", "add", "n", "--scope", scope, "--store", store).strip() for scope in ("query", "ingest"))
    served, recorder = start_server(store, "--require-token"), Recorder(tmp_path / "spool")
    with recorder.attempt(host="here") as attempt, attempt.phase("service"):
        pass
    recorder.close()
    for token, taken in ((None, False), (query, False), (ingest, True)):
        shipper = Shipper(tmp_path / "spool", served.url, token=token).start()
        assert taken == shipper.flush(timeout_s=10 if taken else 0.5)
        shipper.stop()
        assert (0, taken) == (shipper.refused, shipper.sent > 0), "nothing is given up for want of a token"


def test_secrets_do_not_reach_the_log(start_server: Start, phasecast: Command, tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    text = phasecast("token", "add", "planner", "--scope", "query", "--store", store).strip()
    command = [sys.executable, "-m", "service.cli.main", "serve", "--store", str(store), "--port", "0", "--log-format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().rsplit(" at ", 1)[1].strip()
        with http_client(url, token=text) as http:
            http.get("/readyz", headers={"X-Request-Id": "mine"})
        process.terminate()
        _, logged = process.communicate(timeout=20)
    lines = [json.loads(line) for line in logged.splitlines()]
    [asked] = [line for line in lines if line.get("request_id") == "mine"]
    assert ("/readyz", 503, text.split("_")[1]) == (asked["path"], asked["status"], asked["token_id"])
    assert text.split("_")[2] not in logged
