"""All advertised levels of a node at once, each with several gammas side by side.

The paths of a level (`levels.py`) are weighed by exponential weights on the pinball loss of beta = 1 - u, with fixed share (Gibbs
and Candes 2024, DtACI). The mixture has no bound of its own, nor has what comes of setting crossed levels in order. So on
CONTROLLED one last path of a single gamma runs on top of the mixture, fed with the formal misses of what was served, and that
level is never moved by the others.

Everything is vectorised over rows: nodes of a path, or a whole batch of outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from calibrate.conformal.levels import ADVERTISED
from predictors.distribution import Array
from telemetry.errors import BadField

CONTROLLED = 0.9
"""The advertised level for which the long-run bound is kept in what is served."""
GAINS: Array = np.array([0.003, 0.01, 0.03, 0.1])
"""gamma of the paths per unit of min(p, 1 - p): a step that suits p50 would throw p99 from one end to the other."""
LAST_GAIN = 0.05
MEMORY = 500.0
"""Outcomes over which the mixture is to follow the best gamma: sets its learning rate and its share."""

MISS: Array = 1.0 - np.array(ADVERTISED)
PLACE = ADVERTISED.index(CONTROLLED)
_UNIT: Array = np.minimum(MISS, 1.0 - MISS)
GAMMA: Array = _UNIT[:, None] * GAINS
LAST_GAMMA = float(_UNIT[PLACE] * LAST_GAIN)
_SHARE = 1.0 / (2.0 * MEMORY)
_DIFFICULTY: Array = MISS**3 * (1.0 - MISS) ** 2 + MISS**2 * (1.0 - MISS) ** 3
_RATE: Array = np.sqrt(3.0 / MEMORY * (math.log(MEMORY * len(GAINS)) + 2.0) / _DIFFICULTY)[:, None]
_TINY = 1e-12


class Known(StrEnum):
    """How much is known of an outcome: its end, that it was lost at some length, or that it runs at that length."""

    ENDED = "ended"
    LOST = "lost"
    RUNNING = "running"


class Part(StrEnum):
    """Which levels an outcome counts for: all, those below CONTROLLED, or CONTROLLED and those above."""

    ALL = "all"
    LOWER = "lower"
    UPPER = "upper"


_CONCERNED = {
    Part.ALL: np.full(len(ADVERTISED), True),
    Part.LOWER: np.arange(len(ADVERTISED)) < PLACE,
    Part.UPPER: np.arange(len(ADVERTISED)) >= PLACE,
}


@dataclass(frozen=True, slots=True)
class Told:
    """What became known of one answer.

    `u` in [0, 1] is F(y), randomised at atoms, in the recalibrated distribution as it was answered; F(c) where the attempt was
    lost or runs at c. A running attempt counts where it is past its bound, at once; `past` is the u it was last told at while
    running, so that nothing counts twice. `weight` in [0, 1]. Of two parts told apart the upper one counts as an outcome.
    """

    u: float
    known: Known = Known.ENDED
    past: float | None = None
    weight: float = 1.0
    part: Part = Part.ALL

    def __post_init__(self) -> None:
        if not (0.0 <= self.u <= 1.0 and 0.0 <= self.weight <= 1.0 and (self.past is None or 0.0 <= self.past <= 1.0)):
            raise BadField("u, weight, past", (self.u, self.weight, self.past), "give each within [0, 1]")


@dataclass(frozen=True, slots=True)
class Levels:
    """State of all advertised levels of rows of nodes.

    `n` (rows,) is the weight of outcomes; `alpha` and `share` (rows, n_levels, n_gammas), shares adding to 1; `offset` (rows,)
    of the last path.
    """

    n: Array
    alpha: Array
    share: Array
    offset: Array

    @classmethod
    def start(cls) -> Levels:
        """One row that asks for what is advertised, all gammas alike."""
        alpha = np.repeat(MISS[:, None], len(GAINS), axis=1)[None]
        return cls(np.zeros(1), alpha, np.full(alpha.shape, 1.0 / len(GAINS)), np.zeros(1))

    @classmethod
    def stack(cls, states: Sequence[Levels]) -> Levels:
        """The rows of several values, in order."""
        return cls(
            np.concatenate([s.n for s in states]),
            np.concatenate([s.alpha for s in states]),
            np.concatenate([s.share for s in states]),
            np.concatenate([s.offset for s in states]),
        )

    def row(self, place: int) -> Levels:
        """One row, as a value that does not keep the others alive."""
        one = slice(place, place + 1)
        return Levels(self.n[one].copy(), self.alpha[one].copy(), self.share[one].copy(), self.offset[one].copy())

    def child(self) -> Levels:
        """A new node below: starts where this one stands, with its own count and its own last path."""
        return Levels(np.zeros_like(self.n), self.alpha, self.share, np.zeros_like(self.offset))

    def mixed(self) -> Array:
        """The mixture's alpha per level, CONTROLLED with its last path; before levels are set in order (rows, n_levels)."""
        mixed = np.einsum("rlg,rlg->rl", self.share, self.alpha)
        mixed[:, PLACE] += self.offset
        return np.asarray(mixed)

    def served(self) -> Array:
        """The formal alpha served (rows, n_levels), never rising with the level; CONTROLLED stays where it is."""
        mixed = self.mixed()
        middle = mixed[:, PLACE, None]
        mixed[:, :PLACE] = np.maximum(mixed[:, :PLACE], middle)
        mixed[:, PLACE + 1 :] = np.minimum(mixed[:, PLACE + 1 :], middle)
        return np.asarray(-np.sort(-mixed, axis=1))

    def crossings(self) -> int:
        """How many neighbouring levels had to be set in order."""
        return int(np.sum(np.diff(self.mixed(), axis=1) > 0.0))

    def within(self, outstanding: int = 0) -> Array:
        """Bound (rows,) on |mean formal miss - alpha| of what was served at CONTROLLED, with at most D answers outstanding.

        The mixture stays within D + 1 of its largest steps of [0, 1]; the last path turns wherever the sum leaves [0, 1].
        """
        reach = 1.0 + (outstanding + 1) * (float(GAMMA[PLACE].max()) + LAST_GAMMA)
        return np.asarray(reach / (LAST_GAMMA * np.maximum(self.n, 1.0)))

    def after(self, told: Told, asked: Levels | None = None) -> Levels:
        """One node with one outcome; `asked` is the state that gave the answer (this one where none was kept)."""
        return fold(self, [told], self if asked is None else asked, np.zeros(1, np.intp))


