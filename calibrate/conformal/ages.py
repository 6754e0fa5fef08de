"""Recalibration of what remains: of rows that reached an age, at which level of the answer they then ended.

An answer that comes true on the whole need not come true for those that still run: whoever has outlasted what is typical of
its group is there more often because too little was known of it. So every outcome is also placed in the answer as it would have
been at each of AGES times what is typical, u = (F(y) - F(e)) / (1 - F(e)), and by group, age and quarter of the answer used up
by then, F(e), these are recalibrated as the whole answer is (`calibrate.conformal.pit`). Between two ages the two curves are
mixed; towards age zero nothing is changed, so that a row asked as it starts is answered as one that has not started.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calibrate.conformal.pit import EDGES, WIDTHS, Histogram
from predictors.contexts import GROUPS, Context, groups_of
from predictors.distribution import Array
from predictors.layered import Layered

AGES = (0.25, 0.5, 1.0, 1.5, 3.0)
"""Multiples of what is typical of a group at which outcomes are placed."""
YOUNGEST = 0.125
"""The multiple up to which nothing is changed."""
LOG_AGES: Array = np.log(AGES)
MEMORY = 200
"""Outcomes over which the mean of log times reaches back."""
WIDER = 10.0
"""Outcomes that the wider group's mean weighs."""
PSEUDO = 30.0
"""Outcomes that the wider node's histogram weighs."""
PLACES = tuple(GROUPS.index(name) for name in ("phase", "family", "host+family"))


@dataclass(frozen=True, slots=True)
class Typical:
    """A group's number of completed outcomes and the mean of their log times."""

    n: int
    mean: float


@dataclass(frozen=True, slots=True)
class Lasted:
    """A row that lasted duration_s, with (index in AGES, F(e), u) of each age e it reached; u is a bound where it was lost."""

    groups: tuple[str, ...]
    duration_s: float
    ended: bool
    places: tuple[tuple[int, float, float], ...]


@dataclass(frozen=True)
class Ages:
    """How outcomes lay in answers to questions asked at an age, by group, root first. Immutable."""

    typical: Layered[str, Typical] = field(default_factory=Layered)
    nodes: Layered[str, Histogram] = field(default_factory=Layered)

    def centre(self, groups: Sequence[str]) -> float | None:
        """Log time that is typical of a path of groups, each shrunk to the wider; None where nothing is known."""
        mean: float | None = None
        for key in groups:
            known = self.typical.get(key)
            if known is not None:
                mean = known.mean if mean is None else (known.n * known.mean + WIDER * mean) / (known.n + WIDER)
        return mean

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

    def reached(self, groups: Sequence[str], duration_s: float) -> list[tuple[int, float]]:
        """Index in AGES and age in s of those that a row of this duration reached."""
        centre = self.centre(groups)
        if centre is None:
            return []
        ages_s = [multiple * math.exp(centre) for multiple in AGES]
        return [(age, age_s) for age, age_s in enumerate(ages_s) if age_s < duration_s]

    def _curve(self, groups: Sequence[str], age: int, used: float) -> Array:
        share = WIDTHS
        for key in _nodes(groups, age, used):
            node = self.nodes.get(key)
            if node is not None:
                share = node.shrunk(share, PSEUDO)
        cumulative = np.append(0.0, np.cumsum(share))
        return np.asarray(cumulative / cumulative[-1])

    def having(self, lasted: Sequence[Lasted]) -> Ages:
        """The same, knowing these rows too, in their order."""
        typical: dict[str, Typical] = {}
        nodes: dict[str, Histogram] = {}
        for one in lasted:
            for key in one.groups:
                if one.ended and one.duration_s > 0.0:
                    log_time = math.log(one.duration_s)
                    known = typical.get(key) or self.typical.get(key) or Typical(0, 0.0)
                    n = known.n + 1
                    typical[key] = Typical(n, known.mean + (log_time - known.mean) / min(n, MEMORY))
            for age, used, u in one.places:
                column = min(int(np.searchsorted(EDGES, u, side="right")) - 1, len(WIDTHS) - 1)
                for name in _nodes(one.groups, age, used):
                    node = nodes.get(name) or self.nodes.get(name) or Histogram(0.0, np.zeros(len(WIDTHS)))
                    nodes[name] = node.having(column, 1.0) if one.ended else node.losing(column, 1.0)
        return Ages(self.typical.having(typical), self.nodes.having(nodes))


def groups_aged(context: Context, phase: str) -> tuple[str, ...]:
    """Groups whose ages are told apart, root first."""
    every = groups_of(context, phase)
    return tuple(every[place] for place in PLACES)


def _nodes(groups: Sequence[str], age: int, used: float) -> tuple[str, ...]:
    """Nodes of an age, root first: a quarter of the answer is told apart within the narrowest group alone."""
    known = [f"{group} age {AGES[age]}" for group in groups]
    return (*known, f"{known[-1]} quarter {min(int(4.0 * used), 3)}")
