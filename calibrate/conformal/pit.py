"""Recalibration of the probability integral transform: which level to ask of the model so that the level wanted comes true.

Per node of the judged path, a decayed histogram of u = F(y), drawn evenly between F(y-) and F(y) where they differ. Shares are
shrunk down the path, h = (counts + PSEUDO h_parent) / (n + PSEUDO), the root's parent being uniform; the quantile answered at
level p is the model's at level a, where the cumulative share reaches p. Rows asked at one instant count once together in each
node: a run that was slow as a whole says once, not a thousand times, that it was slow. Bins are fine at both ends.

Answers improve quickly while the first outcomes of a phase come in, and how they lay in answers before that would be remembered
for too long. So what was placed when m rows of it were known weighs (m / n)^LEARNED once n are, up to n = EARLY. It is not so of
configurations never seen, about which little is known however much is of others, nor of an exact configuration's own outcomes.

Of a row cancelled, lost or still running at c no more is known than u > F(c). Such rows leave the number at risk at F(c), so that
shares are those of Kaplan and Meier (1958) over bins: what they would have come to lies above F(c) as the node's own outcomes do.
A running row counts until it is taken back, and is then gone to the last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

import numpy as np

from predictors.contexts import settled_nodes
from predictors.distribution import GRID, Array
from predictors.layered import Layered

HALF_LIFE = 800.0
"""Memory in outcomes."""
PSEUDO = 100.0
"""Outcomes that the parent's histogram weighs."""
EARLY, LEARNED = 500, 2.0
"""Rows of a phase until which answers improve quickly, and by which power what was placed before weighs less."""
EDGES: Array = np.concatenate([[0.0, 0.001, 0.0025, 0.005], np.arange(1, 100) / 100.0, [0.995, 0.9975, 0.999, 1.0]])
WIDTHS: Array = np.diff(EDGES)
UNIT = 2.0**-20
"""Running rows are counted in whole numbers of this, so that taking one back leaves nothing."""
NO_LOST, NO_RUNNING = (0.0,) * len(WIDTHS), (0,) * len(WIDTHS)


class Seen(StrEnum):
    """What was seen of a row: its end, that it lasted longer, that it runs, or that it no longer does."""

    ENDED = "ended"
    LOST = "lost"
    RUNNING = "running"
    NOT_RUNNING = "not_running"


