"""Experts averaged by stratum, with weights learned online.

Log quantiles are averaged, q(p) = sum_e w_e q_e(p). A node of the judged path keeps decayed sums of each expert's loss (CRPS of
log time); mean losses are shrunk down the path, m = (L + N0 m_parent) / (n + N0), and

    w_e proportional to prior_e exp(-TAU sqrt(n_root) (m_e - min m) / min m).

Rows asked at one instant move together: m of them in a node weigh m / (1 + RHO (m - 1)) outcomes (design effect of a cluster).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import GRID, Array
from predictors.layered import Layered

HALF_LIFE = 200.0
"""Memory in outcomes."""
N0 = 30.0
"""Outcomes that the parent's mean loss weighs."""
TAU = 2.0
MOST = 400.0
"""Outcomes past which evidence sharpens weights no further."""
RHO = 0.3
"""Correlation of losses of rows asked at one instant."""
LEVELS: Array = GRID[:99]


@dataclass(frozen=True, slots=True)
class Losses:
    """A node's decayed number of outcomes and sums of losses, shape (n_experts,)."""

    n: float
    total: Array


@dataclass(frozen=True)
class Weights:
    """What is known of how well experts do. `prior` (n_experts,) are the weights before any outcome."""

    prior: Array
    nodes: Layered[str, Losses] = field(default_factory=Layered)

    def at(self, path: Sequence[str]) -> Array:
        """Weights of the experts for a path of nodes, root first: shape (n_experts,), their sum is 1."""
        root = self.nodes.get(path[0])
        if root is None or root.n <= 0.0:
            return self.prior
        mean = root.total / root.n
        for key in path[1:]:
            node = self.nodes.get(key)
            if node is not None:
                mean = (node.total + N0 * mean) / (node.n + N0)
        best = float(mean[self.prior > 0.0].min())  # of those that are asked: against one that is not, all might weigh nothing
        behind = (mean - best) / max(best, 1e-300)  # an expert that was never wrong takes all
        weight = self.prior * np.exp(-TAU * np.sqrt(min(root.n, MOST)) * behind)
        return np.asarray(weight / weight.sum())

    def having(self, judged: Sequence[Judged]) -> Weights:
        """The weights that know these outcomes too, in their order."""
        changed: dict[str, Losses] = {}
        for one in judged:
            for key, share in zip(one.path, one.shares, strict=True):
                node = changed.get(key) or self.nodes.get(key)
                if node is None:
                    changed[key] = Losses(share, share * one.loss)
                else:
                    kept = 0.5 ** (share / HALF_LIFE)
                    changed[key] = Losses(node.n * kept + share, node.total * kept + share * one.loss)
        return Weights(self.prior, self.nodes.having(changed))


@dataclass(frozen=True, slots=True)
class Judged:
    """The experts' losses (n_experts,) of one outcome; `shares` is what it weighs at each node of its path."""

    path: tuple[str, ...]
    shares: tuple[float, ...]
    loss: Array


def losses(log_time: float, experts: NDArray[np.float32]) -> Array:
    """CRPS of log time of each expert, shape (n_experts,), from log quantiles at GRID (n_experts, len(GRID))."""
    above = log_time - experts[:, :99]
    return np.asarray(2.0 * np.maximum(LEVELS * above, (LEVELS - 1.0) * above).mean(axis=1))


def crowds(paths: Sequence[tuple[str, ...]]) -> Mapping[str, int]:
    """How many of the rows asked at one instant lie in each node."""
    counts: dict[str, int] = {}
    for path in paths:
        for key in path:
            counts[key] = counts.get(key, 0) + 1
    return counts


def shares(path: tuple[str, ...], crowd: Mapping[str, int], rho: float) -> tuple[float, ...]:
    """What one of a crowd weighs at each node: 1 / (1 + rho (m - 1))."""
    return tuple(1.0 / (1.0 + rho * (crowd[key] - 1)) for key in path)
