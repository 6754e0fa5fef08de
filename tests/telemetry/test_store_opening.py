import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from telemetry.errors import BadField, DamagedStore, DiskFull, NewerStore, StoreError, StoreHeld
from telemetry.rows import quote
from telemetry.store import migrations
from telemetry.store.batch import Batch
from telemetry.store.file import LOSS_NAME, OpenReport, Store
from telemetry.store.highwater import Mark, MarkFile
from telemetry.store.lock import Lock, holder
from telemetry.store.migrations import STEPS, Step
from telemetry.store.opening import told
from telemetry.store.reader import open_reader
from telemetry.tables import Event, StateRow

CRASH = """
import os, sys
from pathlib import Path
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Event
store = Store.open(Path(sys.argv[1]))
for n in range(10):
    store.write(Batch((Event(event_id=f"e{n}", attempt_id="a", kind="heartbeat", wall_ns=1, source="s"),)))
os._exit(9)
"""


def event(event_id: str) -> Event:
    return Event(event_id=event_id, attempt_id="a", kind="heartbeat", wall_ns=1, source="s")


def counted(path: Path) -> int:
    with open_reader(path) as reader:
        [(count,)] = reader.rows("SELECT count(*) FROM events")
    return count


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a store whose owner died after ten commits, all of them still in the log."""
    folder = tmp_path_factory.mktemp("crashed")
    assert 9 == subprocess.run([sys.executable, "-c", CRASH, str(folder / "s.duckdb")], check=False).returncode
    return folder


@pytest.fixture
def dead(crashed: Path, tmp_path: Path) -> Path:
    """A copy of that store, to be damaged."""
    return shutil.copytree(crashed, tmp_path / "copy") / "s.duckdb"


def test_a_new_store_says_so_and_an_old_one_continues_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "s.duckdb"
    with Store.open(path) as store:
        assert OpenReport(created=True) == store.opened
        assert 0 == store.last_commit
        store.write(Batch((event("e1"),)))
    with Store.open(path) as store:
        assert OpenReport() == store.opened
        assert 2 == store.write(Batch((event("e2"),))).commit


def test_the_second_to_open_hears_who_has_it_and_what_to_do(tmp_path: Path) -> None:  # D01, D02
    path = tmp_path / "s.duckdb"
    with Store.open(path) as store:
        store.set_url("http://127.0.0.1:8640")
        for attempt in (Store.open, open_reader):
            with pytest.raises(StoreHeld) as refusal:
                attempt(path)
            for part in (f"process {os.getpid()}", "since 20", "phasecast snapshot OUT.duckdb", "http://127.0.0.1:8640", "stop"):
                assert part in refusal.value.fix
        assert "new" == store.write(Batch((event("e1"),))).results[0].result


def test_another_process_is_refused_while_the_owner_lives_and_welcome_afterwards(tmp_path: Path) -> None:  # D01
    path = tmp_path / "s.duckdb"
    script = f"import duckdb; print(duckdb.connect({str(path)!r}, read_only=True).execute('SELECT 1').fetchall())"
    with Store.open(path):
        refused = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert f"(PID {os.getpid()})" in refused.stderr
    assert "[(1,)]\n" == subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout


def test_a_file_that_a_plain_client_has_open_is_held_by_that_process(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    Store.open(path).close()
    script = f"import duckdb; c = duckdb.connect({str(path)!r}); print('open', flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as client:
        assert b"open\n" == client.stdout.readline()
        with pytest.raises(StoreHeld, match=f"process {client.pid}"):
            Store.open(path)
        client.communicate(b"\n")
    assert holder(path) is None


def test_the_holder_is_known_while_there_is_one(tmp_path: Path) -> None:
    path = tmp_path / "s.duckdb"
    assert holder(path) is None
    lock = Lock.take(path, "http://h:1")
    found = holder(path)
    assert (os.getpid(), "http://h:1") == (found.pid, found.url)
    lock.release()
    assert holder(path) is None


def test_reading_what_is_not_there_or_no_store_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadField, match="no such file"):
        open_reader(tmp_path / "none.duckdb")
    with duckdb.connect(str(tmp_path / "other.duckdb")) as other:
        other.execute("CREATE TABLE mine (a INTEGER)")
    for attempt in (Store.open, open_reader):
        with pytest.raises(DamagedStore, match="no Phasecast store"):
            attempt(tmp_path / "other.duckdb")
    (tmp_path / "text.duckdb").write_bytes(b"not a database" * 1000)
    with pytest.raises(DamagedStore, match="not a valid DuckDB database"):
        Store.open(tmp_path / "text.duckdb")
    assert holder(tmp_path / "text.duckdb") is None


def test_after_a_crash_everything_acknowledged_is_there(dead: Path) -> None:
    with Store.open(dead) as store:
        assert OpenReport() == store.opened
        assert 10 == store.last_commit
    assert 10 == counted(dead)


def test_a_log_cut_short_is_told_by_the_high_water_mark(dead: Path) -> None:  # D04
    log = dead.with_name("s.duckdb.wal")
    log.write_bytes(log.read_bytes()[:-100])
    with Store.open(dead) as store:
        assert OpenReport(lost_commits=1) == store.opened
        # Number 10 was given out once, so the note of the loss is 11 and the next rows are 12.
        assert 12 == store.write(Batch((event("later"),))).commit
        with store.reader() as reader:
            [(noted,)] = reader.rows("SELECT value FROM state WHERE name = ?", [LOSS_NAME])
    assert (1, 10) == (json.loads(noted)["commits"], json.loads(noted)["up_to"])
    with Store.open(dead) as store:
        assert OpenReport() == store.opened


def test_a_damaged_log_is_set_aside_and_the_last_checkpoint_serves(dead: Path) -> None:  # D04
    log = dead.with_name("s.duckdb.wal")
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    with Store.open(dead) as store:
        assert 10 == store.opened.lost_commits
        assert bytes(content) == store.opened.wal_set_aside.read_bytes()
        assert 12 == store.write(Batch((event("later"),))).commit
    assert 1 == counted(dead)


def test_a_mark_survives_and_an_unreadable_one_counts_as_none(tmp_path: Path) -> None:
    marks = MarkFile(tmp_path / "s.duckdb")
    assert Mark(0, 0) == marks.read()
    marks.write(Mark(12, 3456))
    assert Mark(12, 3456) == marks.read()
    (tmp_path / "s.duckdb.mark").write_bytes(b"\0" * 64)
    assert Mark(0, 0) == marks.read()
    marks.close()


def test_a_file_of_a_newer_schema_is_refused_with_both_versions(tmp_path: Path) -> None:  # D12
    path = tmp_path / "s.duckdb"
    with Store.open(path) as store:
        store.write(Batch((StateRow(name=migrations.VERSION_NAME, value="999"),)))
    for attempt in (Store.open, open_reader):
        with pytest.raises(NewerStore, match=f"999.*up to {STEPS[-1].to}"):
            attempt(path)
    assert holder(path) is None


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (duckdb.IOException("Trying to read a database file with version number 99, but we can only read 64"), NewerStore),
        (duckdb.IOException('Could not set lock on "s": Conflicting lock is held in /bin/python (PID 7). See'), StoreHeld),
        (duckdb.TransactionException('Failed to commit: Could not write file "s.wal": No space left on device'), DiskFull),
        (duckdb.IOException("Corrupt database file: computed checksum"), DamagedStore),
        (duckdb.ConstraintException("NOT NULL constraint failed"), StoreError),
    ],
)
def test_engine_errors_are_told_apart(error: duckdb.Error, kind: type[StoreError]) -> None:  # D12
    assert kind is type(told(error, Path("s.duckdb")))


@pytest.fixture
def version_0(tmp_path: Path) -> Path:
    """A file of an imagined version 0, which kept event times in ms under another name, with an index and a comment."""
    path = tmp_path / "old.duckdb"
    with duckdb.connect(str(path)) as old:
        old.execute("CREATE TABLE state (name VARCHAR, value VARCHAR, known_from BIGINT, known_until BIGINT)")
        old.execute("INSERT INTO state VALUES ('schema_version', '0', 0, NULL), ('derived_to', '7', 7, NULL)")
        old.execute("CREATE TABLE commits (committed_ns BIGINT, written_rows BIGINT, known_from BIGINT PRIMARY KEY)")
        old.execute("INSERT INTO commits VALUES (5, 2, 7)")
        columns = "event_id VARCHAR PRIMARY KEY, attempt_id VARCHAR, kind VARCHAR, wall_ms BIGINT, known_from BIGINT"
        old.execute(f"CREATE TABLE events ({columns})")
        old.execute("INSERT INTO events VALUES ('e1', 'a', 'ready', 1700000000123, 7), ('e2', 'a', 'failed', 1700000000124, 7)")
        old.execute("CREATE INDEX by_attempt ON events (attempt_id)")
    return path


def test_an_older_file_is_carried_forward_by_copy_and_the_old_one_kept(
    version_0: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # D10
    to_ns = "SELECT event_id, attempt_id, kind, wall_ms * 1000000 AS wall_ns, 'unknown' AS source, known_from FROM {old}"
    monkeypatch.setattr(migrations, "STEPS", (Step(1, {"events": to_ns}), *STEPS[1:]))
    before = version_0.read_bytes()
    with Store.open(version_0) as store:
        assert OpenReport(migrated_from=0) == store.opened
        assert 7 == store.last_commit
        assert "conflict" == store.write(Batch((event("e1"),))).results[0].result
        assert 8 == store.write(Batch((event("e3"),))).commit
        with store.reader() as reader:
            times = reader.rows("SELECT wall_ns FROM events WHERE known_from = 7 ORDER BY event_id")
            version = reader.rows("SELECT name, value FROM state WHERE known_until IS NULL ORDER BY name")
            [(comment,)] = reader.rows(
                "SELECT comment FROM duckdb_columns() WHERE table_name = 'events' AND column_name = 'wall_ns'"
            )
    assert [(1_700_000_000_123_000_000,), (1_700_000_000_124_000_000,)] == times
    assert [("derived_to", "7"), ("engine_version", f'"{duckdb.__version__}"'), ("schema_version", str(STEPS[-1].to))] == version
    assert "UTC wall time" in comment
    assert before == version_0.with_name("old.duckdb.schema-0").read_bytes()
    with Store.open(version_0) as store:
        assert OpenReport() == store.opened


def test_steps_build_on_each_other_and_only_those_still_missing_run() -> None:
    steps = (Step(1, {"t": "SELECT a + 1 AS a FROM {old}"}), Step(2), Step(3, {"t": "SELECT a * 10 AS a FROM {old}"}))
    with duckdb.connect() as connection, pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrations, "STEPS", steps)
        connection.execute("ATTACH ':memory:' AS former")
        connection.execute("CREATE TABLE former.t AS SELECT 4 AS a")
        answers = [connection.execute(migrations._query("t", {"t"}, found)).fetchall() for found in (0, 1, 3)]
        assert migrations._query("new", {"t"}, 0) is None
    assert [[(50,)], [(40,)], [(4,)]] == answers


def test_a_migration_that_fails_leaves_the_file_as_it_was(version_0: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # D10
    monkeypatch.setattr(migrations, "STEPS", (Step(1, {"events": "SELECT event_id FROM {old}"}), *STEPS[1:]))
    before = version_0.read_bytes()
    with pytest.raises(StoreError, match="attempt_id"):
        Store.open(version_0)
    assert before == version_0.read_bytes()
    assert not version_0.with_name("old.duckdb.migrating").exists()
    assert holder(version_0) is None


def test_an_older_file_is_not_read_before_it_was_carried_forward(version_0: Path) -> None:
    with pytest.raises(StoreError, match="phasecast serve"):
        open_reader(version_0)


def test_a_lost_log_never_takes_the_tables_of_a_new_store(dead: Path) -> None:
    dead.with_name("s.duckdb.wal").unlink()
    with Store.open(dead) as store:
        assert OpenReport(lost_commits=10) == store.opened


def test_quoting_keeps_a_path_with_an_apostrophe_whole() -> None:
    assert "'it''s'" == quote("it's")
