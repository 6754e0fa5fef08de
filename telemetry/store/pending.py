"""The bounded queue between callers and the writer."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import dataclass, field

from telemetry.errors import Busy, StoreError
from telemetry.store.batch import Batch, Receipt


@dataclass(frozen=True)
class Submission:
    """A batch on its way, and the promise made for it."""

    batch: Batch
    future: Future[Receipt] = field(default_factory=Future)


class Pending:
    """Submissions not yet taken by the writer, bounded by rows (count); safe from any thread."""

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows
        self._waiting: list[Submission] = []
        self._rows = 0
        self._closed = False
        self._changed = threading.Condition()

    @property
    def rows(self) -> int:
        """Rows (count) that wait now."""
        return self._rows

    def put(self, batch: Batch) -> Future[Receipt]:
        """Queue a batch without blocking. Raises Busy when full; a batch larger than the bound goes in alone."""
        size = batch.n_rows + len(batch.closes)
        with self._changed:
            if self._closed:
                raise StoreError("store", "closed", "open it again")
            if self._waiting and self._rows + size > self._most_rows:
                raise Busy("store", f"{self._rows} rows waiting", "send the same batch again in a second")
            submission = Submission(batch)
            self._waiting.append(submission)
            self._rows += size
            self._changed.notify()
        return submission.future

    def take(self) -> list[Submission]:
        """Everything queued, waiting until there is something; empty once closed and drained."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            taken, self._waiting, self._rows = self._waiting, [], 0
        return taken

    def close(self) -> None:
        """Take no more; what is queued is still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify()
