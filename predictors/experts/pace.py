"""The expert that says what the model of record says, with each host as it is just now: its slow or fast period on top.

Outcomes are compared with the centre that the model of record gave when they were asked. It learns of a lasting change at its
next fit, so then the newest outcomes are compared with its new centres, and the levels found again. A host met since then has no
usual speed to be slower than, and what the model of record learns of it must not count twice: it is followed from the next fit.
Outcomes whose start was not seen have no place on the clock, and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from predictors.contexts import Context
from predictors.distribution import Array
from predictors.experts.histories import HIGH, LOW, MIDDLE
from predictors.nowcast import HostOutcome, NowCast, fit, shifted

KEPT = 1_000
"""Newest outcomes that are kept for the next fit."""
LEAST = 40
"""Outcomes before which no host is said to be slow."""
TO_SCALE = 2.0 * 1.2815515655446004
"""Standard deviations between the tenth and the ninetieth percentile of a normal law."""
NARROWEST = 1e-3
"""Least standard deviation of log time that an outcome is judged by."""
Centres = Callable[[Sequence[Context], Sequence[str]], tuple[Array, Array]]
"""Median of log time of each pair, and its distance from the tenth to the ninetieth percentile: shape (n,) both."""


@dataclass(frozen=True, slots=True)
class Ran:
    """An outcome: its log time, when it became known (s), and whether it completed; if not it is known to have lasted longer.

    `weight` is what it counts for: of rows that began together on a host a few speak, and count for one row together.
    """

    context: Context
    phase: str
    log_time: float
    at_s: float
    completed: bool
    weight: float = 1.0


@dataclass(frozen=True)
class Pace:
    """Levels of all hosts, and the outcomes they are found from again. `clock_s` is when the newest of them became known.

    Immutable, but for a memo of what hosts are like then.
    """

    cast: NowCast | None = None
    recent: tuple[Ran, ...] = ()
    clock_s: float = 0.0
    states: dict[str, tuple[float, float]] = field(default_factory=dict, repr=False, compare=False)

    def moved(self, host: str | None, log_quantiles: Array) -> Array:
        """Log quantiles at GRID of the model of record, as things are on the host."""
        if self.cast is None or host is None or host not in self.cast.hosts:
            return log_quantiles
        if host not in self.states:
            self.states[host] = self.cast.state(host, self.clock_s)
        mean, variance = self.states[host]
        scale = scale_of(float(log_quantiles[HIGH] - log_quantiles[LOW]))
        return shifted(log_quantiles, float(log_quantiles[MIDDLE]), mean, variance, scale)

    def having(self, told: Sequence[tuple[Ran, float, float]]) -> Pace:
        """The levels once these outcomes are known, each with the median and the spread it was asked with, as `Centres`."""
        if not told:
            return self
        clock_s = max(self.clock_s, *(ran.at_s for ran, _, _ in told))
        cast = self.cast
        if cast is not None:
            cast = cast.after([_outcome(*one) for one in told if one[0].context.host in cast.hosts])
        return Pace(cast, (*self.recent, *(ran for ran, _, _ in told))[-KEPT:], clock_s)

    def refitted(self, centres: Centres) -> Pace:
        """The levels found again beside new centres, with the memory that explains the newest outcomes best."""
        if len(self.recent) < LEAST:
            return replace(self, cast=None, states={})
        middle, spread = centres([ran.context for ran in self.recent], [ran.phase for ran in self.recent])
        told = zip(self.recent, middle.tolist(), spread.tolist(), strict=True)
        return replace(self, states={}, cast=fit([_outcome(*one) for one in told if one[0].context.host is not None]))


def scale_of(spread: float) -> float:
    """Standard deviation of the normal law with that distance from its tenth to its ninetieth percentile."""
    return max(spread / TO_SCALE, NARROWEST)


def _outcome(ran: Ran, middle: float, spread: float) -> HostOutcome:
    return HostOutcome(ran.context.host or "", ran.at_s, ran.log_time - middle, scale_of(spread), ran.completed, ran.weight)
