"""The one distribution every predictor returns: immutable, in seconds, vectorised over contexts.

A family writes its cumulative hazard H(t) and the inverse of it; survival, quantiles, residuals and draws follow.
Notation: T is the duration, S(t) = P(T > t) = exp(-H(t)). An atom at zero is a jump of H at t = 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
GRID: Array = np.append(np.arange(1, 100) / 100.0, [0.995, 0.999])
"""The fixed grid of levels on which answers are kept: 0.01 ... 0.99, 0.995, 0.999."""
MEAN_LEVELS: Array = (np.arange(400) + 0.5) / 400


@dataclass(frozen=True, slots=True)
class Checked:
    """Outcomes that have checked answers like this one: `n` of them (decayed) at `level` of the judged path.

    `enough` says whether they are enough to call the answer calibrated.
    """

    level: str
    n: float
    enough: bool


@dataclass(frozen=True)
class Support:
    """The evidence behind one context's answer.

    `level` names the deepest level of the hierarchy with outcomes of its own, `n` counts them, `n_eff` is their number
    after decay and clock weights, `largest_s` the longest duration known at the root, `last_commit` when the newest
    outcome became known (0 if none). `matched` is False where a value of the context was never seen in its place. `checked` tells
    how earlier answers like this one were checked; None where none were, or where the model does not correct itself. `changed`
    says that a change was found there, and too few answers since have come true; `unfamiliar` that values or shapes such as its
    own, never seen before, were found to come, with as little to show. `provenance` tells where the nearest outcomes come
    from and `newest_ns` (UTC) when the newest of `level` ended, None where the model does not say. `controlled_at` is the
    level whose long-run miss rate among answers like this one is proven to lie within `controlled_within` of nominal, if any, and
    `claimed` the highest level up to which exchangeable outcomes of the exact configuration prove the answer's bounds: 0 where
    they prove none, None where the model does not look.
    """

    level: str
    n: int
    n_eff: float
    largest_s: float
    last_commit: int = 0
    matched: bool = True
    checked: Checked | None = None
    changed: bool = False
    unfamiliar: bool = False
    provenance: str | None = None
    newest_ns: int | None = None
    controlled_at: float | None = None
    controlled_within: float | None = None
    claimed: float | None = None

    @property
    def backed_to(self) -> float:
        """Highest level exchangeable outcomes of that number can back: the rank n of n + 1 (split conformal)."""
        return self.n / (self.n + 1.0)

    @property
    def claimed_to(self) -> float:
        """Highest level claimed of the answer: what is proven of it, or what its number of outcomes can back if nobody looked."""
        return self.backed_to if self.claimed is None else self.claimed

    def at_an_age(self) -> Support:
        """The evidence behind the remaining time of one that runs: what is proven of whole durations is not of those."""
        return replace(self, controlled_at=None, controlled_within=None, claimed=None if self.claimed is None else 0.0)


class Distribution(ABC):
    """Durations of n_contexts attempts. Times may be scalars or arrays that broadcast to (n_contexts, n_times)."""

    support: tuple[Support, ...]

    @property
    @abstractmethod
    def n_contexts(self) -> int:
        """Number of contexts answered for."""

    @abstractmethod
    def sf(self, t_s: ArrayLike) -> Array:
        """P(T > t), shape (n_contexts, n_times): 1 before zero, never increasing, within [0, 1]."""

    @abstractmethod
    def quantile(self, p: ArrayLike) -> Array:
        """inf{t : P(T <= t) >= p} in s, p in [0, 1), shape (n_contexts, n_levels): finite and never crossing."""

    @abstractmethod
    def residual(self, elapsed_s: ArrayLike) -> Distribution:
        """Remaining time given T > elapsed_s, shape () or (n_contexts,): the law S(e+x)/S(e)."""

    @abstractmethod
    def take(self, index: NDArray[np.intp]) -> Distribution:
        """The contexts at `index`, in that order, with repeats allowed."""

    @property
    def forms(self) -> tuple[str, ...]:
        """How each context's law was had: "conditional" by the laws of probability alone, or "recalibrated" by what came true."""
        return ("conditional",) * self.n_contexts

    def cdf(self, t_s: ArrayLike) -> Array:
        """P(T <= t), shape (n_contexts, n_times)."""
        return 1.0 - self.sf(t_s)

    def sample(self, rng: np.random.Generator, n: int) -> Array:
        """Draws in s, shape (n_contexts, n)."""
        return self.quantile(rng.random((self.n_contexts, n)))

    @cached_property
    def horizon_s(self) -> Array:
        """Horizon of the restricted mean in s: the 0.999 quantile, shape (n_contexts,)."""
        return self.quantile(0.999)[:, 0]

    def mean(self) -> Array:
        """Restricted mean E[min(T, horizon_s)] in s, shape (n_contexts,): the midpoint rule over quantiles."""
        capped = np.minimum(self.quantile(MEAN_LEVELS), self.horizon_s[:, None])
        return np.asarray(capped.mean(axis=1), dtype=np.float64)


