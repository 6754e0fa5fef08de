"""What a finite sample proves about a level: split conformal ranks, and how many outcomes a level needs.

Of n exchangeable outcomes with u_i = F(y_i), the next one lies below the ceil((n + 1) p)-th smallest with probability p or more
(Vovk et al.; Papadopoulos et al. 2002). With weights w_i at most 1 the next outcome weighs 1, somewhere above them all
(Tibshirani et al. 2019): the level to ask for is the least a with sum of w_i over u_i <= a at least p (sum w + 1). Where no
a reaches that, the bound is open-ended; the largest u seen is never passed off as one. Rows of which only a bound is known may
end above all others, and weigh there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from calibrate.conformal.pit import EDGES, UNIT, Histogram
from predictors.distribution import Array
from telemetry.errors import BadField

CLAIMED: Array = np.array([0.8, 0.9, 0.95, 0.99])
"""Levels that are claimed, upper bounds all."""
DECAYED = 5e-4
"""Levels of a node are proven to this: the first of the 9, 19, 99 outcomes that a level needs have lost so much weight."""
_ROUNDING = 1e-9


def needs_n(level: float) -> int:
    """The least n with ceil((n + 1) p) <= n: p / (1 - p), rounded up. 0.9 needs 9, 0.99 needs 99."""
    if not 0.0 < level < 1.0:
        raise BadField("level", level, "give a level between 0 and 1")
    return math.ceil(level / (1.0 - level) - _ROUNDING)


def ranks(u: ArrayLike, levels: ArrayLike, weight: ArrayLike | None = None, open_ended: float = 0.0) -> Array:
    """The least of outcomes u, shape (n,), to ask for so that they prove `levels` (m,): shape (m,), inf where none does.

    `weight` (n,) in [0, 1], and `open_ended` that of rows which may lie anywhere above. Of a histogram pass the upper edges as u
    and the counts as weights: never too low, and at most a bin too high.
    """
    at = np.asarray(u, dtype=np.float64)
    w = np.ones(len(at)) if weight is None else np.asarray(weight, dtype=np.float64)
    if len(w) != len(at) or not np.all(np.isfinite(at) & np.isfinite(w) & (w >= 0.0)):
        raise BadField("u, weight", (len(at), len(w)), "give one finite u and one finite weight of 0 or more per outcome")
    order = np.argsort(at, kind="stable")
    below = np.cumsum(w[order])
    wanted = np.asarray(levels, dtype=np.float64) * (float(w.sum()) + open_ended + 1.0) - _ROUNDING
    return np.asarray(np.append(at[order], np.inf)[np.searchsorted(below, wanted, side="left")])


def proven(node: Histogram | None, levels: ArrayLike) -> Array:
    """The least levels to ask for so that outcomes placed at one node prove `levels`, same shape; inf where they prove none.

    Outcomes in the last bin lie past all that answers tell apart: no level is known to reach them.
    """
    if node is None:
        return np.full(np.shape(levels), np.inf)
    asked = ranks(EDGES[1:], np.asarray(levels) - DECAYED, node.counts, sum(node.lost) + UNIT * sum(node.running))
    return np.where(asked < EDGES[-1], asked, np.inf)


def outlasted(log_times: Sequence[float], node: Histogram | None, levels: ArrayLike) -> Array:
    """The least log times that the newest outcomes of one node prove at `levels`, same shape; inf where they prove none.

    Among `log_times` may be draws that stand for rows of which only a bound is known: those count as open-ended besides, twice,
    so that wherever the draws lie they prove no more than if they had been left out.
    """
    open_ended = 2.0 * sum(node.lost) + UNIT * sum(node.running) if node is not None else 0.0
    return ranks(log_times, levels, open_ended=open_ended)


def claimed_to(asked: ArrayLike, served: ArrayLike) -> float:
    """The highest of CLAIMED up to which all that is served reaches what is `asked` for, both (len(CLAIMED),); 0 where none."""
    held = np.asarray(served) >= np.asarray(asked) - _ROUNDING
    n = len(CLAIMED) if held.all() else int(np.argmin(held))
    return float(CLAIMED[n - 1]) if n else 0.0
