"""Slow periods of hosts: per host a level z of log time, followed through the outcomes that become known.

    log T = centre + z_host(t) + residual,      z wanders, jumps rarely, and returns to 0

A host's long-run speed is in the centre already, so z is drawn to 0. Its clock counts outcomes and seconds: an outcome moves z by
a random step of variance 2 tau^2 / `outcomes`, a second by one of 2 tau^2 / `seconds`, and after `seconds` of silence only 1 / e
of what was known still counts: a silent night ages it. A filter on a grid of levels (`host_levels`) takes each outcome by its
likelihood: Huber's near the level and bounded far from it, so that one stall moves little while a slow-down of all outcomes is
followed at once; a bound ("lasted longer than this") by the probability of passing it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_ndtr

from predictors.distribution import Array
from predictors.host_levels import Levels, levels_of
from predictors.layered import Layered
from telemetry.errors import BadField

HUBER = 2.0
"""Scales from the level beyond which an outcome weighs by its distance, not by the square of it."""
MOST_SAID = 6.0
"""Bound on what one outcome says, in nats: past it an outcome is a stall, and tells nothing of the host."""
JUMP = 0.02
"""Probability per outcome that the level was drawn afresh."""


@dataclass(frozen=True, slots=True)
class HostOutcome:
    """What one phase of an attempt tells about its host at `at_s`, when it ended or was last seen (any clock shared by all).

    `residual` is log time minus the centre for its context and `scale` its standard deviation while the host is as usual. Phases
    that have not completed are known to have lasted longer. `weight` is what it counts for, in outcomes.
    """

    host: str
    at_s: float
    residual: float
    scale: float
    completed: bool = True
    weight: float = 1.0


@dataclass(frozen=True)
class Memory:
    """How fast levels move: standard deviation `tau` in units of the usual scale, relaxation in outcomes and in seconds."""

    tau: float
    outcomes: float
    seconds: float


STEADY = Memory(0.05, 300.0, 86_400.0)
"""Held to unless the history says otherwise."""
TAUS, OUTCOMES, SECONDS = (0.05, 0.25, 0.7), (3.0, 30.0, 300.0), (600.0, 7200.0, 86_400.0, 604_800.0)
GAIN = 2.0
"""Log likelihood by which another memory must do better."""
LEARN_FROM, FOLD = 1000, 100
"""Newest outcomes (count) memories are compared on, and those folded per host: earlier ones are long forgotten."""


@dataclass(frozen=True, slots=True)
class Host:
    """One host: relative density of its level at `at_s`."""

    at_s: float
    density: Array


@dataclass(frozen=True)
class NowCast:
    """Levels of all hosts, for residuals of scale `unit`. Values never change: `after` makes the next one."""

    memory: Memory
    unit: float
    levels: Levels
    hosts: Layered[str, Host] = field(default_factory=Layered)

    def after(self, outcomes: Sequence[HostOutcome]) -> NowCast:
        """The levels once `outcomes` are known, in their order; late ones count for what they still say.

        BadField where a number is not finite or a scale not positive.
        """
        changed: dict[str, Host] = {}
        for outcome in outcomes:
            _checked(outcome)
            known = changed.get(outcome.host) or self._host(outcome.host, outcome.at_s, self.hosts)
            changed[outcome.host] = self._next(known, outcome)[0]
        return replace(self, hosts=self.hosts.having(changed))

    def state(self, host: str | None, at_s: float) -> tuple[float, float]:
        """Mean and variance of a host's level at `at_s`: log time by which it is slower than in the long run."""
        known = self._host(host or "", at_s, self.hosts)
        return self.levels.moments(self.levels.normed(self._aged(known.density, at_s - known.at_s, 0))[0])

    def _host(self, host: str, at_s: float, hosts: Mapping[str, Host]) -> Host:
        return hosts.get(host) or Host(at_s, np.ones(len(self.levels.level)))

    def _aged(self, told: Array, elapsed_s: float, outcomes: float) -> Array:
        """A density later, or a likelihood earlier, by that many seconds and outcomes."""
        aged, done = max(elapsed_s, 0.0) / self.memory.seconds, outcomes / self.memory.outcomes
        return self.levels.moved(told, aged + done, 1.0 - math.exp(-(aged + JUMP * outcomes)))

    def _next(self, host: Host, outcome: HostOutcome) -> tuple[Host, float]:
        """The host after one outcome, and the log likelihood of that outcome."""
        later_s = outcome.at_s - host.at_s
        said = outcome.weight * (_near if outcome.completed else _beyond)(self.levels, outcome.residual, outcome.scale)
        likelihood = self._aged(np.exp(said), -later_s, 0) if later_s < 0.0 else np.exp(said)
        density, evidence = self.levels.normed(self._aged(host.density, later_s, outcome.weight) * likelihood)
        return Host(max(outcome.at_s, host.at_s), density), math.log(evidence)


def fit(outcomes: Sequence[HostOutcome]) -> NowCast:
    """Levels as of the last of `outcomes`, which are in the order of becoming known, with the memory that explains them best.

    Memories are compared by marginal likelihood at a few points, those of outcomes first and those of seconds then.
    """
    finished = [outcome for outcome in outcomes if outcome.completed]
    unit = float(np.median([outcome.scale for outcome in finished])) if finished else 0.1
    chains, newest = {tau: levels_of(unit, tau * unit) for tau in TAUS}, finished[-LEARN_FROM:]
    best = _best(STEADY, [Memory(tau, n, STEADY.seconds) for tau in TAUS for n in OUTCOMES], chains, newest)
    best = _best(best, [replace(best, seconds=seconds) for seconds in SECONDS], chains, newest)
    return NowCast(best, unit, chains[best.tau]).after(_newest_of_each(outcomes))


