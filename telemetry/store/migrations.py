"""Schema versions: making a new file, and carrying an older one forward by copy and swap.

DuckDB can't alter a table that has a key, so no table is ever altered. A new file gets today's tables, each filled by
a query on the old one, and takes the old one's place in one rename.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from telemetry.errors import DamagedStore, NewerStore, StoreError
from telemetry.rows import quote
from telemetry.store.opening import connect, told
from telemetry.tables import TABLES

VERSION_NAME = "schema_version"
"""Name in table `state` under which a file says its version."""


@dataclass(frozen=True)
class Step:
    """How tables change on the way to version `to`.

    `reshape` maps a table to the query that makes its rows, in which {old} stands for the table as it was one
    version earlier. Tables not named are carried over as they are; columns the query leaves out become null.
    """

    to: int
    reshape: Mapping[str, str] = field(default_factory=dict)


STEPS: tuple[Step, ...] = (
    Step(to=1),
    Step(to=2),  # new tables: plan_answers, plan_outcomes
    Step(
        to=3,  # new table: resource_samples; rows of other sources say what they stand for and what was assumed
        reshape={
            "events": "SELECT *, false AS launch_only FROM {old}",
            "observations": "SELECT *, 1 AS outcomes FROM {old}",
        },
    ),
    Step(to=4),  # new tables: tokens, and those of decisions and verdicts; predictions tell the horizon and changes asked for
)
"""All steps there ever were, in order. The last one's `to` is the version this program writes."""


def create(connection: duckdb.DuckDBPyConnection) -> None:
    """Today's tables in an empty file, checkpointed so that a lost log can never take them away."""
    connection.execute("BEGIN")
    make_tables(connection)
    _stamp(connection)
    connection.execute("COMMIT")
    connection.execute("CHECKPOINT")


def schema_version(connection: duckdb.DuckDBPyConnection) -> int | None:
    """Version of the open file; None where it is empty. Raises DamagedStore for a file that is no store."""
    tables = {name for (name,) in connection.execute("SELECT table_name FROM duckdb_tables()").fetchall()}
    if not tables:
        return None
    if "state" in tables:
        sql = "SELECT value FROM state WHERE name = ? AND known_until IS NULL"
        if found := connection.execute(sql, [VERSION_NAME]).fetchone():
            return int(found[0])
    raise DamagedStore("store", sorted(tables), "this DuckDB file is no Phasecast store; choose another path with --store")


def refuse_other(found: int | None, path: Path) -> None:
    """Refuse a file that is not of this program's version: NewerStore past it, StoreError before it."""
    if found is not None and found > STEPS[-1].to:
        raise NewerStore(
            "store",
            f"{path} with schema version {found}",
            f"this program knows versions up to {STEPS[-1].to}; update it, or export the tables with the newer one",
        )
    if found != STEPS[-1].to:
        raise StoreError("store", f"{path} with schema version {found}", "run `phasecast serve` on it once to bring it up")


def migrate(path: Path, found: int) -> Path:
    """Bring the closed, checkpointed file at `path` from version `found` to today's; returns where the old one is kept."""
    fresh, kept = path.with_name(path.name + ".migrating"), path.with_name(f"{path.name}.schema-{found}")
    fresh.unlink(missing_ok=True)
    try:
        _fill(fresh, path, found)
    except duckdb.Error as error:
        fresh.unlink(missing_ok=True)
        raise told(error, path) from error
    _swap(fresh, path, kept)
    return kept


def _fill(fresh: Path, path: Path, found: int) -> None:
    """Make the new file from the old one."""
    with connect(fresh) as connection:
        make_tables(connection)
        connection.execute(f"ATTACH {quote(str(path))} AS former (READ_ONLY)")
        former = connection.execute("SELECT table_name FROM duckdb_tables() WHERE database_name = 'former'").fetchall()
        for row in TABLES:
            if query := _query(row.table, {name for (name,) in former}, found):
                connection.execute(f"INSERT INTO {row.table} BY NAME {query}")
        connection.execute("DETACH former")
        _stamp(connection)
        connection.execute("CHECKPOINT")


def _query(table: str, former: set[str], found: int) -> str | None:
    """The query that makes a table's rows from a file of version `found`; None where it has no rows to bring."""
    query = f"SELECT * FROM former.{table}" if table in former else None  # noqa: S608  our own table names
    for step in STEPS:
        if query is not None and step.to > found and table in step.reshape:
            query = step.reshape[table].replace("{old}", f"({query})")
    return query


def make_tables(connection: duckdb.DuckDBPyConnection) -> None:
    """Today's tables, empty."""
    for row in TABLES:
        for statement in row.ddl():
            connection.execute(statement)


def _stamp(connection: duckdb.DuckDBPyConnection) -> None:
    """Write schema and engine version in place: they are facts about the file, not about what was known when."""
    stamp(connection, VERSION_NAME, str(STEPS[-1].to))
    stamp(connection, "engine_version", f'"{duckdb.__version__}"')


def stamp(connection: duckdb.DuckDBPyConnection, name: str, value: str) -> None:
    """Write a fact about the file in place, in table `state`; `value` is JSON."""
    changed = connection.execute("UPDATE state SET value = ? WHERE name = ? RETURNING name", [value, name]).fetchall()
    if not changed:
        connection.execute("INSERT INTO state (name, value, known_from) VALUES (?, ?, 0)", [name, value])


def _swap(fresh: Path, path: Path, kept: Path) -> None:
    """Put `fresh` in the place of `path`. At every instant there is a whole file at `path`."""
    sync(fresh)
    kept.unlink(missing_ok=True)
    os.link(path, kept)
    fresh.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Put a closed file, or the names within a folder, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