def fold(states: Levels, told: Sequence[Told], asked: Levels, whose: NDArray[np.intp]) -> Levels:
    """States after outcomes, in their order: the states that gave the answers (a row each), and the rows of `states` concerned.

    However outcomes are cut into calls, the sums run in the same order: the result is the same to the bit.
    """
    beta = np.array([1.0 - one.u for one in told])[:, None, None]
    before = np.array([np.inf if one.past is None else 1.0 - one.past for one in told])[:, None, None]
    lost = np.array([one.known is Known.LOST for one in told])[:, None, None]
    over = np.array([one.known is not Known.RUNNING for one in told])
    final = over & np.array([one.part is not Part.LOWER for one in told])
    concerned = np.array([_CONCERNED[one.part] for one in told])[:, :, None]
    weight = np.array([one.weight for one in told])[:, None, None]
    cells = np.concatenate([asked.alpha, asked.served()[:, :, None]], axis=2)
    sure = _missed(cells, beta)
    miss = np.where(lost & ~sure, np.maximum(cells, 0.0) / np.maximum(beta, _TINY), sure)
    counts = concerned & (sure | over[:, None, None]) & ~(_missed(cells, before) & np.isfinite(before))
    step = weight * counts * (MISS[:, None] - miss)
    loss = weight * np.where(lost, _mean_loss(asked.alpha, beta), _loss(asked.alpha, beta))
    n, alpha, offset = states.n.copy(), states.alpha.copy(), states.offset.copy()
    np.add.at(n, whose, final * weight[:, 0, 0])
    np.add.at(alpha, whose, GAMMA * step[:, :, :-1])
    np.add.at(offset, whose, LAST_GAMMA * step[:, PLACE, -1])
    return Levels(n, alpha, _reweighted(states.share, loss[final], whose[final]), offset)


def _reweighted(share: Array, loss: Array, whose: NDArray[np.intp]) -> Array:
    """Exponential weights with fixed share: k-th outcomes of all nodes in one go, each mixing what the one before left."""
    keep = np.exp(-_RATE * (loss - loss.min(axis=2, keepdims=True)))
    order = np.argsort(whose, kind="stable")
    counts = np.bincount(whose, minlength=len(share))
    turn = np.arange(len(whose)) - np.repeat(np.cumsum(counts) - counts, counts)
    found = share.copy()
    for rows in np.split(order[np.argsort(turn, kind="stable")], np.cumsum(np.bincount(turn))[:-1]):
        weight = found[whose[rows]] * keep[rows]
        found[whose[rows]] = (1.0 - _SHARE) * weight / weight.sum(axis=2, keepdims=True) + _SHARE / len(GAINS)
    return found


def _missed(cells: Array, beta: Array) -> NDArray[np.bool_]:
    """Where the formal bound at alpha is missed for certain by what has u = 1 - beta or more."""
    return (cells > beta) | (cells >= 1.0)


def _loss(alpha: Array, beta: Array) -> Array:
    """Pinball loss alpha* (beta - alpha) - min(0, beta - alpha), with alpha* the advertised miss rate."""
    return MISS[:, None] * (beta - alpha) - np.minimum(beta - alpha, 0.0)


def _mean_loss(alpha: Array, beta: Array) -> Array:
    """Mean of that loss over what a lost attempt leaves open: uniform on (0, beta)."""
    inside = np.square(np.maximum(alpha, 0.0)) / np.maximum(2.0 * beta, _TINY)
    return MISS[:, None] * (beta / 2.0 - alpha) + np.where(alpha < beta, inside, alpha - beta / 2.0)
