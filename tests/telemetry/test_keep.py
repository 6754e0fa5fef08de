import json
import random
import shutil
from pathlib import Path

import duckdb
import pytest

from telemetry import asof
from telemetry.errors import BadField, StoreError, StoreHeld
from telemetry.ledger import ModelFile
from telemetry.store import keep, migrations, writer
from telemetry.store.batch import Batch
from telemetry.store.file import LOSS_NAME, Store
from telemetry.store.reader import open_reader
from telemetry.tables import Event, Observation, Quarantine, ResourceSample, StateRow
from telemetry.words import Ended

DAY_NS = 86_400 * 10**9
TODAY_NS = 1_780_000_000_000_000_000
SAMPLE = ResourceSample(sample_id="x", source="s")


def heartbeats(attempt_id: str, n: int) -> tuple[Event, ...]:
    text = json.dumps({"note": "of some length, so that rows are worth removing " * 8})
    made = {"attempt_id": attempt_id, "kind": "heartbeat", "wall_ns": 1, "source": "s", "attributes": text}
    return tuple(Event(event_id=f"{attempt_id}-{i}", **made) for i in range(n))


def observed(attempt_id: str, duration_s: float, ended: Ended) -> Observation:
    made = {"observation_id": f"{attempt_id}/service/0", "attempt_id": attempt_id, "phase": "service"}
    return Observation(**made, duration_s=duration_s, ended=ended)


def derived_to(commit: int) -> StateRow:
    return StateRow(name="derived_to", value=str(commit))


