from pathlib import Path

import duckdb
import pytest

from telemetry.rows import Row
from telemetry.store.file import Store
from telemetry.tables import TABLES, document

ROOT = Path(__file__).resolve().parents[2]


def test_the_written_documentation_is_that_of_the_tables() -> None:
    assert document() == (ROOT / "data" / "README.md").read_text()


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    with Store.open(folder / "s.duckdb") as store:
        store.snapshot(folder / "copy.duckdb")
    return folder / "copy.duckdb"


def test_a_plain_client_finds_every_table_with_its_meaning(snapshot: Path) -> None:
    with duckdb.connect(str(snapshot), read_only=True) as client:
        found = dict(client.execute("SELECT table_name, comment FROM duckdb_tables()").fetchall())
    assert {row.table: row.title for row in TABLES} == found


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row.table)
def test_a_plain_client_finds_every_column_with_type_and_meaning(snapshot: Path, row: type[Row]) -> None:
    sql = "SELECT column_name, data_type, is_nullable, comment FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
    with duckdb.connect(str(snapshot), read_only=True) as client:
        found = client.execute(sql, [row.table]).fetchall()
    assert [(c.name, c.sql, c.null, c.comment) for c in row.columns()] == found
    assert all(comment for *_, comment in found)


@pytest.mark.parametrize("row", TABLES, ids=lambda row: row.table)
def test_a_quantity_says_its_unit(row: type[Row]) -> None:
    units = {"_s": (" s", "s;", "seconds"), "_ns": ("ns",), "_bytes": ("ytes",), "_rows": ("count",)}
    for column in row.columns():
        for ending, words in units.items():
            if column.name.endswith(ending):
                assert any(word in column.comment for word in words), column


def test_no_table_holds_a_type_that_a_time_zone_could_shift() -> None:  # D14
    types = {column.sql for row in TABLES for column in row.columns()}
    assert types <= {"VARCHAR", "BIGINT", "DOUBLE", "BOOLEAN", "DOUBLE[]", "VARCHAR[]"}
