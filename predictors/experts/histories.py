"""What recent outcomes say about groups and configurations: the memory shared by the experts.

Durations are logs of seconds. A residual is an outcome's log time less the centre the model of record gave when it was asked,
so that a group's recent mean residual tells what the model of record does not know of it yet. Everything an expert reads is
as of the moment of asking, and outcomes are compared with what was answered then.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from predictors.contexts import GROUPS, NUMBERS, Context, fleet_of, groups_of, novelty
from predictors.distribution import GRID, Array
from predictors.experts.windows import Window
from predictors.joint.streams import keys_of, stream, uniforms
from predictors.layered import Layered

FAST, SLOW = 8, 64
"""Outcomes over which means of residuals reach back."""
LAST = 9
SEED = 7
DRAWN = 10_000
"""Rows whose draws are remembered: each is asked for up to three times while its outcome is taken in."""
AVERAGES = (8, 30)
"""Outcomes over which a configuration's two moving averages reach back."""
SMALL, FLEETS, LARGE, WHOLE = 64, 200, 400, 2000
"""Sizes of windows of a group's durations, of a fleet's, of ratios, and of a phase's durations."""
LEAST_RATIOS = 20
FEW = 3.0
"""Outcomes that the wider group's spread weighs."""
POOLING = (10.0, 10.0, 10.0, 5.0)
"""Outcomes that the wider group's quantiles weigh at most, for each of POOLED."""
NORMAL: Array = ndtri(GRID)
MIDDLE = int(np.flatnonzero(GRID == 0.5)[0])
LOW, HIGH = (int(np.argmin(np.abs(GRID - p))) for p in (0.1, 0.9))
PHASE, FAMILY, FLEET, WIDE, EXACT = (
    GROUPS.index(name) for name in ("phase", "family", "fleet+family+model", "host+family+model", "configuration")
)
POOLED = {FAMILY: SMALL, FLEET: FLEETS, WIDE: SMALL, EXACT: SMALL}
"""Groups whose durations are remembered, widest first, and over how many."""
SPREADING = tuple(GROUPS.index(name) for name in ("host+family+model", "device+family", "fleet+family+model", "configuration"))
"""Groups of which trees are told how far outcomes lay from where they were expected, too."""
FEATURES = (*(f"{group} {what}" for group in GROUPS for what in ("fast", "slow", "n")), "place", "spread", "upper", *NUMBERS)
FEATURES += tuple(f"{GROUPS[place]} off" for place in SPREADING)
FEATURES += ("median of nine", "last", "average of 8", "average of 30", "phase")
SPREAD = FEATURES.index("spread")


@dataclass(frozen=True, slots=True)
class Mean:
    """Number of a group's outcomes, means of its residuals over a short and a long memory, and of their sizes over the long."""

    n: int
    fast: float
    slow: float
    off: float


@dataclass(frozen=True, slots=True)
class Recent:
    """An exact configuration: number of outcomes, the last nine log times, and two moving averages of them."""

    n: int
    last: tuple[float, ...]
    averages: tuple[float, float]

    @property
    def median(self) -> float:
        """Median of the last nine."""
        return float(np.median(self.last))


@dataclass(frozen=True, slots=True)
class Centres:
    """What a configuration's history said when a row was asked; None where it had none."""

    median: float
    average: float
    novel: int


