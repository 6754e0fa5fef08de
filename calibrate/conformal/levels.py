"""One controller of one advertised level: state in, outcome in, state out, so that a replay is a fold.

A path asks the recalibrated distribution for its quantile at 1 - alpha_t and moves by

    alpha_{t+1} = alpha_t + gamma (alpha - miss_t)                                       (Gibbs and Candes 2021).

alpha_t is never clipped: at alpha_t >= 1 the formal bound misses for certain, at alpha_t <= 0 it covers for certain. What is
served there is finite, and marked. On any sequence, with at most D answers outstanding, after T outcomes

    |mean formal miss - alpha| <= (max(alpha_1, 1 - alpha_1) + gamma (D + 1)) / (gamma T).

An answer is judged by what was asked when it was given, not by what would be asked when its outcome comes: states are values,
so keep the one that answered and let it say what the outcome counts for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from predictors.distribution import GRID
from telemetry.errors import BadField

ADVERTISED = (0.5, 0.9, 0.95, 0.99)
LOWEST, HIGHEST = float(GRID[0]), float(GRID[-1])
"""Levels between which answers are given."""


class End(StrEnum):
    """The end at which a formal bound says nothing: `open` is past every quantile answered, `empty` before them all."""

    OPEN = "open"
    EMPTY = "empty"


def served_at(alpha: float) -> tuple[float, End | None]:
    """The level answered for a formal miss rate, within the grid, and the end it stands in for, if any."""
    asked = 1.0 - alpha
    if asked > HIGHEST:
        return HIGHEST, End.OPEN
    return (LOWEST, End.EMPTY) if asked < LOWEST else (asked, None)


def miss_rate_bound(start: float, gamma: float, n: int, outstanding: int = 0) -> float:
    """Bound on |mean formal miss - alpha| of one path after n outcomes; `start` is its first alpha, `outstanding` is D."""
    return (max(start, 1.0 - start) + gamma * (outstanding + 1)) / (gamma * n)


@dataclass(frozen=True, slots=True)
class Level:
    """One path with one gamma, for one advertised coverage. `alpha` is the miss rate asked for, unclipped."""

    coverage: float
    alpha: float
    gamma: float

    @classmethod
    def start(cls, coverage: float, gamma: float) -> Level:
        """Asks for what is advertised."""
        if not (0.0 < coverage < 1.0 and gamma > 0.0):
            raise BadField("coverage, gamma", (coverage, gamma), "give a coverage between 0 and 1 and a gamma above 0")
        return cls(coverage, 1.0 - coverage, gamma)

    def formal(self, miss: float) -> float:
        """The miss that counts for an answer given in this state: what was observed or imputed, but certain at the ends."""
        if self.alpha >= 1.0:
            return 1.0
        return 0.0 if self.alpha <= 0.0 else miss

    def after(self, miss: float, weight: float = 1.0) -> Level:
        """With the formal miss in [0, 1] of one answer (`formal` of the state that gave it), weight in [0, 1]."""
        if not (0.0 <= miss <= 1.0 and 0.0 <= weight <= 1.0):
            raise BadField("miss, weight", (miss, weight), "give both within [0, 1]")
        return replace(self, alpha=self.alpha + self.gamma * weight * ((1.0 - self.coverage) - miss))
