"""Where a context's durations lie on the log scale, and how widely: centre, spread, and what is unknown of the centre.

log T = b0 + slopes(numbers) + group effects + residual. A node's residual scale is pooled down the context's path,

    s_g = (sum_i w_i |r_i| sqrt(pi / 2) + nu s_parent) / (sum_i w_i + nu),      novel_sd as one row more at the root,

from absolute residuals, since a few stalls must not make a host look wide. A context never seen has the variance between
groups on top: spread^2 = s^2 + left.

Censored rows enter by the expected log time beyond their bound, rows with delayed entry by the shift their entry causes,
both under a normal residual law; residuals past three scales are drawn in to three (Huber). These only place the
centre: the hazards of the standardised residuals treat censoring and entry exactly and correct what the centre misses.
What running rows may come to is judged by their family's scale, not by that of their own node: of rows that began together
the first to end lie close together, however far off the others will. It is that scale less what rows share that run at one time
(`together`): fifty that run now are all in the slow spell, or none is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from scipy.special import log_ndtr

from predictors import slopes as numbers
from predictors.contexts import LEVELS, Context
from predictors.counts import numbered
from predictors.distribution import Array
from predictors.effects import SHAPE, Crossing, Effects, Ints, Pool, crossing, summed
from predictors.resources import NONE, Rates
from predictors.seeding import Design, design
from predictors.slopes import Slopes
from predictors.together import Neighbours, neighbours

HUBER = 3.0
FAMILY = LEVELS.index("family")
FINEST = 1e-4
"""No centre of log time is taken to be known better than this: a clock may repeat a duration to the last digit."""
MAD = math.sqrt(math.pi / 2.0)
"""Scale of a normal law over its mean absolute deviation."""


@dataclass(frozen=True)
class Location:
    """A fitted location: `scale` per node key of the path.

    `low`, `high` bound centres to a factor 1000 past all seen; `most_left` is the variance between all configurations and that
    of a new value of what never varied: however many values of a context are new, no more is unknown than that.
    """

    intercept: float
    effects: Effects
    slopes: Slopes
    scale: dict[str, float]
    low: float
    high: float
    most_left: float

    def centre(self, contexts: Sequence[Context]) -> tuple[Array, Array]:
        """Centre of log time, and the variance left about it."""
        codes = self.effects.codes(contexts)
        moved, unsure = self.slopes.effect(numbers.features(contexts), self.slopes.codes(contexts))
        hosts = [context.host for context in contexts]
        total = self.intercept + (self.effects.centre(codes) + self.effects.begun(codes, hosts)) + moved
        left = self.effects.left(codes, self.effects.regime(contexts), hosts) + unsure
        return np.clip(total, self.low, self.high), np.minimum(left, self.most_left)

    def scale_of(self, context: Context, phase: str) -> float:
        """Residual scale of the deepest node of the path that has one."""
        return next(self.scale[node] for node in reversed(context.path(phase)) if node in self.scale)


@dataclass(frozen=True)
class Rows:
    """Positive durations of one phase: log bounds, whether they completed or run, weights; `context` indexes the contexts.

    `started_ns` is when they began, -1 where that was not seen; empty where it never was.
    """

    log_entry: Array
    log_time: Array
    completed: np.typing.NDArray[np.bool_]
    running: np.typing.NDArray[np.bool_]
    weight: Array
    context: Ints
    started_ns: Ints = field(default_factory=lambda: np.empty(0, dtype=np.int64))


def fit(
    contexts: Sequence[Context],
    phase: str,
    rows: Rows,
    *,
    novel_sd: float,
    pooling: float,
    rounds: int = 8,
    rates: Rates = NONE,
) -> Location:
    """Location of one phase; contexts without rows take no part. Deterministic: a fixed number of passes.

    `rates` are the measured rates of hosts; without any, nothing of them enters.
    """
    work = _Work(contexts, phase, rows, novel_sd, pooling, rates)
    for turn in range(rounds):
        work.turn(huber=turn > 0)
    return work.location()


class _Work:
    """The passes of one fit, on row, context and configuration level."""

    def __init__(
        self, contexts: Sequence[Context], phase: str, rows: Rows, novel_sd: float, pooling: float, rates: Rates
    ) -> None:
        self.rows = rows
        self.novel_sd = novel_sd
        self.pooling = pooling
        self.contexts = contexts
        seen: dict[str, int] = {}
        first: list[Context] = []
        place = np.empty(len(contexts), dtype=np.int64)
        for i, context in enumerate(contexts):
            name = context.configuration()
            if name not in seen:
                seen[name] = len(seen)
                first.append(context)
            place[i] = seen[name]
        self.configuration = place
        self.cross: Crossing = crossing(first)
        self.hosts = [context.host for context in first]
        self.pool = Pool.start(self.cross, _design(phase, rates, self.cross, self.hosts))
        self.x = numbers.features(contexts)
        self.slopes, self.slope_codes = numbers.start(contexts, self.x)
        self.nodes = _Nodes(first, phase)
        done = rows.log_time[rows.completed]
        middle = float(np.median(done if len(done) else rows.log_time))
        self.intercept = middle
        self.scale = np.full(len(first), (float(np.abs(done - middle).sum()) * MAD + novel_sd) / (len(done) + 1.0))
        self.wide = self.scale
        self.neighbours = self._neighbours() if rows.running.any() and len(rows.started_ns) else None
        self.left = np.zeros(len(first))
        self.between = 0.0

    def turn(self, *, huber: bool) -> None:
        """Pseudo-values, then slopes, effects, and scales given them."""
        rows, place = self.rows, self.configuration[self.rows.context]
        scale = self.scale[place]
        moved = self.slopes.effect(self.x, self.slope_codes)[0]
        centre = (self.intercept + moved + self.pool.contributions().sum(axis=0)[self.configuration])[rows.context]
        lasting = np.where(rows.running, self.wide[place], scale)
        value = centre + lasting * _pseudo(rows, centre, lasting, huber=huber)
        n = len(self.contexts)
        weight = rows.weight / scale**2
        mass = summed(rows.context, weight, n)
        mean = summed(rows.context, weight * value, n) / np.maximum(mass, np.finfo(np.float64).tiny)
        self._settle(mean, mass)
        self._scales(place)

    def _settle(self, mean: Array, mass: Array) -> None:
        """Three passes over intercept, slopes and effects, given context means and their precisions."""
        m = len(self.scale)
        total = summed(self.configuration, mass, m)
        noise = 1.0 / np.clip(total, np.finfo(np.float64).tiny, FINEST**-2)
        share = mass / np.maximum(total[self.configuration], np.finfo(np.float64).tiny)
        shaped = np.array([SHAPE in key for key in self.cross.keys])  # these say what the slopes leave over, so slopes go first
        for _ in range(3):
            between = self.pool.variance[shaped].sum(axis=0)[self.cross.regime]
            above = self.pool.contributions()[~shaped].sum(axis=0)[self.configuration] + self.intercept
            self.slopes = numbers.sweep(
                self.slopes, self.x, self.slope_codes, mean - above, share / (between + noise)[self.configuration]
            )
            moved = self.slopes.effect(self.x, self.slope_codes)[0]
            rest = summed(self.configuration, share * (mean - moved), m)
            weight = 1.0 / (self.pool.variance[1:].sum(axis=0)[self.cross.regime] + noise)
            effects = self.pool.contributions().sum(axis=0)
            self.intercept = float((weight * (rest - effects)).sum() / weight.sum())
            self.intercept += self.pool.sweep(rest - self.intercept, noise)
        self.between = float(np.var(np.bincount(self.configuration, share * mean, m)))

    def _scales(self, place: Ints) -> None:
        """Residual scales from residuals that leave their own row out: r / sqrt(1 - leverage)."""
        rows = self.rows
        self.left = self._effects().left(self.cross.code, self.cross.regime, self.hosts)
        moved = self.slopes.effect(self.x, self.slope_codes)[0]
        centre = (self.intercept + moved + self.pool.contributions().sum(axis=0)[self.configuration])[rows.context]
        scale = np.where(rows.running, self.wide[place], self.scale[place])
        leverage = np.where(rows.completed, np.minimum(self.left[place] * rows.weight / scale**2, 0.9), 0.0)
        away = rows.weight * scale * _away(rows, centre, scale) / np.sqrt(1.0 - leverage)
        m = len(self.scale)
        self.scale = self.nodes.pool(summed(place, away, m) * MAD, summed(place, rows.weight, m), self.pooling, self.novel_sd)
        self.wide = self.nodes.at(FAMILY)
        if self.neighbours is not None:
            shared = self.neighbours.shared((rows.log_time - centre) / self.wide[place], rows.weight, self.pooling)
            self.wide = self.wide * np.sqrt(1.0 - shared)[self.nodes.codes[FAMILY]]

    def _neighbours(self) -> Neighbours:
        """Completed rows next to each other in time, of one family on one host."""
        place, rows = self.configuration[self.rows.context], self.rows
        host, family = numbered([name or "" for name in self.hosts]), self.nodes.codes[FAMILY]
        return neighbours(host[place], family[place], rows.started_ns, rows.completed, len(self.nodes.names[FAMILY]))

    def _effects(self) -> Effects:
        return self.pool.finished(self.novel_sd, float(np.median(self.scale)) ** 2)

    def location(self) -> Location:
        """The result."""
        y = self.rows.log_time
        return Location(
            self.intercept,
            self._effects(),
            self.slopes,
            self.nodes.scales(),
            float(y.min()) - math.log(1000.0),
            float(y.max()) + math.log(1000.0),
            self.between + self.novel_sd**2,
        )


def _design(phase: str, rates: Rates, cross: Crossing, hosts: Sequence[str | None]) -> Design | None:
    """Rates as the coarsest key that tells hosts apart has them; `hosts` are those of the configurations."""
    if not rates:
        return None
    key = next(k for k, fields in enumerate(cross.keys) if "host" in fields)
    _, first = np.unique(cross.code[key], return_index=True)
    return design(phase, rates, key, [hosts[i] for i in first])


class _Nodes:
    """Configurations grouped along their paths, for pooling the scale."""

    def __init__(self, configurations: Sequence[Context], phase: str) -> None:
        self.names: list[list[str]] = []
        self.codes: list[Ints] = []
        self.value: list[Array] = []
        for level in zip(*(context.path(phase) for context in configurations), strict=True):
            seen: dict[str, int] = {}
            self.codes.append(np.array([seen.setdefault(name, len(seen)) for name in level], dtype=np.int64))
            self.names.append(list(seen))

    def pool(self, total: Array, mass: Array, pooling: float, first: float) -> Array:
        """Scale of each configuration from sums and counts of absolute residuals; at the root, `first` counts as one more."""
        parent = np.full(len(mass), (float(total.sum()) + first) / (float(mass.sum()) + 1.0))
        self.value = []
        for names, code in zip(self.names, self.codes, strict=True):
            above = np.zeros(len(names))
            above[code] = parent
            sums, counts = summed(code, total, len(names)), summed(code, mass, len(names))
            self.value.append((sums + pooling * above) / (counts + pooling))
            parent = self.value[-1][code]
        return parent

    def at(self, depth: int) -> Array:
        """Scale of each configuration's node at a depth of its path."""
        return self.value[depth][self.codes[depth]]

    def scales(self) -> dict[str, float]:
        """Scale by node key."""
        return {
            name: float(value)
            for names, values in zip(self.names, self.value, strict=True)
            for name, value in zip(names, values, strict=True)
        }


