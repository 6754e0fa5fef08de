"""Reads of small files written down in a test, and what they gave."""

from __future__ import annotations

from pathlib import Path

from telemetry.importers.contract import Found, Options
from telemetry.importers.registry import FORMATS, importer_for
from telemetry.tables import Attempt, Observation


def read(path: Path, options: Options = Options()) -> Found:  # noqa: B008  frozen
    """Read a file by the importer that recognises it."""
    return importer_for(path, None).read(path, options)


def read_text(folder: Path, name: str, text: str, options: Options = Options()) -> Found:  # noqa: B008  frozen
    """Write a file and read it."""
    (folder / name).write_bytes(text.encode())
    return read(folder / name, options)


def phase(found: Found, name: str) -> list[Observation]:
    """Observations of a phase in the order of the file."""
    return [row for row in found.rows if isinstance(row, Observation) and row.phase == name]


def attempts(found: Found) -> list[Attempt]:
    """Attempts in the order of the file."""
    return [row for row in found.rows if isinstance(row, Attempt)]


def named(path: Path, head: bytes) -> list[str]:
    """Formats that take a file for theirs."""
    return [format_.name for format_ in FORMATS if format_.recognises(path, head)]
