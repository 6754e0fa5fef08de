"""Standard Workload Format (SWF) 2: one job a line, 18 numbers, -1 for unknown; header lines begin with a semicolon.

Per job an attempt, with `queue` (field 3, wait) and `service` (field 4, run time), both in s as the format says.

* status 0 failed, 1 completed, 5 cancelled; -1 says nothing, and is read as completed with that written in `assumed`.
  A job that failed or was cancelled once it had run for the time it asked for is taken as timed out there.
* Lines of status 2, 3 and 4 are parts of a checkpointed job that has a line of its own: they are no jobs.
* Times of start count from the log's epoch: they are instants only if the header gives UnixStartTime.
* Context: host from the header's Computer, family from the executable, device from the partition, mode from the queue,
  batch = processors, size_in = requested time as the log has it, in s (what is known of the job's size before it runs).

Variants read: decimals, CRLF, spaces or tabs, fields missing at the end (unknown), header lines anywhere, gzip.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers.cells import decimal, far_apart, length, name, reason
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.decimals import SECONDS_PER, count, number, unit_told
from telemetry.importers.instants import Instant
from telemetry.importers.phases import phase_row
from telemetry.importers.tabular import head_lines
from telemetry.importers.texts import Unended, lines
from telemetry.rows import Row
from telemetry.tables import Attempt
from telemetry.words import Absence, CancelReason, Ended

FIELDS = (
    *("job", "submit", "wait", "run", "processors", "cpu_time", "memory", "asked_processors", "asked_time", "asked_memory"),
    *("status", "user", "group", "executable", "queue", "partition", "preceding_job", "think_time"),
)
_LEAST_FIELDS = 5
_UNKNOWN = Decimal(-1)
_FAILED, _COMPLETED, _CANCELLED, _UNTOLD = 0, 1, 5, -1
_PARTS = frozenset({2, 3, 4})
_HEADER = re.compile(r";\s*(\w+)\s*:\s*(.*?)\s*$")
Job = dict[str, Decimal | None]
"""The numbers of a line by name of field; None where the line says -1 or ends before."""


@dataclass
class _Log:
    """A log while it is read: what its header says, and what is told of its lines as a whole."""

    options: Options
    unit: str
    header: dict[str, str] = field(default_factory=dict)
    told: Counter[str] = field(default_factory=Counter)
    ran_and_asked_s: list[tuple[float, float]] = field(default_factory=list)
    widest: int = _LEAST_FIELDS


def recognises(_path: Path, head: bytes) -> bool:
    """Whether most of the first lines that are no header are 18 numbers each."""
    jobs = [line.split() for line in head_lines(head) if line.strip() and not line.lstrip().startswith(";")]
    whole = [cells for cells in jobs if len(cells) == len(FIELDS) and all(number(cell) is not None for cell in cells)]
    return 2 * len(whole) > len(jobs)


def read(path: Path, options: Options) -> Found:
    """Read a log."""
    log = _Log(options, unit_told(options.unit) or "s")
    rows: list[Row] = []
    refused: list[Refused] = []
    n_read = 0
    for line, text in lines(path):
        if isinstance(text, Refused):
            refused.append(text)
        elif text.lstrip().startswith(";"):
            if found := _HEADER.match(text.strip()):
                log.header[found[1].lower()] = found[2]
        elif cells := text.split():
            n_read += 1
            try:
                rows += _rows(_job(cells, log.widest if isinstance(text, Unended) else _LEAST_FIELDS), log)
                log.widest = max(log.widest, len(cells))
            except (BadField, ValidationError) as error:
                refused.append(Refused(line, f"job {cells[0][:80]}", reason(error)))
    return Found(tuple(rows), n_read, tuple(refused), tuple(_notes(log)) if n_read else ())


def _job(cells: list[str], least: int) -> Job:
    """The numbers of a line. BadField where there are too few or many, or one is no number.

    `least`: fewer mean that it is cut off. Logs may leave fields out at the end, but where the last line does so alone and has
    no end, the file broke off.
    """
    if not _LEAST_FIELDS <= len(cells) <= len(FIELDS):
        raise BadField("line", f"{len(cells)} fields", f"a job has {len(FIELDS)}")
    if len(cells) < least:
        raise BadField("line", f"{len(cells)} fields", f"the file breaks off here: lines above have {least}")
    values = dict(zip(FIELDS, (decimal(key, cell) for key, cell in zip(FIELDS, cells, strict=False)), strict=False))
    return {key: None if values.get(key, _UNKNOWN) == _UNKNOWN else values[key] for key in FIELDS}


def _rows(job: Job, log: _Log) -> list[Row]:
    """Attempt and phases of one job; nothing where the line is a part of a job."""
    status = _UNTOLD if job["status"] is None else job["status"]
    if status in _PARTS:
        log.told["lines that are parts of checkpointed jobs, not jobs"] += 1
        return []
    waited_s, ran_s, asked_s = (_length_s(job, key, log) for key in ("wait", "run", "asked_time"))
    attempt = _attempt(job, log)
    submitted, began = _start(job, log, ("submit",)), _start(job, log, ("submit", "wait"))
    if status == _CANCELLED and not ran_s:
        log.told["jobs cancelled before they ran, whose service is not applicable"] += 1
        cause = CancelReason.UNKNOWN.value
        wait = phase_row(attempt.attempt_id, "queue", waited_s, Ended.CANCELLED, start=submitted, cause=cause)
        run = phase_row(attempt.attempt_id, "service", None, Ended.CANCELLED, absence=Absence.NOT_APPLICABLE)
        return [attempt, wait, run]
    if ran_s is not None and asked_s is not None:
        log.ran_and_asked_s.append((ran_s, asked_s))
    ended, cause_or_none, assumed = _ending(status, ran_s, asked_s)
    if assumed:
        log.told[f"jobs read with the assumption {assumed}"] += 1
    if ended is Ended.TIMED_OUT:
        ran_s = asked_s  # what it did after its limit was being stopped
    wait = phase_row(attempt.attempt_id, "queue", waited_s, Ended.COMPLETED, start=submitted)
    run = phase_row(attempt.attempt_id, "service", ran_s, ended, start=began, cause=cause_or_none, assumed=assumed)
    return [attempt, wait, run]


def _length_s(job: Job, key: str, log: _Log) -> float | None:
    value = job[key]
    return None if value is None else length(key, value * SECONDS_PER[log.unit])


def _attempt(job: Job, log: _Log) -> Attempt:
    """The job with its context.

    Its whole line identifies it: simulated logs of one workload have the same jobs, submitted at the same times. Nothing of it
    depends on the unit, which may be corrected when the log is read again.
    """
    origin = [log.header.get(key) for key in ("computer", "installation", "unixstarttime")]
    processors = job["processors"] or job["asked_processors"]
    return Attempt(
        attempt_id=row_id("swf", *origin, *(None if value is None else _plain(value) for value in job.values())),
        node_id=_numbered("job", job["job"]),
        host=log.options.host or name(log.header.get("computer")),
        device=_numbered("partition", job["partition"]),
        family=_numbered("executable", job["executable"]),
        mode=_numbered("queue", job["queue"]),
        batch=float(processors) if processors else None,
        size_in=None if job["asked_time"] is None else float(job["asked_time"]),
    )


def _plain(value: Decimal) -> str:
    """The number without the zeros that don't tell anything: 149 for 149.0, 0 for -0.0."""
    return f"{value.normalize() + 0:f}"


