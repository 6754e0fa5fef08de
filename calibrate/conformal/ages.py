"""Recalibration of what remains: of rows that reached an age, at which level of the answer they then ended.

An answer that comes true on the whole need not come true for those that still run: whoever has outlasted what is typical of
its group is there more often because too little was known of it. So every outcome is also placed in the answer as it would have
been at each of AGES times what is typical, u = (F(y) - F(e)) / (1 - F(e)), and by group, age and quarter of the answer used up
by then, F(e), these are recalibrated as the whole answer is (`calibrate.conformal.pit`). Between two ages the two curves are
mixed; towards age zero nothing is changed, so that a row asked as it starts is answered as one that has not started.

Answers improve while they are learned, and few rows grow old: how rows lay in the answers of long ago would be remembered for too
long. So besides, what came in when m outcomes of the phase were known weighs (m / n)^LEARNED once n are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calibrate.conformal.pit import HALF_LIFE, lasting
from predictors.contexts import GROUPS, Context, groups_of
from predictors.distribution import Array
from predictors.layered import Layered

AGES = (0.25, 0.5, 1.0, 1.5, 3.0)
"""Multiples of what is typical of a group at which outcomes are placed."""
YOUNGEST = 0.125
"""The multiple up to which nothing is changed."""
LOG_AGES: Array = np.log(AGES)
EDGES: Array = np.concatenate([np.arange(20) / 20.0, [0.975, 0.99, 1.0]])
"""Bins of u: coarser than those of whole answers, for fewer outcomes fall to each age."""
WIDTHS: Array = np.diff(EDGES)
MEMORY = 200
"""Outcomes over which the median of log times reaches back."""
STEP = 1.57
"""Step of a running median in mean deviations: half of one over a normal law's density at its median."""
WIDER, FEW = 10.0, 3.0
"""Outcomes that the wider group's median weighs at most, and that its spread weighs."""
PSEUDO = (15.0, 60.0, 60.0, 60.0)
"""Outcomes that the wider node's histogram weighs, from the phase, where it is that of answers that come true, to a quarter."""
LEARNED = 3.0
"""Power of the share of outcomes known then in how much a row placed then weighs now."""
KEPT = 0.5 ** (1.0 / HALF_LIFE)
PLACES = tuple(GROUPS.index(name) for name in ("phase", "family", "host+family"))


@dataclass(frozen=True, slots=True)
class Typical:
    """A group's number of completed outcomes, the running median of their log times, and how far off they lay from it."""

    n: int
    median: float
    off: float

    def having(self, log_time: float) -> Typical:
        """A step towards an outcome, as long as a normal law's density at its median makes best (Robbins and Monro 1951)."""
        n = self.n + 1
        if n == 1:
            return Typical(1, log_time, 0.0)
        away, back = log_time - self.median, min(n, MEMORY)
        step = min(STEP * self.off / back, abs(away)) if self.off > 0.0 else abs(away) / back
        return Typical(n, self.median + math.copysign(step, away), self.off + (abs(away) - self.off) / back)


