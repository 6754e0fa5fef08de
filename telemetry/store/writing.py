"""What one group of batches does to the tables, inside the writer's transaction.

Rows go in by columns (Arrow), once per table and group, after duplicates within the group were settled in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, islice
from operator import attrgetter
from typing import Any

import duckdb
import pyarrow as pa

from telemetry.columns import Columns
from telemetry.rows import Row
from telemetry.store.batch import Batch, Result

_ARROW = {
    "VARCHAR": pa.string(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "DOUBLE[]": pa.list_(pa.float64()),
    "VARCHAR[]": pa.list_(pa.string()),
}
Key = tuple[Any, ...]
Values = tuple[Any, ...]
"""The values of a row's own columns in order, without those the store stamps."""


@dataclass
class Written:
    """What a group did: results per batch in the order of its rows, and how many rows it added or ended.

    `known` counts rows of unversioned tables whose key was known before, or came twice.
    """

    results: list[list[Result]]
    changed: int = 0
    known: int = 0


Step = tuple[int, int | None, Values]
"""(batch, position, values) of a row, or (batch, None, key) of a closing."""


@dataclass
class _Share:
    """One table's part of a group: steps in order, and whole columns with their batch and the position of their first row."""

    steps: list[Step] = field(default_factory=list)
    whole: list[tuple[int, int, Columns]] = field(default_factory=list)

    def all_steps(self) -> list[Step]:
        """The columns' rows as steps among the others, in order; a table with columns has no closings."""
        if not self.whole:
            return self.steps
        spread = (
            (number, place, row) for number, first, columns in self.whole for place, row in enumerate(columns.tuples(), first)
        )
        return sorted([*spread, *self.steps], key=lambda step: (step[0], step[1] or 0))


def write_group(
    connection: duckdb.DuckDBPyConnection, batches: Sequence[Batch], commit: int, *, all_new: bool = False
) -> Written:
    """Write all rows and closings of `batches` as known from `commit`, within a transaction the caller opened.

    Where `all_new` is said of the keys of unversioned rows, they are not looked up, and the engine's ConstraintException tells
    that one of them was known.
    """
    written = Written([[Result("", "new")] * batch.n_rows for batch in batches])
    for table, share in _by_table(batches).items():
        if all_new and not share.steps and _append(connection, table, share.whole, commit, written):
            continue
        steps = share.all_steps()
        if table.versioned:
            changed, results = _replace_versions(connection, table, steps, commit)
        else:
            changed, results = _keep_first(connection, table, steps, commit, all_new=all_new)
            written.known += len(results) - changed
        written.changed += changed
        for (number, position, _), result in zip(steps, results, strict=True):
            if position is not None:
                written.results[number][position] = result
    return written


def _append(
    connection: duckdb.DuckDBPyConnection,
    table: type[Row],
    whole: Sequence[tuple[int, int, Columns]],
    commit: int,
    written: Written,
) -> bool:
    """Write columns whose keys are said to be new, as they are; False, and nothing is written, if a key comes twice."""
    parts = [columns for _, _, columns in whole]
    keys = [key for columns in parts for key in columns.tuples(*table.key)]
    if len(set(keys)) < len(keys):
        return False
    if keys:
        together = {name: [*chain.from_iterable(columns.values[name] for columns in parts)] for name in table.model_fields}
        _with_incoming(connection, _arrow(table, together.values()), _insertion(table, commit))
    written.changed += len(keys)
    told = iter(keys)
    for number, first, columns in whole:
        written.results[number][first : first + columns.size] = [Result(_id(key), "new") for key in islice(told, columns.size)]
    return True


def _by_table(batches: Sequence[Batch]) -> dict[type[Row], _Share]:
    """The group cut by table; within a batch closings come before rows."""
    shares: dict[type[Row], _Share] = {}
    for number, batch in enumerate(batches):
        for closed, key in batch.closes:
            shares.setdefault(closed, _Share()).steps.append((number, None, key))
        first = 0
        for one in batch.columns:
            shares.setdefault(one.table, _Share()).whole.append((number, first, one))
            first += one.size
        table: type[Row] | None = None
        for position, row in enumerate(batch.rows, first):
            if type(row) is not table:
                table = type(row)
                steps, values = shares.setdefault(table, _Share()).steps, _values(table)
            steps.append((number, position, values(row)))
    return shares


def _keep_first(
    connection: duckdb.DuckDBPyConnection, table: type[Row], steps: Sequence[Step], commit: int, *, all_new: bool
) -> tuple[int, list[Result]]:
    """Rows written once: the first under a key stays, whatever comes later is compared with it."""
    rows = [values for _, _, values in steps]
    keys = [*map(_key(table), rows)]
    kept: dict[Key, Values] = {}
    for key, values in zip(keys, rows, strict=True):
        kept.setdefault(key, values)
    if all_new:
        _insert(connection, table, kept.values(), commit)
        unclaimed = set(kept)
    else:
        unclaimed = _insert_unknown(connection, table, kept.values(), commit)
        if len(unclaimed) < len(kept):
            kept |= _stored(connection, table, [key for key in kept if key not in unclaimed], "true")
    added, results = len(unclaimed), []
    for key, values in zip(keys, rows, strict=True):
        if key in unclaimed:
            unclaimed.remove(key)
            results.append(Result(_id(key), "new"))
        else:
            results.append(_compared(table, key, kept[key], values))
    return added, results


