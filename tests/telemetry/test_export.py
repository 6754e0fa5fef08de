import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from telemetry.errors import BadField
from telemetry.store import writer
from telemetry.store.batch import Batch
from telemetry.store.export import export, sha256_of
from telemetry.store.file import Store
from telemetry.store.reader import Reader
from telemetry.tables import TABLES, Event, Grant, Observation

START_NS = 1_780_000_000_000_000_000
THIRTY_DAYS_NS = 30 * 86_400 * 10**9


def event(event_id: str, wall_ns: int = START_NS) -> Event:
    return Event(event_id=event_id, attempt_id="a", kind="heartbeat", wall_ns=wall_ns, source="s")


def length(duration_s: float) -> Observation:
    return Observation(observation_id="a/service/0", attempt_id="a", phase="service", duration_s=duration_s, ended="running")


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Three commits, at START_NS + 1, + 2 and + 3: two events and a length; an event and a new length; a grant."""
    grant = Grant(
        grant_id="g", granted_by="u", host="h", probes=["cpu", "dram"], not_before_ns=1, expires_ns=2, max_run_s=1.0,
        max_threads=1, max_memory_bytes=1, max_disk_bytes=0,
    )  # fmt: skip
    batches = [Batch((event("e2"), event("e1", START_NS + THIRTY_DAYS_NS), length(1.0)))]
    batches += [Batch((event("e3", 2**31 * 10**6 + 1), length(2.0))), Batch((grant,))]
    with Store.open(tmp_path_factory.mktemp("export") / "s.duckdb") as store, pytest.MonkeyPatch.context() as patch:
        for n, batch in enumerate(batches, start=1):
            patch.setattr(writer.time, "time_ns", lambda n=n: START_NS + n)
            store.write(batch)
        with store.reader() as reader:
            yield reader


def column(folder: Path, table: str, name: str) -> list[object]:
    return pq.read_table(folder / f"{table}.parquet")[name].to_pylist()


def test_all_tables_come_with_their_rows_in_order_of_commit_and_key(reader: Reader, tmp_path: Path) -> None:
    done = export(reader, tmp_path / "out")
    assert [row.table for row in TABLES] == [one.table for one in done.tables]
    assert ["e1", "e2", "e3"] == column(tmp_path / "out", "events", "event_id")
    assert [START_NS + THIRTY_DAYS_NS, START_NS, 2**31 * 10**6 + 1] == column(tmp_path / "out", "events", "wall_ns")
    assert [["cpu", "dram"]] == column(tmp_path / "out", "grants", "probes")
    assert [(1.0, 2), (2.0, None)] == list(
        zip(*(column(tmp_path / "out", "observations", name) for name in ("duration_s", "known_until")), strict=True)
    )
    assert 0 == pq.read_table(tmp_path / "out" / "predictions.parquet").num_rows


def test_the_manifest_names_every_file_with_its_rows_and_hash(reader: Reader, tmp_path: Path) -> None:
    done = export(reader, tmp_path / "out", ["events"])
    [told] = json.loads((tmp_path / "out" / "manifest.json").read_text())["tables"]
    path = tmp_path / "out" / "events.parquet"
    assert vars(done.tables[0]) == told
    assert ("events", 3, path.stat().st_size, sha256_of(path)) == (
        told["table"],
        told["rows"],
        told["size_bytes"],
        told["sha256"],
    )
    assert ["events.parquet", "manifest.json"] == sorted(p.name for p in (tmp_path / "out").iterdir())


def test_units_and_meaning_travel_with_the_file(reader: Reader, tmp_path: Path) -> None:
    export(reader, tmp_path / "out", ["observations"])
    notes = pq.read_schema(tmp_path / "out" / "observations.parquet").metadata
    assert Observation.title == notes[b"title"].decode()
    assert "lower bound" in notes[b"title"].decode()
    assert json.loads(notes[b"columns"])["started_ns"].startswith("UTC wall time")


def test_a_time_takes_what_became_known_or_was_replaced_in_it(reader: Reader, tmp_path: Path) -> None:
    export(reader, tmp_path / "first", ["events", "observations", "grants"], until_ns=START_NS + 2)
    export(reader, tmp_path / "second", ["events", "observations", "grants"], since_ns=START_NS + 2)
    assert [["e1", "e2"], ["e3"]] == [column(tmp_path / name, "events", "event_id") for name in ("first", "second")]
    assert [[None], [2, None]] == [column(tmp_path / name, "observations", "known_until") for name in ("first", "second")]
    assert [[], ["g"]] == [column(tmp_path / name, "grants", "grant_id") for name in ("first", "second")]


def test_a_time_in_which_nothing_happened_gives_files_without_rows(reader: Reader, tmp_path: Path) -> None:
    done = export(reader, tmp_path / "out", ["events", "state"], START_NS + 4, START_NS + 5)
    assert (3, 3, [0, 0]) == (done.after_commit, done.upto_commit, [one.rows for one in done.tables])


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"tables": ["event"]}, "table: got 'event'; use one of events, attempts"),
        ({"since_ns": 5, "until_ns": 5}, "since"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(reader: Reader, tmp_path: Path, asked: dict[str, object], told: str) -> None:
    with pytest.raises(BadField, match=told):
        export(reader, tmp_path / "out", **asked)
    assert not (tmp_path / "out").exists()


def test_nothing_is_ever_written_over(reader: Reader, tmp_path: Path) -> None:
    with pytest.raises(BadField, match="name a new folder"):
        export(reader, tmp_path, ["events"])


def test_an_export_that_fails_leaves_no_folder(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Event, "table", "events_that_are_not_there")
    with pytest.raises(Exception, match="events_that_are_not_there"):
        export(reader, tmp_path / "out")
    assert [] == list(tmp_path.iterdir())
