"""Recalibration of the probability integral transform: which level to ask of the model so that the level wanted comes true.

Per node of the judged path, a decayed histogram of u = F(y), drawn evenly between F(y-) and F(y) where they differ. Shares are
shrunk down the path, h = (counts + PSEUDO h_parent) / (n + PSEUDO), the root's parent being uniform; the quantile answered at
level p is the model's at level a, where the cumulative share reaches p. Rows asked at one instant count once together in each
node: a run that was slow as a whole says once, not a thousand times, that it was slow. Bins are fine at both ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from predictors.distribution import GRID, Array
from predictors.layered import Layered

HALF_LIFE = 800.0
"""Memory in outcomes."""
PSEUDO = 100.0
"""Outcomes that the parent's histogram weighs."""
EDGES: Array = np.concatenate([[0.0, 0.001, 0.0025, 0.005], np.arange(1, 100) / 100.0, [0.995, 0.9975, 0.999, 1.0]])
WIDTHS: Array = np.diff(EDGES)


@dataclass(frozen=True, slots=True)
class Histogram:
    """A node's decayed number of outcomes and their counts by bin, shape (len(WIDTHS),)."""

    n: float
    counts: Array


@dataclass(frozen=True, slots=True)
class Placed:
    """Where an outcome lay in the answer given for it, `u` in [0, 1]; `shares` is what it weighs at each node of its path."""

    path: tuple[str, ...]
    shares: tuple[float, ...]
    u: float


@dataclass(frozen=True)
class Recalibration:
    """How outcomes lay in the answers given, by node. Immutable."""

    nodes: Layered[str, Histogram] = field(default_factory=Layered)

    def at(self, path: Sequence[str]) -> Array:
        """Cumulative share of outcomes at EDGES for a path of nodes, root first: shape (len(EDGES),), from 0 to 1."""
        share = WIDTHS
        for key in path:
            node = self.nodes.get(key)
            if node is not None:
                share = (node.counts + PSEUDO * share) / (node.n + PSEUDO)
        cumulative = np.append(0.0, np.cumsum(share))
        return np.asarray(cumulative / cumulative[-1])

    def asked(self, path: Sequence[str], levels: Array) -> Array:
        """Levels to ask of the model so that `levels` come true, same shape."""
        return np.asarray(np.interp(levels, self.at(path), EDGES))

    def having(self, placed: Sequence[Placed]) -> Recalibration:
        """The recalibration that knows these outcomes too, in their order."""
        changed: dict[str, Histogram] = {}
        for one in placed:
            column = min(int(np.searchsorted(EDGES, one.u, side="right")) - 1, len(WIDTHS) - 1)
            for key, share in zip(one.path, one.shares, strict=True):
                node = changed.get(key) or self.nodes.get(key)
                kept = 0.5 ** (share / HALF_LIFE)
                counts = np.zeros(len(WIDTHS)) if node is None else node.counts * kept
                counts[column] += share
                changed[key] = Histogram(share if node is None else node.n * kept + share, counts)
        return Recalibration(self.nodes.having(changed))


def place_in(log_quantiles: Array, zero: float, duration_s: float, draw: float) -> float:
    """Place u of a duration in an answer given by log quantiles at GRID of its positive part and the probability `zero` of none.

    `draw` in (0, 1) decides where F jumps, and within the open ends.
    """
    if duration_s <= 0.0:
        return draw * zero
    log_time = float(np.log(duration_s))
    low = int(np.searchsorted(log_quantiles, log_time - 1e-9, side="left"))
    high = int(np.searchsorted(log_quantiles, log_time + 1e-9, side="right"))
    below = GRID[low - 1] if low > 0 else 0.0
    above = GRID[high] if high < len(GRID) else 1.0
    share = draw
    if low == high and 0 < low < len(GRID):
        share = (log_time - log_quantiles[low - 1]) / (log_quantiles[low] - log_quantiles[low - 1])
    return float(zero + (1.0 - zero) * (below + share * (above - below)))
