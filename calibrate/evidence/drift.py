"""Changes nobody declared, found node by node with a stated number of false alarms for the whole service.

Per node a scorer that is frozen since the last restart gives every outcome a score, such as its standardised log residual. In
order of start the scores of a node that has not changed are exchangeable; residuals of a model that adapts are not, nor is any
score in order of completion. Then the randomised ranks p_1, p_2, ... of each among those so far are independent and uniform,
whatever the distribution (Vovk et al. 2003), and the normal scores x = Phi^-1(p) are standard normal. Scores are binned on a
fixed grid, so that the state is small; ties are randomised, so that this stays exact.

A bet b(x) with mean 1 wins where x is not standard normal. Every outcome brings a stake of 1, shared by J bets,

    R_t = (R_{t-1} + 1 / J) b(x_t),     alarm when the sum of R over bets reaches L / r,

an e-detector (Shin, Ramdas, Rinaldo 2024; Shiryaev and Roberts). R_t less what was staked is a martingale, and each alarm takes
L / r out, so the expected false alarms among N outcomes are at most N r / L: r per span of L outcomes, however many nodes there
are or come. One martingale per node would need their number, and would tire: what it lost in quiet times it must win back.

Likewise a cumulated sum max(0, C + log b) per bet, the classic CUSUM where b is a shift, tells since when. After 200 quiet
outcomes a shift by 0.8 standard deviations (a factor of 1.5 at log noise 0.5) is found within 33 more in the median, 62 in 95 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array
from predictors.joint.streams import keys_of, stream, uniforms
from telemetry.errors import BadField

SPAN = 10_000.0
"""L: outcomes of the whole service over which false alarms are counted."""
BUDGET = 0.5
"""r: false alarms expected per span."""
PATIENCE = 64
"""Later starts that may end before an attempt still running is counted at the length it has."""
_GRAIN = 0.1
_CELLS = 64
N_BINS = 2 * _CELLS


class Change(StrEnum):
    """What the scores of a node became; higher log residuals are a slow-down."""

    HIGHER = "higher"
    LOWER = "lower"
    WIDER = "wider"
    NARROWER = "narrower"


class Bet(NamedTuple):
    """A bet on normal scores that moved by `shift` or have a standard deviation of `spread`."""

    finds: Change
    shift: float = 0.0
    spread: float = 1.0

    def log(self, x: float) -> float:
        """Log b(x): the normal density of mean `shift` and this spread over the standard one; b has mean 1 under the latter."""
        return 0.5 * (x * x - ((x - self.shift) / self.spread) ** 2) - math.log(self.spread)


BETS = (
    Bet(Change.HIGHER, 0.5),
    Bet(Change.HIGHER, 1.2),
    Bet(Change.LOWER, -0.5),
    Bet(Change.LOWER, -1.2),
    Bet(Change.WIDER, spread=2.0),
    Bet(Change.NARROWER, spread=0.5),
)
_NORMAL = NormalDist()


class Run(NamedTuple):
    """One bet: what it holds, its cumulated sum, and where that last left zero (start in ns, and outcomes before it)."""

    holds: float = 0.0
    rise: float = 0.0
    since_ns: int = 0
    before: int = 0


@dataclass(frozen=True, slots=True)
class Alarm:
    """Scores changed: how, since about which start (ns) and over how many outcomes; `evidence` reached `threshold`."""

    change: Change
    since_ns: int
    outcomes: int
    evidence: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Watch:
    """One node since its last restart: scores counted by bin (N_BINS,), their number, and the bets."""

    counts: NDArray[np.int32] = field(default_factory=lambda: np.zeros(N_BINS, np.int32))
    n: int = 0
    runs: tuple[Run, ...] = (Run(),) * len(BETS)

    def after(self, score: float, start_ns: int, draw: tuple[float, float], *, ended: bool = True) -> Watch:
        """With the next outcome in order of start; `draw` are two uniforms of its own (`draws`).

        Where the attempt has not been seen to end, its score is a bound from below: one is drawn from those above it so far.
        """
        place = bin_of(score) if ended else self._above(bin_of(score), draw[1])
        below, at = int(self.counts[:place].sum()), int(self.counts[place])
        rank = (below + draw[0] * (at + 1)) / (self.n + 1)
        x = _NORMAL.inv_cdf(min(max(rank, 1e-12), 1.0 - 1e-12))
        counts = self.counts.copy()
        counts[place] += 1
        runs = tuple(_next(run, bet.log(x), start_ns, self.n) for run, bet in zip(self.runs, BETS, strict=True))
        return Watch(counts, self.n + 1, runs)

    def _above(self, place: int, draw: float) -> int:
        """A bin drawn from the counts at and above one, that bin itself where there are none."""
        above = np.cumsum(self.counts[place:])
        return place + int(np.searchsorted(above, draw * above[-1], side="right")) if above[-1] else place

    @property
    def evidence(self) -> float:
        """What all bets hold together."""
        return math.fsum(run.holds for run in self.runs)

    def alarm(self, threshold: float) -> Alarm | None:
        """Whether the evidence reaches a threshold; an alarm's node goes on as `Watch()`, under a scorer frozen anew."""
        if self.evidence < threshold:
            return None
        best = max(range(len(BETS)), key=lambda place: self.runs[place].holds)
        run = self.runs[best]
        return Alarm(BETS[best].finds, run.since_ns, self.n - run.before, self.evidence, threshold)


