"""`python -m benchmarks.remaining`: remaining times of recorded work, asked while it ran, and what came of them.

Rows past the first 60 % are asked at 25, 50, 100 and 150 % of the median of their host, family and phase among the rows before,
as far as they got so old; at each age no more than MOST, those whose names have the least hashes, so that they lie evenly over
what comes, whatever it is. Printed is the share that then ended by the answered p50 and p90, where LEAST rows or more still ran,
with a 95 % interval by cluster, as in scores: a run of many tasks, or of many epochs, that is slow as a whole is one piece of
evidence.
"""

from __future__ import annotations

import hashlib
import heapq
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import orjson
import typer
from numpy.typing import NDArray
from rich.progress import Progress
from scipy.stats import t as student

from benchmarks.accuracy import SHARED
from benchmarks.clustered import pieces
from predictors.distribution import GRID, Array
from service.backtest import Replay
from service.learners import DEFAULT, learner
from service.recorded import Recorded, recorded
from telemetry.words import Ended

SETS = ("wfinstances", "lambda_coldstart", "mlperf_training")
AGES = (0.25, 0.5, 1.0, 1.5)
LEARNED = 0.6
LEAST, MOST = 400, 2_500
NEAR = 0.03
"""How far from its level a share may lie."""
AT = {p: int(np.argmin(np.abs(GRID - p))) for p in (0.5, 0.9)}


@dataclass(frozen=True)
class Share:
    """A share of rows and the half-width of its 95 % interval; infinite where all are of one cluster."""

    mean: float
    half: float


@dataclass(frozen=True)
class Line:
    """Rows of a set that had reached an age, in `clusters`, and shares ended by the answered p50 and p90."""

    name: str
    age: float
    n: int
    clusters: int
    p50: Share
    p90: Share

    @property
    def held(self) -> str:
        """Whether both lie near their levels, or at least nothing says that they don't."""
        apart = [abs(share.mean - p) - NEAR for p, share in ((0.5, self.p50), (0.9, self.p90))]
        if max(apart) <= 0.0:
            return "yes"
        return "by interval" if all(away <= share.half for away, share in zip(apart, (self.p50, self.p90), strict=True)) else "no"


def asked_at(rows: Recorded, most: int = MOST) -> dict[int, dict[float, float]]:
    """For completed rows past the first 60 %: by share of the median, the ages in s reached; at most `most` rows at each."""
    first, groups = int(len(rows) * LEARNED), defaultdict(list)
    for i in range(first):
        if rows.ended[i] == Ended.COMPLETED:
            groups[_group(rows, i)].append(float(rows.duration_s[i]))
    median = {group: float(np.median(durations)) for group, durations in groups.items()}
    reached: dict[float, dict[int, float]] = {share: {} for share in AGES}
    for i in range(first, len(rows)):
        middle = median.get(_group(rows, i), 0.0)
        if rows.ended[i] == Ended.COMPLETED and middle > 0.0:
            for share in AGES:
                if share * middle < rows.duration_s[i]:
                    reached[share][i] = share * middle
    found: dict[int, dict[float, float]] = defaultdict(dict)
    for share, ages in reached.items():
        for i in heapq.nsmallest(most, ages, key=lambda i: hashlib.sha256(rows.key(i).encode()).digest()):
            found[i][share] = ages[i]
    return dict(found)


def measured(name: str, model: str, most: int) -> list[Line]:
    """The lines of one set, of at most `most` rows each."""
    rows = recorded(SHARED / "datasets" / f"{name}.parquet")
    asked = asked_at(rows, most)
    ended: Mapping[float, list[tuple[int, bool, bool]]] = {share: [] for share in AGES}
    with Progress(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(name, total=len(rows))
        replay = Replay(
            rows,
            learner(model),
            {i: sorted(ages.values()) for i, ages in asked.items()},
            lambda done: bar.update(task, completed=done),
        )
        for one in replay.answers():
            if one.elapsed_s is None or one.made is None:
                continue
            share = min(asked[one.row], key=lambda share: abs(asked[one.row][share] - (one.elapsed_s or 0.0)))
            left_s, told = float(rows.duration_s[one.row]) - one.elapsed_s, one.made.quantiles_s
            ended[share].append((one.row, left_s <= told[AT[0.5]], left_s <= told[AT[0.9]]))
    lines = []
    for age, seen in ended.items():
        if len(seen) >= LEAST:
            at, below = [row for row, *_ in seen], np.array([came for _, *came in seen])
            lines.append(line_of(name, age, below, pieces(rows.begun_s[at], [rows.observation_id[row] for row in at])))
    return lines


def line_of(name: str, age: float, below: Array, cluster: NDArray[np.intp]) -> Line:
    """One line from rows that ended by p50 and by p90 or not, shape (n, 2), and their clusters (n,)."""
    p50, p90 = (share_of(below[:, column].astype(np.float64), cluster) for column in (0, 1))
    return Line(name, age, len(below), int(cluster.max()) + 1, p50, p90)


def share_of(ended: Array, cluster: NDArray[np.intp]) -> Share:
    """Mean of `ended` (n,), its interval by `cluster` (n,): the ratio estimator's, with Student's factor."""
    mean, k = float(ended.mean()), int(cluster.max()) + 1
    if k < 2:
        return Share(mean, float("inf"))
    apart = np.bincount(cluster, ended - mean)
    error = float(np.sqrt(k / (k - 1) * np.square(apart).sum())) / len(ended)
    return Share(mean, float(student.ppf(0.975, k - 1)) * error)


def main(
    sets: Annotated[
        list[str] | None, typer.Argument(help=f"Any sets with start times; {', '.join(SETS)} if none is named.")
    ] = None,
    model: Annotated[str, typer.Option(help="Any model of `phasecast backtest`.")] = DEFAULT,
    most: Annotated[int, typer.Option(min=1, help="Rows asked at one age.")] = MOST,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Replay and print."""
    lines = [line for name in sets or SETS for line in measured(name, model, most)]
    if json:
        typer.echo(orjson.dumps([asdict(line) for line in lines]).decode())
        return
    for line in lines:
        told = "  ".join(f"{p} {one.mean:.3f} ± {one.half:.3f}" for p, one in (("p50", line.p50), ("p90", line.p90)))
        typer.echo(f"{line.name:<18} at {line.age:<5g} n={line.n:<7,} of {line.clusters:<6,} {told}  {line.held}")


def _group(rows: Recorded, i: int) -> tuple[str | None, str | None, str]:
    return rows.contexts[i].host, rows.contexts[i].family, rows.phase[i]


if __name__ == "__main__":
    typer.run(main)
