"""Level controllers around the calibrated model: which level to answer with so that advertised levels come true in the long run.

Nodes are the phase and the host within it. What was asked when a row began is kept until its outcome is known, and judges it.
Rows that began at one instant count once together, as they do in recalibration: else a controller would be told the same thing a
thousand times, and take a thousand answers to come back. Short rows count no sooner than long ones (`held.py`). What is proven
is proven of the weighted share of misses among what has counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from calibrate.conformal.groups import Groups, Learned
from calibrate.conformal.held import Holding, Turn
from calibrate.conformal.levels import ADVERTISED
from calibrate.conformal.mixture import CONTROLLED, Known, Levels, Told
from calibrate.conformal.pit import EDGES, passed_in
from predictors.contexts import JUDGED
from predictors.distribution import GRID, Array
from predictors.experts.asked import Asked
from predictors.model import Change
from telemetry.words import Ended

NODES = tuple(JUDGED.index(name) for name in ("phase", "host"))
RHO = 1.0
"""Correlation of misses of rows asked at one instant: m of them count as m / (1 + RHO (m - 1))."""
_KNOTS: Array = np.array([0.0, *ADVERTISED, 1.0])
CurveOf = Callable[[Asked], Array]
"""Cumulative share of outcomes at EDGES where a row is answered."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What answered a row: the recalibration's `curve` (len(EDGES),), and the states of its nodes, one row of arrays each.

    `past` is the level of the answer that it was last seen to run at; NaN where it was not.
    """

    curve: Array
    n: Array
    alpha: Array
    share: Array
    offset: Array
    past: float = float("nan")

    @property
    def states(self) -> Levels:
        """The states that asked, root first."""
        return Levels(self.n, self.alpha, self.share, self.offset)


@dataclass(frozen=True)
class Controlled:
    """Controllers, the rows they wait for, the outcomes held back, and how many those ever were at once. Immutable."""

    groups: Groups = field(default_factory=Groups)
    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    most: int = 0
    holding: Holding = field(default_factory=Holding)

    def levels(self, path: Sequence[str], levels: Array) -> Array:
        """Levels to ask of the recalibrated distribution so that `levels` come true, same shape; linear between those told."""
        asked = self.groups.asked(_nodes(path))
        return levels if not asked.node else np.asarray(np.interp(levels, _KNOTS, [0.0, *asked.levels, 1.0]))

    def answered(self, path: Sequence[str], levels: Array) -> Array:
        """The other way round: levels of what is answered, where the recalibrated distribution has `levels`."""
        asked = self.groups.asked(_nodes(path))
        return levels if not asked.node else np.asarray(np.interp(levels, [0.0, *asked.levels, 1.0], _KNOTS))

    def restarted(self, nodes: Sequence[str]) -> Controlled:
        """Controllers of these nodes as they start: to make up for misses of before a change would be wrong after it.

        So would hits held from before it, whose misses have counted already.
        """
        known = {node: Levels.start() for node in nodes if node in self.groups.states}
        if not known:
            return self
        return replace(self, groups=Groups(self.groups.states.having(known)), holding=self.holding.without(known.keys()))

    def claim(self, path: Sequence[str]) -> tuple[float | None, float]:
        """The level whose long-run miss rate is proven for answers of a path, and within how much; None while nothing is."""
        asked = self.groups.asked(_nodes(path), self.most)
        return asked.controlled_at, asked.within

    def after(
        self,
        changes: Sequence[Change],
        pending: Mapping[str, Asked],
        told: Sequence[tuple[str, Asked, float]],
        curve: CurveOf,
    ) -> Controlled:
        """Knowing also `changes`: `pending` are rows that wait after them, `told` outcomes among them as (key, row, level)."""
        ended = {key: u for key, _, u in told}
        waiting = dict(self.waiting)
        rows = {key: asked for key, asked, _ in told} | {c.key: pending[c.key] for c in changes if c.key in pending}
        for key, asked in rows.items():
            if key not in waiting:
                waiting[key] = self._now(asked, curve(asked))
        most = max(self.most, len(waiting) + len(self.holding))
        turn = Turn.of(self.holding, {c.key for c in changes if c.sign < 0 and c.ended != Ended.RUNNING})
        for change in changes:
            turn.reaches(change)
            if change.sign > 0 and change.key in waiting and change.key in rows:
                one = self._learned(change, rows[change.key], ended.get(change.key), waiting[change.key])
                if one is not None:
                    kept = waiting[change.key]
                    if change.ended == Ended.RUNNING:
                        turn.learned.append(one)
                        waiting[change.key] = replace(kept, past=one.told.u)
                    else:
                        turn.takes(change, one, _bound_s(rows[change.key], kept.curve))
        for change in changes:
            if change.key not in pending:
                waiting.pop(change.key, None)
        return Controlled(self.groups.after(turn.learned), waiting, most, turn.done())

    def _now(self, asked: Asked, curve: Array) -> Waiting:
        states = self.groups.along(_nodes(asked.path))
        return Waiting(curve, states.n, states.alpha, states.share, states.offset)

    def _learned(self, change: Change, asked: Asked, ended: float | None, kept: Waiting) -> Learned | None:
        """What a change tells the controllers of a row; None where it tells nothing."""
        if change.ended == Ended.RUNNING and change.duration_s <= 0.0:
            return None
        if change.ended == Ended.RUNNING:
            raw, known = passed_in(asked.mixed, asked.zero, change.duration_s), Known.RUNNING
        elif ended is not None and change.ended != Ended.FAILED:
            raw, known = ended, Known.ENDED if change.ended == Ended.COMPLETED else Known.LOST
        else:
            return None
        u = float(np.interp(raw, EDGES, kept.curve))
        weight = 1.0 / (1.0 + RHO * (max(asked.crowd[place] for place in NODES) - 1))
        past = None if np.isnan(kept.past) else kept.past
        return Learned(_nodes(asked.path), Told(u, known, past, weight), kept.states)


def _bound_s(asked: Asked, curve: Array) -> float:
    """The recalibrated answer's quantile at CONTROLLED, in s."""
    level = (float(np.interp(CONTROLLED, curve, EDGES)) - asked.zero) / (1.0 - asked.zero)
    return float(np.exp(np.interp(level, GRID, asked.mixed))) if level > 0.0 else 0.0


def _nodes(path: Sequence[str]) -> tuple[str, ...]:
    return tuple(path[place] for place in NODES)