def model(fit_commit: int) -> ModelFile:
    described = {"family": "f", "settings": "{}", "n_observations": 1, "file_name": "m.npz", "sha256": "0", "fitted_ns": 1}
    return ModelFile(model_id=f"m{fit_commit}", fit_commit=fit_commit, **described)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of six commits, one a day up to `TODAY_NS`, that nobody owns.

    1: `old` and `open` beat. 2: both are seen to run. 3: a value. 4: `old` ended, `open` still runs, and a sample.
    5: `new` beats. 6: `new` ended.
    """
    path = tmp_path_factory.mktemp("left") / "s.duckdb"
    running, completed = Ended.RUNNING, Ended.COMPLETED
    batches = [
        Batch((*heartbeats("old", 300), *heartbeats("open", 20))),
        Batch((observed("old", 1.0, running), observed("open", 1.0, running), derived_to(1))),
        Batch((StateRow(name="other", value="1"),)),
        Batch((observed("old", 2.0, completed), observed("open", 2.0, running), SAMPLE, derived_to(3))),
        Batch(heartbeats("new", 30)),
        Batch((observed("new", 1.0, completed), derived_to(5))),
    ]
    with Store.open(path) as store, pytest.MonkeyPatch.context() as patch:
        for day, batch in enumerate(batches, start=-5):
            patch.setattr(writer.time, "time_ns", lambda day=day: TODAY_NS + day * DAY_NS)
            store.write(batch)
    return path


@pytest.fixture
def path(left: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    for file in left.parent.iterdir():
        shutil.copy(file, tmp_path)
    return tmp_path / left.name


def counted(path: Path) -> dict[str, int]:
    tables = ("events", "observations", "resource_samples", "state", "commits")
    with open_reader(path) as reader:
        return {name: reader.rows(f"SELECT count(*) FROM {name}")[0][0] for name in tables}


def events_of(path: Path) -> dict[str, int]:
    with open_reader(path) as reader:
        return dict(reader.rows("SELECT attempt_id, count(*) FROM events GROUP BY 1 ORDER BY 1"))


def noted(path: Path) -> dict[str, object]:
    with open_reader(path) as reader:
        [(value,)] = reader.rows("SELECT value FROM state WHERE name = ?", [keep.RETENTION_NAME])
    return dict(json.loads(value))


def days_back(path: Path, days: float) -> keep.Compacted:
    return keep.compact(path, now_ns=TODAY_NS, max_age_s=days * 86_400)


def test_without_a_limit_every_row_is_there_and_both_sizes_are_told(path: Path) -> None:  # D13
    before, size = counted(path), path.stat().st_size
    done = keep.compact(path, now_ns=TODAY_NS)
    assert before == counted(path)
    assert before == {name: done.rows[name] for name in before}
    assert ({}, 0, True) == (done.removed, done.cutoff, done.fits)
    assert (size, path.stat().st_size) == (done.size_before_bytes, done.size_after_bytes)
    assert ["s.duckdb", "s.duckdb.lock", "s.duckdb.mark"] == sorted(p.name for p in path.parent.iterdir())


def test_room_that_removed_rows_left_is_given_back(path: Path) -> None:  # D13
    with duckdb.connect(str(path)) as plain:
        more = "SELECT e.* REPLACE (e.event_id || '/' || n AS event_id) FROM events e, (SELECT unnest(range(200)) AS n)"
        plain.execute(f"INSERT INTO events BY NAME {more}")
        plain.execute("CHECKPOINT")
        plain.execute("DELETE FROM events WHERE attempt_id = 'old'")
    done = keep.compact(path, now_ns=TODAY_NS)
    assert done.size_after_bytes < done.size_before_bytes / 2


def test_events_past_their_age_go_unless_an_open_attempt_needs_them(path: Path) -> None:
    done = days_back(path, 1.5)
    assert {"new": 30, "open": 20} == events_of(path)
    assert {"events": 300, "observations": 2, "resource_samples": 1, "state": 1} == done.removed
    assert 4 == done.cutoff


def test_at_age_zero_all_that_is_over_goes_and_what_stands_stays(path: Path) -> None:
    before = standing(path)
    done = keep.compact(path, now_ns=TODAY_NS + DAY_NS, max_age_s=0)
    assert {"open": 20} == events_of(path)
    assert {"events": 330, "observations": 2, "resource_samples": 1, "state": 2} == done.removed
    assert before == standing(path)
    assert 3 == len(before)


def standing(path: Path) -> dict[str, Observation]:
    with open_reader(path) as reader:
        return asof.standing(reader, ["old", "open", "new"], 6)


def test_young_rows_stay(path: Path) -> None:
    before = counted(path)
    assert {} == days_back(path, 30).removed
    assert before == counted(path)
    with open_reader(path) as reader:
        assert 0 == asof.complete_from(reader)


def test_the_state_of_every_commit_past_what_was_removed_is_what_it_was(path: Path) -> None:
    with open_reader(path) as reader:
        before = [asof.standing(reader, ["old", "open", "new"], commit) for commit in range(7)]
        changed = asof.changes(reader, 4, 6)
    days_back(path, 1.5)
    with open_reader(path) as reader:
        assert 4 == asof.complete_from(reader)
        assert before[4:] == [asof.standing(reader, ["old", "open", "new"], commit) for commit in (4, 5, 6)]
        assert changed == asof.changes(reader, 4, 6)


def test_versions_that_the_newest_fit_is_brought_up_to_date_from_stay(path: Path) -> None:
    with Store.open(path) as store:
        store.write(Batch((model(2), model(3))))
    done = keep.compact(path, now_ns=2**62, max_age_s=0)
    assert "observations" not in done.removed  # both were replaced at commit 4, and the newest fit is as of 3
    assert 330 == done.removed["events"]
    with open_reader(path) as reader:
        assert 0 == asof.complete_from(reader)


def test_events_that_were_never_looked_at_stay(path: Path) -> None:
    with Store.open(path) as store:
        store.write(Batch(heartbeats("unseen", 5)))
        store.write(Batch((Event(event_id="late", attempt_id="old", kind="heartbeat", wall_ns=1, source="s"),)))
    keep.compact(path, now_ns=2**62, max_age_s=0)
    assert {"old": 301, "open": 20, "unseen": 5} == events_of(path)


def test_what_was_removed_is_kept_count_of_over_the_years(path: Path) -> None:
    days_back(path, 1.5)
    first = noted(path)
    assert {"events": 300, "observations": 2, "resource_samples": 1, "state": 1} == first["removed"]
    keep.compact(path, now_ns=2**62, max_age_s=0)
    assert {"events": 330, "observations": 2, "resource_samples": 1, "state": 2} == noted(path)["removed"]
    assert (6, 4) == (noted(path)["events_after"], noted(path)["complete_from"])


def test_by_size_the_oldest_go_first_and_the_file_is_no_larger(path: Path) -> None:
    noise = random.Random(1)
    with Store.open(path) as store:
        for n in range(1, 9):
            beats = [row.model_copy(update={"attributes": noise.randbytes(5000).hex()}) for row in heartbeats(f"a{n}", 150)]
            store.write(Batch((*beats, observed(f"a{n}", 1.0, Ended.COMPLETED), derived_to(2**60))))
    done = keep.compact(path, now_ns=2**62, max_bytes=8 * 2**20)
    assert done.fits
    assert done.size_before_bytes > 12 * 2**20
    assert 4 * 2**20 < path.stat().st_size <= 8 * 2**20
    left = sorted(name for name in events_of(path) if name.startswith("a"))
    assert [f"a{n}" for n in range(9 - len(left), 9)] == left


def test_a_size_that_cannot_be_had_is_said_so(path: Path) -> None:
    done = keep.compact(path, now_ns=TODAY_NS, max_bytes=1000)
    assert not done.fits
    assert {"open": 20} == events_of(path)
    assert done.size_after_bytes > 1000


def test_numbers_go_on_and_nothing_counts_as_lost(path: Path) -> None:
    days_back(path, 1.5)
    with Store.open(path) as store:
        assert 0 == store.opened.lost_commits
        assert 7 == store.write(Batch(heartbeats("later", 1))).commit
        with store.reader() as reader:
            assert [] == reader.rows("SELECT name FROM state WHERE name = ?", [LOSS_NAME])


def test_a_store_in_use_is_left_alone(path: Path) -> None:
    with Store.open(path), pytest.raises(StoreHeld):
        keep.compact(path, now_ns=TODAY_NS)
    assert 6 == counted(path)["commits"]


def test_a_file_with_tables_of_somebody_else_is_left_as_it_was(path: Path) -> None:
    with duckdb.connect(str(path)) as plain:
        plain.execute("CREATE VIEW slow AS SELECT * FROM observations WHERE duration_s > 1")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"slow.*move them to another file"):
        keep.compact(path, now_ns=TODAY_NS)
    assert before == path.read_bytes()
    assert not path.with_name("s.duckdb.compacting").exists()


def test_a_copy_with_another_number_of_rows_never_takes_the_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, make_tables = path.read_bytes(), migrations.make_tables

    def one_too_many(connection: duckdb.DuckDBPyConnection) -> None:
        make_tables(connection)
        connection.execute("INSERT INTO commits VALUES (1, 1, 999)")

    monkeypatch.setattr(migrations, "make_tables", one_too_many)
    with pytest.raises(StoreError, match=r"7 rows of 6 in commits.*left as it was"):
        keep.compact(path, now_ns=TODAY_NS)
    assert before == path.read_bytes()


@pytest.mark.parametrize("limit", [{"max_age_s": -1.0}, {"max_bytes": -1}, {"max_age_s": float("nan")}])
def test_limits_that_mean_nothing_are_refused(path: Path, limit: dict[str, float]) -> None:
    with pytest.raises(BadField, match=next(iter(limit))):
        keep.compact(path, now_ns=TODAY_NS, **limit)


def test_a_missing_store_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(BadField, match="no such file"):
        keep.compact(tmp_path / "none.duckdb", now_ns=TODAY_NS)
    assert [] == list(tmp_path.iterdir())


def test_late_events_of_an_attempt_whose_events_are_gone_are_told_apart(path: Path) -> None:
    days_back(path, 1.5)
    late = [Event(event_id=f"{name}-late", attempt_id=name, kind="heartbeat", wall_ns=1, source="s") for name in ("old", "open")]
    with Store.open(path) as store, store.reader() as reader:
        store.write(Batch((*late, Quarantine(quarantine_id="q", attempt_id="x", phase="p", reason="r", detail="d"))))
        assert {"old"} == asof.settled(reader, ["old", "open", "new", "x"], 7)
        assert set() == asof.settled(reader, ["old", "open", "new", "x"], 6)
