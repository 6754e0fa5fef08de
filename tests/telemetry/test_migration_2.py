"""A store of schema 1 carried to today's: nothing lost, nothing changed, and the same answers as before.

data/schema-1 holds such a store as SQL text, with its model files: a short synthetic life written by the last program of that
schema. It is never made anew; where a later change of the model changes answers on purpose, the tests of answers go.
"""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import orjson
import pytest

from predictors.contexts import Context
from service.lineup import Lineup
from service.replay import replay
from service.settings import Settings, models_folder
from service.upkeep import Upkeep
from telemetry import asof
from telemetry.errors import NewerStore, StoreError
from telemetry.ledger import PlanAnswer, PlanOutcome, Prediction
from telemetry.store import migrations
from telemetry.store.batch import Batch
from telemetry.store.file import OpenReport, Store
from telemetry.store.lock import holder
from telemetry.store.reader import open_reader
from telemetry.tables import TABLES, Attempt

FIXTURE = Path(__file__).resolve().parents[2] / "data" / "schema-1"
STAMPS = ("schema_version", "engine_version")
ADDED_TABLES = (
    *("plan_answers", "plan_outcomes", "resource_samples", "tokens"),
    *("decisions", "credits", "shadow_forecasts", "forecasts", "openings", "changes"),
)
ADDED_COLUMNS: dict[str, dict[str, Any]] = {
    "events": {"launch_only": False},
    "observations": {"started_text": None, "outcomes": 1, "spread_s": None, "resolution_s": None, "assumed": None},
    "predictions": {"horizon_asked_s": None, "changes": None},
}
"""What schemas since then have added, and what it is in rows of schema 1."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of schema 1 as a DuckDB file with its folder of models."""
    path = tmp_path_factory.mktemp("schema-1") / "store.duckdb"
    with duckdb.connect(str(path), config={"storage_compatibility_version": "v1.0.0"}) as connection:
        connection.execute("BEGIN")
        connection.execute((FIXTURE / "store.sql").read_text())
        connection.execute("COMMIT")
    models_folder(path).mkdir()
    for packed in FIXTURE.glob("*.npz.gz"):
        (models_folder(path) / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return path


@pytest.fixture
def former(built: Path, tmp_path: Path) -> Path:
    """A copy of it to open."""
    return shutil.copytree(built.parent, tmp_path / "copy") / built.name


@pytest.fixture
def carried(former: Path) -> Iterator[Store]:
    """The same store, opened by this program."""
    with Store.open(former) as store:
        yield store


def contents(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Rows of every table by its name, in order; what a file says of itself is left out, and so are columns of later schemas."""
    with duckdb.connect(str(path), read_only=True) as connection:
        names = [name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()]
        found = {}
        for name in names:
            columns = [column for column, *_ in connection.execute(f"DESCRIBE {name}").fetchall()]
            kept = ", ".join(column for column in columns if column not in ADDED_COLUMNS.get(name, ()))
            found[name] = connection.execute(f"SELECT {kept} FROM {name} ORDER BY ALL").fetchall()
    found["state"] = [row for row in found["state"] if row[0] not in STAMPS]
    return found


def test_the_fixture_is_a_store_of_schema_1_with_something_in_it(former: Path) -> None:
    before = contents(former)
    assert {table.table for table in TABLES} - set(ADDED_TABLES) == before.keys()
    assert {"attempts": 32, "models": 2, "predictions": 40} == {
        name: len(before[name]) for name in ("attempts", "models", "predictions")
    }
    with pytest.raises(StoreError, match=r"schema version 1.*phasecast serve"):
        open_reader(former)


def test_every_row_is_carried_over_and_the_file_as_it_was_is_kept(former: Path) -> None:
    before, bytes_before = contents(former), former.read_bytes()
    with Store.open(former) as store:
        assert OpenReport(migrated_from=1) == store.opened
        assert before["commits"][-1][-1] == store.last_commit
    assert before | {name: [] for name in ADDED_TABLES} == contents(former)
    assert bytes_before == former.with_name("store.duckdb.schema-1").read_bytes()
    with Store.open(former) as store:
        assert OpenReport() == store.opened


@pytest.mark.parametrize("table", ADDED_COLUMNS)
def test_columns_of_later_schemas_say_what_was_so_all_along(carried: Store, table: str) -> None:
    added = ADDED_COLUMNS[table]
    with carried.reader() as reader:
        assert [tuple(added.values())] == reader.rows(f"SELECT DISTINCT {', '.join(added)} FROM {table}")


def test_tables_columns_and_comments_are_those_of_a_new_store(former: Path, tmp_path: Path) -> None:
    Store.open(former).close()
    Store.open(tmp_path / "new.duckdb").close()
    told = []
    for path in (tmp_path / "new.duckdb", former):
        with duckdb.connect(str(path), read_only=True) as connection:
            columns = "table_name, column_name, data_type, is_nullable, comment"
            told.append(
                connection.execute(f"SELECT {columns} FROM duckdb_columns() WHERE NOT internal ORDER BY ALL").fetchall()
                + connection.execute("SELECT table_name, comment FROM duckdb_tables() ORDER BY ALL").fetchall()
                + connection.execute("SELECT table_name, constraint_text FROM duckdb_constraints() ORDER BY ALL").fetchall()
            )
    assert told[0] == told[1]
    assert all(comment for *_, comment in told[1])


def test_the_writer_goes_on_where_the_old_one_stopped(carried: Store) -> None:
    before = carried.last_commit
    known = Attempt(attempt_id="synthetic-21-000000", host="elsewhere")
    answer = PlanAnswer.model_construct(**dict.fromkeys(PlanAnswer.model_fields) | PLAN)
    outcome = PlanOutcome(answer_id="plan", actual_s=1.5, ended="completed", met=True)
    receipt = carried.write(Batch((known, answer, outcome)))
    assert before + 1 == receipt.commit
    assert ["conflict", "new", "new"] == [result.result for result in receipt.results]
    with carried.reader() as reader:
        assert ["plan"] == [row.answer_id for row in asof.plan_answers(reader, receipt.commit, scored=True)]
        assert {} == asof.plan_outcomes(reader, before)


PLAN: dict[str, Any] = {
    "answer_id": "plan",
    "request_id": "r",
    "question": "chance",
    "needed_by": [],
    "made_ns": 1,
    "as_of_commit": 1,
    "model_id": "m",
    "asked": "{}",
    "level": 0.9,
    **dict.fromkeys(("probability", "mc_se", "calibration_se", "lower", "p_complete", "expected_late_s"), 0.5),
    "verdict": "holds",
    "status": "thin",
    "reasons": [],
    "answer_sha256": "0" * 64,
}


def test_every_answer_and_fit_comes_out_again_to_the_byte(carried: Store) -> None:
    with carried.reader() as reader:
        found = replay(reader, carried.last_commit)
    assert (40, 2) == (found.answers, found.fits)
    if found.different_fits:
        pytest.skip("a fit by this program, on this processor, is not to the bit that of the fixture; see the test of numbers")
    assert [] == found.different_answers


def test_the_model_of_the_old_store_serves_and_gives_the_answers_it_gave(carried: Store) -> None:
    lineup = Lineup("here/boot-1")
    upkeep = Upkeep(carried, lineup, Settings(store=carried.path))
    with carried.reader() as reader:
        ledger = asof.rows_of(Prediction, asof.predictions(reader, carried.last_commit))
        [newest, _] = asof.models(reader, carried.last_commit)
    serving, before = lineup.serving, carried.last_commit
    assert newest.model_id == serving.model_id
    last = [row for row in ledger if row.as_of_commit == serving.model.commit]
    assert 8 == len(last)
    for row in last:
        law = serving.model.predict([Context.of(orjson.loads(row.context))], [row.phase])
        if row.elapsed_s is not None:
            law = law.residual(row.elapsed_s)
        grid = np.append(np.arange(1, 100) / 100, [0.995, 0.999])
        np.testing.assert_allclose(row.quantiles_s, law.quantile(grid)[0], rtol=1e-9)
        assert row.mean_s == pytest.approx(float(law.mean()[0]), rel=1e-9)
    assert {"synthetic-21-000025"} == set(lineup.running)
    upkeep.tick()
    assert before == carried.last_commit  # nothing is left to derive
    upkeep.stop()


def test_what_a_killed_migration_left_is_harmless(former: Path) -> None:
    before = contents(former)
    assert 9 == subprocess.run([sys.executable, "-c", KILLED, str(former)], check=False).returncode
    assert former.with_name("store.duckdb.migrating.wal").exists()
    assert before == contents(former)
    former.with_name("store.duckdb.schema-1").write_bytes(b"what an earlier try kept")
    Store.open(former).close()
    assert before.items() <= contents(former).items()
    assert before == contents(former.with_name("store.duckdb.schema-1"))
    assert [] == [path.name for path in former.parent.iterdir() if "migrating" in path.name]


KILLED = """
import os, sys
from pathlib import Path
from telemetry.store import migrations
from telemetry.store.file import Store
migrations._stamp = lambda _connection: os._exit(9)
Store.open(Path(sys.argv[1]))
"""


@pytest.mark.parametrize("step", ["sync", "link", "replace"])
def test_a_migration_that_ends_at_any_step_leaves_the_old_file_in_its_place(
    former: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    before = contents(former)

    def end(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr({"sync": migrations, "link": migrations.os, "replace": Path}[step], step, end)
        with pytest.raises(KeyboardInterrupt):
            Store.open(former)
    assert holder(former) is None
    assert before == contents(former)
    with Store.open(former) as store:
        assert 1 == store.opened.migrated_from
    assert before.items() <= contents(former).items()


def test_the_program_before_refuses_what_this_one_has_carried_forward(former: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(former).close()
    newest = migrations.STEPS[-1].to
    monkeypatch.setattr(migrations, "STEPS", migrations.STEPS[:1])
    for attempt in (Store.open, open_reader):
        with pytest.raises(NewerStore, match=rf"schema version {newest}.*up to 1"):
            attempt(former)
