"""A host left out of recorded data, predicted by the served model from the others, its probes, and 0 to 100 runs of its own.

Configurations come in order of the hash of their name. The first PROBES runs of every host in that order are its probes: its
rate is the geometric mean, over them, of the time the configuration takes on the hosts of the history by its own. They are
no part of its history where it is left out. The next runs are its own history, told one by one, and experts are fitted anew
when the service would that has rested. What comes after them is asked at every count, beside the same without any profile. The
floor is the error of somebody who knows the host's median factor on what is asked, and what configurations take elsewhere.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.measured import Figure, figure
from calibrate import founding
from calibrate.conformal.wrap import Calibrated
from predictors import hazards
from predictors.contexts import Context
from predictors.frames import Frame
from predictors.model import Change
from predictors.resources import NONE, Rates
from predictors.settings import FitSettings
from service.newcomers import Newcomers
from service.settings import Settings
from telemetry.words import Ended

SHARED = Path(__file__).resolve().parents[2] / "shared" / "datasets"
SETS = {"gpu_kernel_tuning": 300, "wfinstances": 100}
"""Sets, with the runs of each host of the history: the first in order of hash."""
MOST_RUNS = 300
"""Runs of the host left out that are looked at."""
COUNTS = (0, 1, 5, 20, 100)
PROBES, LEAST_ASKED = 20, 30
HOSTS = 8
"""Hosts left out per set and family, the first by hash of their name: each of them founds two models."""
RESOURCE = "probe_runs_per_s"
PHASE = "service"
LEVELS = (0.5, 0.9)


class Run(NamedTuple):
    """One run: where and what, and its time."""

    context: Context
    configuration: str
    time_s: float


Table = Mapping[str, Sequence[Run]]
Works = Mapping[str, float]


@dataclass(frozen=True)
class Judged:
    """One left-out host: errors, shares within p90 and widths (p90 over median) by number of own runs."""

    error: dict[int, float]
    within: dict[int, float]
    width: dict[int, float]


def run() -> list[Figure]:
    """Figures of each set."""
    return [one for name in SETS if (SHARED / f"{name}.parquet").exists() for one in figures(name)]


def figures(name: str, hosts: int = HOSTS) -> list[Figure]:
    """Medians over left-out hosts and families with their range; coverage is the mean over hosts."""
    left_out = [(_of(table, host, SETS[name]), host) for table in _tables(name) for host in _chosen(table, hosts)]
    floors = [floor(table, host) for table, host in left_out]
    made = [figure(f"{name}: noise floor of the median error", floors, "share")]
    for what, profiled in (("profile", True), ("no profile", False)):
        judged = [judge(table, host, profiled=profiled) for table, host in left_out]
        for n in COUNTS:
            reach = "at most 0.12 where the floor allows" if profiled and n == 0 else ""
            within = [one.within[n] for one in judged]
            made += [
                figure(f"{name}, {what}: median error after {n} runs", [one.error[n] for one in judged], "share", reach),
                replace(
                    figure(
                        f"{name}, {what}: mean within p90 after {n} runs", within, "share", "0.85 to 0.95" if profiled else ""
                    ),
                    value=float(np.mean(within)),
                ),
                figure(f"{name}, {what}: p90 over median after {n} runs", [one.width[n] for one in judged], "x"),
            ]
    return made


def _tables(name: str) -> Iterator[Table]:
    """Completed runs by host in order of hash: for each family of kernels, and for all workflows together."""
    import pandas as pd

    rows = pd.read_parquet(SHARED / f"{name}.parquet")
    rows = rows[(rows["outcome"] == "completed") & (rows["duration_s"] > 0) & (rows["phase"] == "compute")]
    told = ["host", "device", "family", "model", "mode", "batch", "size_in"]
    single = rows.groupby(["observation_id", *told], dropna=False)["duration_s"].median().reset_index()  # repeats are one run
    for _, family in single.groupby("family") if name == "gpu_kernel_tuning" else [("all", single)]:
        found: dict[str, list[tuple[str, Run]]] = {}
        for row in family.to_dict("records"):
            configuration = f"{row['family']}|{row['model']}"
            order = _hash(configuration) + _hash(row["observation_id"].replace(row["host"], ""))
            known = {str(field): None if pd.isna(value) else value for field, value in row.items()}
            one = Run(Context.of(known), configuration, float(row["duration_s"]))
            found.setdefault(row["host"], []).append((order, one))
        yield {host: [one for _, one in sorted(runs, key=lambda run: run[0])[:MOST_RUNS]] for host, runs in found.items()}


def _chosen(table: Table, most: int) -> list[str]:
    """Hosts with enough runs whose configurations others have run, the first by hash of their name."""
    enough = [
        host for host, runs in table.items() if len(_shared(runs, _works(table, {host}))) >= PROBES + COUNTS[-1] + LEAST_ASKED
    ]
    return sorted(enough, key=_hash)[:most]


def _of(table: Table, left_out: str, most: int) -> Table:
    """The table with as many runs of each other host."""
    return {host: runs if host == left_out else runs[:most] for host, runs in table.items()}


def _works(table: Table, without: set[str]) -> Works:
    """Time of each configuration on the other hosts: the geometric mean of their medians."""
    found: dict[str, list[float]] = {}
    for host, runs in table.items():
        own: dict[str, list[float]] = {}
        for one in runs if host not in without else ():
            own.setdefault(one.configuration, []).append(one.time_s)
        for configuration, times in own.items():
            found.setdefault(configuration, []).append(float(np.log(np.median(times))))
    return {configuration: float(np.exp(np.mean(logs))) for configuration, logs in found.items()}


def _shared(runs: Sequence[Run], works: Works) -> list[Run]:
    return [one for one in runs if one.configuration in works]


def rates_of(table: Table, left_out: str) -> Rates:
    """The rate of every host by its probes, whose work is the time that the hosts of the history take.

    A work that left a host's own times out would make its rate another quantity than that of the host left out.
    """
    rates, works = {}, _works(table, {left_out})
    for host, runs in table.items():
        probes = _shared(runs, works)[:PROBES]
        if probes:
            rates[host] = {RESOURCE: float(np.exp(np.mean([np.log(works[one.configuration] / one.time_s) for one in probes])))}
    return rates


def floor(table: Table, host: str) -> float:
    """Median error of what is asked, for somebody who knows the median factor of the host on it."""
    works = _works(table, {host})
    asked = _shared(table[host], works)[PROBES + COUNTS[-1] :]
    actual, work = np.array([one.time_s for one in asked]), np.array([works[one.configuration] for one in asked])
    return _error(work * float(np.median(actual / work)), actual)


def judge(table: Table, host: str, *, profiled: bool) -> Judged:
    """The served model, founded on the other hosts, asked of one at every count of its own runs."""
    rates = rates_of(table, host) if profiled else NONE
    known = [one for name, runs in table.items() if name != host for one in runs]
    known.sort(key=lambda one: _hash(f"{one.configuration}{one.context.host}"))
    model = founding.found(_frame(known), len(known), FitSettings(), lambda _commit: rates)
    own = _shared(table[host], _works(table, {host}))[PROBES:]
    error, within, width = {}, {}, {}
    asked = own[COUNTS[-1] :]
    contexts, actual = [one.context for one in asked], np.array([one.time_s for one in asked])
    since_fit, newcomers = 0, Newcomers()
    for told in range(COUNTS[-1] + 1):
        if told:
            since_fit += 1
            newcomers.ended(own[told - 1].context, PHASE)
            known.append(own[told - 1])
            model = _told(model, own[told - 1], len(known))
            if since_fit >= Settings.refit_outcomes or newcomers.due:
                model, since_fit = _fitted(model, known, rates), 0
                newcomers.fitted()
        if told in COUNTS:
            middle, high = model.predict(contexts, [PHASE] * len(asked)).quantile(np.tile(LEVELS, (len(asked), 1))).T
            error[told], within[told] = _error(middle, actual), float(np.mean(actual <= high))
            width[told] = float(np.median(high / middle))
    return Judged(error, within, width)


def _fitted(model: Calibrated, known: Sequence[Run], rates: Rates) -> Calibrated:
    """The model over experts fitted anew."""
    return model.refounded(hazards.fit(_frame(known), len(known), FitSettings(), rates), None)


def _told(model: Calibrated, one: Run, commit: int) -> Calibrated:
    """The model after a run began and ended."""
    begun = Change(1, commit, PHASE, one.context, 0.0, 0.0, Ended.RUNNING, 1.0, commit, f"own/{commit}")
    return model.after([begun], commit).after([replace(begun, duration_s=one.time_s, ended=Ended.COMPLETED)], commit)


def _frame(runs: Sequence[Run]) -> Frame:
    """Runs as outcomes that became known one after the other."""
    n = len(runs)
    contexts: dict[Context, int] = {}
    context = np.array([contexts.setdefault(one.context, len(contexts)) for one in runs], dtype=np.int64)
    return Frame(
        contexts=tuple(contexts),
        phases=(PHASE,),
        context=context,
        phase=np.zeros(n, dtype=np.int64),
        entry_s=np.zeros(n),
        duration_s=np.array([one.time_s for one in runs]),
        completed=np.ones(n, dtype=bool),
        failed=np.zeros(n, dtype=bool),
        running=np.zeros(n, dtype=bool),
        weight=np.ones(n),
        known_from=np.arange(1, n + 1, dtype=np.int64),
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _error(told_s: np.typing.NDArray[np.float64], actual_s: np.typing.NDArray[np.float64]) -> float:
    return float(np.median(np.abs(told_s - actual_s) / actual_s))
