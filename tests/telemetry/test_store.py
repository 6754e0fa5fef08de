import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from telemetry.columns import Columns
from telemetry.errors import BadField, Busy, DiskFull, StoreError, StoreHeld
from telemetry.store import writer
from telemetry.store.batch import Batch, Receipt, Result
from telemetry.store.file import Store
from telemetry.store.reader import open_reader
from telemetry.tables import Attempt, Commit, Event, Grant, Observation, StateRow

NOW_NS = 1_780_000_000_123_456_789


def event(event_id: str, *, source: str = "recorder", wall_ns: int = NOW_NS) -> Event:
    return Event(event_id=event_id, attempt_id="a1", kind="heartbeat", wall_ns=wall_ns, source=source)


def observation(duration_s: float) -> Observation:
    return Observation(
        observation_id="a1/setup/0", attempt_id="a1", phase="setup", started_ns=NOW_NS, duration_s=duration_s, ended="running"
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as opened:
        yield opened


def stored(store: Store, sql: str) -> list[tuple[object, ...]]:
    with store.reader() as reader:
        return reader.rows(sql)


def held_back(store: Store) -> threading.Event:
    """Keep the writer busy with a commit of its own until the returned event is set."""
    go, reached = threading.Event(), threading.Event()

    def wait(_commit: int, _batches: tuple[Batch, ...]) -> None:
        reached.set()
        go.wait(30)

    store.subscribe(wait)
    store.submit(Batch((StateRow(name="gate", value="1"),)))
    assert reached.wait(30)
    return go


def test_a_new_row_is_known_from_the_commit_of_its_receipt(store: Store) -> None:
    assert Receipt(1, (Result("e1", "new"),)) == store.write(Batch((event("e1"),)))
    assert [("e1", 1)] == stored(store, "SELECT event_id, known_from FROM events")
    assert 1 == store.last_commit


def test_the_same_event_again_changes_nothing_and_makes_no_commit(store: Store) -> None:
    store.write(Batch((event("e1"),)))
    assert Receipt(1, (Result("e1", "repeat"),)) == store.write(Batch((event("e1"),)))
    assert [(1,)] == stored(store, "SELECT count(*) FROM events")
    assert [(1,)] == stored(store, "SELECT count(*) FROM commits")


def test_other_content_under_a_known_id_is_a_conflict_and_the_first_is_kept(store: Store) -> None:
    store.write(Batch((event("e1"),)))
    receipt = store.write(Batch((event("e2"), event("e1", source="other", wall_ns=NOW_NS + 1))))
    conflict = Result("e1", "conflict", "already known with different wall_ns, source; the first is kept")
    assert Receipt(2, (Result("e2", "new"), conflict)) == receipt
    assert [("recorder",)] == stored(store, "SELECT source FROM events WHERE event_id = 'e1'")


def test_a_second_record_of_an_attempt_with_another_host_is_a_conflict(store: Store) -> None:
    store.write(Batch((Attempt(attempt_id="a1", host="h1"),)))
    [result] = store.write(Batch((Attempt(attempt_id="a1", host="h2"),))).results
    assert "conflict" == result.result
    assert [("h1",)] == stored(store, "SELECT host FROM attempts")


def test_one_batch_with_an_id_twice_stores_it_once(store: Store) -> None:  # D11
    receipt = store.write(Batch((event("e1"), event("e1"), event("e1", source="other"))))
    assert ["new", "repeat", "conflict"] == [result.result for result in receipt.results]
    assert [(1,)] == stored(store, "SELECT count(*) FROM events")


def test_a_known_id_among_new_ones_starts_its_group_again_and_loses_nobody(store: Store) -> None:
    store.write(Batch((event("e1"), Attempt(attempt_id="a0"))))
    go = held_back(store)
    batches = [Batch((event("e2"), Attempt(attempt_id="a1"))), Batch((event("e1"), Attempt(attempt_id="a2"), observation(1.0)))]
    futures = [store.submit(batch) for batch in batches]
    go.set()
    told = [[result.result for result in future.result(30).results] for future in futures]
    assert [["new", "new"], ["repeat", "new", "new"]] == told
    assert {3} == {future.result().commit for future in futures}
    assert [("e1", 1), ("e2", 3)] == stored(store, "SELECT event_id, known_from FROM events ORDER BY 1")
    assert [(1,)] == stored(store, "SELECT count(*) FROM observations")


def test_repeats_and_new_ids_in_turn_are_told_apart_every_time(store: Store) -> None:
    for n in range(1, 4):
        assert ["new", "new"] == [r.result for r in store.write(Batch((event(f"a{n}"), event(f"b{n}")))).results]
        again = Batch((event(f"a{n}"), event(f"c{n}"), event(f"b{n}", source="other")))
        assert ["repeat", "new", "conflict"] == [r.result for r in store.write(again).results]
        assert ["repeat", "repeat", "conflict"] == [r.result for r in store.write(again).results]
    assert [(9,)] == stored(store, "SELECT count(*) FROM events")


def test_ten_clients_posting_one_id_at_once_store_it_once_and_all_succeed(store: Store) -> None:  # D11
    with ThreadPoolExecutor(10) as clients:
        receipts = list(clients.map(lambda _: store.write(Batch((event("e1"), event("e2")))), range(10)))
    told = [result.result for receipt in receipts for result in receipt.results]
    assert (2, 18) == (told.count("new"), told.count("repeat"))
    assert [(2,)] == stored(store, "SELECT count(*) FROM events")


def test_a_new_version_ends_the_standing_one(store: Store) -> None:
    store.write(Batch((observation(1.0),)))
    store.write(Batch((observation(2.0),)))
    versions = stored(store, "SELECT duration_s, known_from, known_until FROM observations ORDER BY known_from")
    assert [(1.0, 1, 2), (2.0, 2, None)] == versions


def test_an_unchanged_version_is_a_repeat_unless_it_was_closed_beside_it(store: Store) -> None:
    store.write(Batch((observation(1.0),)))
    assert Receipt(1, (Result("a1/setup/0", "repeat"),)) == store.write(Batch((observation(1.0),)))
    again = store.write(Batch((observation(1.0),), closes=((Observation, ("a1/setup/0",)),)))
    assert Receipt(2, (Result("a1/setup/0", "new"),)) == again
    assert [(1, 2), (2, None)] == stored(store, "SELECT known_from, known_until FROM observations ORDER BY known_from")


def test_closing_ends_the_standing_version_and_closing_again_does_nothing(store: Store) -> None:
    close = Batch((), closes=((Observation, ("a1/setup/0",)),))
    store.write(Batch((observation(1.0),)))
    assert 2 == store.write(close).commit
    assert [(1, 2)] == stored(store, "SELECT known_from, known_until FROM observations")
    store.write(close)
    assert [(1, 2)] == stored(store, "SELECT known_from, known_until FROM observations")


def test_versions_within_one_group_leave_only_the_last(store: Store) -> None:
    go = held_back(store)
    futures = [store.submit(Batch((observation(float(n)),))) for n in range(1, 4)]
    go.set()
    assert [2, 2, 2] == [future.result(30).commit for future in futures]
    assert [(3.0, 2, None)] == stored(store, "SELECT duration_s, known_from, known_until FROM observations")


def test_a_versioned_row_with_a_list_column_is_replaced(store: Store) -> None:
    grant = Grant(
        grant_id="g", granted_by="u", host="h", probes=["cpu", "dram"], not_before_ns=1, expires_ns=2, max_run_s=1.0,
        max_threads=1, max_memory_bytes=1, max_disk_bytes=0,
    )  # fmt: skip
    store.write(Batch((grant,)))
    assert "repeat" == store.write(Batch((grant,))).results[0].result
    store.write(Batch((grant.model_copy(update={"revoked_ns": 5}),)))
    assert [(["cpu", "dram"], 5)] == stored(store, "SELECT probes, revoked_ns FROM grants WHERE known_until IS NULL")


def test_a_batch_is_written_whole_or_not_at_all_and_does_not_spoil_its_group(store: Store) -> None:
    go = held_back(store)
    good, other = store.submit(Batch((event("e1"),))), store.submit(Batch((event("e3"),)))
    bad = store.submit(Batch((event("e2"), observation(1.0).model_copy(update={"segment": 2**70}))))
    go.set()
    assert ["new", "new"] == [future.result(30).results[0].result for future in (good, other)]
    with pytest.raises(StoreError, match="nothing of its batch was written"):
        bad.result(30)
    assert [("e1",), ("e3",)] == stored(store, "SELECT event_id FROM events ORDER BY event_id")


def test_subscribers_hear_of_a_durable_commit_before_the_sender_and_one_failing_stops_nobody(store: Store) -> None:
    heard: list[tuple[int, int]] = []

    def failing(_commit: int, _batches: tuple[Batch, ...]) -> None:
        raise ValueError

    def listening(commit: int, batches: tuple[Batch, ...]) -> None:
        [(rows,)] = stored(store, "SELECT count(*) FROM events")
        heard.append((commit, rows, *(row.event_id for batch in batches for row in batch.rows)))

    store.subscribe(failing)
    store.subscribe(listening)
    store.write(Batch((event("e1"),)))
    assert [(1, 1, "e1")] == heard


def test_a_full_queue_says_busy_and_takes_the_batch_later(store: Store) -> None:
    store._writer._pending._most_rows = 3
    go = held_back(store)
    waiting = store.submit(Batch((event("e1"), event("e2"))))
    with pytest.raises(Busy, match="2 rows waiting"):
        store.submit(Batch((event("e3"), event("e4"))))
    go.set()
    waiting.result(30)
    assert "new" == store.write(Batch((event("e3"), event("e4")))).results[1].result


def test_little_room_refuses_writing_and_answers_queries(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(Batch((event("e1"),)))
    monkeypatch.setattr(writer, "RESERVE_BYTES", 2**62)
    with pytest.raises(DiskFull, match="keep at least"):
        store.write(Batch((event("e2"),)))
    assert [("e1",)] == stored(store, "SELECT event_id FROM events")
    monkeypatch.undo()
    assert "new" == store.write(Batch((event("e2"),))).results[0].result


FULL = """
import resource, secrets, signal, sys
from pathlib import Path
from telemetry.errors import DiskFull
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Event
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
store = Store.open(Path(sys.argv[1]))
resource.setrlimit(resource.RLIMIT_FSIZE, (24 * 2**20, resource.RLIM_INFINITY))
def batch(n):
    rows = (Event(event_id=f"{n}-{i}", attempt_id="a", kind="heartbeat", wall_ns=1, source="s",
                  attributes=secrets.token_urlsafe(14_000)) for i in range(100))
    return Batch(tuple(rows))
def known():
    with store.reader() as reader:
        return reader.rows("SELECT count(*) FROM events")[0][0]
idle = store.reader()  # a reader somebody forgot must not keep the failed engine alive
idle.rows("SELECT 1")
acknowledged = refused = 0
for n in range(26):
    try:
        acknowledged += len(store.write(batch(n)).results)
    except DiskFull:
        refused += 1
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
acknowledged += len(store.write(batch(100)).results)
print(acknowledged, refused, known())
store.close()
"""


def test_a_write_the_disk_refuses_fails_alone_and_the_store_goes_on_when_there_is_room(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "s.duckdb")], capture_output=True, text=True, check=True, timeout=100
    )
    acknowledged, refused, known = map(int, done.stdout.split())
    assert refused > 0
    assert acknowledged == known


