"""Nextflow's trace file: one task a line, tab separated, or as `trace.sep` says.

Per task an attempt, with `service` (realtime: the command itself), `completion` (duration: from submission, staging
included) and, where the column `start` is there, `queue` (start less submit).

* COMPLETED, unless its exit status is not 0, which is a failure; FAILED; ABORTED is cancelled with the run; CACHED repeats an
  old run and is no observation; RUNNING lasts at least until the newest time in the file; SUBMITTED and NEW have nothing yet.
* Lengths as text ("4m 19s") are rounded by Nextflow. Where a column comes twice, as text and then as a number of ms, the
  number counts; plain numbers are ms, and plain times ms since 1970 in UTC. `-` is not known.
* Times as text have no zone and are kept as text. A task run again (column `attempt`) is another attempt (`retry_of`).
* Context: family from process or name, host from hostname, runtime from container, mode from queue, batch = cpus. Measured
  columns such as %cpu and peak_rss are known only afterwards, and are not read.

Variants read: tabs, commas, semicolons or bars, any order of columns with name, status and a length; `raw` traces; gzip.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers.cells import decimal, far_apart, length, name, reason, seconds
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.decimals import SECONDS_PER, count, number, unit_told
from telemetry.importers.gathered import Gathered
from telemetry.importers.instants import Instant, counted, written
from telemetry.importers.phases import phase_row, span_row
from telemetry.importers.tabular import first_line, head_lines, header, records
from telemetry.rows import Row
from telemetry.tables import Attempt
from telemetry.words import CancelReason, Ended

DELIMITERS = "\t,;|"
_ENDED = {
    "COMPLETED": Ended.COMPLETED,
    "FAILED": Ended.FAILED,
    "ABORTED": Ended.CANCELLED,
    "RUNNING": Ended.RUNNING,
}
_REPEATED, _WAITING = "CACHED", frozenset({"NEW", "SUBMITTED", "PENDING"})
_NO_EXIT = frozenset({"0", "2147483647"})
"""Exit statuses that tell of no failure; the second stands for one that was never read."""
_PART = re.compile(r"\s*(\d{1,20}(?:\.\d{1,9})?)\s*(ms|us|ns|days?|d|hours?|h|min|m|sec|s)(?![a-z])\s*", re.ASCII)
_LONG_UNITS = {"m": 60, "min": 60, "h": 3600, "hour": 3600, "hours": 3600, "d": 86_400, "day": 86_400, "days": 86_400, "sec": 1}
Task = dict[str, list[str]]
"""Known cells of a record by column; a column that comes twice has two."""


@dataclass
class _Trace:
    """A trace while it is read: what the user said, its newest times, and what is told of its tasks as a whole."""

    options: Options
    newest: dict[bool, Instant] = field(default_factory=dict)
    told: Counter[str] = field(default_factory=Counter)
    tries: dict[tuple[str, int], str] = field(default_factory=dict)
    durations_s: list[tuple[float, float]] = field(default_factory=list)

    @property
    def unit(self) -> str:
        """Unit of lengths that are plain numbers."""
        return unit_told(self.options.unit) or "ms"


def recognises(_path: Path, head: bytes) -> bool:
    """Whether the first line names a task's name, status and a length, and what only such a trace has."""
    line = next((text for text in head_lines(head) if text.strip()), "")
    return _is_trace(header(line, DELIMITERS)[1])


def _is_trace(columns: list[str]) -> bool:
    named = set(columns)
    return {"name", "status"} <= named and bool({"realtime", "duration"} & named) and bool({"task_id", "hash"} & named)


def read(path: Path, options: Options) -> Found:
    """Read a trace. BadField where its first line is no header of one."""
    delimiter, columns = header(first_line(path), DELIMITERS)
    if not _is_trace(columns):
        raise BadField("file", path.name, "its first line must name the columns name, status, task_id or hash, and a length")
    trace, gathered = _Trace(options), Gathered()
    tasks: list[tuple[int, Task]] = []
    refused: list[Refused] = []
    for line, cells in _below_header(path, delimiter):
        try:
            if isinstance(cells, Refused):
                refused.append(cells)
            else:
                tasks.append((line, _task(columns, cells, trace)))
        except BadField as error:
            refused.append(Refused(line, "task", reason(error)))
    n_read = len(tasks) + len(refused)
    for line, task in tasks:
        try:
            gathered.add(line, _rows(task, trace))
        except (BadField, ValidationError) as error:
            refused.append(Refused(line, _text(task, "name") or "task", reason(error)))
    return Found(gathered.rows(), n_read, tuple(refused), tuple(_notes(trace)))


def _below_header(path: Path, delimiter: str) -> Iterator[tuple[int, list[str] | Refused]]:
    """Records without the header."""
    found = records(path, delimiter)
    next(found, None)
    return found


def _task(columns: list[str], cells: list[str], trace: _Trace) -> Task:
    """Known cells of a record, whose times the trace then knows. BadField where their number isn't that of the header."""
    if len(cells) != len(columns):
        raise BadField("line", f"{len(cells)} cells", f"the header has {len(columns)}")
    task: Task = {}
    for column, cell in zip(columns, cells, strict=True):
        if cell.strip() not in {"", "-"}:
            task.setdefault(column, []).append(cell.strip())
    for column in ("submit", "start", "complete"):
        found = _time(task, column)
        newest = trace.newest.get(found.zoned, found) if found else None
        if found and newest:
            trace.newest[found.zoned] = max(found, newest, key=lambda instant: instant.reading_ns)
    return task


