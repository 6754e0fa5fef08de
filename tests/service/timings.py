"""Small tables of recorded timings, as a backtest reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ("observation_id", "host", "device", "family", "model", "phase", "mode", "state", "outcome")
NUMBERS = ("batch", "size_in", "size_out", "corunners", "start_s", "duration_s")
COLUMNS = dict.fromkeys(WORDS, pa.string()) | {"attempt": pa.int64()} | dict.fromkeys(NUMBERS, pa.float64())


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows with what they do not tell filled in: one phase, numbered observations, completed."""
    usual = {"phase": "service", "attempt": 0, "outcome": "completed"}
    full = [{"observation_id": f"o{i:03d}", **usual, **row} for i, row in enumerate(rows)]
    return pa.table({name: pa.array([row.get(name) for row in full], kind) for name, kind in COLUMNS.items()})


def write(folder: Path, rows: Sequence[dict[str, Any]], name: str = "in.parquet") -> Path:
    """The table of rows as a file."""
    pq.write_table(table(rows), folder / name)
    return folder / name


def work(n: int, seed: int = 1, failing: float = 0.1) -> list[dict[str, Any]]:
    """Jobs of two families on two hosts, some begun at one instant, some failing early; all timed."""
    rng = np.random.default_rng(seed)
    start_s = np.sort(rng.integers(0, 3 * n, size=n)).astype(float)
    made = []
    for i in range(n):
        host, family = f"host-{rng.integers(2)}", f"family-{rng.integers(2)}"
        centre = 4.0 * (2.0 if host == "host-1" else 1.0) * (3.0 if family == "family-1" else 1.0)
        failed = bool(rng.random() < failing)
        duration_s = float(centre * np.exp(0.3 * rng.normal()) * (0.2 if failed else 1.0))
        row = {"start_s": start_s[i], "duration_s": duration_s, "outcome": "failed" if failed else "completed"}
        made.append({**row, "host": host, "family": family, "size_out": float(rng.integers(100))})
    return made
