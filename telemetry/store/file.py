"""Store: the owner of one DuckDB file.

The owner never opens the file by a second descriptor, not even to hash or copy it: closing that one would drop
DuckDB's lock, and a second process could then write.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import duckdb

from telemetry.errors import BadField
from telemetry.rows import quote
from telemetry.store import migrations
from telemetry.store.batch import Batch, Receipt
from telemetry.store.lock import Lock, held_by, holder
from telemetry.store.opening import connect, connect_repaired
from telemetry.store.reader import Reader
from telemetry.store.writer import GONE, Subscriber, Writer
from telemetry.tables import StateRow

_LOG = logging.getLogger(__name__)
LOSS_NAME = "lost_commits"
"""Name in table `state` under which a loss found at opening is kept."""


@dataclass(frozen=True)
class OpenReport:
    """What was found and done at opening.

    `migrated_from`: schema version before, where it was an older one. `lost_commits`: acknowledged commits (count)
    the file no longer has. `wal_set_aside`: where a log that could not be replayed was put.
    """

    created: bool = False
    migrated_from: int | None = None
    lost_commits: int = 0
    wal_set_aside: Path | None = None


class Store:
    """The owner of the store at `path`, from `open` to `close`; a context manager. `opened` says what opening found."""

    def __init__(self, path: Path, lock: Lock, writer: Writer, opened: OpenReport) -> None:
        self.path = path
        self.opened = opened
        self._lock = lock
        self._writer = writer
        self._one_snapshot = threading.Lock()
        self._closed = False

    @classmethod
    def open(cls, path: Path, *, url: str | None = None) -> Store:
        """Own the store at `path`, making or migrating it as needed; `url` is where its API answers.

        Raises StoreHeld naming the owner, NewerStore, DamagedStore.
        """
        path = path.absolute()
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock.take(path, url)
        try:
            connection, opened = _ready(path)
            writer = Writer(path, connection)
        except BaseException:
            lock.release()
            raise
        store = cls(path, lock, writer, replace(opened, lost_commits=writer.lost_commits))
        store._keep_loss()
        return store

    @property
    def last_commit(self) -> int:
        """Number of the newest commit on disk; 0 for a new store."""
        return self._writer.last_commit

    @property
    def pending_rows(self) -> int:
        """Rows (count) that wait for the writer."""
        return self._writer.pending_rows

    @property
    def trouble(self) -> str | None:
        """Why nothing can be committed any more, None while all is well."""
        return None if self._writer.is_in_place() else f"{self.path}: {GONE}"

    def set_url(self, url: str) -> None:
        """Say in the lock file where the API answers, once the port is known."""
        self._lock.set_url(url)

    def submit(self, batch: Batch) -> Future[Receipt]:
        """Queue a batch; the future holds its receipt once it is on disk, or DiskFull or another StoreError.

        Never blocks. Raises Busy when too much is waiting.
        """
        return self._writer.submit(batch)

    def write(self, batch: Batch) -> Receipt:
        """Submit and wait. Never from a subscriber: it runs on the thread that would do the writing."""
        return self.submit(batch).result()

    def subscribe(self, callback: Subscriber) -> None:
        """Have `callback(commit, batches)` called on the writer's thread after each commit, before it is acknowledged."""
        self._writer.subscribe(callback)

    def reader(self) -> Reader:
        """A reader for one thread and a short time; a context manager."""
        return self._writer.reader()

    def snapshot(self, target: Path) -> int:
        """Put a copy, consistent at a commit, at `target` in place of what is there; returns that commit.

        Raises StoreHeld where `target` is a store somebody owns (this one included), BadField where its folder isn't there,
        StoreError where it can't be written.
        """
        target = target.absolute()
        if not target.parent.is_dir():
            raise BadField("snapshot", str(target), f"there is no folder {target.parent}; make it first")
        if owner := holder(target):
            raise held_by(target, owner)
        partial = target.with_name(f"{target.name}.partial")
        with self._one_snapshot, self.reader() as reader:
            partial.unlink(missing_ok=True)
            try:
                commit = _copy(reader, partial)
                migrations.sync(partial)
                partial.replace(target)
            finally:
                partial.unlink(missing_ok=True)
        migrations.sync(target.parent)
        return commit

    def close(self) -> None:
        """Write what is queued, checkpoint, and give the store up."""
        if not self._closed:
            self._closed = True
            self._writer.stop()
            self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _keep_loss(self) -> None:
        """Write a loss down, so that it is told once here and can be read ever after."""
        lost, aside = self.opened.lost_commits, self.opened.wal_set_aside
        if lost or aside:
            _LOG.error("%d acknowledged commits before number %d are gone from %s", lost, self.last_commit + 1, self.path)
            value = {"found_ns": time.time_ns(), "commits": lost, "up_to": self.last_commit, "log": aside and aside.name}
            self.write(Batch((StateRow(name=LOSS_NAME, value=json.dumps(value)),)))


def _ready(path: Path) -> tuple[duckdb.DuckDBPyConnection, OpenReport]:
    """A connection to a file of today's schema at `path`."""
    connection, aside = connect_repaired(path)
    try:
        found = migrations.schema_version(connection)
        if found is None:
            migrations.create(connection)
            migrations.sync(path.parent)
        elif found < migrations.STEPS[-1].to:
            connection.execute("CHECKPOINT")
            connection.close()
            kept = migrations.migrate(path, found)
            _LOG.info("migrated %s from schema version %d; the file as it was is kept as %s", path, found, kept)
            return connect(path), OpenReport(migrated_from=found, wal_set_aside=aside)
        else:
            migrations.refuse_other(found, path)
    except BaseException:
        connection.close()
        raise
    return connection, OpenReport(created=found is None, wal_set_aside=aside)


def _copy(reader: Reader, target: Path) -> int:
    """Copy everything to a new file; returns the newest commit that it holds."""
    [(catalogue,)] = reader.rows("SELECT current_database()")
    reader.rows(f"ATTACH {quote(str(target))} AS snapshot_copy")
    try:
        reader.rows('COPY FROM DATABASE "{}" TO snapshot_copy'.format(catalogue.replace('"', '""')))
        [(commit,)] = reader.rows("SELECT coalesce(max(known_from), 0) FROM snapshot_copy.commits")
    finally:
        reader.rows("DETACH snapshot_copy")
    return int(commit)
