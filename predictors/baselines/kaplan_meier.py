"""Kaplan-Meier curves per phase, those of families shrunk to their phase's: what survival analysis begins with.

At each time t at which something ended, of n under observation d end: S(t) = prod (1 - d / n). Rows are under observation after
their entry and up to their exit, so that late entry counts, and at ties an ending precedes a censoring (Kaplan, Meier 1958;
entry: Andersen et al. 1993, IV.1). A family's d / n is shrunk to its phase's, h = (d + PSEUDO h_phase) / (n + PSEUDO), which is
the mean under a beta process around the phase's curve (Hjort 1990).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from predictors import tails
from predictors.baselines.alone import Alone, Pair, alone
from predictors.baselines.quantile_curves import HAZARDS, Knots
from predictors.distribution import GRID, Array
from predictors.frames import Frame
from predictors.model import Change
from telemetry.words import Ended

PSEUDO = 25.0
"""Rows at risk that the phase's curve weighs in that of a family."""
MOST = 10_000
"""Rows kept of a phase or family, the newest: curves must not cost more as history grows."""
ENTRY, EXIT, EVENT, WEIGHT = range(4)
"""Columns of rows (n, 4): times in s, whether it completed (1 or 0), and the weight of its clock."""
ROUNDING = 1e-12


@dataclass(frozen=True)
class Steps:
    """Hazards at the times of events: of `at_risk` (n_times,) rows, `ended` (n_times,) end at `time_s`, by weight."""

    time_s: Array
    ended: Array
    at_risk: Array

    @property
    def hazard(self) -> Array:
        """Share of those at risk that end, shape (n_times,)."""
        return np.minimum(self.ended / self.at_risk, 1.0)


def steps(rows: Array) -> Steps:
    """Counts at each time in s at which something ended, of rows (n, 4)."""
    event = rows[:, EVENT] > 0.0
    time_s, place = np.unique(rows[event, EXIT], return_inverse=True)
    ended = np.bincount(place, rows[event, WEIGHT], len(time_s))
    return Steps(time_s, ended.astype(np.float64), _at_risk(rows, time_s))


def _at_risk(rows: Array, time_s: Array) -> Array:
    """Weight of rows with entry < t <= exit, shape of time_s; at t = 0 all that entered there."""
    entered = _weight_before(np.where(rows[:, ENTRY] > 0.0, rows[:, ENTRY], -1.0), rows[:, WEIGHT], time_s)
    return entered - _weight_before(rows[:, EXIT], rows[:, WEIGHT], time_s)


def _weight_before(at_s: Array, weight: Array, time_s: Array) -> Array:
    """Weight of rows with at_s < t."""
    order = np.argsort(at_s, kind="stable")
    total = np.append(0.0, np.cumsum(weight[order]))
    return np.asarray(total[np.searchsorted(at_s[order], time_s, side="left")])


def shrunk(own: Array, parent: Steps) -> Steps:
    """Steps of rows (n, 4), with PSEUDO more at risk that end as those of the parent do."""
    mine = steps(own)
    time_s = np.union1d(mine.time_s, parent.time_s)
    ended, borrowed = np.zeros(len(time_s)), np.zeros(len(time_s))
    ended[np.searchsorted(time_s, mine.time_s)] = mine.ended
    borrowed[np.searchsorted(time_s, parent.time_s)] = parent.hazard
    return Steps(time_s, ended + PSEUDO * borrowed, _at_risk(own, time_s) + PSEUDO)


def knots_of(found: Steps, longest_s: float) -> Knots:
    """Quantiles of the curve at GRID as far as it reaches, then level up to the longest known, s, then the declared tail.

    Where none is kept that ended, half are taken to have by the longest.
    """
    if not len(found.time_s):
        return Knots(np.log([longest_s]), HAZARDS[49:50])
    ended = 1.0 - np.cumprod(1.0 - found.hazard)
    reached = ended[-1] + ROUNDING >= GRID
    log_t = np.log(found.time_s[np.searchsorted(ended, GRID[reached] - ROUNDING)])
    hazard = HAZARDS[reached]
    last = -np.log1p(-min(ended[-1], GRID[-1]))
    log_t = np.append(log_t, np.log([found.time_s[-1], max(longest_s, found.time_s[-1])]))
    hazard = np.append(hazard, [last, last])
    return Knots(log_t, np.maximum.accumulate(hazard + ROUNDING * np.arange(len(hazard))), _slope(found))


def _slope(found: Steps) -> float:
    """Hazard per unit of log time past the evidence, from the latest events (`tails.hill_rate`)."""
    return float(np.clip(tails.hill_rate(np.log(found.time_s)), 0.02, 50.0))


@dataclass(frozen=True)
class PooledCurves:
    """Rows above zero by phase, and by phase and family; `curves` remembers what follows from them."""

    rows: Mapping[tuple[str, ...], Array]
    curves: dict[tuple[str, ...], Knots] = field(default_factory=dict, repr=False, compare=False)

    def knots(self, pairs: Sequence[Pair]) -> list[Knots]:
        """Law of durations above zero of each pair: of its family, else of its phase."""
        keys = [(phase, context.family or "") for context, phase in pairs]
        return [self._curve(key if key in self.rows else key[:1]) for key in keys]

    def _curve(self, key: tuple[str, ...]) -> Knots:
        found = self.curves.get(key)
        if found is None:
            rows = self.rows[key]
            of_phase = steps(self.rows[key[:1]])
            mine = of_phase if len(key) == 1 else shrunk(rows, of_phase)
            found = self.curves[key] = knots_of(mine, float(rows[:, EXIT].max()))
        return found

    def after(self, changes: Sequence[Change]) -> PooledCurves:
        """The rule that also knows the rows of `changes`; one that is no longer kept can't be taken back."""
        rows = dict(self.rows)
        for change in changes:
            if change.ended == Ended.FAILED or change.duration_s == 0.0:
                continue
            row = np.array([change.entry_s, change.duration_s, change.ended == Ended.COMPLETED, change.weight])
            for key in _keys(change.phase, change.context.family):
                rows[key] = _with(rows.get(key, np.empty((0, 4))), row, change.sign)
        return PooledCurves({key: known for key, known in rows.items() if len(known)})


def _keys(phase: str, family: str | None) -> tuple[tuple[str, ...], ...]:
    return (phase,), (phase, family or "")


def _with(rows: Array, row: Array, sign: int) -> Array:
    """Rows with one more, or with the newest equal one taken back."""
    if sign > 0:
        return np.concatenate([rows[-(MOST - 1) :], row[None, :]])
    equal = np.flatnonzero((rows == row).all(axis=1))
    return np.delete(rows, equal[-1], axis=0) if len(equal) else rows


def fit(frame: Frame, commit: int) -> Alone:
    """The model as of `commit`."""
    used = ~frame.failed & (frame.duration_s > 0.0)
    table = np.stack([frame.entry_s, frame.duration_s, frame.completed, frame.weight], axis=1)
    families = [context.family or "" for context in frame.contexts]
    names = sorted(set(families))
    family = np.array([names.index(name) for name in families], dtype=np.int64)[frame.context]
    rows: dict[tuple[str, ...], Array] = {}
    for number, phase in enumerate(frame.phases):
        mine = used & (frame.phase == number)
        if mine.any():
            rows[phase,] = table[mine][-MOST:]
        for place in np.unique(family[mine]).tolist():
            rows[phase, names[place]] = table[mine & (family == place)][-MOST:]
    return alone(PooledCurves(rows), frame, commit)
