"""A host left out of recorded data, predicted from the others and from 0, 1, 5 and 20 runs of its own: error, p90, width.

Work of a configuration is the time it takes on the other hosts of its fit (geometric mean of medians), so that rates are 1 and
what is left to learn of a host is how much faster it is. Its own runs are those whose configuration comes first by hash, chosen
before an outcome is seen. The floor is the error of somebody who knows the host's median factor: configurations differ in theirs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.measured import Figure, figure
from predictors.seeding import Centre, Rows, Seed, fit, handed_over

SHARED = Path(__file__).resolve().parents[2] / "shared" / "datasets"
SETS = ("gpu_kernel_tuning", "wfinstances")
RUNS = (0, 1, 5, 20)
LEAST_SHARED, MOST_RUNS = 60, 300
RESOURCE = "same_work_per_s"
Floats = NDArray[np.float64]


class Run(NamedTuple):
    """One run: the hash that orders it, its configuration, its time."""

    order: str
    configuration: str
    time_s: float


Table = dict[str, list[Run]]


@dataclass(frozen=True)
class Judged:
    """One left-out host and family: errors and shares by number of own runs, the floor, and widths (p90 over median)."""

    error: dict[int, float]
    within: dict[int, float]
    width: dict[int, float]
    floor: float


def run() -> list[Figure]:
    """Figures of each set, the median over left-out hosts and families with their range."""
    return [one for name in SETS if (SHARED / f"{name}.parquet").exists() for one in _figures(name)]


def _figures(name: str) -> list[Figure]:
    judged = [one for table in _tables(name) for one in _left_out(table)]
    made = [figure(f"{name}: noise floor of the median error", [one.floor for one in judged], "share")]
    for n in RUNS:
        reach = "at most 0.12 where the floor allows" if n else ""
        made += [
            figure(f"{name}: median error after {n} runs", [one.error[n] for one in judged], "share", reach),
            figure(
                f"{name}: within p90 after {n} runs", [one.within[n] for one in judged], "share", "0.85 to 0.95, mean over hosts"
            ),
            figure(f"{name}: p90 over median after {n} runs", [one.width[n] for one in judged], "x"),
        ]
        mean = float(np.mean([one.within[n] for one in judged]))
        made.append(figure(f"{name}: mean within p90 after {n} runs", [mean], "share", "0.85 to 0.95"))
    return made


def _tables(name: str) -> Iterator[Table]:
    """Completed runs by host, for each family of kernels and for all workflows together; at most MOST_RUNS a host, by hash."""
    import pandas as pd

    rows = pd.read_parquet(SHARED / f"{name}.parquet")
    rows = rows[(rows["outcome"] == "completed") & (rows["duration_s"] > 0) & (rows["phase"] == "compute")]
    rows = rows.assign(configuration=rows["family"].astype(str) + "|" + rows["model"].astype(str))
    repeated = ["family", "host", "configuration", "observation_id"]  # repeats of one observation are no runs of their own
    single = rows.groupby(repeated)["duration_s"].median().reset_index()
    for _, family in single.groupby("family") if name == "gpu_kernel_tuning" else [("all", single)]:
        table: Table = {}
        for host, configuration, run_id, time_s in family[["host", "configuration", "observation_id", "duration_s"]].to_numpy():
            table.setdefault(host, []).append(Run(_hash(f"{configuration}|{run_id}"), configuration, float(time_s)))
        yield {host: sorted(runs)[:MOST_RUNS] for host, runs in table.items()}


def _left_out(table: Table) -> Iterator[Judged]:
    """Every host in turn, where it shares enough runs with the others."""
    for host in table:
        work = _work(table, host)
        others = {name: runs for name, runs in table.items() if name != host}
        shared = [run for run in table[host] if run.configuration in work]
        if len(shared) >= LEAST_SHARED:
            told = {name: _work(others, name) for name in others}
            rows = [
                (name, told[name][run.configuration], run.time_s)
                for name in others
                for run in others[name]
                if run.configuration in told[name]
            ]
            seed = fit((RESOURCE,), _rows(rows), {name: {RESOURCE: 1.0} for name in others})
            yield _judged(seed, [(host, work[run.configuration], run.time_s) for run in shared])


def _work(table: Table, host: str) -> dict[str, float]:
    """Time of each configuration on the other hosts: the geometric mean of their medians."""
    found: dict[str, list[float]] = {}
    for name, runs in table.items():
        by_configuration: dict[str, list[float]] = {}
        for run in runs if name != host else ():
            by_configuration.setdefault(run.configuration, []).append(run.time_s)
        for configuration, times in by_configuration.items():
            found.setdefault(configuration, []).append(float(np.log(np.median(times))))
    return {configuration: float(np.exp(np.mean(logs))) for configuration, logs in found.items()}


def _rows(told: Sequence[tuple[str, float, float]]) -> Rows:
    """Rows from (host, work, time)."""
    host, work, time_s = zip(*told, strict=True) if told else ((), (), ())
    return Rows(tuple(host), np.array(work, dtype=float).reshape(-1, 1), np.array(time_s, dtype=float))


def _judged(seed: Seed, told: Sequence[tuple[str, float, float]]) -> Judged:
    """Predict all runs beyond the first twenty by hash, knowing none to all twenty of those."""
    asked = _rows(told[RUNS[-1] :])
    error, within, width = {}, {}, {}
    for n in RUNS:
        centre = handed_over(seed, asked.work, {RESOURCE: 1.0}, _rows(told[:n]))
        error[n] = _error(np.exp(centre.log_s), asked.time_s)
        within[n] = float(np.mean(np.log(asked.time_s) <= _p90(centre)))
        width[n] = float(np.exp(_p90(centre) - centre.log_s)[0])
    factor = float(np.exp(np.median(np.log(asked.time_s) - np.log(asked.work[:, 0]))))
    return Judged(error, within, width, _error(factor * asked.work[:, 0], asked.time_s))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _p90(centre: Centre) -> Floats:
    found: Floats = centre.log_s + 1.2815515655446004 * centre.spread
    return found


def _error(told_s: Floats, actual_s: Floats) -> float:
    return float(np.median(np.abs(told_s - actual_s) / actual_s))
