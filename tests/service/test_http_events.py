"""Ingest over HTTP: repeats, conflicts, order; and that nothing acknowledged is lost when the server ends, well or badly."""

from __future__ import annotations

import collections
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from service.client.sync import Client, http_client
from telemetry.store.file import Store
from telemetry.store.lock import holder
from tests.service.living import Served, until

Start = Callable[[Path], Served]
WALL_NS = 1_764_400_000_000_000_000


def mark(event_id: str, attempt_id: str = "a-1", kind: str = "heartbeat", after_ns: int = 0) -> dict[str, Any]:
    clock = {"monotonic_ns": 10**9 + after_ns, "clock_id": "here/1"}
    ids = {"event_id": event_id, "attempt_id": attempt_id, "kind": kind, "source": "test"}
    return {**ids, **clock, "wall_ns": WALL_NS + after_ns}


@pytest.fixture(scope="module")
def fresh(start_server: Start, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """The client of a server of this module's own."""
    with http_client(start_server(tmp_path_factory.mktemp("events") / "store.duckdb").url, timeout_s=30) as http:
        yield http


def results(told: dict[str, Any], kind: str = "events") -> list[tuple[str, str]]:
    return [(one["id"], one["result"]) for one in told[kind]]


def test_the_first_finished_attempt_makes_the_api_ready(fresh: httpx.Client) -> None:
    before = fresh.get("/readyz")
    assert (503, False, []) == (before.status_code, before.json()["ready"], before.json()["phases"])
    ends = [mark("r-1", "ready", "compute_start"), mark("r-2", "ready", "compute_finish", after_ns=250_000_000)]
    Client(fresh).ingest([{"attempt_id": "ready", "host": "here"}], ends)
    until(lambda: fresh.get("/readyz").status_code == 200)
    assert ["service"] == fresh.get("/readyz").json()["phases"]
    answer = Client(fresh).predict([{"host": "here"}], ["service"]).answers[0]
    assert 1 == answer.support.n
    assert 0.25 == pytest.approx(answer.support.largest_s)


def test_a_batch_sent_twice_changes_nothing(fresh: httpx.Client) -> None:  # T08
    batch = [{"attempt_id": "twice", "host": "here"}], [mark("t-1", "twice"), mark("t-2", "twice")]
    first, second = Client(fresh).ingest(*batch), Client(fresh).ingest(*batch)
    assert [("t-1", "new"), ("t-2", "new")] == results(first)
    assert [("t-1", "repeat"), ("t-2", "repeat")] == results(second)
    assert [("twice", "repeat")] == results(second, "attempts")


def test_another_event_under_a_used_id_is_reported_and_the_first_kept(fresh: httpx.Client) -> None:  # T08
    Client(fresh).ingest([], [mark("c-1", "conflict")])
    told = Client(fresh).ingest([], [mark("c-1", "conflict", after_ns=1), mark("c-2", "conflict")])
    assert [("c-1", "conflict"), ("c-2", "new")] == results(told)
    assert "wall_ns" in told["events"][0]["problem"]
    assert [("c-1", "repeat")] == results(Client(fresh).ingest([], [mark("c-1", "conflict")]))


def test_results_come_in_the_order_sent_whatever_they_are(fresh: httpx.Client) -> None:
    Client(fresh).ingest([], [mark("o-2", "order")])
    sent = [mark("o-3", "order"), mark("o-2", "order"), {**mark("o-9"), "kind": "finished"}, mark("o-1", "order"), {"x": 1}]
    told = Client(fresh).ingest([], sent)
    assert [("o-3", "new"), ("o-2", "repeat"), ("o-9", "refused"), ("o-1", "new"), ("", "refused")] == results(told)
    assert "known kinds are enqueue, eligible" in told["events"][2]["problem"]


def test_thirty_days_and_large_counts_pass_unchanged(fresh: httpx.Client) -> None:  # T14
    days_ns = 30 * 86400 * 10**9
    long = [mark("l-1", "long", "compute_start"), mark("l-2", "long", "compute_finish", after_ns=days_ns)]
    Client(fresh).ingest([{"attempt_id": "long", "host": "far"}], [{**one, "transferred_bytes": 2**62} for one in long])
    until(lambda: "service" in Client(fresh).ready()["phases"])
    until(lambda: Client(fresh).predict([{"host": "far"}], ["service"]).answers[0].support.largest_s == 30 * 86400)


def test_sigterm_ends_in_order_and_loses_nothing(start_server: Start, tmp_path: Path) -> None:  # H07
    path, acknowledged, asked = tmp_path / "store.duckdb", list[str](), list[str]()
    served = start_server(path)

    def stream() -> None:
        with http_client(served.url) as http:
            for n in range(10**6):
                batch = [mark(f"{n}-{i}", f"a-{n}") for i in range(50)]
                try:
                    told = Client(http).ingest([{"attempt_id": f"a-{n}"}], batch)
                except Exception:  # noqa: BLE001  the server is gone, in whatever way the client sees it
                    return
                acknowledged.extend(one["id"] for one in told["events"])

    with http_client(served.url) as http:
        ends = [mark("s-1", "done", "compute_start"), mark("s-2", "done", "compute_finish", after_ns=10**8)]
        Client(http).ingest([{"attempt_id": "done"}], ends)
        until(lambda: http.get("/readyz").status_code == 200)
        sender = threading.Thread(target=stream)
        sender.start()
        until(lambda: len(acknowledged) >= 500)
        asked += [a.prediction_id for a in Client(http).predict([{}] * 20, ["service"]).answers]
        served.process.send_signal(signal.SIGTERM)
        assert 0 == served.process.wait(timeout=20)
        sender.join()
    assert holder(path) is None
    with Store.open(path) as store, store.reader() as reader:
        assert 0 == store.opened.lost_commits
        kept = {event_id for (event_id,) in reader.rows("SELECT event_id FROM events")}
        ledger = {prediction_id for (prediction_id,) in reader.rows("SELECT prediction_id FROM predictions")}
    assert set() == set(acknowledged) - kept
    assert set(asked) == ledger, "an answer that was given is kept"


def kill_and_restart(start_server: Start, path: Path, rounds: int) -> tuple[int, int]:
    """Stream from three senders, kill the server at a random moment, serve the same store again; (acknowledged, kept).

    The last batch of each sender, whose answer never came, is sent again: what was committed after all is a repeat.
    """
    moments, acknowledged, unanswered = random.Random(20), set[str](), list[list[dict[str, Any]]]()

    def stream(url: str, sender: str) -> None:
        with http_client(url) as http:
            for n in range(10**6):
                batch = [mark(f"{sender}-{n}-{i}", f"{sender}-{n}") for i in range(20)]
                try:
                    told = Client(http).ingest([{"attempt_id": f"{sender}-{n}", "host": "here"}], batch)
                except Exception:  # noqa: BLE001  the server was killed, in whatever way the client sees it
                    unanswered.append(batch)
                    return
                assert {"new"} == {one["result"] for one in told["events"]}
                acknowledged.update(one["id"] for one in told["events"])

    for round_ in range(rounds):
        served = start_server(path)
        with http_client(served.url) as http:
            while unanswered:
                batch = unanswered.pop()
                told = Client(http).ingest([], batch)["events"]
                assert 1 == len({one["result"] for one in told}), "a batch is committed whole or not at all"
                assert {one["result"] for one in told} <= {"new", "repeat"}
                acknowledged.update(one["event_id"] for one in batch)
        senders = [threading.Thread(target=stream, args=(served.url, f"{round_}-{k}")) for k in range(3)]
        for sender in senders:
            sender.start()
        time.sleep(moments.uniform(0.05, 0.6))
        served.process.kill()
        served.process.wait()
        for sender in senders:
            sender.join()
    with Store.open(path) as store, store.reader() as reader:
        assert 0 == store.opened.lost_commits
        times = collections.Counter(event_id for (event_id,) in reader.rows("SELECT event_id FROM events"))
    assert set() == acknowledged - times.keys()
    assert {1} == set(times.values())
    assert acknowledged
    return len(acknowledged), len(times)


def test_sigkill_loses_nothing_acknowledged(start_server: Start, tmp_path: Path) -> None:
    kill_and_restart(start_server, tmp_path / "store.duckdb", rounds=2)


@pytest.mark.soak
def test_two_hundred_sigkills_lose_nothing_acknowledged(start_server: Start, tmp_path: Path) -> None:
    acknowledged, kept = kill_and_restart(start_server, tmp_path / "store.duckdb", rounds=200)
    print(f"\nacknowledged {acknowledged}, kept {kept}, each once")  # noqa: T201  the figure a soak is run for


def test_a_copy_that_a_killed_server_left_half_sent_is_swept_at_the_next_start(
    start_server: Callable[[Path], Served], tmp_path: Path
) -> None:
    left = tmp_path / ".store.duckdb.snapshot-abc"
    left.mkdir()
    (left / "snapshot.duckdb").write_bytes(b"half")
    start_server(tmp_path / "store.duckdb")
    assert not left.exists()


def test_a_store_whose_file_is_gone_is_not_ready_and_takes_nothing(start_server: Start, tmp_path: Path) -> None:
    path = tmp_path / "store.duckdb"
    with http_client(start_server(path).url, timeout_s=30) as http:
        ends = [mark("g-1", "gone", "compute_start"), mark("g-2", "gone", "compute_finish", after_ns=250_000_000)]
        Client(http).ingest([{"attempt_id": "gone"}], ends)
        until(lambda: http.get("/readyz").status_code == 200)
        path.unlink()
        told = http.get("/readyz")
        assert (503, False) == (told.status_code, told.json()["ready"])
        assert "removed or replaced" in told.json()["trouble"]
        refused = http.post("/v1/events", json={"events": [mark("g-3", "gone")]})
        assert (500, "store") == (refused.status_code, refused.json()["field"])
        assert http.get("/v1/snapshot").content[8:12] == b"DUCK", "what was committed can still be saved"
