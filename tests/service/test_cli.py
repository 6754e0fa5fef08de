"""The command line: what each command tells, and that every failure names the field, the remedy and an exit code."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pytest

from predictors.synthetic import runs
from service.cli import main as command_line
from service.lineup import Lineup
from service.settings import Settings
from service.upkeep import Upkeep
from telemetry.errors import NoEvidence, NotReached, PhasecastError, StoreError, StoreHeld
from telemetry.store.file import Store
from telemetry.tables import TABLES
from tests.service.living import Living, Served

CONTEXT = '{"host": "north", "family": "encoder", "state": "cached", "batch": 4, "size_in": 64}'


class Told(NamedTuple):
    """What a command said, and how it ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Told]


def phasecast(*arguments: object, **environment: str) -> Told:
    """Run the command as a shell does."""
    command = [sys.executable, "-m", "service.cli.main", *map(str, arguments)]
    made = {**os.environ, "COLUMNS": "200", **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=made, timeout=60, check=False)
    return Told(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process: quick, for what ends before anything is started."""

    def within(*arguments: object) -> Told:
        monkeypatch.setattr(sys, "argv", ["phasecast", *map(str, arguments)])
        with pytest.raises(SystemExit) as end:
            command_line.main()
        return Told(int(end.value.code or 0), *capfd.readouterr())

    return within


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that a service learned from 60 attempts in, and left."""
    path = tmp_path_factory.mktemp("left") / "store.duckdb"
    with Store.open(path) as store:
        lineup = Lineup("here/1")
        living = Living(store, lineup, Upkeep(store, lineup, Settings(store=path, refit_share=1.0)))
        living.send(runs(60, seed=4))
        living.settle()
        living.upkeep.stop()
    return path


def refused(told: Told, code: int, *parts: str) -> None:
    """Ended with this code; what is wrong and what to do on two lines, and no trace."""
    assert code == told.code, told
    assert "" == told.out
    lines = told.err.splitlines()
    assert lines[0].startswith("phasecast: ")
    assert lines[1].startswith("  -> ")
    assert 2 == len(lines), told.err
    for part in parts:
        assert part in told.err


def test_version_and_help() -> None:
    assert Told(0, "0.1.0\n", "") == phasecast("--version")
    told = phasecast("--help")
    assert 0 == told.code
    for command in ("doctor", "demo", "predict", "residual", "serve", "snapshot"):
        assert command in told.out
    assert "3 another process holds the store" in told.out


@pytest.mark.parametrize(
    ("error", "code"), [(PhasecastError, 1), (StoreHeld, 3), (NoEvidence, 4), (NotReached, 5), (StoreError, 6)]
)
def test_exit_codes_are_those_the_help_tells(
    error: type[PhasecastError], code: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_path: object) -> None:
        raise error("field", "got", "fix")

    monkeypatch.setattr("service.doctor.examine", fail)
    assert Told(code, "", "phasecast: field: got\n  -> fix\n") == run("doctor")


@pytest.mark.parametrize("command", ["nonsense", "predict", "snapshot", "serve --port 70000", "demo --attempts 3"])
def test_wrong_use_ends_with_two(command: str, run: Run) -> None:
    told = run(*command.split())
    assert (2, "") == (told.code, told.out)
    assert "Usage" in told.err


@pytest.mark.parametrize("place", ["nothing/there.duckdb", "/proc/nonsense/x/y.duckdb", "\t", "a" * 300, "a" * 300 + "/b"])
def test_doctor_never_fails(place: str, run: Run) -> None:
    told = run("doctor", "--store", place, "--json")
    assert (0, "") == (told.code, told.err)
    findings = json.loads(told.out)["findings"]
    assert {"ok", "limited", "absent"} >= {found["state"] for found in findings}
    assert {"python", "torch", "cuda", "nvml", "cgroup", "page_cache", "disk", "store"} <= {found["name"] for found in findings}


def test_doctor_tells_the_same_as_a_table(left: Path) -> None:
    told = phasecast("doctor", PHASECAST_STORE=str(left))
    assert (0, "") == (told.code, told.err)
    for part in ("python", "page_cache", "monotonic_clock", "nobody holds it"):
        assert part in told.out


def test_predict_as_json_is_the_answer_of_the_api(left: Path) -> None:
    told = phasecast("predict", "--store", left, "--phase", "service", "--phase", "setup", "--context", CONTEXT, "--json")
    assert (0, "") == (told.code, told.err)
    service, setup = json.loads(told.out)["answers"]
    assert ("service", "setup") == (service["phase"], setup["phase"])
    assert [0.5, 0.9, 0.95, 0.99] == service["levels"]
    assert service["quantiles_s"] == sorted(service["quantiles_s"])
    assert service["quantiles_s"][0] > 0
    with Store.open(left) as store, store.reader() as reader:
        kept = {row[0] for row in reader.rows("SELECT prediction_id FROM predictions")}
    assert {service["prediction_id"], setup["prediction_id"]} <= kept


def test_predict_as_a_table_names_levels_evidence_and_what_is_not_claimed(left: Path) -> None:
    told = phasecast("predict", "--store", left, "--phase", "service", "--context", CONTEXT, "--level", 0.5, "--level", 0.999)
    assert (0, "") == (told.code, told.err)
    for part in ("p50 s", "p99.9 s", "mean s", "p99.9 is not claimed yet (at least "):
        assert part in told.out


def test_residual_tells_what_is_left(left: Path) -> None:
    asked = ("residual", "--store", left, "--phase", "service", "--context", CONTEXT, "--elapsed-s", 0.2)
    answer = json.loads(phasecast(*asked, "--json").out)["answers"][0]
    assert (0.2, "given") == (answer["elapsed_s"], answer["elapsed_source"])
    told = phasecast(*asked)
    assert (0, "") == (told.code, told.err)
    assert f"{answer['quantiles_s'][0]:.4g}" in told.out


def test_a_phase_nobody_finished_ends_with_four(left: Path, run: Run) -> None:
    refused(run("predict", "--store", left, "--phase", "polishing"), 4, "polishing", "/v1/events")


def test_an_attempt_that_does_not_run_is_unknown(left: Path, run: Run) -> None:
    refused(run("residual", "--store", left, "--phase", "service", "--attempt-id", "nobody"), 1, "attempt_id: nobody")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["predict", "--phase", "service", "--context", "host=n"], ["--context: host=n", "give a JSON object"]),
        (["predict", "--phase", "service", "--context", "[1]"], ["--context: [1]", "give a JSON object"]),
        (["predict", "--phase", "service", "--context", '{"batch": NaN}'], ["--context", "give a JSON object"]),
        (["predict", "--phase", "service", "--context", '{"batch": 0}'], ["batch: 0", "greater than 0"]),
        (["predict", "--phase", "service", "--context", '{"hots": "n"}'], ["hots: n", "not permitted"]),
        (["predict", "--phase", "service", "--level", "95"], ["levels.0: 95", "less than 1"]),
        (["residual", "--phase", "service"], ["--elapsed-s: missing", "--attempt-id"]),
        (["residual", "--phase", "service", "--elapsed-s", "nan"], ["elapsed_s: nan", "finite"]),
        (["residual", "--phase", "service", "--elapsed-s", "-1"], ["elapsed_s: -1.0", "greater than or equal to 0"]),
        (["predict", "--phase", "service"], ["none.duckdb", "no such file", "phasecast serve"]),
        (["residual", "--phase", "service", "--elapsed-s", "1"], ["none.duckdb", "no such file"]),
        (["snapshot", "out.duckdb"], ["none.duckdb", "no such file"]),
        (["serve", "--host", "0.0.0.0"], ["host: 0.0.0.0", "127.0.0.1"]),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(arguments: list[str], parts: list[str], run: Run, tmp_path: Path) -> None:
    refused(run(*arguments, "--store", tmp_path / "none.duckdb"), 1, *parts)
    assert not (tmp_path / "none.duckdb").exists()


