"""A file of the field into the store: read by the importer of its format, written in batches, and told what became of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from telemetry import asof
from telemetry.errors import PhasecastError
from telemetry.importers.contract import Importer, Options, Refused
from telemetry.importers.gathered import running_s
from telemetry.importers.texts import unended
from telemetry.rows import Row
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Attempt, Observation
from telemetry.words import Ended

BATCH_ROWS = 10_000
"""Rows (count) of one commit."""


@dataclass(frozen=True)
class FileReport:
    """What became of a file.

    `read` counts its records; `new` and `repeat` rows, of which a record may make several, `new_rows` by table;
    `refused` records that could not be read and rows that contradict what is known, each in `refusals` with its reason.
    """

    file: str
    format: str | None
    read: int = 0
    new: int = 0
    new_rows: dict[str, int] = field(default_factory=dict)
    repeat: int = 0
    refused: int = 0
    refusals: list[Refused] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def was_read(self) -> bool:
        """Whether anything in the file could be read."""
        return self.new + self.repeat > 0 or self.read > self.refused


Progress = Callable[[int, int], None]
"""Told after each batch: rows written so far, and in all."""


def unreadable(path: Path, error: PhasecastError | OSError, format_name: str | None = None) -> FileReport:
    """The report of a file that could not be read at all."""
    why = f"{error.got}: {error.fix}" if isinstance(error, PhasecastError) else str(error.strerror or error)
    return FileReport(str(path), format_name, refused=1, refusals=[Refused(None, path.name, why)])


def bring_in(store: Store, path: Path, importer: Importer, options: Options, progress: Progress) -> FileReport:
    """Read a file and write what it holds. Raises StoreError where the store can't take it; batches before that are kept."""
    try:
        found = importer.read(path, options)
    except (PhasecastError, OSError) as error:
        return unreadable(path, error, importer.name)
    rows, told = _news(store, found.rows, options)
    notes = [*found.notes, *told, *_cut_off(path, importer)]
    new: Counter[str] = Counter()
    repeat, refusals, done = len(found.rows) - len(rows), list(found.refused), 0
    for batch in (rows[at : at + BATCH_ROWS] for at in range(0, len(rows), BATCH_ROWS)):
        for row, result in zip(batch, store.write(Batch(tuple(batch))).results, strict=True):
            if result.result == "new":
                new[row.table] += 1
            elif result.result == "repeat":
                repeat += 1
            else:
                refusals.append(Refused(None, result.id, result.problem or result.result))
        done += len(batch)
        progress(done, len(rows))
    return FileReport(
        str(path),
        importer.name,
        read=found.n_read,
        new=new.total(),
        new_rows=dict(new),
        repeat=repeat,
        refused=len(refusals),
        refusals=refusals,
        notes=notes,
    )


def _cut_off(path: Path, importer: Importer) -> list[str]:
    """What rows can't tell: that the end of the last line is missing, and with it perhaps digits of its last number."""
    if importer.by_line and unended(path):
        return ["the last line has no end: if the file was cut off there, its last number may lack digits"]
    return []


def _news(store: Store, rows: Sequence[Row], options: Options) -> tuple[list[Row], list[str]]:
    """The rows worth writing, attempts first, since an observation keeps the context known when it came; and what to tell of it.

    An older report that still has a phase running says nothing against a newer one, which has it ended or running for longer.
    Nor does an assumed unit against one that the user told when the file was read before.
    """
    given = {row.observation_id: row for row in rows if isinstance(row, Observation)}
    with store.reader() as reader:
        ids = sorted({row.attempt_id for row in given.values()})
        known = asof.standing(reader, ids, store.last_commit) if ids else {}
    both = given.keys() & known.keys()
    older = {key for key in both if running_s(given[key]) is not None and _is_older(given[key], known[key])}
    told = set() if options.unit else {key for key in both if _unit(given[key]) != _unit(known[key])}
    news = (row for row in rows if not (isinstance(row, Observation) and row.observation_id in older | told))
    kept = f"{len(told)} lengths stay in the unit that was told when they were read before; --unit tells another"
    return sorted(news, key=lambda row: not isinstance(row, Attempt)), [kept] if told else []


def _unit(row: Observation) -> str | None:
    """What is assumed of the unit of a row's length, if anything."""
    return next((part for part in (row.assumed or "").split("; ") if part.startswith("unit=")), None)


def _is_older(running: Observation, known: Observation) -> bool:
    return known.ended is not Ended.RUNNING or (known.duration_s or 0.0) > (running.duration_s or 0.0)
