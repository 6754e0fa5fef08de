"""How setup and service hang together beyond their correlation: more at the extremes, or on one side only.

Under a normal joint law with correlation rho the service's score given the setup's score x is rho x + sqrt(1 - rho^2) w with w
standard normal. Real pairs often differ: a late setup says more of a late service than an early one does of an early one, or both
are extreme together without being correlated at all. A bend lets w depend on x,

    w = shift(x) + scale(x) w',      w' standard normal,

with shift and log scale linear between knots of x, learned from pairs by penalised likelihood and kept only where it explains
them clearly better. The service's score is then put back on the standard normal scale, so that every marginal law stays exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from predictors.distribution import Array

KNOTS: Array = np.array([-2.0, -1.2, -0.4, 0.4, 1.2, 2.0])
"""Setup scores between which shift and log scale are linear; beyond the outer ones they stay."""
PRIOR_PAIRS = 20.0
"""Pairs (count) that the prior belief in no bend weighs at each knot."""
LEAST_PAIRS, GAIN = 200, 14.0
"""Fewer pairs than this tell no bend; log likelihood it must gain: without one, chance gives about 5 and seldom 10."""
PASSES = 5
FINE: Array = ndtri((np.arange(256) + 0.5) / 256)
GRID: Array = np.linspace(-8.0, 8.0, 321)


@dataclass(frozen=True)
class Bend:
    """Shift and log scale of w at KNOTS."""

    shift: tuple[float, ...]
    log_scale: tuple[float, ...]

    def bent(self, rho: Array, setup: Array, service: Array) -> Array:
        """Service scores, drawn by the normal law given the setup's, as the bent law has them.

        rho: (n,); setup, service and the result: (n, n_draws).
        """
        whole = rho[:, None]
        mean, scale = self._given(whole, setup)
        return _through(self, rho, mean + scale * (service - whole * setup), back=False)

    def straight(self, rho: Array, setup: Array, service: Array) -> Array:
        """The inverse of `bent` in `service`."""
        whole = rho[:, None]
        mean, scale = self._given(whole, setup)
        return np.asarray(whole * setup + (_through(self, rho, service, back=True) - mean) / scale)

    def _given(self, rho: Array, setup: Array) -> tuple[Array, Array]:
        """Mean of the service's score given the setup's, before it is put back on the normal scale, and how much wider it is."""
        shift, log_scale = (np.interp(setup, KNOTS, values) for values in (self.shift, self.log_scale))
        return rho * setup + np.sqrt(1.0 - rho**2) * shift, np.exp(log_scale)


def learn(setup: Array, service: Array, rho: Array) -> Bend | None:
    """The bend of pairs of normal scores, (n,) each like rho; None where they show none.

    Scoring steps on shift and log scale in turn, both drawn to 0 by PRIOR_PAIRS.
    """
    if len(setup) < LEAST_PAIRS:
        return None
    w = (service - rho * setup) / np.sqrt(1.0 - rho**2)
    basis = np.stack([np.interp(setup, KNOTS, row) for row in np.eye(len(KNOTS))], axis=1)
    shift: Array = np.zeros(len(KNOTS))
    log_scale: Array = np.zeros(len(KNOTS))
    prior = PRIOR_PAIRS * np.eye(len(KNOTS))
    for _ in range(PASSES):
        weighed = basis * np.exp(-2.0 * (basis @ log_scale))[:, None]
        shift = np.asarray(np.linalg.solve(basis.T @ weighed + prior, weighed.T @ w))
        squared = (w - basis @ shift) ** 2 * np.exp(-2.0 * (basis @ log_scale))
        slope = basis.T @ (squared - 1.0) - 2.0 * PRIOR_PAIRS * log_scale
        log_scale = np.asarray(log_scale + np.linalg.solve(2.0 * (basis.T @ basis + prior), slope))
    wider = basis @ log_scale
    gain = float(np.sum(0.5 * w**2 - 0.5 * ((w - basis @ shift) * np.exp(-wider)) ** 2 - wider))
    return Bend(tuple(shift.tolist()), tuple(log_scale.tolist())) if gain >= GAIN else None


def _through(bend: Bend, rho: Array, values: Array, *, back: bool) -> Array:
    """Rows of values put on the standard normal scale, or back from it."""
    out = np.empty(values.shape)
    hundredths: NDArray[np.float64] = np.round(rho, 2)
    for one in np.unique(hundredths):
        rows = hundredths == one
        score = _scores(bend, float(one))
        out[rows] = np.interp(values[rows], score, GRID) if back else np.interp(values[rows], GRID, score)
    return np.where(np.isinf(values), values, out)


@lru_cache(maxsize=1024)
def _scores(bend: Bend, rho: float) -> Array:
    """Normal score, at GRID, of the bent service's marginal law: that law is averaged over setups."""
    mean, scale = bend._given(np.array(rho), FINE)  # noqa: SLF001  one module, one class
    z = (GRID[:, None] - mean) / (scale * np.sqrt(1.0 - rho**2))
    below, above = ndtr(z).mean(axis=1), ndtr(-z).mean(axis=1)
    return np.maximum.accumulate(np.clip(np.where(below < 0.5, ndtri(below), -ndtri(above)), GRID[0], GRID[-1]))