def _rows(task: Task, trace: _Trace) -> list[Row]:
    """Attempt and phases of a task; nothing where it repeats an old run or hasn't begun."""
    status = (_text(task, "status") or "").upper()
    if status == _REPEATED:
        trace.told["cached tasks, which repeat an old run and are no observations"] += 1
        return []
    if status in _WAITING:
        trace.told["tasks that had not begun, of which nothing is known yet"] += 1
        return []
    if status not in _ENDED:
        raise BadField("status", status, f"statuses are {', '.join([*_ENDED, _REPEATED, *sorted(_WAITING)])}")
    attempt = _attempt(task, trace)
    ended, cause = _ending(task, _ENDED[status])
    submit, start, complete = (_time(task, column) for column in ("submit", "start", "complete"))
    whole_s, run_s = _length_s(task, "duration", trace), _length_s(task, "realtime", trace)
    if ended is Ended.RUNNING:
        whole_s, run_s = _seen_s(whole_s, submit, trace), _seen_s(run_s, start, trace)
    shown_ns = complete.since_ns(submit) if submit and complete else None
    if whole_s is None and shown_ns is not None and shown_ns >= 0:
        whole_s = shown_ns / 10**9
    elif whole_s is not None and shown_ns is not None:
        trace.durations_s.append((whole_s, shown_ns / 10**9))
    rows: list[Row] = [attempt]
    if submit and start and (wait := span_row(attempt.attempt_id, "queue", submit, start, Ended.COMPLETED)):
        rows.append(wait)
    for phase, duration_s, began in (("service", run_s, start), ("completion", whole_s, submit)):
        if duration_s is not None or ended is not Ended.RUNNING:
            rows.append(phase_row(attempt.attempt_id, phase, duration_s, ended, start=began, cause=cause))
    return rows


def _attempt(task: Task, trace: _Trace) -> Attempt:
    """The task with its context. Its hash, name, submission and number of the try tell it from others."""
    task_name = _text(task, "name")
    if task_name is None:
        raise BadField("name", "-", "a task needs one")
    origin = _text(task, "hash") or _text(task, "task_id")
    attempt_id = row_id("nextflow", origin, task_name, _text(task, "submit"), _text(task, "attempt"))
    tries = count(_text(task, "attempt") or "") or 1
    trace.tries[task_name, tries] = attempt_id
    cpus = decimal("cpus", _text(task, "cpus") or "0")
    return Attempt(
        attempt_id=attempt_id,
        node_id=name(task_name),
        retry_of=trace.tries.get((task_name, tries - 1)),
        host=name(_text(task, "hostname")) or trace.options.host,
        family=name(_text(task, "process") or task_name.partition(" (")[0]),
        runtime=name(_text(task, "container")),
        mode=name(_text(task, "queue")),
        batch=float(cpus) or None,
    )


def _ending(task: Task, ended: Ended) -> tuple[Ended, str | None]:
    """How a task ended and why; one that is called completed but left with a status other than 0 has failed."""
    if ended is Ended.CANCELLED:
        return ended, CancelReason.POLICY.value
    status = _text(task, "exit") or "0"
    failed_with = None if status in _NO_EXIT else f"exit {status}"[:80]
    if ended is Ended.COMPLETED and failed_with:
        return Ended.FAILED, failed_with
    return ended, (failed_with or "failed") if ended is Ended.FAILED else None


def _seen_s(told_s: float | None, since: Instant | None, trace: _Trace) -> float | None:
    """How long a running phase is known to last: as told, or until the newest time of the trace."""
    newest = trace.newest.get(since.zoned) if since else None
    seen_ns = newest.since_ns(since) if newest and since else None
    return max((s for s in (told_s, None if seen_ns is None else seen_ns / 10**9) if s is not None), default=None)


def _text(task: Task, column: str) -> str | None:
    """The first known cell of a column."""
    return next(iter(task.get(column, ())), None)


def _length_s(task: Task, column: str, trace: _Trace) -> float | None:
    """A length in s: from a plain number where there is one, since text is rounded."""
    cells = task.get(column, [])
    plain = next((cell for cell in cells if number(cell) is not None), None)
    if plain is not None:
        return seconds(column, plain, trace.unit)
    if not cells:
        return None
    trace.told[f"lengths in {column} that are text, rounded by Nextflow"] += 1
    return length(column, _spoken_s(column, cells[0]))


def _spoken_s(column: str, text: str) -> Decimal:
    """A length such as "1d 2h 4m 19.5s" or "259ms" in s. BadField for other texts."""
    parts = _PART.findall(text)
    if not parts or _PART.sub("", text):
        raise BadField(column, text[:80], 'a length such as "4m 19s" or a number of ms was expected')
    return sum((Decimal(value) * (_LONG_UNITS.get(unit) or SECONDS_PER[unit]) for value, unit in parts), Decimal(0))


def _time(task: Task, column: str) -> Instant | None:
    """A time; None where it is not known, or 0, which says that it hasn't come."""
    cells = task.get(column, [])
    plain = next((cell for cell in cells if cell.isdecimal()), None)
    if plain is not None:
        return counted(column, plain, "ms") if int(plain[:20]) else None
    return written(column, cells[0]) if cells else None


def _notes(trace: _Trace) -> list[str]:
    """What was left out or is known roughly, and what to be careful about."""
    found = [f"{what}: {times}" for what, times in trace.told.items()]
    if far_apart(trace.durations_s):
        found.append("duration and complete less submit are over 300 times apart: if duration is in another unit, give --unit")
    return found


NEXTFLOW = Importer("nextflow", recognises, read, by_line=True)
