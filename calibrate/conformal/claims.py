"""What a finite sample proves about a level: split conformal ranks, and how many outcomes a level needs.

Of n exchangeable outcomes with u_i = F(y_i), the next one lies below the ceil((n + 1) p)-th smallest with probability p or more
(Vovk et al.; Papadopoulos et al. 2002). With weights w_i at most 1 the next outcome weighs 1, somewhere above them all
(Tibshirani et al. 2019): the level to ask for is the least a with sum of w_i over u_i <= a at least p (sum w + 1). Where no
a reaches that, the bound is open-ended; the largest u seen is never passed off as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from telemetry.errors import BadField

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Claim:
    """What `n` outcomes (decayed: the sum of their weights) prove at `level`.

    `asked` is the level of the distribution to answer with, None where the bound is open-ended; then `needs_n` outcomes would do.
    """

    level: float
    asked: float | None
    n: float
    needs_n: int

    def holds_for(self, served: float) -> bool:
        """Whether an answer at level `served` of the distribution may carry the finite-sample claim."""
        return self.asked is not None and served >= self.asked


def needs_n(level: float) -> int:
    """The least n with ceil((n + 1) p) <= n: p / (1 - p), rounded up. 0.9 needs 9, 0.99 needs 99."""
    if not 0.0 < level < 1.0:
        raise BadField("level", level, "give a level between 0 and 1")
    return math.ceil(level / (1.0 - level) - _ROUNDING)


def claim(u: ArrayLike, level: float, weight: ArrayLike | None = None) -> Claim:
    """The claim of outcomes u in [0, 1], shape (n,), at one level.

    `weight` (n,) in [0, 1]. Of a histogram pass the upper edges as u and the counts as weights: never too low, and at most a bin
    too high.
    """
    least = needs_n(level)
    at = np.asarray(u, dtype=np.float64)
    w = np.ones(len(at)) if weight is None else np.asarray(weight, dtype=np.float64)
    if len(w) != len(at) or not np.all(np.isfinite(at) & np.isfinite(w) & (w >= 0.0)):
        raise BadField("u, weight", (len(at), len(w)), "give one finite u and one finite weight of 0 or more per outcome")
    order = np.argsort(at, kind="stable")
    below, total = np.cumsum(w[order]), float(w.sum())
    reached = np.flatnonzero(below >= level * (total + 1.0) - _ROUNDING)
    asked = float(at[order[reached[0]]]) if len(reached) else None
    return Claim(level, asked, total, least)


def claimed_to(claims: Sequence[Claim], served: Sequence[float]) -> float:
    """Highest level of `claims` (ascending) up to which every answer in `served` may carry its claim; 0 where none may."""
    highest = 0.0
    for one, level in zip(claims, served, strict=True):
        if not one.holds_for(level):
            break
        highest = one.level
    return highest
