"""Answers that know how those still running came out: conditional on an age, then read at levels that have come true there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calibrate.conformal.ages import EDGES, Ages
from predictors.distribution import Array, Distribution, HazardForm, Residual
from predictors.grids import Curve, GridHazard


class Aging(GridHazard):
    """Curves, one per context, with what is known of the ages of each context's groups."""

    def __init__(self, curves: tuple[Curve, ...], ages: Ages, groups: tuple[tuple[str, ...], ...]) -> None:
        super().__init__(curves)
        self.ages = ages
        self.groups = groups

    def take(self, index: NDArray[np.intp]) -> Aging:
        """The contexts at `index`."""
        return Aging(tuple(self.curves[i] for i in index), self.ages, tuple(self.groups[i] for i in index))

    def residual(self, elapsed_s: ArrayLike) -> Distribution:
        """Remaining time of attempts still running at elapsed_s, recalibrated where outcomes at such an age are known."""
        elapsed = np.broadcast_to(np.asarray(elapsed_s, dtype=np.float64), (self.n_contexts,))
        conditional = Residual(self, elapsed)
        used = -np.expm1(-conditional.used[:, 0])
        asked = zip(self.groups, elapsed.tolist(), used.tolist(), strict=True)
        return Remaining(self, conditional, tuple(self.ages.at(*one) for one in asked))


class Remaining(HazardForm):
    """T - e given T > e, read at other levels: the chance of ending by t is R(1 - S(e + t) / S(e)), R from 0 to 1 over EDGES.

    Where there is no R the law is the conditional one.
    """

    def __init__(self, whole: Aging, conditional: Residual, come_true: tuple[Array | None, ...]) -> None:
        self.whole = whole
        self.elapsed_s = conditional.elapsed_s
        self.support = whole.support
        self._conditional = conditional
        self._come_true = come_true

    @property
    def n_contexts(self) -> int:
        """Number of contexts answered for."""
        return self.whole.n_contexts

    @property
    def forms(self) -> tuple[str, ...]:
        """How each context's law was had."""
        return tuple("conditional" if curve is None else "recalibrated" for curve in self._come_true)

    def cumulative_hazard(self, t_s: Array) -> Array:
        """-log(1 - R(1 - S(e + t) / S(e)))."""
        return self._each(self._conditional.cumulative_hazard(t_s), EDGES, None)

    def inverse_hazard(self, h: Array) -> Array:
        """The conditional law's time at the level that R takes to 1 - exp(-h)."""
        return self._conditional.inverse_hazard(self._each(h, None, EDGES))

    def _each(self, h: Array, given: Array | None, read: Array | None) -> Array:
        """Row by row from levels of one kind to those of the other; the missing kind is R of the row."""
        found = np.array(np.broadcast_to(h, (self.n_contexts, h.shape[1])))
        for row, curve in enumerate(self._come_true):
            if curve is not None:
                found[row] = moved(found[row], curve if given is None else given, curve if read is None else read)
        return found

    def residual(self, elapsed_s: ArrayLike) -> Distribution:
        """Waiting longer: the ages add up, and the older age is what counts."""
        more = np.broadcast_to(np.asarray(elapsed_s, dtype=np.float64), (self.n_contexts,))
        return self.whole.residual(self.elapsed_s + more)

    def take(self, index: NDArray[np.intp]) -> Distribution:
        """The contexts at `index`."""
        whole = self.whole.take(index)
        return Remaining(whole, Residual(whole, self.elapsed_s[index]), tuple(self._come_true[i] for i in index))


def moved(h: Array, given: Sequence[float] | Array, read: Sequence[float] | Array) -> Array:
    """Hazards at levels `given` moved to levels `read`, both from 0 to 1: linear in level, and in the last bin in what survives.

    So a hazard of any size stays finite: past the last edge but one, 1 - level is multiplied by what the two bins' widths say.
    """
    level = -np.expm1(-h)
    inside = -np.log1p(-np.minimum(np.interp(level, given, read), read[-2]))
    beyond = h - np.log((1.0 - read[-2]) / (1.0 - given[-2]))
    return np.asarray(np.where(level < given[-2], inside, beyond))