@dataclass(frozen=True, slots=True)
class Histogram:
    """A node's decayed number of outcomes and their counts by bin, shape (len(WIDTHS),).

    `lost` are decayed counts of rows of which only a bound is known, by the bin of the bound, and `running` those of running
    rows, in UNITs; both are empty where there are none. `n` counts neither. `rows` is how many of the phase were known when the
    node last changed, EARLY at most and 0 where that does not matter; `faded` is by how much its counts add up to less than `n`.
    """

    n: float
    counts: Array
    lost: tuple[float, ...] = ()
    running: tuple[int, ...] = ()
    rows: int = EARLY
    faded: float = 0.0

    @property
    def weight(self) -> float:
        """What counts add up to."""
        return self.n - self.faded

    def having(self, column: int, share: float, rows: int = EARLY) -> Histogram:
        """With an outcome in a bin, one of so many `rows` of the phase."""
        n, counts, lost, faded = self._kept(share, rows)
        counts[column] += share
        return Histogram(n + share, counts, lost, self.running, rows, faded)

    def losing(self, column: int, share: float, rows: int = EARLY) -> Histogram:
        """With a row that lasted longer than the bin."""
        n, counts, lost, faded = self._kept(share, rows)
        beyond = list(lost or NO_LOST)
        beyond[column] += share
        return Histogram(n, counts, tuple(beyond), self.running, rows, faded)

    def _kept(self, share: float, rows: int) -> tuple[float, Array, tuple[float, ...], float]:
        """What is left of `n`, `counts` and `lost` past a share of a row, and by how much the second add up to less."""
        kept = 0.5 ** (share / HALF_LIFE)
        known = kept * (self.rows / rows) ** LEARNED if 0 < self.rows < rows else kept
        n = self.n * kept
        return n, self.counts * known, self.lost and tuple(mass * known for mass in self.lost), n - self.weight * known

    def discounted(self, kept: float) -> Histogram:
        """With what ended weighing `kept` times as much, 0 to 1; rows that run stay as they are."""
        lost = tuple(mass * kept for mass in self.lost)
        return replace(self, n=self.n * kept, counts=self.counts * kept, lost=lost, faded=self.faded * kept)

    def running_in(self, column: int, share: float, sign: int) -> Histogram:
        """With one running row more, or with one less."""
        running = list(self.running or NO_RUNNING)
        running[column] += sign * round(share / UNIT)
        return replace(self, running=tuple(running) if any(running) else ())

    def shrunk(self, parent: Array) -> Array:
        """Shares by bin, shape (len(WIDTHS),), the parent's weighing PSEUDO outcomes."""
        if not self.lost and not self.running:
            return np.asarray((self.counts + PSEUDO * parent) / (self.weight + PSEUDO))
        beyond = np.array(self.lost or NO_LOST) + UNIT * np.array(self.running or NO_RUNNING)
        return lasting(self.counts + PSEUDO * parent, beyond)


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a row lay in the answer given for it, `u` in [0, 1]; `shares` is what it weighs at each node of its path.

    Of rows not seen to end, `u` is what they are known to exceed.
    """

    path: tuple[str, ...]
    shares: tuple[float, ...]
    u: float
    seen: Seen = Seen.ENDED


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
                share = node.shrunk(share)
        cumulative = np.append(0.0, np.cumsum(share))
        return np.asarray(cumulative / cumulative[-1])

    def asked(self, path: Sequence[str], levels: Array) -> Array:
        """Levels to ask of the model so that `levels` come true, same shape."""
        return np.asarray(np.interp(levels, self.at(path), EDGES))

    def having(self, placed: Sequence[Placed]) -> Recalibration:
        """The recalibration that knows these rows too, in their order."""
        changed: dict[str, Histogram] = {}
        for one in placed:
            column = min(int(np.searchsorted(EDGES, one.u, side="right")) - 1, len(WIDTHS) - 1)
            root = changed.get(one.path[0]) or self.nodes.get(one.path[0])
            rows = 1 if root is None else min(root.rows + 1, EARLY)
            settled = settled_nodes(one.path) if rows < EARLY else ()
            for key, share in zip(one.path, one.shares, strict=True):
                node = changed.get(key) or self.nodes.get(key) or Histogram(0.0, np.zeros(len(WIDTHS)), rows=0)
                known = 0 if key in settled else rows
                if one.seen == Seen.ENDED:
                    changed[key] = node.having(column, share, known)
                elif one.seen == Seen.LOST:
                    changed[key] = node.losing(column, share, known)
                else:
                    changed[key] = node.running_in(column, share, 1 if one.seen == Seen.RUNNING else -1)
        return Recalibration(self.nodes.having(changed))

    def forgetting(self, keys: Sequence[str], kept: float) -> Recalibration:
        """The recalibration in which what ended at these nodes weighs `kept` times as much; unknown nodes are passed over."""
        known = ((key, self.nodes.get(key)) for key in keys)
        return Recalibration(self.nodes.having({key: node.discounted(kept) for key, node in known if node is not None}))


def lasting(ended: Array, beyond: Array) -> Array:
    """Shares by bin of rows of which `ended` were seen to end in each bin and `beyond` left it still running; they add up to 1.

    Kaplan and Meier's over bins; half of those that leave a bin are at risk in it. `ended` is above 0 in the last bin.
    """
    at_risk = np.cumsum((ended + beyond)[::-1])[::-1] - 0.5 * beyond
    survival = np.cumprod(1.0 - ended / at_risk)
    survival[-1] = 0.0
    return np.asarray(-np.diff(survival, prepend=1.0))


def passed_in(log_quantiles: Array, zero: float, age_s: float) -> float:
    """F(age) in an answer given as for `place_in`: what u exceeds of a row that lasted longer; 0 below the lowest quantile."""
    if age_s <= 0.0:
        return 0.0
    log_age = float(np.log(age_s))
    high = int(np.searchsorted(log_quantiles, log_age + 1e-9, side="right"))
    if high in {0, len(GRID)}:
        return zero if high == 0 else float(zero + (1.0 - zero) * GRID[-1])
    step = log_quantiles[high] - log_quantiles[high - 1]
    share = min(max((log_age - log_quantiles[high - 1]) / step, 0.0), 1.0)
    return float(zero + (1.0 - zero) * (GRID[high - 1] + share * (GRID[high] - GRID[high - 1])))


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
