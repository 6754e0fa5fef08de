"""Reading: any number of readers, each with a cursor of its own, none ever waiting for the writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import duckdb
import pyarrow as pa

from telemetry.errors import BadField, StoreError
from telemetry.store import migrations
from telemetry.store.lock import held_by, holder
from telemetry.store.opening import connect


class Reader:
    """A cursor for one thread and a short time. Each query sees one state of the file."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection) -> None:
        self._cursor = cursor

    def arrow(self, sql: str, params: Sequence[Any] = ()) -> pa.Table:
        """Result of a query as an Arrow table. Raises StoreError where the engine refuses it."""
        return self._run(sql, params).to_arrow_table()

    def rows(self, sql: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Result of a query as tuples. Raises StoreError where the engine refuses it."""
        return self._run(sql, params).fetchall()

    def close(self) -> None:
        """Give the cursor back."""
        self._cursor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _run(self, sql: str, params: Sequence[Any]) -> duckdb.DuckDBPyConnection:
        try:
            return self._cursor.execute(sql, list(params))
        except duckdb.Error as error:
            raise StoreError("query", " ".join(sql.split())[:200], str(error)) from error


def open_reader(path: Path) -> Reader:
    """A reader of a snapshot, or of a store that nobody owns now; the file is opened read-only.

    Raises BadField where there is none, StoreHeld naming the owner, NewerStore, DamagedStore.
    """
    if not path.is_file():
        raise BadField("store", str(path), "there is no such file; name a store or a snapshot with --store")
    if owner := holder(path):
        raise held_by(path, owner)
    connection = connect(path, read_only=True)
    try:
        migrations.refuse_other(migrations.schema_version(connection), path)
    except StoreError:
        connection.close()
        raise
    return Reader(connection)
