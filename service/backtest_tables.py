"""The tables of a backtest: ages to ask about, read whole; answers, written as they are made."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from predictors.distribution import GRID, Array
from service.backtest import Answer
from service.recorded import Ints, Recorded, numbers, read_table, texts
from telemetry.errors import BadField, UnknownId
from telemetry.words import Status

ASKED = ("observation_id", "phase", "attempt", "elapsed_s")
QUANTILES = (*(f"q{p:02d}" for p in range(1, 100)), "q995", "q999")
"""Names of the columns of quantiles, one for each level of GRID."""
TOGETHER = 5_000
"""Answers held until they are written as one row group: what a run needs in memory doesn't grow with them."""
BEFORE = (
    ("observation_id", pa.string()),
    ("phase", pa.string()),
    ("attempt", pa.int64()),
    ("at_s", pa.float64()),
)
AFTER = (
    ("status", pa.string()),
    ("level", pa.string()),
    ("n_eff", pa.float64()),
    ("mean", pa.float64()),
    *((name, pa.float64()) for name in QUANTILES),
)


def queries_of(path: Path, rows: Recorded) -> dict[int, list[float]]:
    """Ages in s at which the remaining time of rows is asked, by row, ascending; each error names the row it is about."""
    table = read_table(path, "--queries")
    missing = [name for name in ASKED if name not in table.column_names]
    if missing:
        raise BadField("column", ", ".join(missing), f"a table of queries has {', '.join(ASKED)}")
    places = {rows.key(row): row for row in range(len(rows))}
    attempt = np.nan_to_num(numbers(table, "attempt")).astype(np.int64).tolist()
    named = zip(texts(table, "observation_id"), texts(table, "phase"), attempt, strict=True)
    asked: dict[int, set[float]] = {}
    for (observation_id, phase, number), age_s in zip(named, numbers(table, "elapsed_s").tolist(), strict=True):
        key = f"{observation_id or ''}/{phase or ''}/{number}"
        row = places.get(key)
        if row is None:
            raise UnknownId("query", key, "ask about rows of IN that have a duration, named observation_id/phase/attempt")
        if not age_s >= 0.0:
            raise BadField("elapsed_s", f"{age_s:g} of {key}", "give an age in s, 0 or more")
        if age_s >= rows.duration_s[row]:
            fix = f"it lasted {rows.duration_s[row]:g} s: ask about ages at which it still ran"
            raise BadField("elapsed_s", f"{age_s:g} of {key}", fix)
        asked.setdefault(row, set()).add(age_s)
    return {row: sorted(ages) for row, ages in asked.items()}


@contextmanager
def writing(path: Path, rows: Recorded, *, aged: bool) -> Iterator[Callable[[Answer], None]]:
    """Gives what takes answers one by one. The file appears whole, once all are taken, or not at all.

    `aged` adds the column of ages, null for answers about rows that begin.
    """
    if path.is_dir() or not path.parent.is_dir():
        raise BadField("--out", str(path), "name a file, such as answers.parquet, in a folder that is there")
    part = path.with_name(f".{path.name}.{os.getpid()}")
    schema = pa.schema([*BEFORE, *([("elapsed_s", pa.float64())] if aged else []), *AFTER])
    held: list[Answer] = []
    try:
        with pq.ParquetWriter(part, schema) as file:

            def take(answer: Answer) -> None:
                held.append(answer)
                if len(held) >= TOGETHER:
                    file.write_table(_table(held, rows, schema))
                    held.clear()

            yield take
            file.write_table(_table(held, rows, schema))
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _table(answers: Sequence[Answer], rows: Recorded, schema: pa.Schema) -> pa.Table:
    """Answers as rows of the file; where nothing was known to answer from, all but the status is null."""
    place: Ints = np.array([answer.row for answer in answers], dtype=np.int64)
    made = [answer.made for answer in answers]
    age_s = [answer.elapsed_s for answer in answers]
    at_s = rows.begun_s[place] + np.array([age or 0.0 for age in age_s])
    columns: Mapping[str, object] = {
        "observation_id": [rows.observation_id[row] for row in place],
        "phase": [rows.phase[row] for row in place],
        "attempt": rows.attempt[place],
        "at_s": pa.array(at_s) if rows.timed else pa.nulls(len(answers), pa.float64()),
        "elapsed_s": age_s,
        "status": [one.status if one is not None else Status.SHADOW.value for one in made],
        "level": [one.level if one is not None else None for one in made],
        "n_eff": [one.n_eff if one is not None else None for one in made],
        "mean": [one.mean_s if one is not None else None for one in made],
    }
    unknown = np.array([one is None for one in made], dtype=bool)
    quantiles: Array = np.array([one.quantiles_s if one is not None else [np.nan] * len(GRID) for one in made])
    quantiles = quantiles.reshape(len(made), len(GRID))
    columns = {**columns, **{name: pa.array(quantiles[:, i], mask=unknown) for i, name in enumerate(QUANTILES)}}
    return pa.table([pa.array(columns[name], kind) for name, kind in zip(schema.names, schema.types, strict=True)], schema=schema)