def _replace_versions(
    connection: duckdb.DuckDBPyConnection, table: type[Row], steps: Sequence[Step], commit: int
) -> tuple[int, list[Result]]:
    """Rows that replace each other: only the last version of a key within the group is ever seen, so only it is written."""
    key_of = _key(table)
    keys = [values if position is None else key_of(values) for _, position, values in steps]
    standing = _stored(connection, table, dict.fromkeys(keys), "known_until IS NULL")
    final: dict[Key, Values | None] = {}
    results = []
    for key, (_, position, values) in zip(keys, steps, strict=True):
        if position is None:
            final[key] = None
        elif final.get(key, standing.get(key)) == values:
            results.append(Result(_id(key), "repeat"))
            continue
        else:
            final[key] = values
        results.append(Result(_id(key), "new"))
    ended = [key for key in final if key in standing]
    _end(connection, table, ended, commit)
    fresh = [values for values in final.values() if values is not None]
    _insert(connection, table, fresh, commit)
    return len(ended) + len(fresh), results


def _insert(connection: duckdb.DuckDBPyConnection, table: type[Row], rows: Collection[Values], commit: int) -> None:
    """Add rows, all known from `commit`; ConstraintException where a key is taken."""
    if rows:
        _with_incoming(connection, _arrow(table, zip(*rows, strict=True)), _insertion(table, commit))


def _insert_unknown(connection: duckdb.DuckDBPyConnection, table: type[Row], rows: Collection[Values], commit: int) -> set[Key]:
    """Add rows, all known from `commit`; returns the keys of those that were not there yet."""
    if not rows:
        return set()
    statement = f"{_insertion(table, commit)} ON CONFLICT DO NOTHING RETURNING {', '.join(table.key)}"
    return set(_with_incoming(connection, _arrow(table, zip(*rows, strict=True)), statement))


def _insertion(table: type[Row], commit: int) -> str:
    names = ", ".join(f'"{name}"' for name in table.model_fields)
    return f"INSERT INTO {table.table} ({names}, known_from) SELECT {names}, {commit:d} FROM incoming"  # noqa: S608  our own names


def _arrow(table: type[Row], columns: Iterable[Sequence[Any]]) -> pa.Table:
    """An Arrow table of a table's own columns, given in its order."""
    kinds = _kinds(table)
    return pa.table([pa.array(values, kind) for values, kind in zip(columns, kinds.values(), strict=True)], names=list(kinds))


def _stored(connection: duckdb.DuckDBPyConnection, table: type[Row], keys: Iterable[Key], which: str) -> Mapping[Key, Values]:
    """The stored rows of these keys, of those that satisfy the condition `which`."""
    key_of = _key(table)
    names = ", ".join(f'"{name}"' for name in table.model_fields)
    query = f"SELECT {names} FROM {table.table} SEMI JOIN incoming USING ({', '.join(table.key)}) WHERE {which}"  # noqa: S608
    return {key_of(values): values for values in _with_incoming(connection, _key_columns(table, keys), query)}


def _end(connection: duckdb.DuckDBPyConnection, table: type[Row], keys: Sequence[Key], commit: int) -> None:
    """The standing versions of these keys are known until `commit`."""
    if keys:
        same = " AND ".join(f'{table.table}."{name}" = incoming."{name}"' for name in table.key)
        statement = f"UPDATE {table.table} SET known_until = {commit:d} FROM incoming WHERE known_until IS NULL AND {same}"  # noqa: S608
        _with_incoming(connection, _key_columns(table, keys), statement)


def _with_incoming(connection: duckdb.DuckDBPyConnection, incoming: pa.Table, sql: str) -> list[Values]:  # noqa: ARG001
    """Run a statement that sees `incoming`; its rows.

    The engine finds the table by the name of this frame's variable: registering it would change the catalogue twice and cost as
    much as a small statement.
    """
    return connection.execute(sql).fetchall()


def _key_columns(table: type[Row], keys: Iterable[Key]) -> pa.Table:
    columns = list(zip(*keys, strict=True)) or [()] * len(table.key)
    arrays = [pa.array(values, _kinds(table)[name]) for values, name in zip(columns, table.key, strict=True)]
    return pa.table(arrays, names=list(table.key))


@cache
def _values(table: type[Row]) -> attrgetter[Values]:
    return attrgetter(*table.model_fields)


@cache
def _kinds(table: type[Row]) -> dict[str, pa.DataType]:
    """Arrow types of a table's own columns, by name in order."""
    return {column.name: _ARROW[column.sql] for column in table.columns()[: len(table.model_fields)]}


@cache
def _key(table: type[Row]) -> Callable[[Values], Key]:
    """Function from a row's values to its key."""
    places = [list(table.model_fields).index(name) for name in table.key]
    if len(places) == 1:
        [place] = places
        return lambda values: (values[place],)
    return lambda values: tuple([values[place] for place in places])


def _id(key: Key) -> str:
    return str(key[0]) if len(key) == 1 else "/".join(map(str, key))


def _compared(table: type[Row], key: Key, kept: Values, given: Values) -> Result:
    """Whether content under a known key is the same again or something else."""
    differing = [name for name, old, new in zip(table.model_fields, kept, given, strict=True) if old != new]
    if not differing:
        return Result(_id(key), "repeat")
    return Result(_id(key), "conflict", f"already known with different {', '.join(differing)}; the first is kept")
