"""Controllers along a stratum path: one state per node, a new node starting as its parent stands.

Every node on the path learns from an outcome, each judged by its own bound; an answer is asked for by the deepest node that has
seen enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from calibrate.conformal.levels import End, served_at
from calibrate.conformal.mixture import CONTROLLED, Levels, Told, fold
from predictors.layered import Layered

LEAST = 20
"""Outcomes a node needs to answer for itself; below, its parent does."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of the recalibrated distribution on behalf of `node` ("" where no node has seen enough).

    `levels` and `ends`, one per ADVERTISED: the level to answer with and the end it stands in for; `crossings` counts neighbours
    that had to be set in order. `controlled_at` is the level whose long-run miss rate is proven to lie within `within` of nominal
    for the node's answers, None while that says nothing.
    """

    node: str
    levels: tuple[float, ...]
    ends: tuple[End | None, ...]
    crossings: int
    controlled_at: float | None
    within: float


@dataclass(frozen=True, slots=True)
class Learned:
    """An outcome: the path of its nodes, what is told, and the states `along` it when it was answered."""

    path: tuple[str, ...]
    told: Told
    asked: Levels


@dataclass(frozen=True, slots=True)
class Groups:
    """States by node key."""

    states: Layered[str, Levels] = field(default_factory=Layered)

    def along(self, path: Sequence[str]) -> Levels:
        """States from root to leaf, a row each, the parent's where a node is new; kept with an answer, they judge its outcome."""
        found: list[Levels] = []
        for node in path:
            found.append(self.states.get(node) or (found[-1].child() if found else Levels.start()))
        return Levels.stack(found)

    def asked(self, path: Sequence[str], outstanding: int = 0) -> Asked:
        """What the deepest node with LEAST outcomes asks for, with at most `outstanding` answers of it without an outcome."""
        node = next((key for key in reversed(path) if key in self.states and self.states[key].n[0] >= LEAST), "")
        state = self.states[node] if node else Levels.start()
        served = [served_at(float(alpha)) for alpha in state.served()[0]]
        within = float(state.within(outstanding)[0])
        claimed = CONTROLLED if node and within < 1.0 - CONTROLLED else None
        levels, ends = tuple(level for level, _ in served), tuple(end for _, end in served)
        return Asked(node, levels, ends, state.crossings(), claimed, within)

    def after(self, outcomes: Sequence[Learned]) -> Groups:
        """With outcomes in the order of becoming known; however they are cut into batches, the states are the same.

        A new node starts as its parent stood when the first of its answers with an outcome was given.
        """
        if not outcomes:
            return self
        place: dict[str, int] = {}
        now: list[Levels] = []
        told, asked, whose = [], [], []
        for one in outcomes:
            asked.append(one.asked)
            for row, node in enumerate(one.path):
                if node not in place:
                    place[node] = len(now)
                    now.append(self.states.get(node) or one.asked.row(row).child())
                told.append(one.told)
                whose.append(place[node])
        after = fold(Levels.stack(now), told, Levels.stack(asked), np.array(whose, dtype=np.intp))
        return Groups(self.states.having({node: after.row(row) for node, row in place.items()}))
