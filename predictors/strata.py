"""One root phase as the model of record knows it: a location, a grid, and counts for every node of the hierarchy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from predictors import tails
from predictors.causes import Incidence, incidence_of
from predictors.contexts import LEVELS, Context
from predictors.counts import UNIT, exposure, marks
from predictors.distribution import Array, Support
from predictors.effects import Ints
from predictors.grids import Curve
from predictors.layered import Layered
from predictors.location import Location
from predictors.model import Change
from predictors.shrink import shrunk
from telemetry.words import Ended

MEMO = 50_000
"""Contexts remembered per phase; further ones are worked out anew each time."""
LEAST, MOST = 1e-12, 1.0 - 1e-9
EVENTS = frozenset({Ended.COMPLETED, Ended.FAILED})


@dataclass(slots=True)
class Node:
    """Counts of one node.

    `events` (2, n_columns) are completed and failed, `at_risk` (n_columns,) their exposure, `running` (n_columns,) that of
    running rows in units of 1 / counts.UNIT. `n` counts completed outcomes, `n_eff` is their weight after decay. `cancelled`
    (n_columns,) are cancellations: they are no event to the law of completion, only to the incidence of causes.
    """

    events: Array
    at_risk: Array
    running: Ints
    n: int
    n_eff: float
    last_commit: int
    cancelled: Array

    @classmethod
    def empty(cls, n_columns: int) -> Node:
        """A node without evidence."""
        none = np.zeros(n_columns)
        return cls(np.zeros((2, n_columns)), none, np.zeros(n_columns, dtype=np.int64), 0, 0.0, 0, none.copy())

    def copy(self) -> Node:
        """A copy with arrays of its own."""
        return replace(
            self,
            events=self.events.copy(),
            at_risk=self.at_risk.copy(),
            running=self.running.copy(),
            cancelled=self.cancelled.copy(),
        )


@dataclass(frozen=True)
class Stratum:
    """Everything known about one phase. Values never change, but for two memos of what follows from them.

    `strength` holds kappa and `half_life` the memory in outcomes (None: unlimited), one per name in contexts.LEVELS;
    `prior` (2, n_columns) is the root's parent; `longest_s` the longest duration or bound known; a row that became known
    by `fit_commit` was standardised without itself. `counts_cancelled` is False in a fit that was saved without cancellations.
    """

    phase: str
    location: Location
    edges: Array
    prior: Array
    strength: tuple[float, ...]
    half_life: tuple[float | None, ...]
    nodes: Mapping[str, Node]
    longest_s: float
    fit_commit: int
    counts_cancelled: bool = True
    places: dict[Context, tuple[float, float, float]] = field(default_factory=dict, repr=False, compare=False)
    curves: dict[Context, Curve] = field(default_factory=dict, repr=False, compare=False)

    @property
    def known(self) -> bool:
        """Whether any outcome is known."""
        return self.phase in self.nodes and self.nodes[self.phase].n > 0

    def place(self, context: Context) -> tuple[float, float, float]:
        """Centre, spread for an outcome to come, and spread for one the location was fitted on."""
        found = self.places.get(context)
        if found is None:
            centre, left = self.location.centre([context])
            to_come, fitted = spreads(left, np.array([self.location.scale_of(context, self.phase)]))
            found = float(centre[0]), float(to_come[0]), float(fitted[0])
            if len(self.places) < MEMO:
                self.places[context] = found
        return found

    def of_host(self, context: Context) -> float:
        """Log time by which a profiled host lies off all hosts, as of the fit; 0 of any other host."""
        return self.location.effects.of_host(context)

    def rests_on_rates(self, context: Context) -> bool:
        """Whether the host's place rests on its measured rates alone, since the fit knew no outcome of it."""
        return self.location.effects.rests_on_rates(context)

    def curve(self, context: Context) -> Curve:
        """The context's distribution of time given completion."""
        found = self.curves.get(context)
        if found is None:
            found = self._curve(context)
            if len(self.curves) < MEMO:
                self.curves[context] = found
        return found

    def _curve(self, context: Context) -> Curve:
        centre, spread, _ = self.place(context)
        hazards = self.prior
        level, evidence = LEVELS[0], self.nodes[self.phase]
        for depth, key in enumerate(context.path(self.phase)):
            node = self.nodes.get(key)
            if node is not None:
                at_risk = node.at_risk + node.running / UNIT
                hazards = shrunk(node.events, at_risk, hazards, self.strength[depth])
                if node.n:
                    level, evidence = LEVELS[depth], node
        support = Support(level, evidence.n, evidence.n_eff, self.longest_s, evidence.last_commit, level == LEVELS[-1])
        return curve_of(hazards, centre + spread * self.edges, spread, max(np.log(max(self.longest_s, 1e-300)), centre), support)

    def incidence(self, context: Context) -> Incidence | None:
        """How and when the context's phase ends, by cause; None where cancellations were not counted.

        Above the root stands its prior, with cancellations in the share they have among all that ended.
        """
        if not self.counts_cancelled:
            return None
        centre, spread, _ = self.place(context)
        root = self.nodes[self.phase]
        lost = root.cancelled.sum()
        lost_share = lost / max(lost + root.events.sum(), LEAST)
        hazards = np.concatenate([self.prior, lost_share * self.prior.sum(axis=0)[None, :]])
        for depth, key in enumerate(context.path(self.phase)):
            node = self.nodes.get(key)
            if node is not None:
                at_risk = node.at_risk + node.running / UNIT
                hazards = shrunk(np.concatenate([node.events, node.cancelled[None, :]]), at_risk, hazards, self.strength[depth])
        log_cap = max(np.log(max(self.longest_s, 1e-300)), centre)
        return incidence_of(hazards, centre + spread * self.edges, spread, log_cap, self.curve(context).support)

    def after(self, changes: Sequence[Change]) -> Stratum:
        """The stratum once `changes` of its phase have been taken in, in their order."""
        known = self.nodes if isinstance(self.nodes, Layered) else Layered(dict(self.nodes))
        nodes: dict[str, Node] = {}
        column, risk = self._marked(changes)
        for i, change in enumerate(changes):
            path = change.context.path(self.phase)
            for key in path:
                if key not in nodes:
                    node = known.get(key)
                    nodes[key] = Node.empty(self.prior.shape[1]) if node is None else node.copy()
            for key, half_life in zip(path, self.half_life, strict=True):
                _count(nodes[key], change, int(column[i]), risk[i], half_life)
        longest_s = max([self.longest_s, *(change.duration_s for change in changes)])
        return replace(self, nodes=known.having(nodes), longest_s=longest_s, curves={})

    def _marked(self, changes: Sequence[Change]) -> tuple[Ints, Array]:
        """Column where each change's row ended, and its signed exposure, shape (n_changes, n_columns)."""
        event = np.array([change.ended in EVENTS for change in changes])
        places = [self.place(change.context) for change in changes]
        fitted = [c.ended == Ended.COMPLETED and c.known_from <= self.fit_commit for c in changes]
        centre = np.array([place[0] for place in places])
        spread = np.array([place[2] if own else place[1] for place, own in zip(places, fitted, strict=True)])
        with np.errstate(divide="ignore"):
            z_entry = (np.log(np.array([change.entry_s for change in changes])) - centre) / spread
            z_exit = (np.log(np.array([change.duration_s for change in changes])) - centre) / spread
        mark = marks(z_entry, z_exit, event, self.edges)
        weight = np.array([change.weight * change.sign for change in changes])
        return mark.exit, exposure(mark, weight, np.arange(len(changes)), len(changes), self.prior.shape[1])