def _next(run: Run, log_bet: float, start_ns: int, n: int) -> Run:
    """A bet after one more outcome."""
    holds = (run.holds + 1.0 / len(BETS)) * math.exp(log_bet)
    rise = run.rise + log_bet
    if rise <= 0.0:
        return Run(holds, 0.0, start_ns, n + 1)
    return Run(holds, rise, run.since_ns, run.before) if run.rise > 0.0 else Run(holds, rise, start_ns, n)


def threshold(budget: float = BUDGET, span: float = SPAN, nodes_per_outcome: int = 1) -> float:
    """L / r, times the watches that one outcome is shown to (several nodes of its path, or scores of several kinds)."""
    if not (budget > 0.0 and span > 0.0 and nodes_per_outcome >= 1):
        raise BadField("budget, span", (budget, span, nodes_per_outcome), "give false alarms per outcomes, both above 0")
    return span * nodes_per_outcome / budget


def bin_of(score: float) -> int:
    """Bin of a score: about 0.01 wide near 0 and an eighth of the score away from it, the same for every node and for ever."""
    if math.isnan(score):
        raise BadField("score", score, "leave out outcomes that have no score")
    far = 8.0 * math.asinh(max(min(score, 1e9), -1e9) / _GRAIN)
    return min(max(math.floor(far) + _CELLS, 0), N_BINS - 1)


def draws(seed: int, nodes: Sequence[str], attempts: Sequence[str]) -> Array:
    """Two uniforms for each pair of node and attempt, shape (n, 2): decided by their ids, so that a replay meets the same."""
    return uniforms(stream(seed, "drift", keys_of(nodes), keys_of(attempts)), 2)


@dataclass(frozen=True, slots=True)
class Waiting:
    """An attempt of a node whose turn has not come: its score, or while it runs (`ended` False) that of its length so far."""

    start_ns: int
    attempt: str
    score: float
    ended: bool


def in_start_order(waiting: Sequence[Waiting], patience: int = PATIENCE) -> tuple[list[Waiting], list[Waiting]]:
    """(those whose turn has come, those that wait), both in order of start.

    An attempt waits for those that started before it. One that still runs holds up the others until `patience` later ones have
    ended; then it counts at the length it has, and what becomes of it afterwards is passed over.
    """
    queue = sorted(waiting, key=lambda one: (one.start_ns, one.attempt))
    later = sum(one.ended for one in queue)
    for place, one in enumerate(queue):
        later -= one.ended
        if not one.ended and later < patience:
            return queue[:place], queue[place:]
    return queue, []
