"""A chain of levels: how a quantity on the log scale wanders, jumps and comes back, exact on a fixed grid.

The density of a level is kept relative to its equilibrium `prior`, so that 1 everywhere means nothing is known. Wandering is a
diffusion that is reversible with respect to the prior (finite volumes), so what a later instant tells about an earlier level is
moved by the same operator as a density is moved forward. The prior is a normal law with rare levels far away (Laplace): most
of the time a host is as its long run says, and when it is not it may be so by a factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import eigh_tridiagonal

from predictors.distribution import Array

HALF = 80
"""Levels on each side of 0."""
REACH = math.log(64.0)
"""Largest level: 64 times slower or faster."""
FAR_SHARE, FAR = 0.05, math.log(2.0)
"""Share of the prior that lies far away, and how far: a factor of two either way on average."""
CENTRAL = 0.8413447460685429
"""Phi(1): half the distance between the levels at this share and at its complement is one normal standard deviation."""


@dataclass(frozen=True)
class Levels:
    """The chain. `level`, `width` and `prior` have shape (n,); `decay` (n,) and `modes` (n, n) are those of its generator.

    Time runs in units of the relaxation time of the normal part; in it the variance of the steps is twice `tau`^2.
    """

    tau: float
    level: Array
    width: Array
    prior: Array
    decay: Array
    modes: Array

    @cached_property
    def _root(self) -> Array:
        """Square root of the prior, which makes the generator symmetric."""
        return np.sqrt(self.prior)

    def moved(self, told: Array, time: float, jump: float) -> Array:
        """A relative density, or a likelihood of the level, (n,), as it stands `time` later or earlier.

        `jump`: probability that the level was drawn afresh from the prior in between.
        """
        if time > 0.0:
            told = (self.modes @ (np.exp(self.decay * time) * (self.modes.T @ (self._root * told)))) / self._root
        return (1.0 - jump) * np.maximum(told, 0.0) + jump * float(self.prior @ told)

    def moved_each(self, told: Array, time: Array, jump: Array) -> Array:
        """`moved` of several, told (..., n), each by a time of its own: `time` and `jump` have shape (...)."""
        turned = np.exp(self.decay * time[..., None]) * ((told * self._root) @ self.modes)
        later = (turned @ self.modes.T) / self._root
        return (1.0 - jump)[..., None] * np.maximum(later, 0.0) + (jump * (told @ self.prior))[..., None]

    def normed(self, density: Array) -> tuple[Array, float]:
        """The relative density of total 1, and what its total was."""
        total = float(self.prior @ density)
        return density / total, total

    def moments(self, density: Array) -> tuple[float, float]:
        """Mean of the level, and its variance as that of the normal law with the same central 68 %.

        The true variance would let one chance in twenty of a slow period widen every answer.
        """
        mass = self.prior * density
        edges = np.append(self.level - self.width / 2.0, self.level[-1] + self.width[-1] / 2.0)
        low, high = np.interp([1.0 - CENTRAL, CENTRAL], np.append(0.0, np.cumsum(mass)), edges)
        return float(mass @ self.level), float((high - low) / 2.0) ** 2


def levels_of(unit: float, tau: float) -> Levels:
    """The chain for residuals of scale `unit` whose level has standard deviation `tau`, both in log time.

    Levels lie `unit` / 5 apart or closer about 0 and ever wider outwards (sinh), up to REACH.
    """
    core = 2.0 * unit
    step = math.asinh(REACH / core) / HALF
    place = np.arange(-HALF, HALF + 1) * step
    level, width = core * np.sinh(place), core * np.cosh(place) * step
    near = np.exp(-0.5 * (level / tau) ** 2) / (tau * math.sqrt(2.0 * math.pi))
    height = (1.0 - FAR_SHARE) * near + FAR_SHARE * np.exp(-np.abs(level) / FAR) / (2.0 * FAR)
    total = float((height * width).sum())
    prior, height = height * width / total, height / total
    flow = tau**2 * np.sqrt(height[:-1] * height[1:]) / np.diff(level)  # across each face, per unit of density difference
    out = np.append(flow, 0.0) + np.append(0.0, flow)
    decay, modes = eigh_tridiagonal(-out / prior, flow / np.sqrt(prior[:-1] * prior[1:]))
    return Levels(tau, level, width, prior, np.minimum(decay, 0.0), np.ascontiguousarray(modes, dtype=np.float64))
