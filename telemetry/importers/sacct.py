"""Slurm's accounting as `sacct` prints it: one record a line under a header of column names.

Per job an attempt, with `service` (Elapsed) and `queue` (Start less Eligible or Submit); steps (`123.batch`) are not jobs.

* Elapsed is the length, since it leaves suspended time out and is there where End is Unknown; End less Start stands in for it.
* COMPLETED; FAILED, NODE_FAIL, BOOT_FAIL and OUT_OF_MEMORY failed, with that as the cause; TIMEOUT and DEADLINE timed out, at
  the limit where it was passed; CANCELLED, PREEMPTED, REVOKED and REQUEUED cancelled; RUNNING, COMPLETING, SUSPENDED and their
  like still running at Elapsed. A job that never began has no service; one that waits has nothing yet.
* UNLIMITED, Partition_Limit, Unknown, None and N/A are not known, never 0. Times have no zone unless they say so.
* A job that ran again under its number is another attempt (`retry_of`).
* Context: host from NodeList, family from JobName, mode from Partition, batch = processors, size_in = Timelimit in s (what is
  known of the job's size before it runs).

Variants read: any choice and order of columns with JobID and State; `-p`, `-P`, any `--delimiter`, quoted commas, fixed width;
states cut short (CANCELLED+) or as letters (CD); ElapsedRaw, TimelimitRaw (minutes), times as `%s` (s since 1970) or with an
offset; gzip.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers import slurm
from telemetry.importers.cells import far_apart, length, name, reason, seconds
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.decimals import count, unit_told
from telemetry.importers.gathered import Gathered
from telemetry.importers.instants import Instant
from telemetry.importers.phases import phase_row, span_row
from telemetry.importers.tabular import head_lines
from telemetry.importers.texts import Unended, lines
from telemetry.rows import Row
from telemetry.tables import Attempt, Observation
from telemetry.words import Absence, Ended

_ROUNDED_S = 1.0
_NO_LIMIT = frozenset({"unlimited", "partition_limit"})
Job = dict[str, str]
"""Cells of a record by column in lower case; what is not known is left out."""


@dataclass
class _Report:
    """A report while it is read: how it is cut, and what is told of its records as a whole."""

    shape: slurm.Shape
    options: Options
    gathered: Gathered = field(default_factory=Gathered)
    told: Counter[str] = field(default_factory=Counter)
    last_of_job: dict[tuple[str | None, str], str] = field(default_factory=dict)
    said_and_shown_s: list[tuple[float, float]] = field(default_factory=list)


def recognises(_path: Path, head: bytes) -> bool:
    """Whether the first line names JobID and State among its columns."""
    return slurm.shape(_printed(head_lines(head))) is not None


def read(path: Path, options: Options) -> Found:
    """Read a report. BadField where its first line is no header of one."""
    unit_told(options.unit)
    first = [text for _, text in islice(lines(path), 5) if isinstance(text, str)]
    shape = slurm.shape(_printed(first))
    if shape is None:
        raise BadField("file", path.name, "its first line must name columns, JobID and State among them: leave out --noheader")
    report = _Report(shape, options)
    refused: list[Refused] = []
    n_read = 0
    for line, text in lines(path):
        if isinstance(text, Refused):
            refused.append(text)
        elif text.strip() and not _is_head(text, shape):
            n_read += 1
            try:
                report.gathered.add(line, _rows(_job(text, shape), report))
            except (BadField, ValidationError) as error:
                refused.append(Refused(line, text.strip().split(shape.delimiter)[0][:80], reason(error)))
    return Found(report.gathered.rows(), n_read, tuple(refused), tuple(_notes(report)))


def _printed(texts: list[str]) -> list[str]:
    return [text for text in texts if text.strip()]


def _is_head(text: str, shape: slurm.Shape) -> bool:
    """Whether a line is the header or the rule under it; reports put together have several."""
    if set(text.strip()) <= {"-", " "}:
        return True
    try:
        return tuple(cell.lower() for cell in shape.cells(text)) == shape.names
    except BadField:
        return False


def _job(text: str, shape: slurm.Shape) -> Job:
    """Known cells of a record. BadField where it is cut off."""
    if isinstance(text, Unended) and shape.spans and len(text) <= shape.spans[-1][0]:
        raise BadField("line", f"{len(text)} characters", "the file breaks off here, before its last column")
    cells = zip(shape.names, shape.cells(text), strict=True)
    return {column: cell for column, cell in cells if not slurm.absent(cell)}


def _rows(job: Job, report: _Report) -> list[Row]:
    """Attempt and phases of a job; nothing for a step, or for one that waits."""
    job_id = job.get("jobid") or job.get("jobidraw")
    if job_id is None:
        raise BadField("JobID", "", "a record needs one")
    if "." in job_id:
        report.told["records that are steps, not jobs"] += 1
        return []
    if job_id.endswith("+"):
        raise BadField("JobID", job_id, "it is cut off by the column's width: print with --parsable2")
    word, ended = slurm.state(job.get("state", ""))
    if ended is None:
        report.told["jobs that wait, of which nothing is known yet"] += 1
        return []
    start = slurm.time("Start", job.get("start", ""))
    attempt = _attempt(job_id, job, report)
    if ended is Ended.CANCELLED and _never_began(job, start):
        report.told["jobs cancelled before they began, whose service is not applicable"] += 1
        cause = slurm.cancel_reason(job["state"], word).value
        wait = _queue(attempt, job, slurm.time("End", job.get("end", "")), ended, cause)
        return [attempt, *wait, phase_row(attempt.attempt_id, "service", None, ended, absence=Absence.NOT_APPLICABLE)]
    return [attempt, *_queue(attempt, job, start, Ended.COMPLETED), *_run(attempt, job, start, word, ended, report)]


def _attempt(job_id: str, job: Job, report: _Report) -> Attempt:
    """The job with its context. Its number, its cluster and when it was submitted and began tell it from others."""
    numbered = (job.get("cluster"), job.get("jobidraw") or job_id)
    attempt_id = row_id("sacct", *numbered, job.get("submit"), job.get("start"))
    before = report.last_of_job.get(numbered)
    report.last_of_job[numbered] = attempt_id
    processors = count(job.get("alloccpus") or job.get("ncpus") or job.get("reqcpus") or "")
    return Attempt(
        attempt_id=attempt_id,
        run_id=name(job_id.partition("_")[0].partition("+")[0]),
        node_id=name(job_id),
        retry_of=before if before != attempt_id else None,
        host=name(job.get("nodelist")) or report.options.host,
        family=name(job.get("jobname")),
        mode=name(job.get("partition")),
        batch=float(processors) if processors else None,
        size_in=_limit_s(job, report),
    )


def _limit_s(job: Job, report: _Report) -> float | None:
    """The time limit in s; None where there is none or it is not told, which a note says by its word."""
    raw, text = job.get("timelimitraw"), job.get("timelimit")
    given = raw or text
    if given is None:
        return None
    if given.lower() in _NO_LIMIT:
        report.told[f"jobs with the time limit {given}, whose size is not known"] += 1
        return None
    return seconds("TimelimitRaw", raw) * 60 if raw else length("Timelimit", slurm.length_s("Timelimit", given))


def _elapsed_s(job: Job, options: Options) -> float | None:
    """How long the job ran, in s."""
    if "elapsedraw" in job:
        return seconds("ElapsedRaw", job["elapsedraw"], unit_told(options.unit) or "s")
    return length("Elapsed", slurm.length_s("Elapsed", job["elapsed"])) if "elapsed" in job else None


def _never_began(job: Job, start: Instant | None) -> bool:
    """Whether a job was cancelled while it waited: older versions give it the time of that as Start, but no node."""
    ran = any(character in "123456789" for character in job.get("elapsed") or job.get("elapsedraw") or "")
    return not ran and (start is None or "nodelist" not in job)


def _queue(attempt: Attempt, job: Job, until: Instant | None, ended: Ended, cause: str | None = None) -> list[Row]:
    """The wait: Slurm's own figure, else from Eligible, or as an assumption from Submit, until it ended."""
    eligible = slurm.time("Eligible", job.get("eligible", ""))
    since = eligible or slurm.time("Submit", job.get("submit", ""))
    told = job.get("planned") or job.get("reserved")
    if told is not None:
        waited_s = length("Planned", slurm.length_s("Planned", told))
        return [phase_row(attempt.attempt_id, "queue", waited_s, ended, start=eligible, cause=cause)]
    if since is None or until is None:
        return []
    assumed = None if eligible else "eligible=submit"
    row = span_row(attempt.attempt_id, "queue", since, until, ended, cause=cause, assumed=assumed)
    return [row] if row else []


