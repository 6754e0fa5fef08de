"""Recorded observations as a replay needs them: in the order in which they began, with the time at which each became known.

Rows come in order of `start_s`. Where any is unknown, the order is that of the SHA-256 rank of `observation_id/attempt`: the
first 60 % come in twelve steps, the rest in eight, and outcomes are visible when their step is over.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from predictors.contexts import CATEGORIES, NUMBERS, Context
from predictors.distribution import Array
from telemetry.errors import BadField
from telemetry.words import Ended

TEST_SHARE = 0.4
TRAINING_STEPS, BLOCKS = 12, 8
ENDED = {ended.value: ended for ended in Ended} | {"censored": Ended.LOST}
NEEDED = ("observation_id", "phase", "duration_s")
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Recorded:
    """Rows in the order in which they began; arrays have shape (n_rows,).

    `begun_s` and `known_s` are seconds, or steps where `timed` is False. `run` numbers (observation, attempt). `left_out` counts
    rows of the table without a usable duration.
    """

    observation_id: list[str]
    attempt: Ints
    phase: list[str]
    contexts: list[Context]
    run: Ints
    duration_s: Array
    ended: list[Ended]
    begun_s: Array
    known_s: Array
    timed: bool
    left_out: int

    def __len__(self) -> int:
        return len(self.duration_s)

    def key(self, row: int) -> str:
        """Name of a row."""
        return f"{self.observation_id[row]}/{self.phase[row]}/{self.attempt[row]}"


def recorded(path: Path) -> Recorded:
    """The rows of a tidy Parquet table; BadField names what is missing or unusable in it."""
    table = read_table(path, "IN")
    missing = [name for name in NEEDED if name not in table.column_names]
    if missing:
        raise BadField("column", ", ".join(missing), f"a table of observations needs {', '.join(NEEDED)}")
    duration = numbers(table, "duration_s")
    usable = np.isfinite(duration) & (duration >= 0.0)
    if not usable.any():
        raise BadField("duration_s", "no usable value", "there is nothing to learn from a table without durations")
    table, duration = table.filter(pa.array(usable)), duration[usable]
    words = {name: texts(table, name) for name in ("observation_id", "phase", *CATEGORIES)}
    attempt = np.nan_to_num(numbers(table, "attempt")).astype(np.int64)
    start = numbers(table, "start_s")
    timed = bool(np.isfinite(start).all())
    ids, phases = [text or "" for text in words["observation_id"]], [text or "" for text in words["phase"]]
    _told_apart(ids, phases, attempt.tolist())
    first = start if timed else np.array([_rank(f"{o}/{a}") for o, a in zip(ids, attempt.tolist(), strict=True)])
    order = np.array(sorted(range(len(ids)), key=lambda i: (first[i], ids[i], phases[i], attempt[i])), dtype=np.int64)
    begun = first[order] if timed else _steps(first[order])
    runs: dict[tuple[str, int], int] = {}
    return Recorded(
        observation_id=[ids[i] for i in order],
        attempt=attempt[order],
        phase=[phases[i] for i in order],
        contexts=_contexts(table, words, order),
        run=np.array([runs.setdefault((ids[i], int(attempt[i])), len(runs)) for i in order], dtype=np.int64),
        duration_s=duration[order],
        ended=_endings(table, order),
        begun_s=begun,
        known_s=begun + (duration[order] if timed else 0.5),
        timed=timed,
        left_out=int(len(usable) - usable.sum()),
    )


def _told_apart(ids: list[str], phases: list[str], attempt: list[int]) -> None:
    """BadField names a row that is there twice: outcomes are joined to answers by these names."""
    known: set[tuple[str, str, int]] = set()
    for row in zip(ids, phases, attempt, strict=True):
        if row in known:
            raise BadField("row", "/".join(map(str, row)), "give each observation_id/phase/attempt once")
        known.add(row)


def read_table(path: Path, option: str) -> pa.Table:
    """A Parquet table; BadField names the option under which its path was given."""
    try:
        return pq.read_table(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise BadField(option, str(path), f"give a readable Parquet file ({error})") from error


def numbers(table: pa.Table, name: str) -> Array:
    """A column as numbers, NaN where unknown or absent."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    try:
        values: Array = pc.cast(table[name], pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise BadField(name, str(table[name].type), f"give a column of numbers ({error})") from error
    return values


def texts(table: pa.Table, name: str) -> list[str | None]:
    """A column as texts; an empty one is unknown."""
    if name not in table.column_names:
        return [None] * table.num_rows
    return [text or None for text in pc.cast(table[name], pa.string()).to_pylist()]


def _endings(table: pa.Table, order: Ints) -> list[Ended]:
    """How each row ended; rows of a table that does not say are read as completed."""
    found = texts(table, "outcome")
    unknown = sorted({text for text in found if text is not None and text not in ENDED})
    if unknown:
        raise BadField("outcome", ", ".join(unknown), f"give one of {', '.join(sorted(ENDED))}")
    return [ENDED[found[i] or Ended.COMPLETED.value] for i in order]


def _contexts(table: pa.Table, words: dict[str, list[str | None]], order: Ints) -> list[Context]:
    """What was known of each row before it began; equal ones are one object."""
    known = {name: [v if np.isfinite(v) else None for v in numbers(table, name).tolist()] for name in NUMBERS}
    columns: list[list[Any]] = [*(words[name] for name in CATEGORIES), *(known[name] for name in NUMBERS)]
    seen: dict[tuple[Any, ...], Context] = {}
    made = []
    for i in order:
        values = tuple(column[i] for column in columns)
        if values not in seen:
            seen[values] = Context(*values)
        made.append(seen[values])
    return made


def _rank(text: str) -> float:
    """A stable place in [0, 1): the first eight bytes of SHA-256."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def _steps(rank: Array) -> Array:
    """Step of each row, ranks ascending: training steps, then blocks; rows of one rank stay together."""
    n = len(rank)
    first = int(n * (1.0 - TEST_SHARE))
    place = np.arange(n)
    training = np.minimum(place * TRAINING_STEPS // max(1, first), TRAINING_STEPS - 1)
    block = TRAINING_STEPS + (place - first) * BLOCKS // max(1, n - first)
    step = np.where(place < first, training, block)
    _, group = np.unique(rank, return_inverse=True)
    lowest = np.full(int(group.max()) + 1, TRAINING_STEPS + BLOCKS)
    np.minimum.at(lowest, group, step)
    return lowest[group].astype(np.float64)
