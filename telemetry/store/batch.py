"""What a caller hands the writer, and what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from telemetry.columns import Columns
from telemetry.errors import BadField
from telemetry.rows import Row


@dataclass(frozen=True)
class Batch:
    """Rows of any tables that become known together, at one commit, or not at all.

    A row of an unversioned table is written once: the same content again is a `repeat`, different content under
    the same key a `conflict`, and the first is kept. A row of a versioned table ends the standing version of its
    key and takes its place; content equal to the standing version is a `repeat` and writes nothing.
    `closes` names (table, key) pairs whose standing version ends at this commit. Closings come before rows, so a
    key that is closed and written in one batch gets a new version even where its content is the same.
    `columns` are more rows, of unversioned tables, that come before `rows`.
    """

    rows: tuple[Row, ...]
    closes: tuple[tuple[type[Row], tuple[Any, ...]], ...] = ()
    columns: tuple[Columns, ...] = ()

    def __post_init__(self) -> None:
        for table, key in self.closes:
            if not table.versioned:
                raise BadField("closes", table.table, "rows of this table are never replaced; close versioned tables only")
            if len(key) != len(table.key):
                raise BadField("closes", key, f"the key of {table.table} is ({', '.join(table.key)})")
        for one in self.columns:
            if one.table.versioned:
                raise BadField("columns", one.table.table, "versions replace each other row by row; give them as rows")
        for table in {type(row) for row in self.rows} | {one.table for one in self.columns}:
            if not set(table.key) <= set(table.model_fields):
                raise BadField("rows", table.table, "the store writes this table itself")

    @property
    def n_rows(self) -> int:
        """Rows (count) to be written, `columns` and `rows` together."""
        return len(self.rows) + sum(one.size for one in self.columns)


def merged(*batches: Batch | None) -> Batch:
    """What all of them hold, to become known together; None holds nothing."""
    given = [batch for batch in batches if batch is not None]
    return Batch(
        tuple(row for batch in given for row in batch.rows),
        tuple(close for batch in given for close in batch.closes),
        tuple(one for batch in given for one in batch.columns),
    )


class Result(NamedTuple):
    """What became of one row. `id` is its key (parts joined by /); `problem` says what a conflict differs in."""

    id: str
    result: Literal["new", "repeat", "conflict"]
    problem: str | None = None


@dataclass(frozen=True)
class Receipt:
    """Given once the batch is on disk.

    `commit` is the number at which its rows became known (where nothing was new, the newest there was); `results`
    has one entry per row of the batch, in order: `columns`, then `rows`.
    """

    commit: int
    results: tuple[Result, ...]