def cast_of(memory: Memory, unit: float, hosts: Mapping[str, Host]) -> NowCast:
    """Levels of hosts as they were: what a file holds of them."""
    return NowCast(memory, unit, levels_of(unit, memory.tau * unit), Layered(dict(hosts)))


def _best(held: Memory, others: Sequence[Memory], chains: Mapping[float, Levels], outcomes: Sequence[HostOutcome]) -> Memory:
    """The likeliest memory, if it is likelier than the one held by GAIN."""
    if not outcomes:
        return held
    likely: dict[Memory, float] = {}
    for tau, levels in chains.items():
        alike = [memory for memory in dict.fromkeys([held, *others]) if memory.tau == tau]
        likely |= zip(alike, _likelihoods(levels, alike, outcomes) if alike else (), strict=True)
    found, most = held, likely[held] + GAIN
    for memory in others:
        if likely[memory] > most:
            found, most = memory, likely[memory]
    return found


def _likelihoods(levels: Levels, memories: Sequence[Memory], outcomes: Sequence[HostOutcome]) -> list[float]:
    """Log marginal likelihood of completed outcomes under each memory, each predicted from those before it on its host.

    Hosts know nothing of each other, so the k-th outcomes of all of them are taken in together, under all memories at once.
    """
    names = ("residual", "scale", "at_s", "weight")
    residual, scale, ended_s, weight = (np.array([getattr(one, name) for one in outcomes]) for name in names)
    said = np.exp(weight[:, None] * _near(levels, residual[:, None], scale[:, None]))
    per_s, per_outcome = (1.0 / np.array([getattr(one, name) for one in memories]) for name in ("seconds", "outcomes"))
    rows = _of_each_host(outcomes)
    density, at_s = np.ones((len(rows), len(memories), len(levels.level))), ended_s[[row[0] for row in rows]]
    total = np.zeros(len(memories))
    for k in range(len(rows[0])):
        now = [row[k] for row in rows if len(row) > k]
        live = slice(len(now))
        later_s = ended_s[now] - at_s[live]
        aged, done = np.maximum(later_s, 0.0)[:, None] * per_s, weight[now][:, None]
        moved = levels.moved_each(density[live], aged + done * per_outcome, -np.expm1(-(aged + done * JUMP)))
        early = np.maximum(-later_s, 0.0)[:, None] * per_s
        likelihood = np.repeat(said[now][:, None], len(memories), axis=1)
        late = np.flatnonzero(later_s < 0.0)
        likelihood[late] = levels.moved_each(likelihood[late], early[late], -np.expm1(-early[late]))
        joint = moved * likelihood
        evidence = joint @ levels.prior
        density[live], at_s[live] = joint / evidence[..., None], np.maximum(at_s[live], ended_s[now])
        total += np.log(evidence).sum(axis=0)
    return [float(one) for one in total]


def _of_each_host(outcomes: Sequence[HostOutcome]) -> list[list[int]]:
    """Places of each host's outcomes, in their order; the host with most of them first."""
    places: dict[str, list[int]] = {}
    for place, outcome in enumerate(outcomes):
        places.setdefault(outcome.host, []).append(place)
    return sorted(places.values(), key=len, reverse=True)


def _newest_of_each(outcomes: Sequence[HostOutcome]) -> list[HostOutcome]:
    """The newest outcomes of every host, in their order."""
    left: dict[str, int] = {}
    kept = []
    for outcome in reversed(outcomes):
        left[outcome.host] = left.get(outcome.host, FOLD) - 1
        if left[outcome.host] >= 0:
            kept.append(outcome)
    return kept[::-1]


def _near(levels: Levels, residual: float | Array, scale: float | Array) -> Array:
    """Log likelihood of every level given a residual, or several (n, 1): Huber's, no lower than -MOST_SAID.

    A cell's width is part of the scale.
    """
    spread = np.sqrt(scale**2 + levels.width**2 / 12.0)
    away = np.abs(residual - levels.level) / spread
    loss = np.where(away < HUBER, 0.5 * away**2, HUBER * (away - 0.5 * HUBER))
    return np.asarray(np.maximum(np.log(scale / spread) - loss, -MOST_SAID))


def _beyond(levels: Levels, bound: float, scale: float) -> Array:
    """Log probability of every level that a residual passes a bound, no lower than -MOST_SAID."""
    return np.asarray(np.maximum(log_ndtr((levels.level - bound) / scale), -MOST_SAID))


def _checked(outcome: HostOutcome) -> None:
    """Refuse what would spoil a host's level for good."""
    if not (math.isfinite(outcome.at_s) and math.isfinite(outcome.residual)):
        raise BadField("residual, at_s", (outcome.residual, outcome.at_s), "leave out phases of zero or unknown length")
    if not (math.isfinite(outcome.scale) and outcome.scale > 0.0):
        raise BadField("scale", outcome.scale, "give the positive standard deviation of log time")


def shifted(log_quantiles: Array, log_median: ArrayLike, mean: ArrayLike, variance: ArrayLike, scale: ArrayLike) -> Array:
    """Log quantiles (n, n_levels) of durations at a host in the given state; all else scalars or (n,).

    They move by the mean, and away from the median as a normal law of that scale widens by the variance:
    m + mean + sqrt(1 + variance / scale^2) (q - m).
    """
    middle, moved, more, own = (np.asarray(x, dtype=np.float64)[..., None] for x in (log_median, mean, variance, scale))
    return np.asarray(middle + moved + np.sqrt(1.0 + more / own**2) * (log_quantiles - middle))
