"""Work that comes in whole pieces, such as output tokens: how many are left given those made so far, and how long they take.

Lengths are counted as durations are: events and attempts at risk by node and column, shrunk down the context's path. Columns are
single numbers at first, then sixteen to a doubling, with one hazard per piece within each. Of an attempt that runs or was cut off
it is only known that it is longer; how long it would have become is never used. Beyond `EDGES` the hazard is that of a power law.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from predictors.contexts import LEVELS, Context
from predictors.counts import events, exposure, marks, memory, numbered
from predictors.distribution import Array, Distribution, HazardForm, Support
from predictors.grids import LOG_LONGEST
from predictors.settings import FitSettings
from predictors.shrink import ROOT_STRENGTH, shrunk, strength
from predictors.tails import SLOPE
from telemetry.errors import BadField, NoEvidence

EDGES: Array = np.unique(np.rint(np.exp2(np.arange(17 * 16 + 1) / 16.0)))
"""Last number of each column: 1, 2, 3, ..., 131072; column 0 holds zero and the last column is open."""
KNOTS: Array = np.append(0.0, EDGES)
COLUMNS = len(EDGES) + 2
MOST = 1.0 - 1e-9
ROUNDING = 1e-9
"""Pieces by which a quantile may fall short of a whole number before it is rounded up to the next."""
Flags = NDArray[np.bool_]


class WholeNumbers(HazardForm):
    """Counts 0, 1, 2, ... whose cumulative hazard is a line between KNOTS; in place of seconds stand pieces.

    `hazard` is H at KNOTS, shape (n_contexts, len(KNOTS)), never falling.
    """

    def __init__(self, hazard: Array, support: tuple[Support, ...]) -> None:
        self.hazard = hazard
        self.support = support

    @property
    def n_contexts(self) -> int:
        """Number of contexts answered for."""
        return len(self.hazard)

    def cumulative_hazard(self, t_s: Array) -> Array:
        """H at the whole number at or below t."""
        whole = np.broadcast_to(np.floor(t_s), (self.n_contexts, t_s.shape[1]))
        inside = np.stack([np.interp(k, KNOTS, line) for k, line in zip(whole, self.hazard, strict=True)])
        return np.asarray(inside + SLOPE * (np.log1p(np.maximum(whole, KNOTS[-1])) - np.log1p(KNOTS[-1])))

    def inverse_hazard(self, h: Array) -> Array:
        """The least whole number at which H reaches h."""
        wide = np.broadcast_to(h, (self.n_contexts, h.shape[1]))
        return np.stack([_first(line, wanted) for line, wanted in zip(self.hazard, wide, strict=True)])

    def take(self, index: NDArray[np.intp]) -> WholeNumbers:
        """The contexts at `index`."""
        return WholeNumbers(self.hazard[index], tuple(self.support[i] for i in index))


def _first(line: Array, wanted: Array) -> Array:
    """Least whole number with H at or above `wanted` (n,), for H = `line` at KNOTS."""
    upper = np.minimum(np.searchsorted(line, wanted, side="left"), len(KNOTS) - 1)
    lower = np.maximum(upper - 1, 0)
    rise = np.where(line[upper] > line[lower], line[upper] - line[lower], 1.0)
    inside = KNOTS[lower] + np.minimum((wanted - line[lower]) / rise, 1.0) * (KNOTS[upper] - KNOTS[lower])
    past = np.minimum(np.maximum(wanted - line[-1], 0.0) / SLOPE, LOG_LONGEST - np.log1p(KNOTS[-1]))
    beyond = (1.0 + KNOTS[-1]) * np.exp(past) - 1.0
    found = np.where(wanted > line[-1], beyond, np.where(upper == 0, 0.0, inside))
    return np.ceil(found - ROUNDING * np.maximum(found, 1.0))


@dataclass(frozen=True)
class LengthNode:
    """Counts of one node: `events` and `at_risk` (n_columns,), finished attempts `n`, and their weight after decay `n_eff`."""

    events: Array
    at_risk: Array
    n: int
    n_eff: float


@dataclass(frozen=True)
class Lengths:
    """What is known of lengths of one kind, `what` (such as output_tokens), as of the last one taken in.

    `prior` (COLUMNS,) are the hazards of the root's parent; `strength` is kappa and `half_life` the memory in finished attempts,
    one per name in contexts.LEVELS; `longest` is the largest length or bound known.
    """

    what: str
    nodes: Mapping[str, LengthNode]
    prior: Array
    strength: tuple[float, ...]
    half_life: tuple[float | None, ...]
    longest: float

    def whole(self, contexts: Sequence[Context]) -> WholeNumbers:
        """Length of attempts of these contexts before the first piece; NoEvidence where none has finished."""
        if self.what not in self.nodes or self.nodes[self.what].n == 0:
            raise NoEvidence("phase", self.what, "teach it the length of at least one finished attempt")
        hazard, support = zip(*[self._line(context) for context in contexts], strict=True)
        return WholeNumbers(np.stack(hazard), tuple(support))

    def remaining(self, contexts: Sequence[Context], so_far: Array) -> Distribution:
        """Pieces still to come of attempts that have made so_far (n_contexts,) and go on: P(L - g > k | L > g)."""
        _check("so_far", so_far)
        return self.whole(contexts).residual(so_far)

    def _line(self, context: Context) -> tuple[Array, Support]:
        """H at KNOTS for a context, and the evidence behind it."""
        hazards, level, evidence = self.prior, LEVELS[0], self.nodes[self.what]
        for depth, key in enumerate(context.path(self.what)):
            node = self.nodes.get(key)
            if node is not None:
                hazards = shrunk(node.events, node.at_risk, hazards, self.strength[depth])
                if node.n:
                    level, evidence = LEVELS[depth], node
        line = np.cumsum(-np.log1p(-np.clip(hazards[:-1], 0.0, MOST)))
        return line, Support(level, evidence.n, evidence.n_eff, self.longest, matched=level == LEVELS[-1])

    def after(self, context: Context, length: float, *, finished: bool) -> Lengths:
        """These with one more attempt: finished at `length`, or known to be longer."""
        _check("length", np.array([length]))
        path, one = context.path(self.what), np.ones(1)
        d, n = (row[0] for row in _counts(np.array([length]), np.array([finished]), one, np.zeros(1, dtype=np.int64), 1))
        nodes = dict(self.nodes)
        for key, half_life in zip(path, self.half_life, strict=True):
            node = nodes.get(key, LengthNode(np.zeros(COLUMNS), np.zeros(COLUMNS), 0, 0.0))
            kept = 0.5 ** (1.0 / half_life) if half_life is not None and finished else 1.0
            nodes[key] = LengthNode(
                node.events * kept + d, node.at_risk * kept + n, node.n + finished, node.n_eff * kept + finished
            )
        return replace(self, nodes=MappingProxyType(nodes), longest=max(self.longest, length))


def fit(
    what: str,
    contexts: Sequence[Context],
    length: Array,
    finished: Flags,
    half_life: tuple[float | None, ...] = FitSettings.half_life,
) -> Lengths:
    """Lengths learned from rows in the order in which they became known; contexts, length and finished have n_rows each.

    A row that is not finished runs, was cut off or cancelled: it is longer than `length`. BadField for what is no whole number.
    """
    _check("length", length)
    prior = _prior(float(np.median(length[finished])) if finished.any() else 1.0)
    paths = [context.path(what) for context in contexts]
    nodes: dict[str, LengthNode] = {}
    strengths = [ROOT_STRENGTH]
    above = np.zeros(len(paths), dtype=np.int64)
    for depth, memory_of_level in enumerate(half_life):
        names = list(dict.fromkeys(path[depth] for path in paths))
        group = numbered([path[depth] for path in paths])
        weight = memory(group, finished, memory_of_level)
        d, n = _counts(length, finished, weight, group, len(names))
        if depth:
            parent = np.zeros(len(names), dtype=np.int64)
            parent[group] = above
            strengths.append(strength(d, n, parent, prior))
        counted, weighed = np.bincount(group, finished, len(names)), np.bincount(group, weight * finished, len(names))
        for i, name in enumerate(names):
            nodes[name] = LengthNode(d[i], n[i], int(counted[i]), float(weighed[i]))
        above = group
    return Lengths(what, MappingProxyType(nodes), prior, tuple(strengths), half_life, float(length.max(initial=0.0)))


def _check(name: str, numbers: Array) -> None:
    """BadField where one is not finite, negative or broken."""
    wrong = ~(np.isfinite(numbers) & (numbers >= 0.0) & (numbers == np.floor(numbers)))
    if wrong.any():
        raise BadField(name, float(numbers[wrong][0]), "give whole numbers of 0 or more")


def _prior(median: float) -> Array:
    """Hazards believed as much as ROOT_STRENGTH attempts: P(L > k) = (1 + k / median)^-SLOPE, and no atom at zero."""
    log_s = -SLOPE * np.log1p(np.append(0.0, KNOTS) / max(median, 1.0))
    return np.append(-np.expm1(np.diff(log_s)), 1.0)


def _counts(length: Array, finished: Flags, weight: Array, group: NDArray[np.int64], n_groups: int) -> tuple[Array, Array]:
    """Events and attempts at risk by group and column, each of shape (n_groups, n_columns)."""
    z = np.where(length == 0.0, -np.inf, length)  # zero has a column of its own: that of time zero
    mark = marks(np.full(len(length), -np.inf), z, finished, EDGES)
    return (
        events(mark, weight * finished, group, n_groups, COLUMNS),
        exposure(mark, weight, group, n_groups, COLUMNS),
    )
