"""Export to Parquet by table and time: one file per table with its documentation, and a manifest."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from telemetry.errors import BadField
from telemetry.rows import Row, quote
from telemetry.store.reader import Reader
from telemetry.tables import TABLES

MANIFEST = "manifest.json"
_CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class Exported:
    """One table's file, with the SHA-256 of its bytes."""

    table: str
    file: str
    rows: int
    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class Export:
    """What was written: rows that came or went in commits (after_commit, upto_commit]."""

    after_commit: int
    upto_commit: int
    tables: list[Exported]


def export(
    reader: Reader, folder: Path, tables: Sequence[str] = (), since_ns: int | None = None, until_ns: int | None = None
) -> Export:
    """Write tables (all if none is named) to the new folder `folder`, each to `TABLE.parquet`.

    `since_ns` (inclusive) and `until_ns` (exclusive) are UTC ns and bound when a row became known, or was replaced: exports of
    adjoining times hold everything. A row stands in its file as it was known at the end of the time. Raises BadField.
    """
    known = {row.table: row for row in TABLES}
    for name in tables:
        if name not in known:
            raise BadField("table", name, f"use one of {', '.join(known)}")
    if since_ns is not None and until_ns is not None and since_ns >= until_ns:
        raise BadField("since", since_ns, "give a time before `until`")
    if folder.exists():
        raise BadField("folder", str(folder), "it exists; name a new folder")
    # Rows that are facts about the file itself are known from 0, so an export from the beginning has them.
    after = -1 if since_ns is None else _last_before(reader, since_ns)
    upto = _last_before(reader, 2**63 - 1 if until_ns is None else until_ns)
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        written = [_write(reader, known[name], partial, after, upto) for name in dict.fromkeys(tables or known)]
        done = Export(after, upto, written)
        (partial / MANIFEST).write_text(json.dumps(asdict(done), indent=2) + "\n")
        partial.rename(folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return done


def sha256_of(path: Path) -> str:
    """SHA-256 of a file's bytes, hex. Never of a store that somebody owns."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()


def _last_before(reader: Reader, wall_ns: int) -> int:
    """Newest commit made before this time; 0 if there was none."""
    [(commit,)] = reader.rows("SELECT coalesce(max(known_from), 0) FROM commits WHERE committed_ns < ?", [wall_ns])
    return int(commit)


def _write(reader: Reader, row: type[Row], folder: Path, after: int, upto: int) -> Exported:
    """One table's file; units and meaning of its columns are in the file's metadata."""
    path = folder / f"{row.table}.parquet"
    order = ", ".join(["known_from", *(f'"{name}"' for name in row.key if name != "known_from")])
    columns = "*" if not row.versioned else f"* REPLACE (CASE WHEN known_until <= {upto:d} THEN known_until END AS known_until)"
    which = f"known_from > {after:d} AND known_from <= {upto:d}"
    if row.versioned:
        which = f"({which} OR known_until > {after:d} AND known_until <= {upto:d})"
    query = f"SELECT {columns} FROM {row.table} WHERE {which} ORDER BY {order}"  # noqa: S608  our own names and numbers
    meaning = json.dumps({column.name: column.comment for column in row.columns()})
    notes = f"KV_METADATA {{title: {quote(row.title)}, columns: {quote(meaning)}}}"
    [(rows,)] = reader.rows(f"COPY ({query}) TO {quote(str(path))} (FORMAT parquet, COMPRESSION zstd, {notes})")
    return Exported(row.table, path.name, rows, path.stat().st_size, sha256_of(path))
