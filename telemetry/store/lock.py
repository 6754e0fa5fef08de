"""STORE.lock: who owns a store.

DuckDB locks its file with a POSIX lock, which vanishes as soon as the owning process closes any other descriptor of
that file. So ownership is an flock on a file beside it, and that file says who, since when, and where the API answers.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from telemetry.errors import StoreHeld

_SIZE_BYTES = 2048  # Written whole and blank-padded, so that a reader never sees a half-written record.
_PATIENCE_S = 0.25  # `holder` takes the lock shared for an instant; a second taker must not mistake that for an owner.


@dataclass(frozen=True)
class Holder:
    """The owning process: its id, the URL of its API if it has one, since when (UTC ns), and its command line."""

    pid: int
    url: str | None
    since_ns: int
    command: str


class Lock:
    """Ownership of the store at `path`, from `take` to `release` (or the end of the process)."""

    def __init__(self, descriptor: int, held: Holder) -> None:
        self._descriptor = descriptor
        self._holder = held

    @classmethod
    def take(cls, path: Path, url: str | None = None) -> Lock:
        """Own the store at `path`. Raises StoreHeld, naming the owner, if somebody else does."""
        descriptor = os.open(lock_path(path), os.O_RDWR | os.O_CREAT, 0o644)
        give_up_at = time.monotonic() + _PATIENCE_S
        while not _flocked(descriptor, fcntl.LOCK_EX):
            if time.monotonic() >= give_up_at:
                other = _read(descriptor)
                os.close(descriptor)
                raise held_by(path, other)
            time.sleep(0.01)
        command = " ".join(sys.orig_argv)[:1000]
        lock = cls(descriptor, Holder(os.getpid(), url, time.time_ns(), command))
        lock._write()
        return lock

    def set_url(self, url: str) -> None:
        """Say where the API answers, once the port is known."""
        self._holder = Holder(self._holder.pid, url, self._holder.since_ns, self._holder.command)
        self._write()

    def release(self) -> None:
        """Give the store up. The file stays: removing it could split two later takers between two files."""
        os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)

    def _write(self) -> None:
        record = json.dumps(asdict(self._holder)).encode()
        os.pwrite(self._descriptor, record.ljust(_SIZE_BYTES), 0)


def lock_path(path: Path) -> Path:
    """The lock file of the store at `path`."""
    return path.with_name(path.name + ".lock")


def holder(path: Path) -> Holder | None:
    """Who owns the store at `path` now; None if nobody does. Never touches the store itself."""
    try:
        descriptor = os.open(lock_path(path), os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return None if _flocked(descriptor, fcntl.LOCK_SH) else _read(descriptor)
    finally:
        os.close(descriptor)


def held_by(path: Path, owner: Holder) -> StoreHeld:
    """The error that says who owns the store and the ways out."""
    since = datetime.fromtimestamp(owner.since_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    copy = f"`phasecast snapshot OUT.duckdb` gives a copy to open, ask the API at {owner.url}"
    way = f"{copy if owner.url else 'wait for it to end'}, or stop process {owner.pid}"
    return StoreHeld("store", str(path), f"process {owner.pid} ({owner.command}) has owned it since {since}; {way}")


def _flocked(descriptor: int, how: int) -> bool:
    """Whether the lock could be had at once."""
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _read(descriptor: int) -> Holder:
    """The record; an owner between taking the lock and writing it is not known by name yet."""
    try:
        return Holder(**json.loads(os.pread(descriptor, _SIZE_BYTES, 0)))
    except (ValueError, TypeError):
        return Holder(0, None, time.time_ns(), "just starting")
