"""Outcomes held back until long rows are known as short ones are: rows end in order of length, so what is told first are hits.

A controller that counts outcomes as they come hears of hits early and of misses late. While work comes evenly the two keep step.
Where it stops, the last to end are the longest: in worlds of two modes p90 was asked for at 0.993 once all work had ended. So
what a row within its bound says of the upper levels counts once that bound's time has passed since it began, whenever it ended. A
row past its bound has missed and counts at once, and so does what any row says of levels below, whose bounds pass soon.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace

from calibrate.conformal.groups import Learned
from calibrate.conformal.mixture import Known, Levels, Part, Told
from predictors.distribution import Array
from predictors.model import Change

MOST = 10_000
"""Outcomes held at once; the next due counts early where there are more."""


@dataclass(frozen=True, slots=True)
class Held:
    """What an outcome teaches controllers from due_s on (s since 1970), as in `Learned`; `past` is NaN where there is none."""

    due_s: float
    path: tuple[str, ...]
    u: float
    lost: bool
    past: float
    weight: float
    n: Array
    alpha: Array
    share: Array
    offset: Array

    @classmethod
    def of(cls, due_s: float, one: Learned) -> Held:
        """An outcome to be held."""
        told, asked = one.told, one.asked
        past = math.nan if told.past is None else told.past
        lost = told.known is Known.LOST
        return cls(due_s, one.path, told.u, lost, past, told.weight, asked.n, asked.alpha, asked.share, asked.offset)

    def without(self, nodes: AbstractSet[str]) -> Held | None:
        """What it teaches other nodes; None where there are none."""
        rows = [row for row, node in enumerate(self.path) if node not in nodes]
        if len(rows) == len(self.path):
            return self
        arrays = {name: getattr(self, name)[rows] for name in ("n", "alpha", "share", "offset")}
        return replace(self, path=tuple(self.path[row] for row in rows), **arrays) if rows else None

    def learned(self) -> Learned:
        """What was held back of it."""
        past = None if math.isnan(self.past) else self.past
        told = Told(self.u, Known.LOST if self.lost else Known.ENDED, past, self.weight, Part.UPPER)
        return Learned(self.path, told, Levels(self.n, self.alpha, self.share, self.offset))


@dataclass(frozen=True, slots=True)
class Holding:
    """Outcomes held by key, the next one due first, and the latest instant known, s since 1970. Immutable."""

    held: tuple[tuple[str, Held], ...] = ()
    clock_s: float = 0.0

    def __len__(self) -> int:
        return len(self.held)

    def without(self, nodes: AbstractSet[str]) -> Holding:
        """What is held for other nodes than these."""
        left = ((key, one.without(nodes)) for key, one in self.held)
        return replace(self, held=tuple((key, one) for key, one in left if one is not None))


@dataclass(slots=True)
class Turn:
    """What is held while changes are taken in one after the other, and what they have taught, in order."""

    held: list[tuple[str, Held]]
    clock_s: float
    learned: list[Learned] = field(default_factory=list)

    @classmethod
    def of(cls, before: Holding, corrected: AbstractSet[str]) -> Turn:
        """Begins with what was held, but for rows whose outcome is taken back."""
        held = [(key, one) for key, one in before.held if key not in corrected] if corrected else list(before.held)
        return cls(held, before.clock_s)

    def reaches(self, change: Change) -> None:
        """Moves the clock to when it happened that a change tells of, and lets go what is due by then."""
        if change.started_ns is None:
            return
        self.clock_s = max(self.clock_s, change.started_ns / 1e9 + change.duration_s)
        due = 0
        while due < len(self.held) and self.held[due][1].due_s <= self.clock_s:
            due += 1
        self._let_go(due)

    def takes(self, change: Change, one: Learned, bound_s: float) -> None:
        """Takes in what the end of a row teaches, of the upper levels once bound_s have passed since it began."""
        due_s = -math.inf if change.started_ns is None else change.started_ns / 1e9 + bound_s
        if due_s <= self.clock_s:
            self.learned.append(one)
            return
        self.learned.append(replace(one, told=replace(one.told, part=Part.LOWER)))
        insort(self.held, (change.key, Held.of(due_s, one)), key=_order)
        self._let_go(len(self.held) - MOST)

    def done(self) -> Holding:
        """What is held now."""
        return Holding(tuple(self.held), self.clock_s)

    def _let_go(self, first: int) -> None:
        if first > 0:
            self.learned += [one.learned() for _, one in self.held[:first]]
            del self.held[:first]


def _order(held: tuple[str, Held]) -> tuple[float, str]:
    key, one = held
    return one.due_s, key