def _run(attempt: Attempt, job: Job, start: Instant | None, word: str, ended: Ended, report: _Report) -> list[Row]:
    """What a job that began did, as long as Elapsed says."""
    elapsed_s, end = _elapsed_s(job, report.options), slurm.time("End", job.get("end", ""))
    shown_ns = end.since_ns(start) if start and end else None
    if elapsed_s is None and start and end and shown_ns is not None:
        row = span_row(attempt.attempt_id, "service", start, end, ended, cause=_cause(job, word, ended))
        return [row] if row else []
    if elapsed_s is None and ended is Ended.RUNNING:
        return []
    if elapsed_s is not None and shown_ns is not None:
        report.said_and_shown_s.append((elapsed_s, shown_ns / 10**9))
        if abs(elapsed_s - shown_ns / 10**9) > _ROUNDED_S:
            report.told["jobs whose Elapsed is not End less Start (suspended, or a clock was set)"] += 1
    if ended is Ended.TIMED_OUT and elapsed_s is not None and attempt.size_in:
        elapsed_s = min(elapsed_s, attempt.size_in)  # what it did after its limit was being stopped
    return [phase_row(attempt.attempt_id, "service", elapsed_s, ended, start=start, cause=_cause(job, word, ended))]


def _cause(job: Job, word: str, ended: Ended) -> str | None:
    """Why a job failed, with its exit code and signal, or was cancelled."""
    if ended is Ended.CANCELLED:
        return slurm.cancel_reason(job["state"], word).value
    code = job.get("exitcode", "0:0")
    return word.lower() + (f" {code}" if code != "0:0" else "") if ended is Ended.FAILED else None


def _notes(report: _Report) -> list[str]:
    """What was left out or not known, and what to be careful about."""
    found = [f"{what}: {times}" for what, times in report.told.items()]
    if not any(isinstance(row, Observation) and row.duration_s is not None for row in report.gathered.rows()):
        found.append("no lengths, so there is nothing to learn from: print the columns Elapsed, Submit, Start and End")
    if far_apart(report.said_and_shown_s):
        found.append("Elapsed and End less Start are over 300 times apart: if ElapsedRaw is in another unit, give --unit")
    return found


SACCT = Importer("sacct", recognises, read, by_line=True)
