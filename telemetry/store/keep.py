"""Keeping a store small: retention by age and size, and compaction, both by copy and swap.

Deleting rows does not shrink a DuckDB file, so the rows that are kept go to a new file, which takes the old one's place
in one rename once its rows were counted. What can be removed, all of it counted by commits (the store's time):

- events of attempts that are over and were turned into observations; never events that an open attempt still needs;
- resource samples;
- versions of observations and of quarantined spans, and of named values, that newer ones replaced.

Standing observations, attempts, answers, outcomes, models, grants and profiles are never removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from telemetry.errors import BadField, StoreError
from telemetry.rows import quote
from telemetry.store import migrations
from telemetry.store.file import Store
from telemetry.store.lock import Lock
from telemetry.store.opening import connect, told
from telemetry.tables import TABLES

RETENTION_NAME = "retention"
"""Name in table `state` of what was removed: `events_after` and `complete_from` are commit numbers, `removed` counts rows."""
_MOST_TRIES = 4

# An attempt is over once something stands of it and nothing of that runs. Events past `derived_to` were not looked at yet.
_OVER = """
    SELECT attempt_id, max(known_from) AS known_to FROM former.events GROUP BY attempt_id
    HAVING attempt_id IN (SELECT attempt_id FROM former.observations WHERE known_until IS NULL)
       AND attempt_id NOT IN (SELECT attempt_id FROM former.observations WHERE known_until IS NULL AND ended = 'running'
           AND phase NOT IN ('drain', 'release'))
       AND max(known_from) <= (SELECT coalesce(max(value::BIGINT), 0) FROM former.state
                               WHERE name = 'derived_to' AND known_until IS NULL)
"""
# The newest fit is brought up to date from the versions that went since; only older fits may lose theirs.
_FITTED = "(SELECT coalesce(max(fit_commit), 9223372036854775807) FROM former.models)"
_REPLACED = f"known_until <= least($cutoff, {_FITTED})"
REMOVED: Mapping[str, str] = {
    "events": f"attempt_id IN (SELECT attempt_id FROM ({_OVER}) WHERE known_to <= $cutoff)",  # noqa: S608  constants
    "resource_samples": "known_from <= $cutoff",
    "observations": _REPLACED,
    "quarantine": _REPLACED,
    "state": _REPLACED,
}
"""Which rows of a table go at a cutoff commit, as a condition on the file attached as `former`."""
_REMOVABLE = f"""
    SELECT o.known_to AS commit FROM former.events JOIN ({_OVER}) o USING (attempt_id)
    UNION ALL SELECT known_from FROM former.resource_samples
    UNION ALL SELECT known_until FROM former.observations WHERE known_until <= {_FITTED}
    UNION ALL SELECT known_until FROM former.quarantine WHERE known_until <= {_FITTED}