def _count(node: Node, change: Change, column: int, risk: Array, half_life: float | None) -> None:
    """Adds one row to a fresh node, or takes it back; taking back an outcome can't undo its decay and stops at 0."""
    if change.ended == Ended.RUNNING:
        node.running += whole_units(risk)
        return
    if half_life is not None and change.sign > 0 and change.ended in EVENTS:
        factor = 0.5 ** (1.0 / half_life)
        node.events *= factor
        node.at_risk *= factor
        node.cancelled *= factor
        node.n_eff *= factor
    node.at_risk += risk
    weight = change.sign * change.weight
    if change.ended in EVENTS:
        cause = int(change.ended == Ended.FAILED)
        node.events[cause, column] = max(node.events[cause, column] + weight, 0.0)
    if change.ended == Ended.CANCELLED:
        node.cancelled[column] = max(node.cancelled[column] + weight, 0.0)
    if change.ended == Ended.COMPLETED:
        node.n += change.sign
        node.n_eff = max(node.n_eff + weight, 0.0)
        node.last_commit = max(node.last_commit, change.known_at)
    if change.sign < 0:
        np.maximum(node.at_risk, 0.0, out=node.at_risk)


def spreads(left: Array, scale: Array) -> tuple[Array, Array]:
    """Spread of an outcome to come, and of one the location was fitted on.

    The pull of its own row on the centre has leverage h = left / scale^2: without it the residual is r / (1 - h) and its spread
    scale / sqrt(1 - h), so that r counts in units of scale sqrt(1 - h).
    """
    return np.sqrt(scale**2 + left), np.sqrt(np.maximum(scale**2 - left, 0.1 * scale**2))


def whole_units(risk: Array) -> Ints:
    """Exposure of running rows in whole units, so that adding and taking back cancel exactly."""
    return np.rint(risk * UNIT).astype(np.int64)


def curve_of(hazards: Array, log_t: Array, spread: float, log_longest: float, support: Support) -> Curve:
    """The curve of time given completion from cause-specific hazards (2, n_columns).

    Incidence of completing in column k is S_{k-1} h_k; divided by its total, what is left past the last edge completing in
    the proportion of the open column, it leaves hangs and fast failures out.
    """
    closed = np.clip(hazards[:, :-1], LEAST * np.array([[1.0], [0.0]]), MOST)
    every = np.minimum(closed.sum(axis=0), MOST)
    log_s = np.cumsum(np.log1p(-every))
    p_complete = 1.0
    cumulative = -log_s
    failing = np.empty(0)
    if closed[1].any() or hazards[1, -1] > 0.0:
        before = np.exp(np.append(0.0, log_s[:-1]))
        open_share = hazards[0, -1] / max(hazards[:, -1].sum(), LEAST)
        incidence = np.append(before * closed[0], np.exp(log_s[-1]) * open_share)
        left = np.cumsum(incidence[::-1])[::-1]
        p_complete = float(min(left[0], 1.0))
        failing = np.clip(1.0 - left[2:] / np.maximum(np.exp(log_s[1:]), 1e-300), 0.0, 1.0)
        cumulative = -np.log(np.maximum(left[1:] / left[0], 1e-300))
    slope = float(np.clip(hazards[:, -1].sum(), 0.02, 50.0)) / spread
    knots, height = tails.extended(log_t, cumulative[1:], slope, log_longest)
    return Curve(knots, height, float(cumulative[0]), tails.SLOPE, support, p_complete, failing)
