"""GridHazard: distributions whose cumulative hazard is a broken line over log time.

Between knots S falls geometrically in log t; below the first knot it falls geometrically in t, so that t = 0 is reached;
beyond the last one H grows by `slope` per unit of log t, a power law, so that S stays above 0 and quantiles stay finite.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array, HazardForm, Support

LOG_LONGEST = 690.0
"""Largest log of a time in s that is answered: just inside double precision."""


@dataclass(frozen=True)
class Curve:
    """One context's broken line: `log_t` ascending and `hazard` = H there, shape (n_knots,); `atom` = H(0).

    `p_complete` is the probability of completing rather than failing; `failing` (at most n_knots,) that of failing yet, of one
    that still runs at each of the first knots. Empty where no failure is known.
    """

    log_t: Array
    hazard: Array
    atom: float
    slope: float
    support: Support
    p_complete: float = 1.0
    failing: Array = field(default_factory=lambda: np.empty(0))

    def p_complete_at(self, elapsed_s: float) -> float:
        """Probability of completing of one that has lasted elapsed_s: linear in log time between knots."""
        if elapsed_s <= 0.0 or not len(self.failing):
            return self.p_complete
        fails = np.interp(np.log(elapsed_s), self.log_t[: len(self.failing)], self.failing, left=1.0 - self.p_complete)
        return float(1.0 - fails)

    def hazard_at(self, t_s: Array) -> Array:
        """H(t), t of shape (n,)."""
        u = np.log(np.maximum(t_s, np.finfo(np.float64).tiny))
        inside = np.interp(u, self.log_t, self.hazard)
        below = self.atom + (self.hazard[0] - self.atom) * (t_s / np.exp(self.log_t[0]))
        beyond = self.hazard[-1] + self.slope * (u - self.log_t[-1])
        return np.where(u < self.log_t[0], below, np.where(u > self.log_t[-1], beyond, inside))

    def time_at(self, h: Array) -> Array:
        """Smallest t in s with H(t) >= h, h of shape (n,)."""
        inside = np.interp(h, self.hazard, self.log_t)
        beyond = self.log_t[-1] + (h - self.hazard[-1]) / self.slope
        u = np.where(h > self.hazard[-1], beyond, inside)
        share = (h - self.atom) / (self.hazard[0] - self.atom)
        scale = np.where(h < self.hazard[0], np.maximum(share, 0.0), 1.0)
        return scale * np.exp(np.minimum(u, LOG_LONGEST))


class GridHazard(HazardForm):
    """One curve per context. Every context is answered on its own: a batch never changes a member's answer."""

    def __init__(self, curves: tuple[Curve, ...]) -> None:
        self.curves = curves
        self.support = tuple(curve.support for curve in curves)

    @property
    def n_contexts(self) -> int:
        """Number of contexts answered for."""
        return len(self.curves)

    def cumulative_hazard(self, t_s: Array) -> Array:
        """H(t), shape (n_contexts, n_times)."""
        return self._each(Curve.hazard_at, t_s)

    def inverse_hazard(self, h: Array) -> Array:
        """H^-1(h) in s, shape (n_contexts, n_times)."""
        return self._each(Curve.time_at, h)

    def take(self, index: NDArray[np.intp]) -> GridHazard:
        """The contexts at `index`."""
        return GridHazard(tuple(self.curves[i] for i in index))

    def _each(self, ask: Callable[[Curve, Array], Array], values: Array) -> Array:
        if len(self.curves) == 1:
            return ask(self.curves[0], values[0])[None, :]
        wide = np.broadcast_to(values, (len(self.curves), values.shape[1]))
        answers = np.empty(wide.shape)
        for row, curve in enumerate(self.curves):
            answers[row] = ask(curve, wide[row])
        return answers
