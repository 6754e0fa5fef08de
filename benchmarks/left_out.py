"""`python -m benchmarks.left_out SET`: every host of a recorded set in turn as one that nobody has met.

The host's rows are put behind all others in time, so that they are asked of a model that knows the others alone, and then of one
that knows what has become known of it. Printed is the share of its rows below the answered p90 and p50, and that of all hosts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import typer

from benchmarks.accuracy import SHARED
from predictors.distribution import GRID
from service.backtest import Replay
from service.learners import learner
from service.recorded import recorded
from telemetry.words import Ended

LATER_S = 1e8
"""How much later a host's rows begin: after all others have ended."""
AT = [int(np.argmin(np.abs(GRID - p))) for p in (0.5, 0.9)]


@dataclass(frozen=True)
class Judged:
    """Rows of one host that completed: their number, and how many lay below the answered p50 and p90."""

    host: str
    n: int
    below: tuple[int, int]


def left_out(path: Path, host: str, model: str) -> Judged:
    """One host of a table judged; the table needs `start_s`."""
    import pandas as pd

    table = pd.read_parquet(path)
    table.loc[table["host"] == host, "start_s"] += LATER_S
    with TemporaryDirectory() as folder:
        table.to_parquet(Path(folder) / path.name)
        rows = recorded(Path(folder) / path.name)
    held = [
        [float(rows.duration_s[one.row]) <= one.made.quantiles_s[at] for at in AT]
        for one in Replay(rows, learner(model)).answers()
        if one.made is not None and rows.contexts[one.row].host == host and rows.ended[one.row] == Ended.COMPLETED
    ]
    below = np.array(held, dtype=np.int64).reshape(-1, len(AT)).sum(axis=0)
    return Judged(host, len(held), (int(below[0]), int(below[1])))


def main(
    name: Annotated[str, typer.Argument(help="A set of the datasets folder with start times.")] = "llm_providers",
    model: Annotated[str, typer.Option(help="Any model of `phasecast backtest`.")] = "calibrated",
) -> None:
    """Judge every host of a set in turn, and all of them together."""
    import pandas as pd

    path = SHARED / "datasets" / f"{name}.parquet"
    hosts = sorted(pd.read_parquet(path, columns=["host"])["host"].dropna().unique())
    typer.echo(f"{'host':<24} {'rows':>6} {'below p50':>10} {'below p90':>10}")
    judged = []
    for host in hosts:
        judged.append(one := left_out(path, str(host), model))
        typer.echo(_line(one))
    n = sum(one.n for one in judged)
    typer.echo(_line(Judged("all", n, (sum(one.below[0] for one in judged), sum(one.below[1] for one in judged)))))


def _line(one: Judged) -> str:
    low, high = (below / max(one.n, 1) for below in one.below)
    return f"{one.host:<24} {one.n:>6} {low:>10.3f} {high:>10.3f}"


if __name__ == "__main__":
    typer.run(main)
