"""Hazards shrunk down a path, with a strength per level learned from how much children differ from their parents.

h = (d + kappa h_parent) / (n + kappa) in every column. kappa maximises the beta-binomial likelihood of the children,

    sum over children and columns of log B(d + kappa h, n - d + kappa (1 - h)) - log B(kappa h, kappa (1 - h)),

on a grid of powers of two, where h is the parent's hazard without that child: with it, children would look too alike.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import betaln, ndtr

from predictors.distribution import Array
from predictors.effects import Ints

STRENGTHS: Array = np.exp2(np.arange(11, dtype=np.float64))
DEFAULT_STRENGTH = 25.0
ROOT_STRENGTH = 2.0
MAX_CHILDREN = 500
"""Children looked at per level, evenly spaced: enough for one number, and the fit stays linear."""


def normal_hazards(edges: Array, tail_rate: float) -> Array:
    """Hazards of a standard normal on the grid (no atom), with a given rate in the open column; the root's parent."""
    below = np.append(0.0, ndtr(edges))
    closed = np.diff(below) / np.maximum(1.0 - below[:-1], 1e-12)
    return np.concatenate([[0.0], closed, [tail_rate]])


def shrunk(events: Array, at_risk: Array, parent: Array, strength: float) -> Array:
    """(d + kappa h_parent) / (n + kappa); kappa = 0 keeps the parent where nothing was at risk."""
    total = at_risk + strength
    return np.where(total > 0.0, (events + strength * parent) / np.where(total > 0.0, total, 1.0), parent)


def strength(events: Array, at_risk: Array, parent: Ints, root: Array) -> float:
    """The kappa for the children of one level: counts of shape (n_children, n_columns), `parent` numbers their parents."""
    n_parents = int(parent.max(initial=-1)) + 1
    total_d, total_n = np.zeros((n_parents, events.shape[1])), np.zeros((n_parents, events.shape[1]))
    np.add.at(total_d, parent, events)
    np.add.at(total_n, parent, at_risk)
    outcomes = events.sum(axis=1)
    siblings = total_d.sum(axis=1)[parent] - outcomes
    useful = np.flatnonzero((outcomes > 0.0) & (siblings > 0.0))
    if len(useful) < 2:
        return DEFAULT_STRENGTH
    chosen = useful[np.linspace(0, len(useful) - 1, min(len(useful), MAX_CHILDREN)).astype(np.int64)]
    d, n = events[chosen][:, :-1], at_risk[chosen][:, :-1]
    rest_d, rest_n = (total_d[parent[chosen]])[:, :-1] - d, (total_n[parent[chosen]])[:, :-1] - n
    h = np.clip(shrunk(np.maximum(rest_d, 0.0), np.maximum(rest_n, 0.0), root[:-1], ROOT_STRENGTH), 1e-6, 1.0 - 1e-6)
    seen = n > 0.0
    d, n, h = d[seen], np.maximum(n, d)[seen], h[seen]
    scores = [_log_likelihood(d, n, h, float(kappa)) for kappa in STRENGTHS]
    return float(STRENGTHS[int(np.argmax(scores))])


def _log_likelihood(d: Array, n: Array, h: Array, kappa: float) -> float:
    return math.fsum(betaln(d + kappa * h, n - d + kappa * (1.0 - h)) - betaln(kappa * h, kappa * (1.0 - h)))
