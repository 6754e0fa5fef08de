"""`phasecast export`, `backup`, `restore` and `compact` as a shell runs them, and a store that goes on after each."""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from predictors.contexts import Context
from predictors.synthetic import Run, runs
from service.cli import keep as commands
from service.engine import Asking, Question, ask
from service.lineup import Lineup
from service.replay import replay
from service.settings import Settings, models_folder
from service.upkeep import Upkeep
from telemetry import asof
from telemetry.errors import BadField
from telemetry.recorder.ids import uuid7
from telemetry.store import keep
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import open_reader
from telemetry.tables import Event
from tests.service.living import Living, Served
from tests.service.test_cli import phasecast

MADE = runs(40, seed=3)


def living(path: Path) -> Living:
    store = Store.open(path)
    lineup = Lineup("here/1")
    return Living(store, lineup, Upkeep(store, lineup, Settings(store=path, refit_share=1.0)))


def end(alive: Living) -> None:
    alive.upkeep.stop()
    alive.store.close()


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that learned from all but the last five runs, and was left."""
    path = tmp_path_factory.mktemp("left") / "store.duckdb"
    alive = living(path)
    alive.send(MADE[:-5])
    alive.settle()
    end(alive)
    return path


@pytest.fixture
def store(left: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return shutil.copytree(left.parent, tmp_path / "copy") / left.name


def test_a_served_store_is_exported_and_backed_up_and_the_backup_serves_elsewhere(answering: Served, tmp_path: Path) -> None:
    out = phasecast("export", tmp_path / "out", "--table", "attempts", "--store", answering.store, "--json")
    assert (0, "") == (out.code, out.err)
    assert 80 == json.loads(out.out)["tables"][0]["rows"] == pq.read_table(tmp_path / "out" / "attempts.parquet").num_rows
    saved = phasecast("backup", tmp_path / "saved", "--store", answering.store)
    assert (0, "") == (saved.code, saved.err)
    assert "read back in full" in saved.out
    again = phasecast("restore", tmp_path / "saved", "--store", tmp_path / "again.duckdb", "--json")
    assert (0, "") == (again.code, again.err)
    assert 80 == json.loads(again.out)["rows"]["attempts"]
    told = phasecast("predict", "--store", tmp_path / "again.duckdb", "--phase", "service", "--json")
    model_id = json.loads(told.out)["answers"][0]["model_id"]
    assert (tmp_path / "again.duckdb.models").is_dir()
    with Store.open(tmp_path / "again.duckdb") as store, store.reader() as reader:
        assert model_id in {row.model_id for row in asof.models(reader, store.last_commit)}
    assert ["again.duckdb", "out", "saved"] == sorted(p.name for p in tmp_path.iterdir() if "duckdb." not in p.name)


def test_a_damaged_backup_is_refused_in_two_lines(store: Path, tmp_path: Path) -> None:
    phasecast("backup", tmp_path / "saved", "--store", store)
    with (tmp_path / "saved" / "store.duckdb").open("r+b") as file:
        file.seek(5000)
        file.write(b"?")
    told = phasecast("restore", tmp_path / "saved", "--store", tmp_path / "again.duckdb")
    assert (6, "") == (told.code, told.out)
    assert "another SHA-256" in told.err
    assert 2 == len(told.err.splitlines())
    assert not (tmp_path / "again.duckdb").exists()


def test_compact_says_what_it_removed(store: Path) -> None:
    told = phasecast("compact", "--store", store, "--max-age-days", 0)
    assert (0, "") == (told.code, told.err)
    for part in ("bytes before", "removed from events", "rows"):
        assert part in told.out
    assert json.loads(phasecast("compact", "--store", store, "--json").out)["removed"] == {}


def ask_something(alive: Living, n: int) -> None:
    """Have this many answers given and kept."""
    questions = [Question("service", Context(host="north", size_in=float(size))) for size in range(16, 16 + n)]
    asking = Asking((0.5, 0.9), uuid7(), tuple(uuid7() for _ in questions), time.time_ns())
    alive.lineup.ledger.extend(a.row for a in ask(alive.lineup.serving, questions, asking) if a.row is not None)
    alive.upkeep.tick()


def test_answers_of_fits_from_before_what_was_removed_are_counted_and_all_others_come_out_again(tmp_path: Path) -> None:
    alive = living(tmp_path / "s.duckdb")
    for part, n in ((MADE[:20], 3), (MADE[20:35], 4), (MADE[35:], 5)):
        for low, high in ((0, 5), (5, None)):  # first they run, then they are over
            alive.send([replace(run, events=run.events[low:high]) for run in part])
            alive.settle()
        ask_something(alive, n)
    end(alive)
    with open_reader(alive.store.path) as reader:
        fits = [row.fit_commit for row in asof.models(reader, 2**62)]
        whole = replay(reader, 2**62)
    assert (12, 0, True) == (whole.answers, whole.beyond, whole.identical)
    assert "observations" in keep.compact(alive.store.path, now_ns=time.time_ns() + 10**9, max_age_s=0).removed
    with open_reader(alive.store.path) as reader:
        assert fits[0] == asof.complete_from(reader)
        alone = replay(reader, 2**62)
        found = replay(reader, 2**62, folder=models_folder(alive.store.path))
    assert (12, True) == (found.answers + found.beyond, found.identical)
    assert 0 < found.beyond < alone.beyond == 12  # the first model of all is gone, the file of a later one takes up from there


def closed(alive: Living) -> list[Run]:
    """Runs of which nothing is open."""
    running = set(alive.lineup.running)
    return [run for run in MADE[:-5] if run.attempt.attempt_id not in running]


def test_after_removal_the_service_answers_as_before_and_late_events_spoil_nothing(store: Path) -> None:
    alive = living(store)
    over = closed(alive)
    ids = [run.attempt.attempt_id for run in over]
    with alive.store.reader() as reader:
        standing = asof.standing(reader, ids, alive.store.last_commit)
    end(alive)
    removed = keep.compact(store, now_ns=time.time_ns(), max_age_s=0).removed
    assert removed["events"] == sum(len(run.events) for run in over)
    with open_reader(store) as reader:
        newest = asof.models(reader, 2**62)[0].model_id
    alive = living(store)
    assert newest == alive.lineup.serving.model_id
    again = over[0].events[-1]
    beat = Event(event_id="late", attempt_id=ids[1], kind="heartbeat", wall_ns=again.wall_ns + 10**9, source="s")
    assert "new" == alive.store.write(Batch((again, beat))).results[0].result  # its id was forgotten with it
    alive.send(MADE[-5:])
    alive.settle()
    with alive.store.reader() as reader:
        assert standing == asof.standing(reader, ids, alive.store.last_commit)
        assert replay(reader, alive.store.last_commit).identical
    end(alive)


@pytest.mark.parametrize("text", ["2026-11-01", "2026-11-01T00:00:00", "yesterday"])
def test_a_time_without_a_zone_is_refused(text: str) -> None:
    with pytest.raises(BadField, match=r"--since.*2026-11-01T00:00:00Z"):
        commands._instant_ns("--since", text)


def test_an_instant_is_exact_whatever_its_zone() -> None:  # D14
    assert 1_772_953_199_000_001_000 == commands._instant_ns("--since", "2026-03-08T06:59:59.000001Z")
    assert 1_772_953_199_000_000_000 == commands._instant_ns("--since", "2026-03-08T01:59:59-05:00")
    assert 2_193_091_200_000_000_000 == commands._instant_ns("--since", "2039-07-01T00:00:00Z")
