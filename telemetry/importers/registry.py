"""All formats there are, and the choice among them for a file."""

from __future__ import annotations

import gzip
from pathlib import Path

from telemetry.errors import BadField, UnknownId
from telemetry.importers.contract import HEAD_BYTES, Importer

FORMATS: tuple[Importer, ...] = ()


def importer_for(path: Path, name: str | None) -> Importer:
    """The importer called `name`, else the one that recognises the file; BadField names the formats where none or several do."""
    known = ", ".join(sorted(f.name for f in FORMATS))
    if name is not None:
        found = [f for f in FORMATS if f.name == name]
        if not found:
            raise BadField("--format", name, f"known formats are {known}")
        return found[0]
    head = first_bytes(path)
    found = [f for f in FORMATS if f.recognises(path, head)]
    if len(found) != 1:
        which = ", ".join(f.name for f in found) or "none"
        raise BadField("file", f"{path.name}: recognised as {which}", f"name its format with --format: {known}")
    return found[0]


def first_bytes(path: Path) -> bytes:
    """The first HEAD_BYTES of a file, unpacked where it is gzip."""
    try:
        with path.open("rb") as plain:
            head = plain.read(HEAD_BYTES)
        if head[:2] == b"\x1f\x8b":
            with gzip.open(path) as packed:
                head = packed.read(HEAD_BYTES)
    except OSError as error:
        raise UnknownId("file", str(path), f"it cannot be read: {error.strerror or error}") from error
    return head
