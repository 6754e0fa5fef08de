"""What every importer does: tell whether a file is of its kind, and read it into rows, reporting what it could not read.

An importer never writes and never guesses in silence. Identities are made from what a row says of itself (`row_id`), so that
reading the same file again, or a longer version of it, adds nothing twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from telemetry.rows import Row

HEAD_BYTES = 64 * 1024
"""How much of a file an importer is shown to recognise it by."""


@dataclass(frozen=True)
class Refused:
    """A record that could not be read: where (line from 1, or None), which, and why."""

    line: int | None
    item: str
    reason: str


@dataclass(frozen=True)
class Options:
    """What the user says about a file: the unit of its times where it does not say, and the host it is from."""

    unit: str | None = None
    host: str | None = None


@dataclass(frozen=True)
class Found:
    """What a file held. `n_read` counts its records; `notes` tell what was assumed, or that there is nothing to learn from."""

    rows: tuple[Row, ...]
    n_read: int
    refused: tuple[Refused, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Importer:
    """A format: its name, how it is recognised by path and first bytes (unpacked), and how it is read.

    `by_line`: its files are lines of text, so one without an end at the last line may have been cut off.
    """

    name: str
    recognises: Callable[[Path, bytes], bool]
    read: Callable[[Path, Options], Found]
    by_line: bool = False


def row_id(format_name: str, *identity: object) -> str:
    """An id that the same record always gets: the format and a digest of what tells the record from others."""
    told = "\x1f".join("" if part is None else str(part) for part in identity)
    return f"{format_name}:{hashlib.blake2b(told.encode(), digest_size=12).hexdigest()}"
