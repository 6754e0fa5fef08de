"""`python -m benchmarks.truth_cancelled`: recorded timings of others with requests cancelled by a rule, scored on what they took.

The rule is that of the data's README: a row is cancelled at c = m * -ln(u), m a multiple of its group's median and u from the
SHA-1 of its key. The multiple that gives the share is chosen on the rows before those that are scored. Each set is replayed
as it is and once per share; coverage of p90 and CRPS of log time are of the same rows, all of them, whether cancelled or not.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import orjson
import typer
from rich.progress import Progress

from predictors.aggregate import losses
from predictors.distribution import GRID, Array
from service.backtest import Replay
from service.learners import DEFAULT, learner
from service.recorded import Recorded, recorded
from telemetry.words import Ended

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "datasets"
SETS = ("lambda_coldstart", "mlperf_training", "azure_vm_noise")
REACH = {0.0: 0.0, 0.20: 0.88, 0.33: 0.87, 0.49: 0.85}
"""Least coverage of p90 by the share of completed rows cancelled."""
LEARNING = 0.4
"""Share of rows that are learned from before any is scored."""


def main(
    sets: Annotated[list[str] | None, typer.Argument(help=f"Any of {', '.join(SETS)}; all if none is named.")] = None,
    rows: Annotated[int, typer.Option(min=100, help="How many of a set's first rows to replay.")] = 4_000,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
) -> None:
    """Replay and print."""
    made: list[Replayed] = []
    with Progress(disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("replays", total=len(sets or SETS) * len(REACH))
        for name in sets or SETS:
            whole = first(recorded(FOLDER / f"{name}.parquet"), rows)
            for share, least in REACH.items():
                told, multiple = cancelled(whole, share)
                p90, crps = scored(told, whole.duration_s, whole.ended)
                made.append(Replayed(name, share, multiple, p90, least, crps, crps / (made[-1].uncensored if share else crps)))
                bar.advance(task)
    typer.echo(orjson.dumps([asdict(one) for one in made]).decode() if json else "\n".join(line(one) for one in made))


@dataclass(frozen=True)
class Replayed:
    """A set with a share of its rows cancelled at `multiple` of medians: coverage, its least, and CRPS against none cancelled."""

    name: str
    share: float
    multiple: float | None
    p90: float
    least: float
    crps: float
    ratio: float

    @property
    def uncensored(self) -> float:
        """CRPS with none cancelled."""
        return self.crps / self.ratio


def line(one: Replayed) -> str:
    """One replay as text."""
    at = "" if one.multiple is None else f" at {one.multiple:.2f} medians"
    head = f"{one.name:<17} {one.share:>4.0%} cancelled{at:<16}"
    return f"{head} p90 {one.p90:.3f} (least {one.least:.2f})  crps_log {one.crps:.4f}, {one.ratio:.3f} of uncensored"


def first(rows: Recorded, n: int) -> Recorded:
    """The first n rows."""
    lists = {name: getattr(rows, name)[:n] for name in ("observation_id", "phase", "contexts", "ended")}
    arrays = {name: getattr(rows, name)[:n] for name in ("attempt", "run", "duration_s", "begun_s", "known_s")}
    return replace(rows, **lists, **arrays)


def cancelled(rows: Recorded, share: float) -> tuple[Recorded, float | None]:
    """Rows of which about `share` of the completed are cancelled, and the multiple of medians at which; None for none."""
    if share <= 0.0:
        return rows, None
    done = np.array([ended == Ended.COMPLETED for ended in rows.ended])
    early = done & (np.arange(len(rows)) < int(LEARNING * len(rows)))
    patience = _medians(rows) * np.array([-np.log(_uniform(rows.key(row))) for row in range(len(rows))])
    # A row is cancelled where m * patience < duration: the share-th largest ratio is the multiple.
    multiple = float(np.quantile((rows.duration_s / patience)[early], 1.0 - share))
    gone = done & (multiple * patience < rows.duration_s)
    duration = np.where(gone, multiple * patience, rows.duration_s)
    ended = [Ended.CANCELLED if cut else end for cut, end in zip(gone, rows.ended, strict=True)]
    known = rows.begun_s + duration if rows.timed else rows.known_s
    return replace(rows, duration_s=duration, ended=ended, known_s=known), multiple


def _medians(rows: Recorded) -> Array:
    """Median duration of each row's phase, host and family."""
    group: dict[tuple[str | None, ...], list[int]] = {}
    for row, context in enumerate(rows.contexts):
        group.setdefault((rows.phase[row], context.host, context.family), []).append(row)
    found = np.empty(len(rows))
    for places in group.values():
        found[places] = np.median(rows.duration_s[places])
    return np.maximum(found, 1e-9)


def _uniform(key: str) -> float:
    """A stable number in (0, 1)."""
    return (int.from_bytes(hashlib.sha1(key.encode()).digest()[:8], "big") + 0.5) / 2**64  # noqa: S324  not for security


def scored(told: Recorded, whole_s: Array, ended: Sequence[Ended]) -> tuple[float, float]:
    """Coverage of p90 and mean CRPS of log time over completed rows past the learning, by what they took in the end."""
    covered, crps = [], []
    p90 = int(np.argmin(np.abs(GRID - 0.9)))
    for answer in Replay(told, learner(DEFAULT)).answers():
        row = answer.row
        if answer.made is None or row < LEARNING * len(told) or ended[row] != Ended.COMPLETED or whole_s[row] <= 0.0:
            continue
        log_quantiles = np.log(np.maximum(np.array(answer.made.quantiles_s), 1e-9))
        covered.append(whole_s[row] <= answer.made.quantiles_s[p90])
        crps.append(float(losses(float(np.log(whole_s[row])), log_quantiles[None].astype(np.float32))[0]))
    return float(np.mean(covered)), float(np.mean(crps))


if __name__ == "__main__":
    typer.run(main)
