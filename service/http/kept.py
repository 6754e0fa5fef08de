"""Reports as they were sent, kept until something is committed: until then they would say the same again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable

MOST_KEPT_BYTES = 32 * 2**20


class Kept:
    """Texts about the newest commit by what was asked, `most_bytes` in all; for any number of threads.

    A report as of a commit is the same whenever it is made, so what is kept can't be stale: with another commit, nothing is kept.
    """

    def __init__(self, most_bytes: int = MOST_KEPT_BYTES) -> None:
        self._most_bytes, self._lock = most_bytes, threading.Lock()
        self._commit, self._texts = 0, dict[Hashable, bytes]()

    def text(self, commit: int, asked: Hashable, make: Callable[[], bytes]) -> bytes:
        """What was asked as of `commit`: kept, or made now and kept, for which others that were made earlier make room."""
        with self._lock:
            if commit > self._commit:
                self._commit, self._texts = commit, {}
            if commit == self._commit and asked in self._texts:
                return self._texts[asked]
        made = make()  # others need not wait for it; two who ask at once both make it
        with self._lock:
            if commit == self._commit:
                self._texts[asked] = made
                while sum(map(len, self._texts.values())) > self._most_bytes:
                    del self._texts[next(iter(self._texts))]
        return made
