"""fio's JSON: what a host's storage did under one job, as host profiles.

Read are versions 2 and 3, with lines of chatter before or after the JSON, with `jobs` or the `client_stats` of several hosts.
Units as fio has them, stated in every name here: `bw` KiB/s, `bw_bytes` bytes/s, `runtime` ms, latencies ns (`_ns`) or, in
version 2, us. A direction in which nothing was done was not measured; percentile slots that were not used say "0.00".
Nobody asked us before these measurements: their grant is "imported".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers.cells import name, reason
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.fio_rates import rates_of
from telemetry.importers.texts import decoded, whole
from telemetry.tables import HostProfile
from telemetry.words import IMPORTED_GRANT

UNNAMED_HOST = "unknown"
_MOST_BYTES = 64 << 20
_SIGN = re.compile(r'"fio version"\s*:\s*"fio-')
_BEGIN = re.compile(r"^\{", re.MULTILINE)
_DIRECTIONS = ("read", "write", "trim", "mixed")
_OPTIONS = ("rw", "bs", "ioengine", "iodepth", "direct", "numjobs", "size", "runtime", "filename", "invalidate", "fsync", "rate")
_AGGREGATE = "All clients"


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001  the name says nothing
    """Whether a line opens a JSON object, and fio's version stands near the top."""
    text = decoded(head)
    begin = _BEGIN.search(text)
    return begin is not None and _SIGN.search(text, begin.start()) is not None


def read(path: Path, options: Options) -> Found:
    """One profile per job, in the order of the file."""
    text, broken = whole(path, _MOST_BYTES)
    begin = _BEGIN.search(text)  # an object, so what is read from here is one
    at = begin.start() if begin else len(text)
    try:
        report, _ = json.JSONDecoder(parse_float=Decimal, parse_constant=_no_number).raw_decode(text, at)
    except (ValueError, RecursionError) as error:
        line = text.count("\n", 0, error.pos) + 1 if isinstance(error, json.JSONDecodeError) else None
        return Found((), 0, (*broken, Refused(line, "report", f"no JSON of fio: {error}")))
    rows: list[HostProfile] = []
    refused: list[Refused] = list(broken)
    notes: list[str] = []
    n_read = 0
    for number, job in enumerate(_jobs(report, notes)):
        n_read += 1
        try:
            rows.append(_profile(report, job, number, options.host, notes))
        except (BadField, ValidationError) as error:
            refused.append(Refused(None, _title(job, number), reason(error)))
    if any(row.host == UNNAMED_HOST for row in rows):
        notes.append(f"the file names no host: stored as {UNNAMED_HOST!r}; say --host")
    return Found(tuple(rows), n_read, tuple(refused), tuple(dict.fromkeys(notes)))


def _no_number(text: str) -> None:
    """Refuse NaN and Infinity, which JSON does not have and fio does not print where it measured something."""
    raise ValueError(f"{text} is no number")


def _jobs(report: Mapping[str, Any], notes: list[str]) -> Iterator[Mapping[str, Any]]:
    """Every job once: the sum over all clients holds nothing of its own."""
    for key in ("jobs", "client_stats"):
        given = report.get(key)
        for job in given if isinstance(given, list) else ():
            if not isinstance(job, dict):
                notes.append(f"{key} holds something that is no job")
            elif key == "client_stats" and job.get("jobname") == _AGGREGATE and len(given or ()) > 1:
                notes.append(f"{_AGGREGATE}: the sum of the others, left out")
            else:
                yield job


def _title(job: Mapping[str, Any], number: int) -> str:
    return f"job {number} {job.get('jobname', '')}".strip()[:200]


def _profile(report: Mapping[str, Any], job: Mapping[str, Any], number: int, host: str | None, notes: list[str]) -> HostProfile:
    """The profile of one job. Raises BadField where it measured nothing or does not say when."""
    where = name(host or job.get("hostname")) or UNNAMED_HOST
    measured_ns = _measured_ns(report)
    told = _conditions(report, job)
    rates: dict[str, dict[str, Any]] = {}
    idle = []
    for direction in _DIRECTIONS:
        section = job.get(direction)
        found = rates_of(direction, section, told) if isinstance(section, dict) else {}
        rates |= found
        if isinstance(section, dict) and not found:
            idle.append(direction)
    failed = job.get("error") not in {0, None}
    if not rates:
        raise BadField("job", f"error {job.get('error')}" if failed else "no I/O at all", "nothing was measured")
    if idle:
        notes.append(f"{', '.join(idle)}: nothing was done, so not measured (not a speed of 0)")
    notes += [f"{_title(job, number)}, {rate}: {text}" for rate, entry in rates.items() for text in entry["complaints"]]
    return HostProfile(
        profile_id=row_id("fio", where, measured_ns, number, job.get("jobname"), job.get("groupid")),
        host=where,
        grant_id=IMPORTED_GRANT,
        measured_ns=measured_ns,
        condition=json.dumps(told, sort_keys=True),
        rates=json.dumps(rates, sort_keys=True, allow_nan=False),
        partial=failed,
    )


def _measured_ns(report: Mapping[str, Any]) -> int:
    """When fio wrote the report, UTC ns; the stamps count from 1970, only the text beside them is local."""
    for key, ns in (("timestamp_ms", 10**6), ("timestamp", 10**9)):
        stamp = report.get(key)
        if isinstance(stamp, int) and 0 < stamp < 2**63 // ns:
            return stamp * ns
    raise BadField("timestamp", str(report.get("timestamp"))[:80], "seconds since 1970 were expected")


def _conditions(report: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, str | int | float | None]:
    """What the rates depend on: the program and the options of the job, all text as fio writes them, over the global ones."""
    given: dict[str, Any] = {}
    for options in (report.get("global options"), job.get("job options")):
        given |= options if isinstance(options, dict) else {}
    told: dict[str, str | int | float | None] = {key: str(given[key])[:200] for key in _OPTIONS if key in given}
    return {"fio": str(report.get("fio version", ""))[:200], "job": str(job.get("jobname", ""))[:200], **told}


FIO = Importer("fio", recognises, read)
