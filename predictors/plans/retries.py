"""The law of a stage that is tried again after it fails.

With p the probability that a try completes, F the law of its time given that it does, G that of its time given that it fails,
and w the wait before the next try, the chance of having completed by t with n more tries allowed is

    A_n(t) = p F(t) + (1 - p) E[A_{n-1}(t - w - X)],      X ~ G,      A_0 = p F,

since tries are independent given their context. The expectation is taken over PARTS values of X at the middles of equal steps of
the normal score, and A is kept as a broken line over log time on a grid that holds F's own quantiles, so that atoms stay atoms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from predictors.distribution import Array, Distribution, Support
from predictors.grids import Curve, GridHazard

PARTS, END = 40, 5.0
EDGES: Array = np.linspace(-END, END, PARTS + 1)
FAILING_AT: Array = ndtr((EDGES[1:] + EDGES[:-1]) / 2.0)
"""Levels at which the time to failure is taken, and the probability that each stands for."""
WEIGHTS: Array = np.diff(ndtr(EDGES)) / np.diff(ndtr(EDGES)).sum()
OWN: Array = ndtr(np.linspace(-5.5, 5.5, 128))
OTHERS: Array = ndtr(np.linspace(-5.0, 5.0, 21))
EIGHTH = 8
"""Levels of the first try's law, and of what follows it, for the grid; each of these beside every eighth time to failure."""
LEAST, SHORTEST_S = 1e-12, 1e-12
SIDE = 1.0 - 1e-9
"""Just before a time at which there may be an atom; whether it is counted at that time must not hang on rounding."""
TAIL, FLATTEST = 1e-3, 0.05
"""Survival from which the slope of the tail is taken, and its least."""


@dataclass(frozen=True)
class Tries:
    """Time in s given completion within the tries allowed (one context), and the probability of that."""

    law: Distribution
    p_complete: float


def with_another(first: Tries, failing_s: Array, after: Tries, wait_s: float) -> Tries:
    """The first try, and `after` (one try or more) begun wait_s after its failure.

    failing_s: (PARTS,), time to failure in s at FAILING_AT. Where the first can't fail nothing changes.
    """
    fails = 1.0 - first.p_complete
    complete = first.p_complete + fails * after.p_complete
    if fails <= 0.0 or complete <= 0.0:
        return first
    later_s = wait_s + failing_s
    others_s = np.add.outer(after.law.quantile(OTHERS)[0], later_s[::EIGHTH]).ravel()
    at_s = np.concatenate([first.law.quantile(OWN)[0], others_s])
    at_s = np.unique(np.maximum(at_s, SHORTEST_S))
    t_s, read_s = np.concatenate([at_s * SIDE, at_s]), np.concatenate([at_s * SIDE, at_s / SIDE])
    left_s = np.subtract.outer(read_s, later_s)
    still = after.law.sf(left_s.reshape(1, -1))[0].reshape(left_s.shape) @ WEIGHTS
    survival = (first.p_complete * first.law.sf(read_s)[0] + fails * after.p_complete * still) / complete
    at_zero, order = first.p_complete * float(first.law.cdf(0.0)[0, 0]) / complete, np.argsort(t_s)
    return Tries(GridHazard((_curve(t_s[order], survival[order], at_zero, first.law.support[0]),)), complete)


def _curve(t_s: Array, survival: Array, at_zero: float, support: Support) -> Curve:
    """The broken line through survival at t_s, (n,) each; it goes on with the slope of the tail."""
    atom, log_t = -np.log1p(-min(at_zero, 1.0 - LEAST)), np.log(t_s)
    hazard = np.maximum(-np.log(np.clip(np.minimum.accumulate(survival), LEAST, 1.0)), atom + LEAST)
    tail = min(int(np.searchsorted(hazard, -np.log(TAIL))), len(hazard) - 2)
    slope = (hazard[-1] - hazard[tail]) / (log_t[-1] - log_t[tail])
    return Curve(log_t, hazard, float(atom), max(float(slope), FLATTEST), support)
