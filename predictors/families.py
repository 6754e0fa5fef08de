"""Laws with a known formula: for tests, priors and examples.

Each is vectorised over contexts: parameters of shape () or (n_contexts,), durations in seconds. Notation: Phi is the
standard normal distribution function, H the cumulative hazard, S = exp(-H).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_ndtr, ndtri_exp

from predictors.distribution import Array, Distribution, HazardForm, Support
from telemetry.errors import BadField

BISECTIONS = 100
"""Halvings of a bracket: enough to leave neighbouring doubles."""


def given(n_contexts: int) -> tuple[Support, ...]:
    """Support of laws that are given, not learned: no outcomes stand behind them."""
    return (Support(level="given", n=0, n_eff=0.0, largest_s=0.0),) * n_contexts


def _column(name: str, values: ArrayLike, least: float = 0.0) -> Array:
    """One finite parameter per context, above `least`, as shape (n_contexts, 1)."""
    column = np.atleast_1d(np.asarray(values, dtype=np.float64))
    if column.ndim != 1 or not np.all(np.isfinite(column)) or not np.all(column > least):
        raise BadField(name, values, f"give finite numbers above {least:g}, one per context")
    return column[:, None]


def _columns(first: Array, second: Array) -> tuple[Array, Array]:
    """Two parameters at one number of contexts."""
    one, other = np.broadcast_arrays(first, second)
    return np.array(one), np.array(other)


class Exponential(HazardForm):
    """H(t) = t / mean."""

    def __init__(self, mean_s: ArrayLike) -> None:
        self._mean = _column("mean_s", mean_s)
        self.support = given(len(self._mean))

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self._mean)

    def cumulative_hazard(self, t_s: Array) -> Array:
        """H(t) = t / mean."""
        return np.asarray(t_s / self._mean)

    def inverse_hazard(self, h: Array) -> Array:
        """H^-1(h) = mean h."""
        return np.asarray(self._mean * h)

    def take(self, index: NDArray[np.intp]) -> Exponential:
        """The contexts at `index`."""
        return Exponential(self._mean[index, 0])


class Weibull(HazardForm):
    """H(t) = (t / scale)^shape."""

    def __init__(self, scale_s: ArrayLike, shape: ArrayLike) -> None:
        self._scale, self._shape = _columns(_column("scale_s", scale_s), _column("shape", shape))
        self.support = given(len(self._scale))

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self._scale)

    def cumulative_hazard(self, t_s: Array) -> Array:
        """H(t) = (t / scale)^shape."""
        return np.asarray((t_s / self._scale) ** self._shape)

    def inverse_hazard(self, h: Array) -> Array:
        """H^-1(h) = scale h^(1/shape)."""
        return np.asarray(self._scale * h ** (1.0 / self._shape))

    def take(self, index: NDArray[np.intp]) -> Weibull:
        """The contexts at `index`."""
        return Weibull(self._scale[index, 0], self._shape[index, 0])


class LogNormal(HazardForm):
    """S(t) = Phi(-(log t - log median) / sigma), sigma the standard deviation of log time."""

    def __init__(self, median_s: ArrayLike, sigma: ArrayLike) -> None:
        self._median, self._sigma = _columns(_column("median_s", median_s), _column("sigma", sigma))
        self.support = given(len(self._median))

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self._median)

    def cumulative_hazard(self, t_s: Array) -> Array:
        """H(t) = -log Phi(-z), computed as a logarithm so that the far tail keeps its digits."""
        with np.errstate(divide="ignore"):
            z = np.log(t_s / self._median) / self._sigma
        return np.asarray(-log_ndtr(-z))

    def inverse_hazard(self, h: Array) -> Array:
        """H^-1(h) = median exp(-sigma Phi^-1(exp(-h)))."""
        return np.asarray(self._median * np.exp(-self._sigma * ndtri_exp(-h)))

    def take(self, index: NDArray[np.intp]) -> LogNormal:
        """The contexts at `index`."""
        return LogNormal(self._median[index, 0], self._sigma[index, 0])


class Steps(Distribution):
    """F(t) = sum of the weights at values up to t, over their total: atoms only, as of counted durations.

    `values_s` and `weights` have shape (n_atoms,) or (n_contexts, n_atoms); ties are fine. Counts keep levels such as 3/10 exact,
    so the quantile at 0.3 is the third of ten. A residual past the largest value, which the law holds impossible, is zero.
    """

    def __init__(self, values_s: ArrayLike, weights: ArrayLike = 1.0) -> None:
        values = np.atleast_2d(np.asarray(values_s, dtype=np.float64))
        mass = np.broadcast_to(np.asarray(weights, dtype=np.float64), values.shape)
        if values.shape[1] == 0 or not np.all(np.isfinite(values)) or np.any(values < 0.0):
            raise BadField("values_s", values_s, "give finite durations of 0 s or more")
        if not np.all(np.isfinite(mass)) or np.any(mass < 0.0) or np.any(mass.sum(axis=1) <= 0.0):
            raise BadField("weights", weights, "give weights of 0 or more with a positive sum")
        order = np.argsort(values, axis=1, kind="stable")
        self._values = np.take_along_axis(values, order, axis=1)
        self._mass = np.take_along_axis(mass, order, axis=1)
        total = np.cumsum(self._mass, axis=1)
        self._cumulative = total / total[:, -1:]
        self.support = given(len(values))

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self._values)

    def _spread(self, values: ArrayLike) -> Array:
        """To shape (n_contexts, n)."""
        wide = np.atleast_1d(np.asarray(values, dtype=np.float64))
        return np.broadcast_to(wide, (self.n_contexts, wide.shape[-1]))

    def cdf(self, t_s: ArrayLike) -> Array:
        """Share of the weight at values up to t, exact at the atoms."""
        below = np.pad(self._cumulative, ((0, 0), (1, 0)))
        rows = zip(below, self._values, self._spread(t_s), strict=True)
        return np.stack([share[np.searchsorted(values, t, side="right")] for share, values, t in rows])

    def sf(self, t_s: ArrayLike) -> Array:
        """P(T > t) = 1 - F(t)."""
        return 1.0 - self.cdf(t_s)

    def quantile(self, p: ArrayLike) -> Array:
        """The smallest value whose cumulative share reaches p; the smallest with any weight at p = 0."""
        rows = zip(self._cumulative, self._values, np.maximum(self._spread(p), np.finfo(float).tiny), strict=True)
        return np.stack([values[np.searchsorted(share, level)] for share, values, level in rows])

    def residual(self, elapsed_s: ArrayLike) -> Steps:
        """The values beyond elapsed_s, shifted by it, with the weight they had."""
        elapsed = np.broadcast_to(np.asarray(elapsed_s, dtype=np.float64), (self.n_contexts,))[:, None]
        mass = np.where(self._values > elapsed, self._mass, 0.0)
        impossible = mass.sum(axis=1) <= 0.0
        mass[impossible] = 1.0
        return Steps(np.maximum(self._values - elapsed, 0.0), mass)

    def take(self, index: NDArray[np.intp]) -> Steps:
        """The contexts at `index`."""
        return Steps(self._values[index], self._mass[index])


class Mixture(Distribution):
    """S(t) = sum over k of w_k S_k(t): several ways to take one's time, such as a cache hit or a miss.

    `weights` has shape (n_parts,) or (n_contexts, n_parts); parts have the same number of contexts each.
    """

    def __init__(self, parts: Sequence[Distribution], weights: ArrayLike) -> None:
        n_contexts = parts[0].n_contexts
        mass = np.broadcast_to(np.asarray(weights, dtype=np.float64), (n_contexts, len(parts)))
        if not np.all(np.isfinite(mass)) or np.any(mass < 0.0) or np.any(mass.sum(axis=1) <= 0.0):
            raise BadField("weights", weights, "give weights of 0 or more with a positive sum")
        self._parts = tuple(parts)
        self._mass = mass / mass.sum(axis=1, keepdims=True)
        self.support = parts[0].support

    @property
    def n_contexts(self) -> int:
        """Number of contexts."""
        return len(self._mass)

    def sf(self, t_s: ArrayLike) -> Array:
        """Weighted survival of the parts."""
        of_parts = np.stack([part.sf(t_s) for part in self._parts])
        return np.asarray(np.minimum((self._mass.T[:, :, None] * of_parts).sum(axis=0), 1.0))

    def quantile(self, p: ArrayLike) -> Array:
        """Bisection between the extreme quantiles of the parts, where the mixture's must lie."""
        of_parts = np.stack([part.quantile(p) for part in self._parts])
        least, high = of_parts.min(axis=0), of_parts.max(axis=0)
        level = np.broadcast_to(np.asarray(p, dtype=np.float64), least.shape)
        low, reached = least, self.cdf(least) >= level
        for _ in range(BISECTIONS):
            middle = (low + high) / 2.0
            enough = self.cdf(middle) >= level
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.asarray(np.where(reached, least, high))

    def residual(self, elapsed_s: ArrayLike) -> Mixture:
        """The parts' residuals; a part weighs by how likely it is to have lasted that long."""
        elapsed = np.broadcast_to(np.asarray(elapsed_s, dtype=np.float64), (self.n_contexts,))
        alive = self._mass * np.concatenate([part.sf(elapsed[:, None]) for part in self._parts], axis=1)
        alive[alive.sum(axis=1) <= 0.0] = 1.0
        return Mixture([part.residual(elapsed) for part in self._parts], alive)

    def take(self, index: NDArray[np.intp]) -> Mixture:
        """The contexts at `index`."""
        return Mixture([part.take(index) for part in self._parts], self._mass[index])
