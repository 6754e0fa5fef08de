"""Shapes of durations whose law is known exactly, none of them a shape that the models assume.

A duration is `scale * X` with X of one of these shapes, so F_true(t) = shape.cdf(t / scale) whatever the scale is at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from predictors.distribution import Array

BODY = 0.8
"""Level at which the log-normal body ends and the Pareto tail begins."""
BODY_SIGMA, TAIL_INDEX = 0.4, 2.5
HIT_SHARE, HIT_SIGMA, MISS_SIGMA = 0.7, 0.2, 0.35
MISS = 8.0
"""How much longer a miss takes than a hit."""
REGIME_SIGMA = 0.3
SPAN: Array = np.linspace(-8.0, 12.0, 40_001)
"""Logs of X between which quantiles of a mixture are looked up."""


@dataclass(frozen=True)
class Shape:
    """A law of X > 0 by its distribution function and quantiles, both elementwise."""

    cdf: Callable[[Array], Array]
    quantile: Callable[[Array], Array]


def heavy() -> Shape:
    """Log-normal up to the level BODY, then S(x) = (1 - BODY) (x / x_0)^-TAIL_INDEX."""
    joint = float(np.exp(BODY_SIGMA * ndtri(BODY)))

    def cdf(x: Array) -> Array:
        log_x = np.log(np.maximum(x, 1e-300))
        tail = 1.0 - (1.0 - BODY) * np.exp(-TAIL_INDEX * np.maximum(log_x - np.log(joint), 0.0))
        return np.asarray(np.where(x < joint, ndtr(log_x / BODY_SIGMA), tail))

    def quantile(p: Array) -> Array:
        tail = joint * ((1.0 - np.maximum(p, BODY)) / (1.0 - BODY)) ** (-1.0 / TAIL_INDEX)
        return np.asarray(np.where(p < BODY, np.exp(BODY_SIGMA * ndtri(p)), tail))

    return Shape(cdf, quantile)


def bimodal() -> Shape:
    """A cache hit or a miss, each log-normal; which it will be is not told."""

    def cdf(x: Array) -> Array:
        log_x = np.log(np.maximum(x, 1e-300))
        missed = ndtr((log_x - np.log(MISS)) / MISS_SIGMA)
        return np.asarray(HIT_SHARE * ndtr(log_x / HIT_SIGMA) + (1.0 - HIT_SHARE) * missed)

    known = cdf(np.exp(SPAN))
    rising = np.flatnonzero(np.diff(known, prepend=-1.0) > 0.0)
    return Shape(cdf, lambda p: np.exp(np.interp(p, known[rising], SPAN[rising])))


def mixed(shape: Shape, share: float, factor: float) -> Shape:
    """The shape, `factor` times as long in a share of cases that nobody can tell from the others."""

    def cdf(x: Array) -> Array:
        return np.asarray((1.0 - share) * shape.cdf(x) + share * shape.cdf(np.asarray(x) / factor))

    known = cdf(np.exp(SPAN))
    rising = np.flatnonzero(np.diff(known, prepend=-1.0) > 0.0)
    return Shape(cdf, lambda p: np.exp(np.interp(p, known[rising], SPAN[rising])))


def log_normal() -> Shape:
    """Plain noise: what is unlike the models here is how the scale moves."""
    return Shape(
        lambda x: np.asarray(ndtr(np.log(np.maximum(x, 1e-300)) / REGIME_SIGMA)), lambda p: np.exp(REGIME_SIGMA * ndtri(p))
    )
