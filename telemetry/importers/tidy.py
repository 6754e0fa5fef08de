"""Tidy tables of durations, Parquet or CSV: one measured phase a row, under the column names of this house.

Columns: `phase`, `observation_id` and a length (`duration_s`, or `_ms`, `_us`, `_ns`) are needed; `dataset`, `attempt`,
`outcome`, `start_s` and the columns of a context (host, device, family, model, runtime, precision, mode, state, batch, size_in,
corunners) are read where they are there. Others are not: `size_out` is known only afterwards.

* (dataset, observation_id, attempt) is an attempt, its rows are its phases; `observation_id` is its run, since repeats of one
  measurement move together. A phase whose context contradicts that of the rows before it gets an attempt of its own.
* phases load, compute and total are setup, service and completion; other names are kept.
* outcome: completed, failed, cancelled, timed_out, running; censored is `lost`. Without that column rows are read as completed,
  with that written in `assumed`. A failure without a length is a row without one, and its cause is kept.
* A length without a unit in its name is read as s, with that written in `assumed`. Null, NaN and blank are not known; 0 is 0.
* Without `dataset` the file's name stands in for it.
* start_s counts from an epoch that only the table's owner knows: it is kept as text.

Variants read: columns in any order, further columns, `;` or tab between cells, gzip.
"""

from __future__ import annotations

import gzip
import io
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from telemetry.errors import BadField, TooLarge
from telemetry.importers.cells import decimal, far_apart, name, reason, seconds
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.decimals import unit_told
from telemetry.importers.gathered import Gathered
from telemetry.importers.tabular import first_line, head_lines, header, records
from telemetry.importers.texts import MOST_BYTES
from telemetry.tables import Attempt, Observation
from telemetry.words import Absence, Ended

DELIMITERS = ",;\t"
LENGTHS = {"duration_s": "s", "duration_ms": "ms", "duration_us": "us", "duration_ns": "ns", "duration": None}
"""Columns that may hold the length, and the unit that each declares; the first one present is read."""
PHASE_NAMES = {"load": "setup", "compute": "service", "total": "completion"}
_WORDS = ("host", "device", "family", "model", "runtime", "precision", "mode", "state")
_NUMBERS = ("batch", "size_in", "corunners")
_ENDED = {ended.value: ended for ended in Ended} | {
    "censored": Ended.LOST,
    "timeout": Ended.TIMED_OUT,
    "canceled": Ended.CANCELLED,
}
_PARQUET = b"PAR1"
_ROWS_AT_ONCE = 10_000
Record = Mapping[str, Any]
"""Known cells of a row by column: text from CSV, values from Parquet."""


@dataclass
class _Table:
    """A table while it is read: its columns and units, and what its rows have said so far.

    `dataset` stands in for that column where a row has none, so that the rows of two tables are not taken for each other's.
    """

    columns: tuple[str, ...]
    dataset: str
    options: Options
    contexts: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)
    gathered: Gathered = field(default_factory=Gathered)
    told: Counter[str] = field(default_factory=Counter)
    lengths_s: list[float] = field(default_factory=list)
    first_s: float = math.inf
    last_s: float = -math.inf

    @cached_property
    def length(self) -> str:
        """The column that holds the length."""
        return next(column for column in LENGTHS if column in self.columns)

    @cached_property
    def unit(self) -> str:
        """The unit of that column: as the user says, as its name says, or s."""
        return unit_told(self.options.unit) or LENGTHS[self.length] or "s"

    @cached_property
    def assumed(self) -> str | None:
        """What reading any row of this table assumes."""
        guessed = [] if LENGTHS[self.length] or self.options.unit else [f"unit={self.unit}"]
        return "; ".join(guessed + ([] if "outcome" in self.columns else ["ended=completed"])) or None


def recognises(path: Path, head: bytes) -> bool:
    """Whether the columns needed are there."""
    if head[:4] == _PARQUET:
        try:
            return _is_tidy(_parquet(path).schema_arrow.names)
        except (pa.ArrowException, OSError, TooLarge):
            return False
    line = next((text for text in head_lines(head) if text.strip()), "")
    return _is_tidy(header(line, DELIMITERS)[1])


