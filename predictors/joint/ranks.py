"""Correlation of setup and service of one attempt, by stratum, from pairs of completed phases.

Ranks within the stratum become normal scores, their correlation r is taken on Fisher's scale z = atanh r, whose variance is about
1 / (n - 3), and shrunk to the parent: z_node = ((n - 3) z + K z_parent) / (n - 3 + K), the root to no correlation. Pairs in which
either phase is censored are left out: this is the correlation among attempts that completed both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from predictors.distribution import Array
from telemetry.errors import BadField

PARENT_PAIRS = 30.0
"""Pairs (count) the parent's correlation weighs in a node's own."""
LEAST = 4
"""Below this a correlation has no variance on Fisher's scale: the parent's stands."""


def normal_scores(values: ArrayLike) -> Array:
    """Phi^-1(rank / (n + 1)) of each value, shape (n,); ties share the mean of their ranks."""
    x = np.asarray(values, dtype=np.float64)
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return np.asarray(ndtri((last - (count - 1) / 2.0)[place] / (len(x) + 1.0)))


@dataclass(frozen=True)
class Correlations:
    """Shrunk correlation and number of pairs by node key."""

    rho: MappingProxyType[str, float]
    pairs: MappingProxyType[str, int]

    def at(self, path: Sequence[str]) -> float:
        """Rho of the deepest node of the path that has pairs; 0 where none has."""
        return next((self.rho[node] for node in reversed(path) if node in self.rho), 0.0)


def correlations(setup: ArrayLike, service: ArrayLike, paths: Sequence[Sequence[str]]) -> Correlations:
    """Correlations of paired residuals, (n,) each, any scale that is comparable within a stratum.

    paths: node keys from root to leaf for each pair, all with the same root.
    """
    x, y = np.asarray(setup, dtype=np.float64), np.asarray(service, dtype=np.float64)
    if not len(x) == len(y) == len(paths):
        raise BadField("paths", len(paths), f"give one path for each of {len(x)} setups and {len(y)} services")
    if not np.all(np.isfinite(x) & np.isfinite(y)):
        raise BadField("setup, service", "non-finite residuals", "leave out pairs in which a phase is absent or censored")
    rows: dict[str, list[int]] = {}
    parent: dict[str, str | None] = {}
    for place, path in enumerate(paths):
        for depth, node in enumerate(path):
            rows.setdefault(node, []).append(place)
            parent[node] = path[depth - 1] if depth else None
    fisher: dict[str, float] = {}
    for node in sorted(rows, key=lambda name: _depth(name, parent)):
        above = parent[node]
        if above is not None and len(rows[above]) == len(rows[node]):
            fisher[node] = fisher[above]  # the same pairs again say nothing more
        else:
            fisher[node] = _shrunk(x[rows[node]], y[rows[node]], 0.0 if above is None else fisher[above])
    return Correlations(
        MappingProxyType({node: float(np.tanh(z)) for node, z in fisher.items()}),
        MappingProxyType({node: len(places) for node, places in rows.items()}),
    )


def _depth(node: str, parent: dict[str, str | None]) -> int:
    """Steps from the root."""
    above = parent[node]
    return 0 if above is None else 1 + _depth(above, parent)


def _shrunk(x: Array, y: Array, parent_z: float) -> float:
    """Fisher's z of one node, shrunk to its parent's; the parent's where a phase does not vary."""
    if len(x) < LEAST or np.ptp(x) == 0.0 or np.ptp(y) == 0.0:
        return parent_z
    r = float(np.corrcoef(normal_scores(x), normal_scores(y))[0, 1])
    own = len(x) - 3.0
    return float((own * np.arctanh(np.clip(r, -0.999, 0.999)) + PARENT_PAIRS * parent_z) / (own + PARENT_PAIRS))
