"""From what a rule of thumb says of a duration, knots or quantiles in log time, to the curve that every answer is made of.

Rules speak of durations above zero; the mass at zero is put before them as an atom. Past the outermost level that a
rule answers stands the declared tail, as in the model of record (`predictors.tails`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import ndtri

from predictors import tails
from predictors.distribution import GRID, Array, Support
from predictors.grids import Curve

HAZARDS: Array = np.minimum(-np.log1p(-GRID), tails.FAR_HAZARD)
"""H at the levels of GRID."""
SCORES: Array = ndtri(GRID)
APART = 1e-9
"""Least distance of knots in log time: an atom above zero is drawn as a very steep rise."""
MOST_ZERO = 1.0 - 1e-9


class Knots(NamedTuple):
    """A law of durations above zero: H at log times, both (n_knots,) ascending, and its growth per unit of log time past them."""

    log_t: Array
    hazard: Array
    slope: float = tails.SLOPE


def from_levels(log_q: Array, levels: Array) -> Array:
    """Quantiles in log time at GRID, from those at a few levels (n_levels,), put in order first where they cross.

    Linear in normal scores, and past the outermost levels with the slope of the outermost two.
    """
    known, at = np.sort(log_q), ndtri(levels)
    inside = np.interp(SCORES, at, known)
    below = known[0] + (SCORES - at[0]) * (known[1] - known[0]) / (at[1] - at[0])
    above = known[-1] + (SCORES - at[-1]) * (known[-1] - known[-2]) / (at[-1] - at[-2])
    return np.where(at[0] > SCORES, below, np.where(at[-1] < SCORES, above, inside))


def on_grid(log_q: Array) -> Knots:
    """The law with quantiles log_q (len(GRID),) in log time at GRID."""
    return Knots(np.maximum.accumulate(log_q), HAZARDS)


def curve_through(knots: Knots, zero_share: float, support: Support, p_complete: float) -> Curve:
    """The curve of time given completion: `zero_share` takes no time at all, the rest follows `knots`.

    Nothing up to the 0.999 quantile of the rest lies past LIMIT times the longest duration known, or times the rule's own centre.
    """
    centre = float(np.interp(HAZARDS[49], knots.hazard, knots.log_t))
    log_cap = max(float(np.log(max(support.largest_s, 1e-300))), centre)
    log_t, hazard = tails.extended(knots.log_t, knots.hazard, knots.slope, log_cap)
    steps = APART * np.arange(len(log_t))
    log_t = np.maximum.accumulate(log_t - steps) + steps
    atom = -float(np.log1p(-min(zero_share, MOST_ZERO)))
    return Curve(log_t, atom + hazard, atom, tails.SLOPE, support, p_complete)