def test_a_file_that_is_no_store_ends_with_six(run: Run, tmp_path: Path) -> None:
    (tmp_path / "text.duckdb").write_text("not a database")
    refused(run("predict", "--phase", "service", "--store", tmp_path / "text.duckdb"), 6, "not a valid DuckDB")


def test_a_place_that_cannot_be_written_is_named(run: Run) -> None:
    refused(run("serve", "--store", "/proc/nonsense/store.duckdb", "--port", 0), 1, "/proc/nonsense", "check that the path")


def test_a_port_in_use_is_named(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        refused(run("serve", "--store", tmp_path / "s.duckdb", "--port", port), 1, f"port: {port}", "--port")


@pytest.mark.parametrize("command", ["serve", "predict --phase service", "residual --phase service --elapsed-s 1"])
def test_a_store_that_is_served_is_refused_with_its_holder_and_the_ways_out(command: str, answering: Served, run: Run) -> None:
    taken = ["--port", answering.url.rpartition(":")[2]] if command == "serve" else []  # the owner matters more than its port
    told = run(*command.split(), *taken, "--store", answering.store)  # D01
    ways = (f"process {answering.process.pid} ", answering.url, "phasecast snapshot OUT.duckdb", "or stop process")
    refused(told, 3, str(answering.store), *ways)


@pytest.mark.parametrize(
    "command", ["serve", "predict --phase service", "residual --phase service --elapsed-s 1", "snapshot out.duckdb"]
)
def test_a_store_held_without_an_api_is_refused_with_its_holder(
    command: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with Store.open(tmp_path / "s.duckdb"):
        told = run(*command.split(), "--store", tmp_path / "s.duckdb")
        refused(told, 3, f"process {os.getpid()} ", "wait for it to end, or stop process")
    assert not (tmp_path / "out.duckdb").exists()


def documented(path: Path) -> dict[str, dict[str, Any]]:
    """Comments of every table and column, as a plain DuckDB client reads them."""
    with duckdb.connect(str(path), read_only=True) as plain:
        tables = plain.execute("SELECT table_name, comment FROM duckdb_tables()").fetchall()
        columns = plain.execute("SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal").fetchall()
    found = {name: {"": comment} for name, comment in tables}
    for table, column, comment in columns:
        found[table][column] = comment
    return found


def test_a_snapshot_while_the_api_serves_is_a_documented_file(answering: Served, tmp_path: Path) -> None:
    out = tmp_path / "copy.duckdb"
    told = phasecast("snapshot", out, "--store", answering.store)
    assert (0, "") == (told.code, told.err)
    assert f"{out}: the store at commit " in told.out
    found = documented(out)
    assert {row.table for row in TABLES} <= found.keys()
    for table, comments in found.items():
        assert all(comments.values()), f"{table}: {[name for name, comment in comments.items() if not comment]}"
    for row in TABLES:
        assert [row.title, *(c.comment for c in row.columns())] == [found[row.table][name] for name in ("", *names(row))]


def names(row: Any) -> list[str]:
    return [column.name for column in row.columns()]


def test_a_snapshot_of_a_store_that_nobody_holds(left: Path, tmp_path: Path, run: Run) -> None:
    told = phasecast("snapshot", tmp_path / "copy.duckdb", "--store", left, "--json")
    assert (0, "") == (told.code, told.err)
    said = json.loads(told.out)
    assert (tmp_path / "copy.duckdb").stat().st_size == said["size_bytes"]
    with duckdb.connect(said["snapshot"], read_only=True) as plain:
        assert [(60, said["commit"])] == plain.execute(
            "SELECT (SELECT count(*) FROM attempts), max(known_from) FROM commits"
        ).fetchall()
    refused(run("snapshot", tmp_path / "copy.duckdb", "--store", left), 1, "OUT: ", "name a new file")


def test_a_snapshot_into_a_folder_that_is_not_there_is_refused(answering: Served, left: Path, run: Run, tmp_path: Path) -> None:
    for store in (answering.store, left):
        told = run("snapshot", tmp_path / "nowhere" / "copy.duckdb", "--store", store)
        refused(told, 1, "OUT: ", f"there is no folder {tmp_path / 'nowhere'}; make it first")
