"""Drift that was found and what followed, from the model's notes to rows of `changes`: each once, and again when it is undone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from calibrate.conformal.wrap import Calibrated
from calibrate.evidence.reactions import Note
from predictors.model import Model
from telemetry import asof
from telemetry.asof_verdicts import drift_noted
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import Reader
from telemetry.verdicts import Change

RULE = "rule"
GONE = "the model that kept it was founded anew"


class Noted:
    """Rows of `changes` kept true to the notes of the model that serves.

    What stands is read from the store again after every start and every failure, so nothing is written twice or forgotten.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._done: tuple[Note, ...] | None = None

    def keep(self, reader: Reader, model: Model | None) -> None:
        """Write what the store does not have of the model's notes, and what was undone since."""
        if not isinstance(model, Calibrated) or model.watching.notes is self._done:
            return
        standing = drift_noted(reader, self._store.last_commit)
        rows = differences(reader, model.watching.notes, standing)
        if rows:
            closes = tuple((Change, (row.change_id,)) for row in rows if row.change_id in standing)
            self._store.write(Batch(tuple(rows), closes))
        self._done = model.watching.notes


def differences(reader: Reader, notes: Sequence[Note], standing: dict[str, Change]) -> list[Change]:
    """Rows that make the store's, by change_id, tell what the notes do: new ones, those undone, those of a model that is gone."""
    mine = {change_id(note): note for note in notes}
    rows = [row_of(reader, mine[key]) for key in mine if key not in standing]
    for key, row in standing.items():
        note = mine.get(key)
        if row.kind != "reaction" or row.undone_ns is not None or (note is not None and note.stands):
            continue
        if note is not None:
            rows.append(row_of(reader, note))
        else:
            newest = max((one.began for one in notes), default=0)
            rows.append(row.model_copy(update={"undone_ns": _wall_ns(reader, newest) or row.made_ns, "undone_reason": GONE}))
    return rows


def change_id(note: Note) -> str:
    """The identity of what a note tells: the same whoever makes the model again."""
    return hashlib.sha256(f"{note.kind}/{note.node}/{note.action}/{note.began}".encode()).hexdigest()[:32]


def row_of(reader: Reader, note: Note) -> Change:
    """A note as a row; times are those of the commits at which things were found and undone."""
    return Change(
        change_id=change_id(note),
        kind=note.kind,
        subject=note.node,
        action=note.action,
        decided_by=RULE,
        made_ns=_wall_ns(reader, note.began),
        reason=note.reason,
        evidence=note.evidence,
        undone_ns=_wall_ns(reader, note.ended) if note.ended else None,
        undone_reason=note.ended_reason or None,
    )


def _wall_ns(reader: Reader, commit: int) -> int:
    return asof.committed_ns(reader, commit) or 0
