"""`serve --workers`: one port, one owner of the store, and processes that answer as it would."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import httpx
import psutil
import pytest

from predictors.synthetic import Run, runs
from service.client.sync import Client, http_client
from service.replay import replay
from telemetry import asof
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import open_reader
from telemetry.tokens import minted
from telemetry.words import EventKind
from tests.service.living import Served, until
from tests.service.watching import moved

Start = Callable[..., Served]
QUESTION: dict[str, Any] = {"contexts": [{"host": "node-1", "family": "encoder"}], "phases": ["service"]}


def sent(made: list[Run]) -> dict[str, Any]:
    attempts = [run.attempt.model_dump(exclude_none=True) for run in made]
    return {"attempts": attempts, "events": [event.model_dump(exclude_none=True) for run in made for event in run.events]}


def renamed(run: Run, attempt_id: str, **context: Any) -> Run:
    """The same attempt under another id, in part in another context."""
    events = [
        event.model_copy(update={"attempt_id": attempt_id, "event_id": f"{attempt_id}/{i}"}) for i, event in enumerate(run.events)
    ]
    return replace(run, attempt=run.attempt.model_copy(update={"attempt_id": attempt_id, **context}), events=tuple(events))


def completed(n: int, seed: int) -> list[Run]:
    """Attempts that ran to their end."""
    return [run for run in runs(4 * n, seed=seed) if EventKind.COMPUTE_FINISH in {event.kind for event in run.events}][:n]


def teach(http: httpx.Client, made: list[Run]) -> int:
    commit: int = Client(http).ingest(**sent(made))["commit"]
    until(lambda: (told := Client(http).ready())["ready"] and told["learned_to"] >= commit)
    return commit


def workers_of(served: Served) -> list[psutil.Process]:
    return [child for child in psutil.Process(served.process.pid).children() if "service.http.worker" in child.cmdline()]


def gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def snapshot_of(http: httpx.Client, folder: Path) -> Path:
    """A copy of the store in which all answers given so far are."""
    Client(http).snapshot(folder / "copy.duckdb")
    return folder / "copy.duckdb"


@pytest.fixture(scope="module")
def crewed(start_server: Start, tmp_path_factory: pytest.TempPathFactory) -> Served:
    """An owner with two workers, taught by 40 synthetic attempts."""
    served: Served = start_server(tmp_path_factory.mktemp("crewed") / "store.duckdb", "--workers", "2")
    with http_client(served.url, timeout_s=30) as http:
        teach(http, runs(40, seed=7))
    return served


@pytest.fixture
def http(crewed: Served) -> Iterator[httpx.Client]:
    with http_client(crewed.url, timeout_s=30) as client:
        yield client


def test_answers_of_workers_come_out_again_from_the_owners_store_to_the_byte(
    crewed: Served, http: httpx.Client, tmp_path: Path
) -> None:
    """While outcomes keep coming and fits take over, over connections that reach all workers; each answer is in the ledger."""
    more = [renamed(run, f"more-{i}") for i, run in enumerate(runs(60, seed=8))]

    def ask(_client: int) -> list[str]:
        ids = list[str]()
        with http_client(crewed.url, timeout_s=30) as own:
            for run in more[:30]:
                context = run.attempt.model_dump(include={"host", "family", "batch"})
                answers = Client(own).predict([context], ["service", "setup"]).answers
                ids += [str(answer.prediction_id) for answer in answers]
        return ids

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, client) for client in range(4)]
        for begin in range(0, len(more), 12):
            Client(http).ingest(**sent(more[begin : begin + 12]))
        given = {answer for one in asking for answer in one.result()}
    copy = snapshot_of(http, tmp_path)
    with open_reader(copy) as reader:
        found = replay(reader, asof.commit_at(reader, 2**62))
        kept = {key for (key,) in reader.rows("SELECT prediction_id FROM predictions")}
    assert 240 == len(given)
    assert set() == given - kept
    assert ([], 0) == (found.different_answers, found.beyond)


def test_an_outcome_changes_the_answers_of_every_worker(crewed: Served, http: httpx.Client) -> None:
    fresh = {"contexts": [{"host": "node-9", "family": "told-now"}], "phases": ["service"]}
    told_now = renamed(completed(1, seed=9)[0], "told-now", host="node-9", family="told-now")

    def said(client: httpx.Client) -> list[float]:
        found: list[float] = client.post("/v1/predict", json=fresh).json()["answers"][0]["quantiles_s"]
        return found

    clients = [http_client(crewed.url, timeout_s=30) for _ in range(6)]
    try:
        before = [said(client) for client in clients]
        http.post("/v1/events", json=sent([told_now])).raise_for_status()
        until_s = time.monotonic() + 30.0  # how soon it does is for `make bench` to say
        while (after := [said(client) for client in clients]) != [after[0]] * 6 or after[0] == before[0]:
            assert time.monotonic() < until_s
            time.sleep(0.1)
    finally:
        for client in clients:
            client.close()
    assert after == [after[0]] * 6
    assert before == [before[0]] * 6
    assert before[0] != after[0]


def test_a_running_attempt_is_known_to_every_worker_at_once(crewed: Served) -> None:
    """A worker that has not heard of it passes the question on instead of calling it unknown."""
    run = renamed(runs(1, seed=10)[0], "begun")
    begun = {**sent([run]), "events": [e for e in sent([run])["events"] if e["kind"] in {"eligible", "phase_start"}]}
    with http_client(crewed.url, timeout_s=30) as one, http_client(crewed.url, timeout_s=30) as other:
        one.post("/v1/events", json=begun).raise_for_status()
        asked = {"running": [{"attempt_id": run.attempt.attempt_id, "phase": "setup"}]}
        statuses = [client.post("/v1/residual", json=asked).status_code for client in (one, other) * 3]
        unknown = other.post("/v1/residual", json={"running": [{"attempt_id": "nobody", "phase": "setup"}]})
    assert [200] * 6 == statuses
    assert (404, "attempt_id") == (unknown.status_code, unknown.json()["field"])


def test_an_answer_is_scored_though_its_events_follow_at_once(http: httpx.Client, crewed: Served, tmp_path: Path) -> None:
    made = [renamed(run, f"swift-{i}") for i, run in enumerate(completed(20, seed=12))]
    with http_client(crewed.url, timeout_s=60) as asking:
        for run in made:
            asked = {**QUESTION, "attempt_ids": [run.attempt.attempt_id]}
            asking.post("/v1/predict", json=asked).raise_for_status()
            http.post("/v1/events", json=moved(run, time.time_ns())).raise_for_status()
    copy = snapshot_of(http, tmp_path)
    sql = "SELECT count(*) FROM outcomes JOIN predictions USING (prediction_id) WHERE attempt_id LIKE 'swift-%'"
    until(lambda: _count(http, copy.with_name("again.duckdb"), sql) == 20)


def _count(http: httpx.Client, copy: Path, sql: str) -> int:
    copy.unlink(missing_ok=True)
    Client(http).snapshot(copy)
    with duckdb.connect(str(copy), read_only=True) as db:
        return int(db.execute(sql).fetchall()[0][0])


def test_what_workers_do_not_answer_is_the_owners_own_answer(http: httpx.Client) -> None:
    assert 200 == http.get("/v1/hosts").status_code
    assert 405 == http.get("/v1/predict").status_code
    assert (404, "unknown path") == ((told := http.get("/v1/no%2Fthing?a=b")).status_code, told.json()["title"])
    assert "/v1/chance" in http.get("/openapi.json").json()["paths"]
    assert http.get("/", headers={"Host": "elsewhere.example"}).status_code == 421
    named = http.get("/v1/hosts", headers={"X-Request-ID": "mine-1"})
    assert ["mine-1"] == named.headers.get_list("x-request-id")
    assert 1 == len(named.headers.get_list("date")) == len(named.headers.get_list("content-security-policy"))


def test_a_body_too_large_is_refused_by_the_worker_itself(http: httpx.Client) -> None:
    told = http.post("/v1/events", content=b" " * (16 * 2**20 + 1))
    assert (413, "body") == (told.status_code, told.json()["field"])


def test_a_worker_that_dies_is_replaced_and_counts_never_fall(crewed: Served) -> None:
    def counted() -> tuple[float, float]:
        with http_client(crewed.url, timeout_s=30) as own:
            lines = own.get("/metrics").text.splitlines()
        values = {line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in lines if not line.startswith("#")}
        answers = sum(value for name, value in values.items() if name.startswith("phasecast_answers_total"))
        return answers, values["phasecast_worker_restarts_total"]

    before, restarts = counted()
    for victim in workers_of(crewed):
        victim.send_signal(signal.SIGKILL)
        victim.wait(10)
    with http_client(crewed.url, timeout_s=30) as own:  # waits in the listening queue until another worker takes it
        until(lambda: own.get("/readyz").status_code == 200)
        assert 200 == own.post("/v1/predict", json=QUESTION).status_code
    until(lambda: counted()[0] >= before + 1)
    until(lambda: len(workers_of(crewed)) == 2)
    assert restarts + 2 == counted()[1]


def test_tokens_hold_at_workers_and_a_revoked_one_no_longer(start_server: Start, tmp_path: Path) -> None:
    store = tmp_path / "store.duckdb"
    (query, asks), (admin, rules) = minted("asks", ["query"], 1), minted("rules", ["admin"], 1)
    with Store.open(store) as opened:
        opened.write(Batch((asks, rules)))
    served = start_server(store, "--workers", "1", "--require-token")
    with (
        http_client(served.url, token=query, timeout_s=30) as asking,
        http_client(served.url, token=admin, timeout_s=30) as ruling,
    ):
        assert 401 == httpx.post(f"{served.url}/v1/predict", json=QUESTION).status_code
        assert 200 == httpx.get(f"{served.url}/healthz").status_code
        assert 409 == asking.post("/v1/predict", json=QUESTION).status_code  # let in; nothing is known yet
        assert (403, 403) == (asking.post("/v1/events", json={}).status_code, asking.get("/v1/tokens").status_code)
        ruling.delete(f"/v1/tokens/{asks.token_id}").raise_for_status()
        assert 401 == asking.post("/v1/predict", json=QUESTION).status_code


def test_a_signal_ends_all_processes_and_keeps_every_answer(start_server: Start, tmp_path: Path) -> None:
    store = tmp_path / "store.duckdb"
    served = start_server(store, "--workers", "1")
    with http_client(served.url, timeout_s=30) as http:
        teach(http, runs(20, seed=3))
        crew = workers_of(served)
        given = [http.post("/v1/predict", json=QUESTION).json()["answers"][0]["prediction_id"] for _ in range(20)]
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.process.wait(timeout=20)
    assert [True] == [gone(process) for process in crew]
    with open_reader(store) as reader:
        kept = {key for (key,) in reader.rows("SELECT prediction_id FROM predictions")}
    assert set() == set(given) - kept


def test_workers_end_with_an_owner_that_was_killed_and_another_takes_the_port(start_server: Start, tmp_path: Path) -> None:
    store = tmp_path / "store.duckdb"
    served = start_server(store, "--workers", "1")
    with http_client(served.url, timeout_s=30) as http:
        teach(http, runs(20, seed=3))
        before = http.post("/v1/predict", json=QUESTION).json()["answers"][0]["quantiles_s"]
        crew = workers_of(served)
        os.kill(served.process.pid, signal.SIGKILL)
    until(lambda: all(gone(process) for process in crew), patience_s=15)
    again = start_server(store, "--workers", "1", "--port", served.url.rsplit(":", 1)[1])
    assert again.url == served.url
    with http_client(again.url, timeout_s=30) as http:
        until(lambda: http.get("/readyz").status_code == 200)
        assert before == http.post("/v1/predict", json=QUESTION).json()["answers"][0]["quantiles_s"]
