"""Opening a DuckDB file: pinned settings, faults told apart, a damaged log set aside."""

from __future__ import annotations

import logging
import re
import time
from pathlib import Path

import duckdb

from telemetry.errors import DamagedStore, DiskFull, NewerStore, StoreError, StoreHeld

_LOG = logging.getLogger(__name__)
_SETTINGS: dict[str, str | bool | int | float | list[str]] = {
    "storage_compatibility_version": "v1.0.0",  # Any client since then opens the file.
    "autoinstall_known_extensions": False,  # A query never fetches anything from outside.
    "autoload_known_extensions": False,
    "checkpoint_threshold": "32MB",  # Twice the default: writing pauses for less of the time, a replay takes seconds at most.
}


def connect(path: Path, *, read_only: bool = False) -> duckdb.DuckDBPyConnection:
    """A connection of its own to the file at `path`, never the module's default one.

    Raises StoreHeld, NewerStore, DiskFull or DamagedStore.
    """
    try:
        return duckdb.connect(str(path), read_only=read_only, config=_SETTINGS)
    except duckdb.Error as error:
        raise told(error, path) from error


def connect_repaired(path: Path) -> tuple[duckdb.DuckDBPyConnection, Path | None]:
    """A connection to `path`, and where its write-ahead log was set aside if it could not be replayed.

    Without the log the file is what it was at its last checkpoint. Raises what `connect` does; the log is put
    back where the file doesn't open without it either.
    """
    try:
        return connect(path), None
    except DamagedStore as damage:
        log = path.with_name(path.name + ".wal")
        if not log.exists():
            raise
        aside = log.with_name(f"{log.name}.damaged-{time.time_ns()}")
        log.rename(aside)
        try:
            connection = connect(path)
        except StoreError:
            aside.rename(log)
            raise
        _LOG.error("write-ahead log could not be replayed (%s); set aside as %s, last checkpoint opened", damage.got, aside)
        return connection, aside


def told(error: duckdb.Error, path: Path) -> StoreError:
    """What a DuckDB error means for the store at `path`."""
    text = str(error).split("\n", 1)[0]
    if found := re.search(r"onflicting lock is held in (.*?) ?\(PID (\d+)\)", text):
        program, pid = found.groups()
        return StoreHeld("store", str(path), f"process {pid} ({program}) has it open; close it there or stop process {pid}")
    if "version number" in text or "newer version of DuckDB" in text:
        return NewerStore("store", text, f"this program reads files of DuckDB {duckdb.__version__} and older; update it")
    if "Could not write" in text or "No space left" in text:
        return DiskFull("store", text, f"free space where {path} lies; nothing acknowledged is lost")
    if isinstance(error, duckdb.IOException | duckdb.SerializationException | duckdb.InternalException | duckdb.FatalException):
        return DamagedStore("store", text, f"restore {path} from a backup or a snapshot")
    return StoreError("store", text, "the statement was refused; nothing of it was written")
