"""The writer: one thread, one transaction per group, one commit number per transaction.

It takes everything that is queued, writes it, syncs the high-water mark, tells the subscribers, and only then
acknowledges. It also owns the connection, since it is the one who must renew it after the engine gave up.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from shutil import disk_usage

import duckdb

from telemetry.errors import DiskFull, PhasecastError, StoreError
from telemetry.store.batch import Batch, Receipt
from telemetry.store.highwater import Mark, MarkFile
from telemetry.store.opening import connect, told
from telemetry.store.pending import Pending, Submission
from telemetry.store.reader import Reader
from telemetry.store.writing import Written, write_group

_LOG = logging.getLogger(__name__)
MOST_WAITING_ROWS = 200_000
"""Rows (count) that may wait for the writer before callers are told Busy."""
GONE = "the file was removed or replaced while it was owned; fetch a snapshot, end this process, and put the snapshot there"
RESERVE_BYTES = 64 * 2**20
"""Free disk below which nothing is taken: a checkpoint that runs out of disk makes the engine refuse queries too."""

Subscriber = Callable[[int, tuple[Batch, ...]], None]


class Writer:
    """The one who writes to the open store at `path`, until `stop`.

    `last_commit` is the newest number given out; `lost_commits` how many acknowledged ones (count) the file lacks.
    """

    def __init__(self, path: Path, connection: duckdb.DuckDBPyConnection) -> None:
        self._path = path
        self._connection: duckdb.DuckDBPyConnection | None = connection
        self._mark_file = MarkFile(path)
        promised, self._mark = self._mark_file.read(), newest(connection)
        self.lost_commits = max(0, promised.commit - self._mark.commit)
        # A number once given out never goes to other rows: answers name the commit they were made as of.
        self.last_commit = max(self._mark.commit, promised.commit)
        self._committed_ns = _last_committed_ns(connection)
        self._file = _identity(path)
        self._all_new = True
        self._subscribers: list[Subscriber] = []
        self._pending = Pending(MOST_WAITING_ROWS)
        self._thread = threading.Thread(target=self._run, name="store-writer", daemon=True)
        self._thread.start()

    @property
    def pending_rows(self) -> int:
        """Rows (count) that wait to be written."""
        return self._pending.rows

    def submit(self, batch: Batch) -> Future[Receipt]:
        """Queue a batch. Raises Busy."""
        return self._pending.put(batch)

    def subscribe(self, callback: Subscriber) -> None:
        """Add a callback for commits."""
        self._subscribers.append(callback)

    def reader(self) -> Reader:
        """A reader on the present connection."""
        if self._connection is None:
            raise StoreError("store", str(self._path), "it is closed, or waits for room on its disk")
        return Reader(self._connection.cursor())

    def is_in_place(self) -> bool:
        """Whether the file that is open still lies at its path; what is written to another is lost with this process."""
        return self._file == _identity(self._path)

    def stop(self) -> None:
        """Write what is queued, checkpoint, and close the file."""
        self._pending.close()
        self._thread.join()
        if self._connection is not None:
            try:
                self._connection.execute("CHECKPOINT")
            except duckdb.Error as error:
                _LOG.warning("no checkpoint at closing (%s); the log is replayed at the next opening", error)
            self._disconnect()
            self._mark_file.close()

    def _run(self) -> None:
        while group := self._pending.take():
            self._commit(group)

    def _commit(self, group: list[Submission]) -> None:
        """Commit a group and settle its promises; where one batch spoils it, each batch goes for itself."""
        try:
            receipts = self._transact(tuple(submission.batch for submission in group))
        except Exception as fault:  # noqa: BLE001  whatever a batch did, the writer lives on and its caller is told
            if len(group) > 1 and not isinstance(fault, DiskFull):
                for submission in group:
                    self._commit([submission])
                return
            known = isinstance(fault, PhasecastError)
            error = fault if known else StoreError("batch", str(fault), "correct the row; nothing of its batch was written")
            for submission in group:
                submission.future.set_exception(error)
            return
        for submission, receipt in zip(group, receipts, strict=True):
            submission.future.set_result(receipt)

    def _transact(self, batches: tuple[Batch, ...]) -> list[Receipt]:
        """One transaction; returns when it is on disk and the subscribers know. A group without news makes no commit."""
        refuse_full(self._path)
        if not self.is_in_place():
            raise StoreError("store", str(self._path), GONE)
        connection = self._connection or self._reconnect()
        commit = self.last_commit + 1
        try:
            written = self._write(connection, batches, commit)
        except Exception as error:
            self._undo(error)
            raise told(error, self._path) if isinstance(error, duckdb.Error) else error from error
        try:
            connection.execute("COMMIT")
        except duckdb.Error as error:
            self._undo(error)
            if newest(self._connection or self._reconnect()).commit < commit:
                raise told(error, self._path) from error
        if written.changed:
            self._announce(Mark(commit, self._mark.rows + written.changed), batches)
        return [Receipt(self.last_commit, tuple(results)) for results in written.results]

    def _write(self, connection: duckdb.DuckDBPyConnection, batches: tuple[Batch, ...], commit: int) -> Written:
        """Begin a transaction and write the group.

        Ids are mostly new, and a plain insert costs half of one that looks for known ids; the first known one starts the group
        again. After a group with repeats the next is taken to have some too.
        """
        connection.execute("BEGIN")
        try:
            written = write_group(connection, batches, commit, all_new=self._all_new)
        except duckdb.ConstraintException:
            connection.execute("ROLLBACK")
            connection.execute("BEGIN")
            written = write_group(connection, batches, commit)
        self._all_new = not written.known
        if written.changed:
            # A wall clock that was set back must not make commits look out of order.
            self._committed_ns = max(self._committed_ns, time.time_ns())
            row = [self._committed_ns, written.changed, commit]
            connection.execute("INSERT INTO commits (committed_ns, written_rows, known_from) VALUES (?, ?, ?)", row)
        return written

    def _announce(self, mark: Mark, batches: tuple[Batch, ...]) -> None:
        """A commit is on disk: say so in the mark, then to the subscribers."""
        self._mark_file.write(mark)
        self._mark, self.last_commit = mark, mark.commit
        for callback in self._subscribers:
            try:
                callback(mark.commit, batches)
            except Exception:  # noqa: BLE001  what is on disk is acknowledged, whoever else failed
                _LOG.exception("a subscriber failed at commit %d", mark.commit)

    def _undo(self, error: Exception) -> None:
        """Leave the failed transaction; after a fatal error the engine answers nothing until the file is opened anew."""
        if isinstance(error, duckdb.FatalException):
            _LOG.error("the engine gave up (%s); opening the file again", error)
            self._disconnect()
        elif self._connection is not None:
            with contextlib.suppress(duckdb.Error):  # A failed COMMIT has already ended it.
                self._connection.execute("ROLLBACK")

    def _disconnect(self) -> None:
        """Close the file, and with it every reader's cursor."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _reconnect(self) -> duckdb.DuckDBPyConnection:
        """Open the file again; numbers go on from whatever it holds."""
        self._connection = connect(self._path)
        self._mark = newest(self._connection)
        self.last_commit = max(self.last_commit, self._mark.commit)
        return self._connection


def refuse_full(path: Path) -> None:
    """Raise DiskFull where the disk of the store at `path` has too little room for a commit."""
    if (free := disk_usage(path.parent).free) < RESERVE_BYTES:
        raise DiskFull("store", f"{free} bytes free", f"keep at least {RESERVE_BYTES} bytes free beside {path}")


def newest(connection: duckdb.DuckDBPyConnection) -> Mark:
    """Newest commit in the file and the rows written up to it."""
    sql = "SELECT coalesce(max(known_from), 0), coalesce(sum(written_rows), 0)::BIGINT FROM commits"
    [(commit, rows)] = connection.execute(sql).fetchall()
    return Mark(commit, rows)


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file lies there, None if none does."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _last_committed_ns(connection: duckdb.DuckDBPyConnection) -> int:
    [(wall_ns,)] = connection.execute("SELECT coalesce(max(committed_ns), 0) FROM commits").fetchall()
    return int(wall_ns)
