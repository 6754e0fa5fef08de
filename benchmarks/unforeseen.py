"""Everything after an instant replaced: what was answered by then must be the same to the bit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

SHARE = 0.7
"""Share of rows that begin by the instant."""
Replayed = Callable[[Path, Path, str], dict[str, Any]]


def replaced_after(table: pa.Table, at_s: float, seed: int = 1) -> pa.Table:
    """A table in which every outcome that was not known by at_s is another one: other lengths, other endings, other sizes out.

    What ran at that instant still does.
    """
    rng = np.random.default_rng(seed)
    start, duration = (table[name].to_numpy(zero_copy_only=False).astype(np.float64) for name in ("start_s", "duration_s"))
    later = start + duration > at_s
    ran_s = np.maximum(at_s - start, 0.0)
    other = np.nextafter(ran_s, np.inf) + rng.permutation(np.nan_to_num(duration, nan=1.0)) * np.exp(rng.normal(size=len(start)))
    ended = np.where(rng.random(len(start)) < 0.2, "failed", "completed")
    columns = {"duration_s": np.where(later, np.where(start + other > at_s, other, ran_s + 1.0), duration)}
    columns["outcome"] = np.where(later, ended, table["outcome"].to_numpy(zero_copy_only=False))
    if "size_out" in table.column_names:
        size_out = table["size_out"].to_numpy(zero_copy_only=False).astype(np.float64)
        columns["size_out"] = np.where(later, rng.random(len(start)) * 1e6, size_out)
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values, from_pandas=True))
    return table


def unforeseen(path: Path, answers: Path, folder: Path, replayed: Replayed) -> dict[str, Any]:
    """Replay a set once more with everything after an instant replaced, and compare the answers given by then."""
    table = pq.read_table(path)
    at_s = float(np.quantile(table["start_s"].to_numpy(zero_copy_only=False), SHARE, method="nearest"))
    altered, again = folder / f"{path.stem}.altered.parquet", folder / f"{path.stem}.again.parquet"
    pq.write_table(replaced_after(table, at_s), altered)
    model = answers.suffixes[0].removeprefix(".")
    summary = replayed(altered, again, model)
    before = [by(pq.read_table(file), at_s) for file in (answers, again)]
    return {"at_s": at_s, "answers": before[0].num_rows, "identical": before[0].equals(before[1]), "wall_s": summary["wall_s"]}


def by(answers: pa.Table, at_s: float) -> pa.Table:
    """Answers made up to an instant."""
    return answers.filter(pc.less_equal(answers["at_s"], at_s))
