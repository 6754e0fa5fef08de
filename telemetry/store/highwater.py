"""The high-water mark: the newest acknowledged commit, synced beside the store before anybody is told of it.

A write-ahead log cut short opens in DuckDB without a word and with fewer rows. The mark, being ahead of the file
then, tells how many acknowledged commits are gone.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_SIZE_BYTES = 64  # Within one sector, so that a crash leaves the old mark or the new one.


@dataclass(frozen=True)
class Mark:
    """A commit number, and the rows written up to and with it (count)."""

    commit: int
    rows: int


class MarkFile:
    """The mark of the store at `path`, in a file of its own kept open by the owner."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path.with_name(path.name + ".mark"), os.O_RDWR | os.O_CREAT, 0o644)

    def read(self) -> Mark:
        """The mark; (0, 0) where none was ever written or it can't be read."""
        try:
            commit, rows = os.pread(self._descriptor, _SIZE_BYTES, 0).split()
            return Mark(int(commit), int(rows))
        except ValueError:
            return Mark(0, 0)

    def write(self, mark: Mark) -> None:
        """Put the mark on disk; returns when it is there."""
        os.pwrite(self._descriptor, f"{mark.commit} {mark.rows}\n".encode().ljust(_SIZE_BYTES), 0)
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