def test_readers_on_eight_threads_agree_while_the_writer_commits(store: Store) -> None:  # D08
    def read(_: int) -> list[int]:
        with store.reader() as reader:
            return [reader.rows("SELECT count(*) FROM events")[0][0] for _ in range(25)]

    with ThreadPoolExecutor(8) as readers:
        answers = readers.map(read, range(8))
        for n in range(20):
            store.write(Batch((event(f"e{n}"),)))
    assert all(counts == sorted(counts) for counts in answers)
    assert [(20,)] == stored(store, "SELECT count(*) FROM events")


def test_instants_come_back_exact_under_any_time_zone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:  # D14, T14
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    instants = [1_772_953_199_000_000_001, 2_193_177_600_000_000_000, NOW_NS + 30 * 86_400 * 10**9, 2**31 * 10**6 + 1]
    try:
        store.write(Batch(tuple(event(f"e{n}", wall_ns=wall_ns) for n, wall_ns in enumerate(instants))))
        assert [(wall_ns,) for wall_ns in instants] == stored(store, "SELECT wall_ns FROM events ORDER BY event_id")
    finally:
        monkeypatch.undo()
        time.tzset()


def test_commit_times_never_go_back_when_the_wall_clock_does(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([5_000, 3_000])
    monkeypatch.setattr(writer.time, "time_ns", lambda: next(times))
    store.write(Batch((event("e1"),)))
    store.write(Batch((event("e2"),)))
    assert [(1, 5_000), (2, 5_000)] == stored(store, "SELECT known_from, committed_ns FROM commits ORDER BY 1")


def test_a_snapshot_holds_all_up_to_its_commit_and_replaces_an_older_one(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "it's a copy.duckdb"
    for n in range(2):
        store.write(Batch((event(f"e{n}"),)))
        assert n + 1 == store.snapshot(target)
        with open_reader(target) as reader:
            assert n + 1 == reader.arrow("SELECT event_id FROM events").num_rows
    assert ["it's a copy.duckdb", "s.duckdb"] == sorted(p.name for p in tmp_path.iterdir() if p.suffix == ".duckdb")


def test_a_snapshot_never_lands_on_a_store_in_use(store: Store) -> None:
    with pytest.raises(StoreHeld, match=f"stop process {os.getpid()}"):
        store.snapshot(store.path)


def test_what_is_queued_at_closing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    store = Store.open(path)
    futures = [store.submit(Batch((event(f"e{n}"),))) for n in range(50)]
    store.close()
    assert 50 == sum(len(future.result(0).results) for future in futures)
    with open_reader(path) as reader:
        assert [(50,)] == reader.rows("SELECT count(*) FROM events")
    with pytest.raises(StoreError, match="closed"):
        store.submit(Batch((event("late"),)))


def test_a_query_that_fails_names_its_text(store: Store) -> None:
    with store.reader() as reader, pytest.raises(StoreError, match="FROM nowhere"):
        reader.rows("SELECT 1 FROM nowhere")


def test_a_batch_cannot_close_what_is_never_replaced_nor_write_the_stores_own_table() -> None:
    with pytest.raises(BadField, match="events"):
        Batch((), closes=((Event, ("e1",)),))
    with pytest.raises(BadField, match="observation_id"):
        Batch((), closes=((Observation, ("a1", "setup")),))
    with pytest.raises(BadField, match="commits"):
        Batch((Commit(committed_ns=1, written_rows=1),))


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_once_the_file_is_gone(tmp_path: Path, replaced: bool) -> None:
    path = tmp_path / "gone.duckdb"
    store = Store.open(path)
    try:
        store.write(Batch((event("e1"),)))
        assert store.trouble is None
        path.unlink()
        if replaced:
            path.write_bytes(b"another")
        assert "removed or replaced" in str(store.trouble)
        with pytest.raises(StoreError, match="removed or replaced"):
            store.write(Batch((event("e2"),)))
        store.snapshot(tmp_path / "saved.duckdb")
    finally:
        store.close()
    with open_reader(tmp_path / "saved.duckdb") as reader:
        assert [("e1",)] == reader.rows("SELECT event_id FROM events")


def test_a_snapshot_into_a_missing_folder_is_told_so(store: Store, tmp_path: Path) -> None:
    with pytest.raises(BadField, match="there is no folder"):
        store.snapshot(tmp_path / "nowhere" / "copy.duckdb")


def whole(*events: Event) -> Columns:
    return Columns.of(Event, events)


def test_columns_are_written_as_their_rows_would_be(store: Store) -> None:
    told = store.write(
        Batch((event("r1"),), columns=(whole(event("c1"), event("c2")), Columns.of(Attempt, [Attempt(attempt_id="a1")])))
    )
    assert [("c1", "new"), ("c2", "new"), ("a1", "new"), ("r1", "new")] == [(one.id, one.result) for one in told.results]
    assert [("c1", 1), ("c2", 1), ("r1", 1)] == stored(store, "SELECT event_id, known_from FROM events ORDER BY ALL")


def test_columns_tell_repeats_and_conflicts_within_and_before_them_in_order(store: Store) -> None:  # T08
    store.write(Batch((), columns=(whole(event("c1"), event("c2")),)))
    again = (event("n1"), event("c1"), event("n1"), event("c2", source="other"), event("n1", source="other"), event("n2"))
    told = store.write(Batch((event("n2"),), columns=(whole(*again),)))
    assert ["new", "repeat", "repeat", "conflict", "conflict", "new", "repeat"] == [one.result for one in told.results]
    assert "source" in str(told.results[3].problem)
    assert 4 == len(stored(store, "SELECT event_id FROM events"))
    assert ["new", "new"] == [one.result for one in store.write(Batch((), columns=(whole(event("m1"), event("m2")),))).results]


def test_columns_of_a_versioned_table_are_refused() -> None:
    with pytest.raises(BadField, match="observations"):
        Batch((), columns=(Columns.of(Observation, [observation(1.0)]),))