@dataclass(frozen=True)
class Histories:
    """All groups' memories. Immutable; `having` gives the next value.

    `typical` holds count and mean of log times by phase. `code` numbers phases in the order in which they were met.
    """

    means: Layered[str, Mean] = field(default_factory=Layered)
    recents: Layered[str, Recent] = field(default_factory=Layered)
    windows: Layered[str, Window] = field(default_factory=Layered)
    typical: Mapping[str, tuple[int, float]] = field(default_factory=dict)

    def known(self, context: Context, phase: str) -> int:
        """Known outcomes of the exact configuration."""
        recent = self.recents.get(groups_of(context, phase)[EXACT])
        return recent.n if recent is not None else 0

    def centres(self, context: Context, phase: str) -> Centres | None:
        """Centres of the configuration's history."""
        recent = self.recents.get(groups_of(context, phase)[EXACT])
        return None if recent is None else Centres(recent.median, recent.averages[0], novelty(recent.n))

    def features(self, context: Context, phase: str, record: Array) -> Array:
        """What trees look at, shape (len(FEATURES),), beside the model of record's log quantiles at GRID."""
        centre = float(record[MIDDLE])
        row: list[float] = []
        groups = groups_of(context, phase)
        means = [self.means.get(key) for key in groups]
        for mean in means:
            row += [mean.fast, mean.slow, math.log1p(mean.n)] if mean is not None else [0.0, 0.0, 0.0]
        place = centre - self.typical[phase][1] if phase in self.typical else 0.0
        row += [place, float(record[HIGH] - record[LOW]), float(record[HIGH]) - centre]
        row += [
            -1.0 if value is None else math.log1p(max(value, 0.0))
            for value in (context.batch, context.size_in, context.corunners)
        ]
        row += [mean.off if (mean := means[place]) is not None else -1.0 for place in SPREADING]
        recent = self.recents.get(groups[EXACT])
        if recent is None:
            row += [0.0, 0.0, 0.0, 0.0]
        else:
            row += [recent.median - centre, recent.last[-1] - centre, *(average - centre for average in recent.averages)]
        row.append(float(list(self.typical).index(phase)) if phase in self.typical else -1.0)
        return np.array(row)

    def around(self, kind: str, centre: float, novel: int, groups: tuple[str, ...]) -> Array:
        """Log quantiles at GRID about a centre, spread by recent ratios to such centres in the narrowest group with enough."""
        for key in _ratio_keys(kind, novel, groups):
            window = self.windows.get(key)
            if window is not None and len(window) >= LEAST_RATIOS:
                return self._within(groups[PHASE], centre + window.quantiles)
        return centre + NORMAL

    def _within(self, phase: str, log_quantiles: Array) -> Array:
        """Held to what the phase's recent outcomes have lasted, at the levels that they reach.

        Of work with two modes, ratios to the one multiply the other: what they add up to then was never seen of anything.
        """
        lasted = self.windows.get(phase)
        if lasted is None:
            return log_quantiles
        shortest, longest = lasted.span
        n = len(lasted)
        low = np.where(GRID * (n + 1) >= 1.0, shortest, -np.inf)
        high = np.where(GRID * (n + 1) <= n, longest, np.inf)
        return np.minimum(np.maximum(log_quantiles, low), high)

    def pooled(self, groups: tuple[str, ...], of_host: float = 0.0) -> tuple[Array | None, Array | None]:
        """Log quantiles at GRID of the phase's recent durations, and the configuration's shrunk to wider groups'.

        What lasted on all hosts is moved by what is known of this one, `of_host`; what lasted here is as it was. A fleet far from
        its family keeps to itself: a mean of quantiles between the two would be neither's.
        """
        window = self.windows.get(groups[PHASE])
        if window is None:
            return None, None
        shrunk = whole = window.quantiles + of_host
        for place, most in zip(POOLED, POOLING, strict=True):
            window = self.windows.get(groups[place])
            if window is not None:
                own = window.quantiles + of_host if place in {FAMILY, FLEET} else window.quantiles
                weight = most * _likeness(own, len(window), shrunk) if place == FLEET else most
                shrunk = (len(window) * own + weight * shrunk) / (len(window) + weight)
        return whole, shrunk


def _likeness(own: Array, n: int, wider: Array) -> float:
    """How much a wider group says of one with n outcomes, 0 to 1: variance within it over that of its place about the wider's.

    That is what an outcome of the wider group is worth beside one of its own (Efron and Morris 1973), by moments: the square of
    half the distance from its tenth to its ninetieth percentile, and of how far their medians lie apart less what n explain. Of
    few outcomes the spread is not known, and the wider group's stands in for FEW of them.
    """
    distance = abs(float(own[MIDDLE] - wider[MIDDLE]))
    spread, around = (float(group[HIGH] - group[LOW]) / 2.0 for group in (own, wider))
    spread = (n * spread + FEW * around) / (n + FEW)
    apart = distance**2 - spread**2 / n
    return 1.0 if apart <= spread**2 else spread**2 / apart


