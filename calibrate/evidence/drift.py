"""Changes nobody declared, found node by node with a stated number of false alarms for the whole service.

Every outcome has a score from a scorer that is frozen since the last restart, such as its log time. In order of start the scores
of what is alike and has not changed are exchangeable; residuals of a model that adapts are not, nor is any score in order of
completion. Then the randomised ranks p_1, p_2, ... of each among those of its likes so far are independent and uniform, whatever
the distribution (Vovk et al. 2003), and the normal scores x = Phi^-1(p) are standard normal: those of different likes may be
shown to one watch, in whatever mixture they come. Scores are binned on a fixed grid, so that the state is small; ties are
randomised, so that this stays exact.

A bet b(x) with mean 1 wins where x is not standard normal. Every outcome brings a stake of 1, shared by J bets,

    R_t = (R_{t-1} + 1 / J) b(x_t),     alarm when the sum of R over bets reaches L / r,

an e-detector (Shin, Ramdas, Rinaldo 2024; Shiryaev and Roberts). R_t less what was staked is a martingale, and each alarm takes
L / r out, so the expected false alarms among N outcomes are at most N r / L: r per span of L outcomes, however many nodes there
are or come. One martingale per node would need their number, and would tire: what it lost in quiet times it must win back.

Likewise a cumulated sum max(0, C + log b) per bet, the classic CUSUM where b is a shift, tells since when. After 200 quiet
outcomes a shift by 0.8 standard deviations (a factor of 1.5 at log noise 0.5) is found within 33 more in the median, 62 in 95 %.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from telemetry.errors import BadField

SPAN = 10_000.0
"""L: outcomes of the whole service over which false alarms are counted."""
BUDGET = 0.5
"""r: false alarms expected per span."""
_GRAIN = 0.1
_CELLS = 64
N_BINS = 2 * _CELLS


class Change(StrEnum):
    """What the scores of a node became; higher log residuals are a slow-down. UNSEEN: more of what begins there is new."""

    HIGHER = "higher"
    LOWER = "lower"
    WIDER = "wider"
    NARROWER = "narrower"
    UNSEEN = "unseen"


class Bet(NamedTuple):
    """A bet on normal scores of which a `share` moved by `shift` or have a standard deviation of `spread`."""

    finds: Change
    shift: float = 0.0
    spread: float = 1.0
    share: float = 1.0

    def log(self, x: float) -> float:
        """Log b(x): the normal density of mean `shift` and this spread, mixed with the standard one, over that alone.

        b has mean 1 under the standard one.
        """
        moved = 0.5 * (x * x - ((x - self.shift) / self.spread) ** 2) - math.log(self.spread)
        return moved if self.share == 1.0 else math.log(1.0 - self.share + self.share * math.exp(moved))


BETS = (
    Bet(Change.HIGHER, 0.5),
    Bet(Change.HIGHER, 1.2),
    Bet(Change.LOWER, -0.5),
    Bet(Change.LOWER, -1.2),
    Bet(Change.WIDER, spread=2.0),
    Bet(Change.NARROWER, spread=0.5),
)
_NORMAL = NormalDist()


@dataclass(frozen=True, slots=True)
class Alarm:
    """Scores changed: how, since about which start (ns) and over how many outcomes; `evidence` reached `threshold`."""

    change: Change
    since_ns: int
    outcomes: int
    evidence: float
    threshold: float


@dataclass(frozen=True, slots=True)
class Ranks:
    """Scores of what is alike, since the last restart: counted by bin (N_BINS,), and their number."""

    counts: NDArray[np.int32] = field(default_factory=lambda: np.zeros(N_BINS, np.int32))
    n: int = 0

    def after(self, score: float, draw: tuple[float, float], *, ended: bool = True) -> tuple[Ranks, float]:
        """With the next outcome in order of start, and its normal score; `draw` are two uniforms of its own (`draw`).

        Where the attempt has not been seen to end, its score is a bound from below: one is drawn from those above it so far.
        """
        place = bin_of(score) if ended else self._above(bin_of(score), draw[1])
        below, at = int(self.counts[:place].sum()), int(self.counts[place])
        rank = (below + draw[0] * (at + 1)) / (self.n + 1)
        counts = self.counts.copy()
        counts[place] += 1
        return Ranks(counts, self.n + 1), normal_score(rank)

    def _above(self, place: int, draw: float) -> int:
        """A bin drawn from the counts at and above one, that bin itself where there are none."""
        above = np.cumsum(self.counts[place:])
        return place + int(np.searchsorted(above, draw * above[-1], side="right")) if above[-1] else place


def normal_score(rank: float) -> float:
    """Phi^-1 of a rank in [0, 1], finite."""
    return _NORMAL.inv_cdf(min(max(rank, 1e-12), 1.0 - 1e-12))


class Winnings(NamedTuple):
    """What each bet wins on one normal score: its logarithm, and itself."""

    logs: list[float]
    bets: list[float]


def winnings(x: float, bets: Sequence[Bet] = BETS) -> Winnings:
    """Log b(x) and b(x) of each bet."""
    logs = [bet.log(x) for bet in bets]
    return Winnings(logs, [math.exp(log_bet) for log_bet in logs])


@dataclass(frozen=True, slots=True)
class Watch:
    """One node since its last restart: how many normal scores it was shown, and the bets.

    For each bet, BETS unless said otherwise: what it `holds`, its cumulated sum (`rise`), and where that last left zero: start
    in ns (`since_ns`), and outcomes before it.
    """

    n: int = 0
    holds: tuple[float, ...] = (0.0,) * len(BETS)
    rise: tuple[float, ...] = (0.0,) * len(BETS)
    since_ns: tuple[int, ...] = (0,) * len(BETS)
    before: tuple[int, ...] = (0,) * len(BETS)

    @classmethod
    def on(cls, bets: int) -> Watch:
        """A node as it starts, with so many bets of its own."""
        return cls(0, (0.0,) * bets, (0.0,) * bets, (0,) * bets, (0,) * bets)

    def after(self, won: Winnings, start_ns: int) -> Watch:
        """With one more outcome in order of start: what each bet won on it (`winnings`)."""
        stake, n = 1.0 / len(self.holds), self.n
        holds, rises, since, before = [], [], [], []
        bets = zip(self.holds, self.rise, self.since_ns, self.before, won.logs, won.bets, strict=True)
        for held, rise, began_ns, passed, log_bet, bet in bets:
            risen = rise + log_bet
            holds.append((held + stake) * bet)
            rises.append(max(0.0, risen))
            goes_on = rise > 0.0 < risen
            since.append(began_ns if goes_on else start_ns)
            before.append(passed if goes_on else n + (risen <= 0.0))
        return Watch(n + 1, tuple(holds), tuple(rises), tuple(since), tuple(before))

    @property
    def evidence(self) -> float:
        """What all bets hold together."""
        return math.fsum(self.holds)

    def alarm(self, threshold: float) -> Alarm | None:
        """Whether the evidence reaches a threshold; an alarm's node goes on as `Watch()`, and ranks start anew."""
        return self.told(threshold) if self.evidence >= threshold else None

    def told(self, threshold: float, bets: Sequence[Bet] = BETS) -> Alarm:
        """The change that the bet that holds most tells of."""
        best = max(range(len(self.holds)), key=lambda place: self.holds[place])
        return Alarm(bets[best].finds, self.since_ns[best], self.n - self.before[best], self.evidence, threshold)


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


def draw(seed: int, row: str) -> tuple[float, float]:
    """Two uniforms in (0, 1), decided by the row's name, so that a replay meets the same."""
    bits = hashlib.blake2b(f"{seed}/{row}".encode(), digest_size=16).digest()
    first, second = (int.from_bytes(half, "little") >> 12 for half in (bits[:8], bits[8:]))
    return (first + 0.5) * 2.0**-52, (second + 0.5) * 2.0**-52
