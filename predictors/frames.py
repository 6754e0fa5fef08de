"""Observations as arrays: the one gate for censoring, delayed entry, absence and clocks.

What a model fits on passes through `frame_of`; what it learns afterwards passes the same checks in `model.changes_of`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from predictors.contexts import CATEGORIES, NUMBERS, Context
from predictors.distribution import Array
from telemetry.errors import BadField
from telemetry.words import Clock, Ended

Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]
WALL_WEIGHT = 0.5
"""A wall clock can be stepped while it is being read: its durations count half."""


@dataclass(frozen=True)
class Frame:
    """Informative observations, in the order in which they became known; arrays have shape (n_rows,).

    `contexts` are distinct and `phases` are names; `context` and `phase` index into them. Rows neither completed,
    failed nor running were cancelled or timed out. `uninformative` counts rows left out since they say nothing. `attempt` numbers
    the attempts rows belong to; it may be empty, and then nothing is learned of what phases of an attempt have in common.
    `cancelled` may be empty as well: then cancellations are told from nothing, and count as censored alone. `started_ns`
    (UTC, -1 where not known) may be empty too; it says which rows began together.
    """

    contexts: tuple[Context, ...]
    phases: tuple[str, ...]
    context: Ints
    phase: Ints
    entry_s: Array
    duration_s: Array
    completed: Flags
    failed: Flags
    running: Flags
    weight: Array
    known_from: Ints
    uninformative: int = 0
    attempt: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    cancelled: Flags = field(default_factory=lambda: np.empty(0, dtype=bool))
    started_ns: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.duration_s)


def seconds(table: pa.Table, name: str) -> Array:
    """A column of times in s; BadField where one is absent, negative or not finite."""
    values: Array = table[name].cast(pa.float64()).to_numpy(zero_copy_only=False)
    wrong = ~(np.isfinite(values) & (values >= 0.0))
    if wrong.any():
        raise BadField(name, float(values[wrong][0]), "give a finite time in s, 0 or more; quarantine the row")
    return values


def informative(entry_s: Array, duration_s: Array, event: Flags) -> Flags:
    """Rows under observation for some time, or ended in the instant they began; entry at or past exit says nothing."""
    said: Flags = (duration_s > entry_s) | (event & (duration_s == 0.0) & (entry_s == 0.0))
    return said


def is_ended(table: pa.Table, how: Ended) -> Flags:
    """Which rows ended as `how`."""
    flags: Flags = pc.fill_null(pc.equal(table["ended"], how.value), fill_value=False).to_numpy(zero_copy_only=False)
    return flags


def clock_weight(table: pa.Table) -> Array:
    """1, or WALL_WEIGHT for durations read from a wall clock."""
    wall = pc.fill_null(pc.equal(table["clock"], Clock.WALL.value), fill_value=False).to_numpy(zero_copy_only=False)
    return np.where(wall, WALL_WEIGHT, 1.0)


def frame_of(table: pa.Table) -> Frame:
    """The frame of `telemetry.asof.observations`; BadField for a time that is negative or not finite."""
    entry_s, duration_s = seconds(table, "entry_s"), seconds(table, "duration_s")
    completed, failed = is_ended(table, Ended.COMPLETED), is_ended(table, Ended.FAILED)
    keep = informative(entry_s, duration_s, completed | failed)
    uninformative = int(len(keep) - keep.sum())
    if uninformative:
        table = table.filter(pa.array(keep))
    contexts, context = _distinct(table)
    phases = table["phase"].combine_chunks().dictionary_encode()
    return Frame(
        contexts=contexts,
        phases=tuple(phases.dictionary.to_pylist()),
        context=context,
        phase=phases.indices.to_numpy(zero_copy_only=False).astype(np.int64),
        entry_s=entry_s[keep],
        duration_s=duration_s[keep],
        completed=completed[keep],
        failed=failed[keep],
        running=is_ended(table, Ended.RUNNING),
        weight=clock_weight(table),
        known_from=table["known_from"].to_numpy().astype(np.int64),
        uninformative=uninformative,
        attempt=table["attempt_id"].combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64),
        cancelled=is_ended(table, Ended.CANCELLED),
        started_ns=pc.fill_null(table["started_ns"], -1).to_numpy(zero_copy_only=False).astype(np.int64),
    )


def _distinct(table: pa.Table) -> tuple[tuple[Context, ...], Ints]:
    """Distinct contexts of a table's rows, and the place of each row's among them."""
    code = np.zeros(table.num_rows, dtype=np.int64)
    size = 1
    for name in (*CATEGORIES, *NUMBERS):
        column = table[name].combine_chunks().dictionary_encode()
        values = len(column.dictionary) + 1
        if size * values > 2**62:
            _, code = np.unique(code, return_inverse=True)
            size = int(code.max(initial=0)) + 1
        code = code * values + pc.fill_null(column.indices, -1).to_numpy(zero_copy_only=False) + 1
        size *= values
    _, first, context = np.unique(code, return_index=True, return_inverse=True)
    rows = table.select([*CATEGORIES, *NUMBERS]).take(pa.array(first)).to_pylist()
    return tuple(Context.of(row) for row in rows), context.astype(np.int64)
