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
    rows = _news(store, found.rows)
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
        notes=list(found.notes),
    )


def _news(store: Store, rows: Sequence[Row]) -> list[Row]:
    """The rows worth writing, attempts first, since an observation keeps the context known when it came.

    An older report that still has a phase running says nothing against a newer one, which has it ended or running for longer.
    """
    running = {row.observation_id: row for row in rows if isinstance(row, Observation) and running_s(row) is not None}
    with store.reader() as reader:
        known = asof.standing(reader, sorted({row.attempt_id for row in running.values()}), store.last_commit) if running else {}
    older = {key for key in running.keys() & known.keys() if _is_older(running[key], known[key])}
    news = (row for row in rows if not (isinstance(row, Observation) and row.observation_id in older))
    return sorted(news, key=lambda row: not isinstance(row, Attempt))


def _is_older(running: Observation, known: Observation) -> bool:
    return known.ended is not Ended.RUNNING or (known.duration_s or 0.0) > (running.duration_s or 0.0)
