"""How surely a share is known when it is looked at after every outcome, for ever.

For misses that come one by one with chance p, whatever came before, the likelihood of k misses in n outcomes averaged over all
chances alike, k! (n - k)! / (n + 1)!, over their likelihood p^k (1 - p)^(n - k) is a martingale of mean 1. By Ville (1939) it
ever reaches 1 / alpha with chance alpha at most, so that the chances p for which it has stayed below contain the true one at all
n at once with probability 1 - alpha (Robbins 1970). An exact binomial interval, read again and again, misses sooner or later.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import betaln, xlog1py, xlogy

from predictors.distribution import Array

ALPHA = 0.05
_HALVINGS = 60


def share_at_any_look(misses: ArrayLike, n: ArrayLike, alpha: float = ALPHA) -> tuple[Array, Array]:
    """Ends (low, high) of the interval of a share, each of the shape of `misses`; (0, 1) where n is 0."""
    k, m = np.asarray(misses, dtype=np.float64), np.asarray(n, dtype=np.float64)
    share = np.where(m > 0, k / np.maximum(m, 1.0), 0.5)
    low = _edge(k, m, share, np.zeros_like(share), alpha)
    high = _edge(k, m, share, np.ones_like(share), alpha)
    return low, high


def _edge(k: Array, m: Array, inside: Array, outside: Array, alpha: float) -> Array:
    """Where the martingale passes 1 / alpha between a chance inside the interval and 0 or 1; that end where it never does."""
    never = _holds(k, m, outside, alpha)
    near, far = inside, outside
    for _ in range(_HALVINGS):
        middle = (near + far) / 2.0
        held = _holds(k, m, middle, alpha)
        near, far = np.where(held, middle, near), np.where(held, far, middle)
    return np.where(never, outside, near)


def _holds(k: Array, m: Array, p: Array, alpha: float) -> NDArray[np.bool_]:
    """Whether the martingale is still below 1 / alpha for a chance p."""
    return np.asarray(betaln(k + 1.0, m - k + 1.0) - xlogy(k, p) - xlog1py(m - k, -p) < -np.log(alpha))