class HazardForm(Distribution):
    """A distribution given by its cumulative hazard."""

    @abstractmethod
    def cumulative_hazard(self, t_s: Array) -> Array:
        """H(t), shape (n_contexts, n_times) of t_s >= 0: finite, never decreasing; H(0) > 0 is an atom at zero."""

    @abstractmethod
    def inverse_hazard(self, h: Array) -> Array:
        """The smallest t in s with H(t) >= h, shape (n_contexts, n) of h >= 0."""

    def _spread(self, values: ArrayLike) -> Array:
        """To shape (n_contexts, n)."""
        wide = np.atleast_1d(np.asarray(values, dtype=np.float64))
        if wide.ndim == 1:
            wide = np.broadcast_to(wide, (self.n_contexts, wide.shape[0]))
        return wide

    def sf(self, t_s: ArrayLike) -> Array:
        """P(T > t) = exp(-H(t))."""
        t = self._spread(t_s)
        return np.where(t < 0.0, 1.0, np.exp(-self.cumulative_hazard(np.maximum(t, 0.0))))

    def quantile(self, p: ArrayLike) -> Array:
        """H^-1(-log(1 - p))."""
        return self.inverse_hazard(-np.log1p(-self._spread(p)))

    def residual(self, elapsed_s: ArrayLike) -> Distribution:
        """Remaining time of attempts still running at elapsed_s."""
        elapsed = np.broadcast_to(np.asarray(elapsed_s, dtype=np.float64), (self.n_contexts,))
        return Residual(self, elapsed)


class Residual(HazardForm):
    """T - e given T > e, by H(e + x) - H(e): the conditional law, never the mean minus e clipped at zero.

    `used` is H(e), shape (n_contexts, 1).
    """

    def __init__(self, whole: HazardForm, elapsed_s: Array) -> None:
        self.whole = whole
        self.elapsed_s = elapsed_s
        self.support = whole.support
        self.used = whole.cumulative_hazard(elapsed_s[:, None])

    @property
    def n_contexts(self) -> int:
        """Number of contexts answered for."""
        return self.whole.n_contexts

    def cumulative_hazard(self, t_s: Array) -> Array:
        """H(e + t) - H(e)."""
        return np.maximum(self.whole.cumulative_hazard(self.elapsed_s[:, None] + t_s) - self.used, 0.0)

    def inverse_hazard(self, h: Array) -> Array:
        """H^-1(H(e) + h) - e."""
        return np.maximum(self.whole.inverse_hazard(self.used + h) - self.elapsed_s[:, None], 0.0)

    def residual(self, elapsed_s: ArrayLike) -> Distribution:
        """Waiting longer: the ages add up."""
        more = np.broadcast_to(np.asarray(elapsed_s, dtype=np.float64), (self.n_contexts,))
        return Residual(self.whole, self.elapsed_s + more)

    def take(self, index: NDArray[np.intp]) -> Distribution:
        """The contexts at `index`."""
        whole = self.whole.take(index)
        assert isinstance(whole, HazardForm)
        return Residual(whole, self.elapsed_s[index])