NOTHING = Typical(0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Reached:
    """A node's decayed outcomes by age: how many, shape (len(AGES),), and by age and bin, (len(AGES), len(WIDTHS)).

    `counts` are of rows that ended in a bin, `lost` of rows of which no more is known than that they left it running. `upto`
    (len(AGES),) tells how many outcomes of the phase were known when each age last changed, 0 where nobody told.
    """

    n: Array
    counts: Array
    lost: Array
    upto: Array = field(default_factory=lambda: np.zeros(len(AGES)))

    @classmethod
    def of_none(cls) -> Reached:
        """Nothing known."""
        return cls(np.zeros(len(AGES)), np.zeros((len(AGES), len(WIDTHS))), np.zeros((len(AGES), len(WIDTHS))))

    def copy(self) -> Reached:
        """The same in arrays of its own."""
        return Reached(self.n.copy(), self.counts.copy(), self.lost.copy(), self.upto.copy())

    def kept(self, now: int) -> Array:
        """What is left of each age's weight now that so many outcomes of the phase are known, shape (len(AGES),)."""
        return np.where(self.upto > 0.0, self.upto / max(now, 1), 1.0) ** LEARNED

    def shrunk(self, age: int, parent: Array, now: int, weighing: float) -> Array:
        """Shares by bin at an age, shape (len(WIDTHS),), the parent's `weighing` so many outcomes."""
        kept = self.kept(now)[age]
        counts = kept * self.counts[age] + weighing * parent
        if not self.lost[age].any():
            return np.asarray(counts / (kept * self.n[age] + weighing))
        return lasting(counts, kept * self.lost[age])


@dataclass(frozen=True, slots=True)
class Lasted:
    """A row that lasted duration_s: of each age e that it reached, youngest first, F(e) and u; u is a bound where it was lost.

    `shares` is what it weighs in each of its groups: of rows that began together those that end first lie low in their answers.
    """

    groups: tuple[str, ...]
    duration_s: float
    ended: bool
    used: Sequence[float] = ()
    u: Sequence[float] = ()
    shares: tuple[float, ...] = (1.0,) * len(PLACES)


@dataclass(frozen=True)
class Ages:
    """How outcomes lay in answers to questions asked at an age, by group, root first. Immutable, but for a memo of curves."""

    typical: Layered[str, Typical] = field(default_factory=Layered)
    nodes: Layered[str, Reached] = field(default_factory=Layered)
    curves: dict[tuple[str, int], Array] = field(default_factory=dict, repr=False, compare=False)

    def centre(self, groups: Sequence[str]) -> float | None:
        """Log time that is typical of a path of groups, each shrunk to the wider; None where nothing is known.

        The steadier a group is beside the wider, the less it is shrunk: with all its outcomes alike, it may lie anywhere.
        """
        middle: float | None = None
        wide = 0.0
        for key in groups:
            known = self.typical.get(key)
            if known is None:
                continue
            off = (known.n * known.off + FEW * wide) / (known.n + FEW)
            if middle is None:
                middle, wide = known.median, known.off
                continue
            weight = WIDER * min(off / wide, 1.0) ** 2 if wide > 0.0 else WIDER
            middle, wide = (known.n * known.median + weight * middle) / (known.n + weight), off
        return middle

    def reached(self, groups: Sequence[str], duration_s: float) -> list[float]:
        """The ages in s that a row of this duration reached, youngest first."""
        centre = self.centre(groups)
        if centre is None:
            return []
        typical_s = math.exp(centre)
        return [multiple * typical_s for multiple in AGES if multiple * typical_s < duration_s]

    def at(self, groups: Sequence[str], age_s: float, used: float) -> Array | None:
        """Cumulative share of outcomes at EDGES of the answer given the age, shape (len(EDGES),); None where it stands as it is.

        `used` is F(age) in the answer.
        """
        centre = self.centre(groups)
        if centre is None or age_s <= 0.0:
            return None
        place = math.log(age_s) - centre
        if place <= math.log(YOUNGEST):
            return None
        old = int(np.searchsorted(LOG_AGES, place))
        if old == len(AGES):
            return self._curve(groups, old - 1, used)
        young = math.log(YOUNGEST) if old == 0 else LOG_AGES[old - 1]
        share = (place - young) / (LOG_AGES[old] - young)
        below = EDGES if old == 0 else self._curve(groups, old - 1, used)
        return np.asarray((1.0 - share) * below + share * self._curve(groups, old, used))

    def _curve(self, groups: Sequence[str], age: int, used: float) -> Array:
        quarter = _quarter(groups, used)
        known = self.curves.get((quarter, age))
        if known is None:
            known = self.curves[quarter, age] = self._summed((*groups, quarter), age)
        return known

    def _summed(self, path: Sequence[str], age: int) -> Array:
        """Cumulative share at EDGES for a path of nodes."""
        share, known = WIDTHS, self.typical.get(path[0])
        now = 0 if known is None else known.n
        for key, weighing in zip(path, PSEUDO, strict=True):
            node = self.nodes.get(key)
            if node is not None:
                share = node.shrunk(age, share, now, weighing)
        cumulative = np.append(0.0, np.cumsum(share))
        return np.asarray(cumulative / cumulative[-1])

    def having(self, lasted: Sequence[Lasted]) -> Ages:
        """The same, knowing these rows too, in their order."""
        typical: dict[str, Typical] = {}
        nodes: dict[str, Reached] = {}
        for one in lasted:
            if one.ended and one.duration_s > 0.0:
                for key in one.groups:
                    known = typical.get(key) or self.typical.get(key) or NOTHING
                    typical[key] = known.having(math.log(one.duration_s))
            if len(one.u):
                phase = typical.get(one.groups[0]) or self.typical.get(one.groups[0]) or NOTHING
                self._place(one, nodes, phase.n)
        return Ages(self.typical.having(typical), self.nodes.having(nodes))

    def _place(self, one: Lasted, nodes: dict[str, Reached], now: int) -> None:
        """Counts a row at the ages it reached. Arrays of `nodes` are of this step alone, and changed in place."""
        column = np.minimum(np.searchsorted(EDGES, one.u, side="right") - 1, len(WIDTHS) - 1)
        reached: dict[str, list[int]] = {group: list(range(len(one.u))) for group in one.groups}
        for age, used in enumerate(one.used):
            reached.setdefault(_quarter(one.groups, used), []).append(age)
        shares = dict(zip(one.groups, one.shares, strict=True))
        for key, ages in reached.items():
            node = nodes.get(key)
            if node is None:
                known = self.nodes.get(key)
                node = nodes[key] = known.copy() if known is not None else Reached.of_none()
            there = slice(ages[0], ages[-1] + 1)  # F(e) grows with age, so what lies in a quarter lies together
            share = shares.get(key, one.shares[-1])
            kept = KEPT**share * node.kept(now)[there]
            node.n[there] *= kept
            node.counts[there] *= kept[:, None]
            node.lost[there] *= kept[:, None]
            node.upto[there] = now
            (node.counts if one.ended else node.lost)[ages, column[ages]] += share
            if one.ended:
                node.n[there] += share


def groups_aged(context: Context, phase: str) -> tuple[str, ...]:
    """Groups whose ages are told apart, root first."""
    every = groups_of(context, phase)
    return tuple(every[place] for place in PLACES)


def _quarter(groups: Sequence[str], used: float) -> str:
    """The quarter of an answer, within the narrowest group."""
    return f"{groups[-1]} quarter {min(int(4.0 * used), 3)}"