def read(path: Path, options: Options) -> Found:
    """Read a table. BadField where a column that is needed is not there, or the file can't be opened as Parquet."""
    columns, rows = _columns_and_rows(path)
    if not _is_tidy(columns):
        raise BadField("file", path.name, f"columns phase, observation_id and one of {', '.join(LENGTHS)} are needed")
    table = _Table(tuple(columns), Path(path.name.removesuffix(".gz")).stem, options)
    unit_told(options.unit)
    refused: list[Refused] = []
    n_read = 0
    for line, record in rows:
        n_read += 1
        if isinstance(record, Refused):
            refused.append(record)
            continue
        try:
            table.gathered.add(line, [_observation(record, table)])
        except (BadField, ValidationError) as error:
            refused.append(Refused(line, str(record.get("observation_id", "row"))[:80], reason(error)))
    return Found((*_attempts(table), *table.gathered.rows()), n_read, tuple(refused), tuple(_notes(table)))


def _is_tidy(columns: list[str]) -> bool:
    return {"phase", "observation_id"} <= set(columns) and not set(LENGTHS).isdisjoint(columns)


def _columns_and_rows(path: Path) -> tuple[list[str], Iterator[tuple[int, Record | Refused]]]:
    """Names of the columns, and (row or line number, record) of each row."""
    with path.open("rb") as file:
        packed = file.read(4)
    if packed == _PARQUET or (packed[:2] == b"\x1f\x8b" and _unpacked_start(path) == _PARQUET):
        try:
            parquet = _parquet(path)
        except (pa.ArrowException, OSError) as error:
            raise BadField("file", path.name, f"it can't be opened as Parquet ({str(error)[:200]})") from error
        return list(parquet.schema_arrow.names), _parquet_rows(path, parquet)
    delimiter, columns = header(first_line(path), DELIMITERS)
    return columns, _csv_rows(path, delimiter, columns)


def _unpacked_start(path: Path) -> bytes:
    try:
        with gzip.open(path) as packed:
            return packed.read(len(_PARQUET))
    except (OSError, EOFError):
        return b""


def _parquet(path: Path) -> pq.ParquetFile:
    """A Parquet file, itself perhaps packed; its end has to be at hand, so a packed one is held in memory."""
    with path.open("rb") as file:
        if file.read(4) == _PARQUET:
            return pq.ParquetFile(path)
    with gzip.open(path) as packed:
        raw = packed.read(MOST_BYTES + 1)
    if len(raw) > MOST_BYTES:
        raise TooLarge("file", f"{path.name}: more than {MOST_BYTES} bytes unpacked", "unpack it; Parquet packs by itself")
    return pq.ParquetFile(io.BytesIO(raw))


def _parquet_rows(path: Path, parquet: pq.ParquetFile) -> Iterator[tuple[int, Record | Refused]]:
    """Rows numbered from 1."""
    wanted = [*_WORDS, *_NUMBERS, "dataset", "observation_id", "attempt", "phase", "start_s", "outcome", *LENGTHS]
    columns = [column for column in parquet.schema_arrow.names if column in wanted]
    row = 0
    try:
        for batch in parquet.iter_batches(_ROWS_AT_ONCE, columns=columns):
            for record in batch.to_pylist():
                row += 1
                yield row, {key: value for key, value in record.items() if value is not None and not _is_nan(value)}
    except (pa.ArrowException, OSError) as error:
        yield row + 1, Refused(row + 1, path.name, f"it can't be read to its end ({str(error)[:200]})")


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _csv_rows(path: Path, delimiter: str, columns: list[str]) -> Iterator[tuple[int, Record | Refused]]:
    """Rows by the number of their line."""
    found = records(path, delimiter)
    next(found, None)
    for line, cells in found:
        if isinstance(cells, Refused):
            yield line, cells
        elif len(cells) != len(columns):
            yield line, Refused(line, cells[0][:80], f"line: got {len(cells)} cells; the header has {len(columns)}")
        else:
            known = ((column, cell.strip()) for column, cell in zip(columns, cells, strict=True))
            yield line, {column: cell for column, cell in known if cell.lower() not in {"", "nan", "null", "na", "none"}}


