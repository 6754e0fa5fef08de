"""Whether a finite run kept up with its load: a declared scorer, since no finite run proves stability.

With N units of work released over a declared window of T seconds, a run passes if

    no unit failed or never finished;
    in each class at least ATTAINMENT of all offered units met their objective;
    the backlog Q(t) = released - finished, sampled in [0.2 T, 0.9 T], did not grow: mean of the last seventh of the samples less
    that of the first seventh, and the least-squares slope times T, are each at most max(6, 0.01 N);
    what was left at T was done within max(20 s, 0.03 T).

Samples are SAMPLES evenly spaced points, or for bursts the boundaries of their cycle; fewer than five leave it inconclusive, and
so do clocks that contradict themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array
from telemetry.errors import BadField

ATTAINMENT = 0.99
SAMPLES = 141
LEAST_SAMPLES = 5


class Verdict(StrEnum):
    """What a run showed."""

    PASS = "pass"  # noqa: S105  no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True)
class Run:
    """n units of work: their classes, when each was released and finished in s from the start of the window, and the objective.

    `finished_s` is NaN where a unit never finished, `failed` where it ended in an error; `objective_s` is how long each may take.
    `cycle_s` is the length of a burst cycle, None for an even load.
    """

    kinds: Sequence[str]
    released_s: Array
    finished_s: Array
    failed: NDArray[np.bool_]
    objective_s: Array
    window_s: float
    cycle_s: float | None = None

    def __post_init__(self) -> None:
        if not self.window_s > 0.0 or len(self.kinds) == 0:
            raise BadField("window_s", self.window_s, "give a window above 0 s, and what was released in it")


@dataclass(frozen=True)
class Judgement:
    """The verdict, every reason against a pass, and the numbers behind it; numbers are None where clocks left none."""

    verdict: Verdict
    reasons: tuple[str, ...]
    attainment: dict[str, float]
    growth: float | None = None
    slope: float | None = None
    backlog_limit: float | None = None
    drain_s: float | None = None
    drain_limit_s: float | None = None


def judge(run: Run) -> Judgement:
    """Judge a run by the rule above."""
    early = run.finished_s < run.released_s
    if early.any() or not np.isfinite(run.released_s).all() or (run.released_s < 0.0).any():
        return Judgement(Verdict.INCONCLUSIVE, ("clocks contradict themselves: finished before released, or no time",), {})
    at_s = sampled_at(run.window_s, run.cycle_s)
    if len(at_s) < LEAST_SAMPLES:
        return Judgement(Verdict.INCONCLUSIVE, (f"{len(at_s)} samples of the backlog, {LEAST_SAMPLES} are needed",), {})
    n = len(run.kinds)
    lost = run.failed | np.isnan(run.finished_s)
    met = ~lost & (run.finished_s - run.released_s <= run.objective_s)
    attainment = {kind: float(met[np.array([one == kind for one in run.kinds])].mean()) for kind in sorted(set(run.kinds))}
    growth, slope = _growth(_backlog(run, at_s), at_s, run.window_s)
    limit, drain_limit_s = max(6.0, 0.01 * n), max(20.0, 0.03 * run.window_s)
    drain_s = max(0.0, float(np.nanmax(run.finished_s, initial=0.0)) - run.window_s)
    reasons = [f"{int(lost.sum())} of {n} failed or never finished"] if lost.any() else []
    reasons += [f"{kind}: {share:.1%} met their objective" for kind, share in attainment.items() if share < ATTAINMENT]
    told = (
        ("backlog grew by", growth, limit),
        ("backlog rose at a slope of", slope, limit),
        ("drain took s", drain_s, drain_limit_s),
    )
    reasons += [f"{what} {value:.4g}, at most {most:.4g}" for what, value, most in told if value > most]
    verdict = Verdict.FAIL if reasons else Verdict.PASS
    return Judgement(verdict, tuple(reasons), attainment, growth, slope, limit, drain_s, drain_limit_s)


def sampled_at(window_s: float, cycle_s: float | None) -> Array:
    """When the backlog is looked at, s: evenly, or where burst cycles meet, so that no phase of a cycle is taken for growth."""
    low_s, high_s = 0.2 * window_s, 0.9 * window_s
    if cycle_s is None:
        return np.linspace(low_s, high_s, SAMPLES, dtype=np.float64)
    first, last = int(np.ceil(low_s / cycle_s - 1e-9)), int(np.floor(high_s / cycle_s + 1e-9))
    return np.arange(first, last + 1, dtype=np.float64) * cycle_s


def _backlog(run: Run, at_s: Array) -> Array:
    """Q at these times: what never finished stays."""
    finished = np.sort(run.finished_s[~np.isnan(run.finished_s)])
    released = np.sort(run.released_s)
    left = np.searchsorted(released, at_s, side="right") - np.searchsorted(finished, at_s, side="right")
    return left.astype(np.float64)


def _growth(backlog: Array, at_s: Array, window_s: float) -> tuple[float, float]:
    """(mean of the last seventh less that of the first, least-squares slope times the window), in units of work."""
    seventh = max(1, len(backlog) // 7)
    centred = at_s - at_s.mean()
    slope = float(centred @ backlog / (centred @ centred)) * window_s
    return float(backlog[-seventh:].mean() - backlog[:seventh].mean()), slope