class Learning:
    """Outcomes being taken in, one after the other; `done` gives the histories that know them."""

    def __init__(self, known: Histories) -> None:
        self._known = known
        self._means: dict[str, Mean] = {}
        self._recents: dict[str, Recent] = {}
        self._windows: dict[str, Window] = {}
        self._typical = dict(known.typical)

    def take(
        self, context: Context, phase: str, log_time: float, centre: float, centres: Centres | None, *, speaks: bool = True
    ) -> None:
        """One outcome: its log time, and what the model of record and the configuration's history had given as centres.

        One that does not speak for its crowd is counted and leaves short memories as they are.
        """
        groups = groups_of(context, phase)
        residual = log_time - centre
        for key in groups:
            self._mean(key, residual, speaks=speaks)
        n, mean = self._typical.get(phase, (0, 0.0))
        self._typical[phase] = (n + 1, mean + (log_time - mean) / min(n + 1, 2000))
        if centres is not None:
            for kind, there in (("median", centres.median), ("average", centres.average)):
                for key in _ratio_keys(kind, centres.novel, groups):
                    self._window(key, LARGE, log_time - there)
        self._window(groups[PHASE], WHOLE, log_time)
        for place, size in POOLED.items():
            if place != FLEET or fleet_of(context.host or ""):  # hosts of no fleet have only their work in common
                self._window(groups[place], size, log_time)
        self._recent(groups[EXACT], log_time, speaks=speaks)

    def _mean(self, key: str, residual: float, *, speaks: bool) -> None:
        mean = self._means.get(key) or self._known.means.get(key)
        if mean is None:
            self._means[key] = Mean(1, residual, residual, abs(residual))
        elif not speaks:
            self._means[key] = replace(mean, n=mean.n + 1)
        else:
            n = mean.n + 1
            fast = mean.fast + (residual - mean.fast) / min(n, FAST)
            slow, off = (a + (b - a) / min(n, SLOW) for a, b in ((mean.slow, residual), (mean.off, abs(residual))))
            self._means[key] = Mean(n, fast, slow, off)

    def _window(self, key: str, size: int, value: float) -> None:
        window = self._windows.get(key) or self._known.windows.get(key)
        self._windows[key] = (Window(size) if window is None else window).having(value)

    def _recent(self, key: str, log_time: float, *, speaks: bool) -> None:
        recent = self._recents.get(key) or self._known.recents.get(key)
        if recent is None:
            self._recents[key] = Recent(1, (log_time,), (log_time, log_time))
            return
        if not speaks:
            self._recents[key] = replace(recent, n=recent.n + 1)
            return
        n = recent.n + 1
        short, long = (a + (log_time - a) / min(n, back) for a, back in zip(recent.averages, AVERAGES, strict=True))
        self._recents[key] = Recent(n, (*recent.last, log_time)[-LAST:], (short, long))

    def done(self) -> Histories:
        """Everything known, with what was taken in."""
        known = self._known
        return Histories(
            known.means.having(self._means),
            known.recents.having(self._recents),
            known.windows.having(self._windows),
            self._typical,
        )


def speaks_for(crowd: int, key: str, most: int = LAST) -> bool:
    """Whether a row is one of the `most` or so that speak for a crowd begun at one instant.

    Such rows end in order of length, so that the last to end are the longest; a draw keyed by the row picks fairly.
    """
    return crowd <= most or _drawn(key) * crowd < most


@lru_cache(maxsize=DRAWN)
def _drawn(key: str) -> float:
    """The row's draw in (0, 1)."""
    return float(uniforms(stream(SEED, "speaks", keys_of([key])), 1)[0, 0])


def _ratio_keys(kind: str, novel: int, groups: tuple[str, ...]) -> tuple[str, ...]:
    """Windows of ratios, narrowest first."""
    return (
        f"{kind} {groups[EXACT]}",
        f"{kind} {novel} {groups[WIDE]}",
        f"{kind} {novel} {groups[FAMILY]}",
        f"{kind} {novel} {groups[PHASE]}",
        f"{kind} {groups[PHASE]}",
    )
