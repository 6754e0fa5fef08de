"""Measuring with permission from end to end: given, refused, run, followed, stopped and withdrawn, by command and over HTTP."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest
from pydantic import ValidationError

from calibrate.hosts import grants
from calibrate.hosts.catalogue import PROCESS_START_S, Probe
from calibrate.hosts.profile import Plan
from calibrate.hosts.run import Care
from calibrate.hosts.vitals import Rules
from predictors.contexts import Context
from service.cli.calibrate import _keep, _withdrawal
from service.cli.main import main
from service.client.sync import Client, http_client
from service.host_schemas import LONGEST_WINDOW_S, CalibrationIn, CalibrationOut, GrantIn, ProbeName
from service.lineup import Lineup, RunningAttempt
from service.measuring import Calibrations, work_here
from service.sightings import RunningPhase
from telemetry import asof
from telemetry.errors import BadField, Busy, NoGrant, NotInForce, OtherHost, ProbeNotNamed, StoreHeld, UnknownId
from telemetry.store import writer
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from tests.service.living import Served, until

HERE = socket.gethostname()
STOPPABLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from service.cli.main import main; main()"
"""The command line as a terminal starts it: whoever runs tests in the background may have had SIGINT ignored."""
TERMS = {"granted_by": "ada", "probes": ["memory_copy", "network"], "valid_s": 600, "max_threads": 1}


def phasecast(*arguments: object, code: int = 0) -> str:
    """Run a command in this process; what it printed, or how it failed."""
    said, failed = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said), redirect_stderr(failed):
        patch.setattr(sys, "argv", ["phasecast", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert code == (ended.value.code or 0), said.getvalue() + failed.getvalue()
    return said.getvalue() if code in {0, 7} else failed.getvalue()


def given(store: Path, *options: object) -> str:
    return str(json.loads(phasecast("grant", "add", "--store", store, "--json", *options))["grant_id"])


def test_the_names_on_the_wire_are_those_of_the_probes() -> None:
    assert grants.PROBES == get_args(ProbeName)
    assert grants.LONGEST_WINDOW_S == LONGEST_WINDOW_S


def test_the_time_for_processes_to_begin_is_told_where_a_ceiling_is_given() -> None:
    allowance = f"{PROCESS_START_S:g} s"
    assert allowance in str(GrantIn.model_fields["max_run_s"].description)
    assert allowance in " ".join(phasecast("grant", "add", "--help").replace("│", " ").split())


@pytest.mark.parametrize(
    ("code", "options", "asked", "said"),
    [
        (10, None, (), "phasecast grant add"),
        (11, ("--probe", "memory_copy", "--minutes", 0.002), (), "it ended at"),
        (12, ("--probe", "memory_copy", "--host", "elsewhere"), "by id", "is for elsewhere"),
        (13, ("--probe", "memory_copy"), ("--probe", "network"), "names memory_copy"),
        (14, ("--probe", "memory_copy", "--memory-mib", 16), (), "stay within"),
        (
            14,
            ("--probe", "memory_copy", "--seconds", 1),
            ("--seconds", 5),
            "it is 5 s of measuring and 20 s for the process to begin",
        ),
    ],
)
def test_each_refusal_has_its_own_exit_code_and_message(
    tmp_path: Path, code: int, options: tuple[object, ...] | None, asked: tuple[object, ...] | str, said: str
) -> None:
    store = tmp_path / "s.duckdb"
    grant_id = given(store, *options) if options is not None else ""
    time.sleep(0.2 if code == 11 else 0.0)
    more = ("--grant", grant_id) if asked == "by id" else asked
    assert said in phasecast("calibrate", "--store", store, *more, code=code)
    assert [] == probes_of(psutil.Process())


def test_a_refused_command_starts_no_process(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    given(store, "--probe", "memory_copy")
    watched = f"{sys.executable} -m service.cli.main calibrate --store {store} --probe network"
    script = f"{watched} & pid=$!; while kill -0 $pid 2>/dev/null; do cat /proc/$pid/task/*/children; done; wait $pid; echo =$?"
    told = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, check=False).stdout
    assert "=13" == told.split()[-1]
    assert ["=13"] == told.split(), "it never had a child"


def test_a_host_is_measured_on_the_command_line_and_what_changed_is_told(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    grant_id = given(store, "--probe", "memory_copy", "--probe", "network")
    planned = json.loads(phasecast("calibrate", "--dry-run", "--store", store, "--json"))
    assert ("planned", None, ["memory_copy", "network"]) == (
        planned["state"],
        planned["run_id"],
        [one["probe"] for one in planned["probes"]],
    )
    with Store.open(store) as opened, opened.reader() as reader:
        assert [] == asof.profiles(reader, opened.last_commit), "a dry run measures nothing"
    options = ("--store", store, "--seconds", 0.2, "--if-busy", "measure")
    made = json.loads(phasecast("calibrate", *options, "--json"))
    assert ("done", False, grant_id) == (made["state"], made["partial"], made["grant_id"])
    assert "2 of 2 probes" in phasecast("calibrate", *options)
    shown = json.loads(phasecast("hosts", "show", HERE, "--store", store, "--json"))
    assert {"memory_copy_bytes_per_s", "network_bytes_per_s", "network_round_trip_s"} == {rate["name"] for rate in shown["rates"]}
    assert (1, 2) == (shown["version"], shown["versions"])
    assert "memory_copy_bytes_per_s" in phasecast("hosts", "show", HERE, "--store", store)
    assert "version 1" in phasecast("hosts", "diff", HERE, "--store", store)
    with Store.open(store) as opened, opened.reader() as reader:
        rows = reader.rows("SELECT DISTINCT purpose, run_id FROM attempts")
        assert [("calibration", grant_id)] == rows
        assert 0 == asof.recent_contexts(reader, opened.last_commit, 10, 10).num_rows, "nothing to learn from"


def test_a_grant_is_listed_and_ended_on_the_command_line(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    assert {"grants": []} == json.loads(phasecast("grant", "list", "--store", store, "--json"))
    grant_id = given(store, "--probe", "all", "--by", "ada")
    assert f"{grant_id} ada lets matmul, " in phasecast("grant", "list", "--store", store)
    assert "is withdrawn" in phasecast("grant", "revoke", grant_id, "--store", store)
    assert "withdrawn until" in phasecast("grant", "list", "--store", store)
    assert "withdrawn" in phasecast("calibrate", "--store", store, code=11)
    phasecast("grant", "revoke", "nobody", "--store", store, code=1)
    phasecast("grant", "add", "--probe", "everything", "--store", store, code=1)


@pytest.mark.parametrize("peer", ["node:0", "node:65536", "[::1]:99999", "node", ":80"])
def test_a_peer_that_can_not_be_one_is_refused(peer: str) -> None:
    with pytest.raises(ValidationError):
        CalibrationIn(grant_id="g-1", peer=peer)


@pytest.mark.parametrize("peer", ["node:1", "127.0.0.1:65535", "[::1]:80", None])
def test_a_peer_is_taken_as_it_is_written(peer: str | None) -> None:
    assert peer == CalibrationIn(grant_id="g-1", peer=peer).peer


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_command_that_is_stopped_keeps_what_it_measured_and_says_so(tmp_path: Path, number: signal.Signals) -> None:
    store = tmp_path / "s.duckdb"
    given(store, "--probe", "network", "--probe", "memory_copy")
    options = ["--store", str(store), "--seconds", "30", "--if-busy", "measure", "--json"]
    with subprocess.Popen(
        [sys.executable, "-c", STOPPABLE, "calibrate", *options], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as command:
        until(lambda: probes_of(psutil.Process(command.pid)) != [])
        time.sleep(1.0)
        command.send_signal(number)
        told = json.loads(command.communicate(timeout=30)[0])
    assert (7, "stopped", True, "asked to stop") == (command.returncode, told["state"], told["partial"], told["why"])
    assert told["began_ns"] < told["ended_ns"]
    shown = json.loads(phasecast("hosts", "show", HERE, "--store", store, "--json"))
    assert (told["profile_id"], True) == (shown["profile_id"], shown["partial"])
    assert {None} >= {rate["baseline"] for rate in shown["rates"]}
    assert "partial: it was stopped" in phasecast("hosts", "show", HERE, "--store", store)
    assert {"s.duckdb", "s.duckdb.lock", "s.duckdb.mark"} >= {one.name for one in tmp_path.iterdir()}


def test_another_command_that_holds_the_store_meanwhile_costs_nothing_of_what_was_measured(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    given(store, "--probe", "memory_copy")
    options = ["--store", str(store), "--seconds", "1", "--if-busy", "measure", "--json"]
    with subprocess.Popen([sys.executable, "-c", STOPPABLE, "calibrate", *options], stdout=subprocess.PIPE, text=True) as command:
        until(lambda: probes_of(psutil.Process(command.pid)) != [])
        with Store.open(store) as held:
            held.write(Batch((grants.demo_grant(user="bob", host=HERE, now_ns=time.time_ns(), threads=1),)))
            until(lambda: probes_of(psutil.Process(command.pid)) == [])
            time.sleep(1.0)
            assert command.poll() is None, "it waits for the store"
        told = json.loads(command.communicate(timeout=30)[0])
    assert (0, "done", ["memory_copy"]) == (command.returncode, told["state"], told["finished"])
    assert told["profile_id"] == json.loads(phasecast("hosts", "show", HERE, "--store", store, "--json"))["profile_id"]


def test_a_grant_withdrawn_while_the_store_is_held_is_seen_once_it_is_free(tmp_path: Path) -> None:
    store = tmp_path / "s.duckdb"
    grant_id = given(store, "--probe", "memory_copy")
    withdrawn = _withdrawal(store, grant_id)
    assert withdrawn() is None
    with Store.open(store) as held, held.reader() as reader:
        (row,) = asof.grants(reader, held.last_commit).values()
        held.write(Batch((row.model_copy(update={"revoked_ns": 1}),)))
        assert withdrawn() is None
    assert "grant: it was withdrawn" == withdrawn()
    assert withdrawn() is None, "the store is not read again until it changes"


def test_a_store_that_stays_held_is_given_up_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.cli.calibrate.KEEPING_S", 0.2)
    with Store.open(tmp_path / "s.duckdb"), pytest.raises(StoreHeld):
        _keep(tmp_path / "s.duckdb", Batch(()))


def test_a_disk_without_room_for_the_result_is_refused_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "s.duckdb"
    given(store, "--probe", "memory_copy")
    monkeypatch.setattr(writer, "RESERVE_BYTES", 2**62)
    monkeypatch.setattr("calibrate.hosts.profile.measure", lambda *_: pytest.fail("it was measured"))
    assert "bytes free" in phasecast("calibrate", "--store", store, code=6)
    assert "planned" == json.loads(phasecast("calibrate", "--dry-run", "--store", store, "--json"))["state"]


@pytest.fixture(scope="module")
def served(start_server: Callable[..., Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    return start_server(tmp_path_factory.mktemp("measuring") / "store.duckdb")


@pytest.fixture(scope="module")
def api(served: Served) -> Any:
    with http_client(served.url, timeout_s=30) as http:
        yield Client(http)


def probes_of(process: psutil.Process) -> list[psutil.Process]:
    """Probes that a process runs; none that is just ending."""
    found = []
    for one in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found += [one] if "calibrate.hosts" in " ".join(one.cmdline()) else []
    return found


def children(served: Served) -> list[psutil.Process]:
    return psutil.Process(served.process.pid).children(recursive=True)


def over(api: Client, run_id: str | None) -> CalibrationOut:
    assert run_id is not None
    until(lambda: api.calibration(run_id).state != "running")
    return api.calibration(run_id)


def test_over_http_what_is_not_granted_is_refused_and_nothing_is_started(api: Client, served: Served) -> None:
    expired = api.give_grant(TERMS | {"valid_s": 0.01}).grant_id
    elsewhere = api.give_grant(TERMS | {"host": "elsewhere"}).grant_id
    named = api.give_grant(TERMS | {"probes": ["memory_copy"]}).grant_id
    time.sleep(0.05)
    for kind, asked in (
        (NoGrant, {"grant_id": "nobody"}),
        (NotInForce, {"grant_id": expired}),
        (OtherHost, {"grant_id": elsewhere}),
        (ProbeNotNamed, {"grant_id": named, "probes": ["network"]}),
    ):
        with pytest.raises(kind):
            api.calibrate(asked)
    with pytest.raises(BadField):
        api.give_grant(TERMS | {"probes": ["everything"]})
    assert [] == children(served)
    assert [] == api.calibrations().calibrations


def test_over_http_a_run_is_followed_to_its_profile(api: Client, served: Served) -> None:
    grant = api.give_grant(TERMS)
    assert (True, HERE) == (grant.in_force, grant.host)
    asked = {"grant_id": grant.grant_id, "seconds": 0.2, "if_busy": "measure"}
    assert "planned" == api.calibrate(asked | {"dry_run": True}).state
    begun = api.calibrate(asked)
    assert "running" == begun.state
    ended = over(api, begun.run_id)
    assert ("done", False, ["memory_copy", "network"], None) == (ended.state, ended.partial, ended.finished, ended.why)
    profile = api.profile(HERE)
    assert (ended.profile_id, 1) == (profile.profile_id, profile.version)
    assert profile.grant is not None
    assert grant.grant_id == profile.grant.grant_id
    for rate in profile.rates:
        assert rate.low <= rate.median <= rate.high
        assert (rate.baseline is None) == rate.contended
    assert profile.profile_id == api.changes(HERE).after.profile_id
    with pytest.raises(UnknownId):
        api.changes(HERE, before="nobody")


@pytest.mark.parametrize("how", ["stopped", "withdrawn"])
def test_over_http_a_run_is_ended_within_moments_and_another_has_to_wait(api: Client, served: Served, how: str) -> None:
    grant = api.give_grant(TERMS | {"max_run_s": 600})
    asked = {"grant_id": grant.grant_id, "seconds": 60, "if_busy": "measure"}
    begun = api.calibrate(asked)
    until(lambda: children(served) != [])
    with pytest.raises(Busy):
        api.calibrate(asked)
    if how == "stopped":
        api.stop_calibration(begun.run_id or "")
    else:
        assert not api.withdraw_grant(grant.grant_id).in_force
    ended = over(api, begun.run_id)
    assert ("stopped", True) == (ended.state, ended.partial)
    assert {"stopped": "asked to stop", "withdrawn": "grant: it was withdrawn"}[how] == ended.why
    assert [] == children(served)
    assert begun.run_id == api.calibrations().calibrations[0].run_id


def test_the_command_line_has_the_api_do_it_where_one_serves(served: Served) -> None:
    given(served.store, "--probe", "memory_copy", "--minutes", 60)
    made = json.loads(
        phasecast(
            "calibrate", "--store", served.store, "--seconds", 0.2, "--if-busy", "measure", "--probe", "memory_copy", "--json"
        )
    )
    assert "done" == made["state"]
    assert made["run_id"] is not None
    assert made["profile_id"] == json.loads(phasecast("hosts", "show", HERE, "--store", served.store, "--json"))["profile_id"]


def test_over_http_a_probe_that_fails_is_told_as_failed_with_its_reason(api: Client) -> None:
    grant = api.give_grant(TERMS)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    asked = {"grant_id": grant.grant_id, "seconds": 0.1, "if_busy": "measure", "probes": ["network"]}
    ended = over(api, api.calibrate(asked | {"peer": f"127.0.0.1:{port}"}).run_id)
    assert ("failed", True) == (ended.state, ended.partial)
    assert (ended.why or "").startswith("network: ConnectionRefusedError: ")
    assert "network: failed, ConnectionRefusedError: " in str(api.profile(HERE).condition["not_measured"])


def test_no_probe_outlives_the_api(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        measuring = Calibrations(store)
        terms = grants.Terms(("memory_copy",), 600.0, 600.0, 1, 1024 * grants.MIB, 0)
        grant = grants.give(terms, user="ada", host=HERE, now_ns=time.time_ns())
        plan = Plan(grant, (Probe("memory_copy", "memory_copy", "calibrate.hosts.probes.dram"),), 60.0)
        begun = measuring.begin(plan, Care(Rules(busy="measure")))
        until(lambda: probes_of(psutil.Process()) != [])
        measuring.close()
        assert [] == probes_of(psutil.Process())
        assert ("stopped", "the API ends") == (measuring.one(begun.run_id or "").state, measuring.known()[0].why)


def test_attempts_that_this_machine_marks_are_foreground_work() -> None:
    lineup = Lineup("here/boot-1")
    at_work = work_here(lineup)
    assert at_work() is None
    for clock_id, said in (("elsewhere/boot-1", None), ("here/boot-1", "attempt a-1")):
        lineup.running = {"a-1": RunningAttempt(Context(), {"service": RunningPhase(clock_id, 5, 1.0)})}
        assert said == at_work()