def _pseudo(rows: Rows, centre: Array, scale: Array, *, huber: bool) -> Array:
    """Standardised residual each row stands for: drawn in where extreme, imputed where censored, shifted by its entry."""
    z = (rows.log_time - centre) / scale
    z = np.where(rows.completed, z, _beyond(z))
    late = np.isfinite(rows.log_entry)
    z = z - np.where(late, _beyond(np.where(late, (rows.log_entry - centre) / scale, -40.0)), 0.0)
    return np.clip(z, -HUBER, HUBER) if huber else z


def _away(rows: Rows, centre: Array, scale: Array) -> Array:
    """Absolute standardised residual each row stands for: the mean one beyond a bound, less what its entry selects."""
    z = (rows.log_time - centre) / scale
    away = np.where(rows.completed, np.abs(z), _away_beyond(z))
    entry = np.where(np.isfinite(rows.log_entry), (rows.log_entry - centre) / scale, -40.0)
    return np.maximum(away + 1.0 / MAD - _away_beyond(entry), 0.0)


def _away_beyond(a: Array) -> Array:
    """E[|Z| | Z > a] of a standard normal Z: (2 phi(0) - phi(a)) / (1 - Phi(a)) below 0, E[Z | Z > a] above."""
    low = np.minimum(a, 0.0)
    below = (2.0 - np.exp(-0.5 * low * low)) / math.sqrt(2.0 * math.pi) / np.exp(log_ndtr(-low))
    return np.where(a < 0.0, below, _beyond(a))


def _beyond(a: Array) -> Array:
    """E[Z | Z > a] of a standard normal Z; past 30 the first two terms of its series."""
    near = np.minimum(a, 30.0)
    ratio = np.exp(-0.5 * near * near - 0.5 * math.log(2.0 * math.pi) - log_ndtr(-near))
    return np.where(a > 30.0, a + 1.0 / np.maximum(a, 30.0), ratio)
