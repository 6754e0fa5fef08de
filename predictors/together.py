"""What rows of a family that run on a host at one time have in common: how much of their residuals neighbours in time share.

A slow spell moves all that runs in it, so what runs now varies less about what ended just now than all rows do about their
centre. Of completed rows in order of their start, z and z' being residuals of two next to each other on a host,

    rho = sum w z z' / (sum w (z^2 + z'^2) / 2 + pooling)      by family, from 0 to 1,

is the lag-one autocorrelation, drawn to 0, and sqrt(1 - rho) the scale of what runs at one time over that of all.

Rows whose start was not seen say nothing. Nor do those of an instant of which some still run: what has ended of it is alike since
it is short. Rows that began at one instant are known in order of length; here they stand in an order that length had no part in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from predictors.distribution import Array
from predictors.effects import Ints, summed

MOST = 50_000
"""Newest completed rows that are looked at."""
FURTHEST = 3.0
"""Residuals past so many scales count as that far off, for a stall says nothing of its neighbours."""


@dataclass(frozen=True)
class Neighbours:
    """Pairs of rows next to each other in time on a host: row numbers, shape (n_pairs,), and the family of each pair."""

    first: Ints
    second: Ints
    family: Ints
    n_families: int

    def shared(self, residual: Array, weight: Array, pooling: float) -> Array:
        """What each family shares (rho), shape (n_families,); `residual`, in scales, and `weight` have shape (n_rows,)."""
        z = np.clip(residual, -FURTHEST, FURTHEST)
        before, after = z[self.first], z[self.second]
        counts = np.minimum(weight[self.first], weight[self.second])
        both = summed(self.family, counts * before * after, self.n_families)
        each = summed(self.family, 0.5 * counts * (before**2 + after**2), self.n_families)
        return np.clip(both / (each + pooling), 0.0, 1.0)


def neighbours(host: Ints, family: Ints, started_ns: Ints, completed: np.typing.NDArray[np.bool_], n_families: int) -> Neighbours:
    """Pairs among rows of shape (n_rows,), in the order in which they became known; `started_ns` is -1 where not seen."""
    unfinished = np.unique(started_ns[~completed])
    rows = np.flatnonzero(completed & (started_ns >= 0) & ~np.isin(started_ns, unfinished))[-MOST:]
    shuffled = np.random.default_rng(len(rows)).permutation(len(rows))
    rows = rows[np.lexsort((shuffled, started_ns[rows], host[rows], family[rows]))]
    next_to = (host[rows[1:]] == host[rows[:-1]]) & (family[rows[1:]] == family[rows[:-1]])
    return Neighbours(rows[:-1][next_to], rows[1:][next_to], family[rows[1:]][next_to], n_families)
