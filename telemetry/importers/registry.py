"""All formats there are, and the choice among them for a file."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from telemetry.errors import BadField, UnknownId
from telemetry.importers.arrivals import ARRIVALS
from telemetry.importers.chrome_trace import CHROME_TRACE
from telemetry.importers.contract import HEAD_BYTES, Importer
from telemetry.importers.fio import FIO
from telemetry.importers.nextflow import NEXTFLOW
from telemetry.importers.nvidia_smi import NVIDIA_SMI
from telemetry.importers.otlp import OTLP
from telemetry.importers.prometheus import PROMETHEUS
from telemetry.importers.sacct import SACCT
from telemetry.importers.starpu import STARPU
from telemetry.importers.swf import SWF
from telemetry.importers.tidy import TIDY
from telemetry.importers.wfcommons import WFCOMMONS

FORMATS: tuple[Importer, ...] = (
    ARRIVALS,
    CHROME_TRACE,
    FIO,
    NEXTFLOW,
    NVIDIA_SMI,
    OTLP,
    PROMETHEUS,
    SACCT,
    STARPU,
    SWF,
    TIDY,
    WFCOMMONS,
)


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
    except (OSError, EOFError, zlib.error) as error:
        raise UnknownId("file", str(path), f"it cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return head