def _numbered(what: str, value: Decimal | None) -> str | None:
    return None if value is None else f"{what}-{_plain(value)}"


def _ending(status: Decimal | int, ran_s: float | None, asked_s: float | None) -> tuple[Ended, str | None, str | None]:
    """How the run ended, its cause, and what was assumed in saying so. BadField for a status that there is not."""
    if status in {_FAILED, _CANCELLED} and ran_s is not None and asked_s and ran_s >= asked_s:
        return Ended.TIMED_OUT, None, "ended=timed_out"
    if status == _FAILED:
        return Ended.FAILED, "status 0", None
    if status == _CANCELLED:
        return Ended.CANCELLED, CancelReason.UNKNOWN.value, None
    if status in {_COMPLETED, _UNTOLD}:
        return Ended.COMPLETED, None, None if status == _COMPLETED else "ended=completed"
    raise BadField("status", str(status), "0 failed, 1 completed, 2 to 4 a part of a job, 5 cancelled, -1 unknown")


def _start(job: Job, log: _Log, parts: tuple[str, ...]) -> Instant | None:
    """The sum of these fields as a time: an instant if the log has an epoch, else a number whose origin is not known."""
    known = [value for value in map(job.get, parts) if value is not None]
    if len(known) < len(parts):
        return None
    since = sum(known, Decimal(0))
    epoch = count(log.header.get("unixstarttime", ""))
    started_ns = int(((epoch or 0) + since * SECONDS_PER[log.unit]) * 10**9)
    return Instant(_plain(since), started_ns, zoned=bool(epoch) and 0 <= started_ns < 2**63)


def _notes(log: _Log) -> list[str]:
    """What was left out or assumed, and what to be careful about."""
    found = [f"{what}: {times}" for what, times in log.told.items()]
    if not count(log.header.get("unixstarttime", "")):
        found.append("no UnixStartTime in the header: starts are seconds since a moment that is not known")
    if far_apart(log.ran_and_asked_s, only_longer=True):
        found.append("jobs ran over 300 times as long as they asked for: if times are in another unit, give --unit")
    return found


SWF = Importer("swf", recognises, read, by_line=True)