def _observation(record: Record, table: _Table) -> Observation:
    """The phase of a row."""
    if "observation_id" not in record:
        raise BadField("observation_id", "", "a row needs one")
    phase = name(record.get("phase"))
    if phase is None:
        raise BadField("phase", "", "a row needs one")
    phase = PHASE_NAMES.get(phase, phase)
    outcome = str(record.get("outcome", "" if "outcome" in table.columns else Ended.COMPLETED)).lower()
    if outcome not in _ENDED:
        raise BadField("outcome", outcome[:80], f"outcomes are {', '.join(_ENDED)}")
    ended, length = _ENDED[outcome], record.get(table.length)
    duration_s = None if length is None else _length_s(length, table)
    started_text = _started(record, duration_s, table)
    attempt_id = _attempt_id(record, phase, table)
    return Observation(
        observation_id=f"{attempt_id}/{phase}/0",
        attempt_id=attempt_id,
        phase=phase,
        started_text=started_text,
        duration_s=duration_s,
        ended=None if duration_s is None else ended,
        cause="failed" if ended is Ended.FAILED else None,
        absence=Absence.UNOBSERVED if duration_s is None else None,
        assumed=None if duration_s is None else table.assumed,
    )


def _length_s(value: Any, table: _Table) -> float:
    """The length in s; a float of seconds stays the float that it is."""
    given_s = seconds(table.length, value, table.unit)
    return float(value) + 0.0 if isinstance(value, float) and table.unit == "s" else given_s


def _started(record: Record, duration_s: float | None, table: _Table) -> str | None:
    """Start as the table has it; remembered with the length, to see whether the lengths are plausible."""
    if "start_s" not in record:
        return None
    start_s = float(decimal("start_s", record["start_s"]))
    if duration_s is not None:
        table.lengths_s.append(duration_s)
        table.first_s, table.last_s = min(table.first_s, start_s), max(table.last_s, start_s)
    return str(record["start_s"])


def _attempt_id(record: Record, phase: str, table: _Table) -> str:
    """The attempt a row belongs to: the one of its key, or one of its own where its context contradicts what that one has."""
    context: dict[str, Any] = {word: found for word in _WORDS if (found := name(record.get(word))) is not None}
    context |= {number: _amount(number, record[number]) for number in _NUMBERS if number in record}
    run, tried = str(record["observation_id"]), _whole(record.get("attempt", 0))
    dataset = record.get("dataset", table.dataset)
    for own in ((), (phase,)):
        attempt_id = row_id("tidy", dataset, run, tried, *own)
        _, known = table.contexts.setdefault(attempt_id, (run, {}))
        if all(known.get(key, value) == value for key, value in context.items()):
            known |= context
            return attempt_id
    raise BadField("phase", phase, "this row's context contradicts that of an earlier row of the same attempt and phase")


def _amount(column: str, value: Any) -> float:
    """A number of a context."""
    given = float(decimal(column, value))
    if not 0 <= given < math.inf or (column == "batch" and given == 0):
        raise BadField(column, str(value)[:80], "a number from 0 was expected, of a batch above 0; blank where it isn't known")
    return given


def _whole(value: Any) -> int:
    """The number of a repeat."""
    given = decimal("attempt", value)
    if given != int(given) or given < 0:
        raise BadField("attempt", str(value)[:80], "a whole number from 0 was expected")
    return int(given)


def _attempts(table: _Table) -> list[Attempt]:
    """The attempts that the rows gathered belong to, in their order."""
    used = dict.fromkeys(row.attempt_id for row in table.gathered.rows() if isinstance(row, Observation))
    found = []
    for attempt_id in used:
        run, context = table.contexts[attempt_id]
        found.append(Attempt(attempt_id=attempt_id, run_id=name(run), **({"host": table.options.host} | context)))
    return found


def _notes(table: _Table) -> list[str]:
    """What was assumed, and what to be careful about."""
    found = []
    if table.assumed and table.lengths_s:
        found.append(f"read with the assumption {table.assumed}; --unit tells another unit")
    if "dataset" not in table.columns:
        found.append(f"no column dataset: the file's name, {table.dataset}, tells its rows from those of other files")
    span_s = table.last_s - table.first_s
    if far_apart(((length_s, span_s) for length_s in table.lengths_s), only_longer=True):
        found.append("lengths are over 300 times the span of all starts: if their unit is another, give --unit")
    return found


TIDY = Importer("tidy", recognises, read, by_line=True)