"""  # noqa: S608  constants of this file


@dataclass(frozen=True)
class Compacted:
    """What a compaction did.

    `rows` are those kept and `removed` those taken out, per table (count). `cutoff` is the newest commit of which anything
    may be gone, 0 if nothing was to go. `fits` is False where what is never removed is larger than the size asked for.
    """

    size_before_bytes: int
    size_after_bytes: int
    rows: dict[str, int]
    removed: dict[str, int] = field(default_factory=dict)
    cutoff: int = 0
    fits: bool = True


def compact(path: Path, *, now_ns: int, max_age_s: float | None = None, max_bytes: int | None = None) -> Compacted:
    """Write the store at `path` anew without the room that removed rows left, and without what is past its age or the size.

    `max_age_s` counts from the commit that made a row known, up to the UTC time `now_ns`. Where the file is still larger than
    `max_bytes`, the oldest of what can be removed goes. Raises StoreHeld if the store is owned, BadField, StoreError.
    """
    for name, value in (("max_age_s", max_age_s), ("max_bytes", max_bytes)):
        if value is not None and not value >= 0:
            raise BadField(name, value, "give a number that is not negative, or leave it out")
    if not path.is_file():
        raise BadField("store", str(path), "there is no such file; name a store with --store")
    Store.open(path).close()  # Brings it to today's schema and puts its log into the file.
    lock = Lock.take(path)
    fresh = path.with_name(path.name + ".compacting")
    try:
        if path.with_name(path.name + ".wal").exists():
            raise StoreError("store", str(path), "another process has just used it; try again")
        oldest_ns = None if max_age_s is None else now_ns - round(max_age_s * 1e9)
        made = _made(path, fresh, oldest_ns, max_bytes)
        migrations.sync(fresh)
        fresh.replace(path)
        migrations.sync(path.parent)
    except duckdb.Error as error:
        raise told(error, path) from error
    finally:
        fresh.unlink(missing_ok=True)
        fresh.with_name(fresh.name + ".wal").unlink(missing_ok=True)
        lock.release()
    return made


def _made(path: Path, fresh: Path, oldest_ns: int | None, max_bytes: int | None) -> Compacted:
    """The new file at `fresh`, of the size asked for if that can be had."""
    by_age, newest = _commits(path, oldest_ns)
    whole = _copied(path, fresh, by_age)
    if max_bytes is None or whole.size_after_bytes <= max_bytes:
        return whole
    least = _copied(path, fresh, newest)
    if least.size_after_bytes > max_bytes:
        return Compacted(**{**vars(least), "fits": False})
    # Bytes go by rows, as nearly as can be told; where that was too hopeful, half as much is kept.
    share = 0.95 * (max_bytes - least.size_after_bytes) / (whole.size_after_bytes - least.size_after_bytes)
    for _ in range(_MOST_TRIES):
        tried = _copied(path, fresh, max(by_age, _cutoff_keeping(path, share)))
        if tried.size_after_bytes <= max_bytes:
            return tried
        share /= 2
    return _copied(path, fresh, newest)


def _copied(path: Path, fresh: Path, cutoff: int) -> Compacted:
    """Make `fresh` of the rows that stay at this cutoff; StoreError where their number is not what it must be."""
    fresh.unlink(missing_ok=True)
    with connect(fresh) as connection:
        migrations.make_tables(connection)
        _attach(connection, path)
        _refuse_others(connection)
        rows, removed = {}, {}
        for name in (row.table for row in TABLES):
            gone = f"coalesce({REMOVED[name]}, false)" if name in REMOVED else "false"
            count = f"SELECT count(*), count(*) FILTER (WHERE {gone}) FROM former.{name}"  # noqa: S608  our own table names
            given = {"cutoff": cutoff} if name in REMOVED else {}
            [(before, going)] = connection.execute(count, given).fetchall()
            connection.execute(f"INSERT INTO {name} BY NAME SELECT * FROM former.{name} WHERE NOT {gone}", given)  # noqa: S608
            [(rows[name],)] = connection.execute(f"SELECT count(*) FROM {name}").fetchall()  # noqa: S608
            if rows[name] != before - going:
                raise StoreError(
                    "store", f"{rows[name]} rows of {before} in {name}", "the file is left as it was; restore a backup"
                )
            if going:
                removed[name] = going
        if removed:
            _note(connection, cutoff, removed)
        connection.execute("DETACH former")
        connection.execute("CHECKPOINT")
    return Compacted(path.stat().st_size, fresh.stat().st_size, rows, removed, cutoff if removed else 0)


def _note(connection: duckdb.DuckDBPyConnection, cutoff: int, removed: Mapping[str, int]) -> None:
    """Keep in the file what is gone from it, added to what went before."""
    found = connection.execute("SELECT value FROM state WHERE name = ?", [RETENTION_NAME]).fetchone()
    noted: dict[str, Any] = json.loads(found[0]) if found else {"events_after": 0, "complete_from": 0, "removed": {}}
    [(complete_from,)] = connection.execute(f"SELECT least($cutoff, {_FITTED})", {"cutoff": cutoff}).fetchall()
    total = {name: noted["removed"].get(name, 0) + removed.get(name, 0) for name in {*noted["removed"], *removed}}
    versions_went = bool(removed.keys() & {"observations", "quarantine"})
    value = {
        "events_after": max(cutoff, noted["events_after"]),
        "complete_from": max(complete_from if versions_went else 0, noted["complete_from"]),
        "removed": dict(sorted(total.items())),
    }
    migrations.stamp(connection, RETENTION_NAME, json.dumps(value))


def _commits(path: Path, oldest_ns: int | None) -> tuple[int, int]:
    """The newest commit made before `oldest_ns` (0 if none), and the newest of all."""
    sql = (
        "SELECT coalesce(max(known_from) FILTER (WHERE committed_ns < $ns), 0), coalesce(max(known_from), 0) FROM former.commits"
    )
    with connect(Path(":memory:")) as connection:
        _attach(connection, path)
        [(by_age, newest)] = connection.execute(sql, {"ns": oldest_ns or 0}).fetchall()
    return by_age, newest


def _cutoff_keeping(path: Path, share: float) -> int:
    """The commit at which this share of what can be removed, the newest, is kept."""
    with connect(Path(":memory:")) as connection:
        _attach(connection, path)
        sql = f"SELECT coalesce(quantile_disc(commit, {1.0 - share!r}), 0) FROM ({_REMOVABLE})"  # noqa: S608
        [(commit,)] = connection.execute(sql).fetchall()
    return int(commit)


def _attach(connection: duckdb.DuckDBPyConnection, path: Path) -> None:
    connection.execute(f"ATTACH {quote(str(path))} AS former (READ_ONLY)")


def _refuse_others(connection: duckdb.DuckDBPyConnection) -> None:
    """Refuse a file in which somebody keeps tables or views of their own: a copy of ours would lose them."""
    sql = """SELECT table_name FROM duckdb_tables() WHERE database_name = 'former'
             UNION SELECT view_name FROM duckdb_views() WHERE database_name = 'former' AND NOT internal ORDER BY ALL"""
    others = {name for (name,) in connection.execute(sql).fetchall()} - {row.table for row in TABLES}
    if others:
        raise StoreError("store", ", ".join(sorted(others)), "these are not the store's own; move them to another file first")
