"""The model of record: hierarchical hazards of standardised log residuals over a partially pooled location.

Each root phase stands alone. A fit places contexts on the log scale (`location`), standardises residuals, and counts events and
exposure per node and grid column (`counts`); answers shrink hazards down the context's path (`shrink`, `strata`). A known
outcome changes a few counts; only a refit moves locations, grids and strengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictors import location as locations
from predictors.contexts import LEVELS, Context
from predictors.counts import Marks, edges_of, events, exposure, marks
from predictors.distribution import Array
from predictors.effects import Ints
from predictors.frames import Flags, Frame
from predictors.grids import GridHazard
from predictors.location import Location
from predictors.model import Change
from predictors.shrink import DEFAULT_STRENGTH, ROOT_STRENGTH, normal_hazards, strength
from predictors.strata import Node, Stratum, spreads, whole_units
from predictors.tails import hill_rate
from telemetry.errors import BadField, NoEvidence
from telemetry.words import Ended

RESOLUTION_S = 1e-9
"""The store keeps time in ns: where every duration known is 0, the positive part lies there."""


@dataclass(frozen=True)
class FitSettings:
    """Settings of a fit.

    `half_life` is the memory in outcomes per name in contexts.LEVELS, None for unlimited. `novel_sd` is the standard deviation
    in log time expected between values of a field that never varied. `pooling` counts the residuals a parent's scale stands for.
    """

    half_life: tuple[float | None, ...] = (None, None, None, None, None, 400.0)
    novel_sd: float = 0.5
    pooling: float = 5.0

    def __post_init__(self) -> None:
        if len(self.half_life) != len(LEVELS) or any(h is not None and h <= 0.0 for h in self.half_life):
            raise BadField("half_life", self.half_life, f"give one positive number of outcomes, or None, for each of {LEVELS}")


@dataclass(frozen=True)
class HierarchicalHazards:
    """The fitted model: one stratum per phase, outcomes known up to `commit`, fitted as of `fit_commit`."""

    strata: Mapping[str, Stratum]
    commit: int
    fit_commit: int
    settings: FitSettings

    def knows(self, phase: str) -> bool:
        """Whether any outcome of the phase is known."""
        return phase in self.strata and self.strata[phase].known

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases with a known outcome, sorted."""
        return tuple(sorted(phase for phase in self.strata if self.knows(phase)))

    def predict(self, contexts: Sequence[Context], phases: Sequence[str]) -> GridHazard:
        """Time given completion of each pair, in s; NoEvidence names phases without a known outcome."""
        missing = sorted({phase for phase in phases if not self.knows(phase)})
        if missing:
            raise NoEvidence("phase", missing, "send completed attempts with this phase, or import recorded ones")
        return GridHazard(tuple(self.strata[phase].curve(context) for context, phase in zip(contexts, phases, strict=True)))

    def p_complete(self, contexts: Sequence[Context], phases: Sequence[str]) -> Array:
        """Probability of completing rather than failing, shape (n_pairs,)."""
        return np.array([curve.p_complete for curve in self.predict(contexts, phases).curves])

    def after(self, changes: Sequence[Change], commit: int) -> HierarchicalHazards:
        """The model that also knows `changes` up to `commit`; a phase met for the first time is placed by them alone."""
        by_phase: dict[str, list[Change]] = {}
        for change in changes:
            by_phase.setdefault(change.phase, []).append(change)
        strata = dict(self.strata)
        for phase, mine in by_phase.items():
            stratum = strata.get(phase) or _blank(phase, _rows_of(mine), self.settings, self.commit)
            strata[phase] = stratum.after(mine)
        return replace(self, strata=strata, commit=commit)


@dataclass(frozen=True)
class _Rows:
    """Rows of one phase; `context` indexes `contexts`, arrays have shape (n_rows,)."""

    contexts: tuple[Context, ...]
    context: Ints
    entry_s: Array
    duration_s: Array
    completed: Flags
    failed: Flags
    running: Flags
    weight: Array
    known_from: Ints


def fit(frame: Frame, commit: int, settings: FitSettings) -> HierarchicalHazards:
    """The model fitted on a frame known as of `commit`. Deterministic to the bit: fixed order, no random numbers."""
    strata = {}
    for number, phase in enumerate(frame.phases):
        mine = frame.phase == number
        used, context = np.unique(frame.context[mine], return_inverse=True)
        rows = _Rows(
            tuple(frame.contexts[i] for i in used),
            context.astype(np.int64),
            *(getattr(frame, name)[mine] for name in list(_Rows.__dataclass_fields__)[2:]),
        )
        strata[phase] = _counted(_blank(phase, rows, settings, commit), rows)
    return HierarchicalHazards(strata, commit, commit, settings)


def _rows_of(changes: Sequence[Change]) -> _Rows:
    """Rows that came with a batch of changes, for a phase met for the first time."""
    came = [change for change in changes if change.sign > 0]
    seen: dict[Context, int] = {}
    return _Rows(
        context=np.array([seen.setdefault(c.context, len(seen)) for c in came], dtype=np.int64),
        contexts=tuple(seen),
        entry_s=np.array([c.entry_s for c in came]),
        duration_s=np.array([c.duration_s for c in came]),
        completed=np.array([c.ended == Ended.COMPLETED for c in came]),
        failed=np.array([c.ended == Ended.FAILED for c in came]),
        running=np.array([c.ended == Ended.RUNNING for c in came]),
        weight=np.array([c.weight for c in came]),
        known_from=np.array([c.known_from for c in came], dtype=np.int64),
    )


def _blank(phase: str, rows: _Rows, settings: FitSettings, commit: int) -> Stratum:
    """A stratum placed by `rows` but without counts."""
    location = _located(phase, rows, settings)
    z = _standardised(location, phase, rows)[1]
    done = z[rows.completed & np.isfinite(z)]
    edges = edges_of(done)
    ended = np.array([rows.completed.sum(), rows.failed.sum()], dtype=np.float64)
    share = ended / ended.sum() if rows.completed.any() else np.array([1.0, 0.0])
    return Stratum(
        phase=phase,
        location=location,
        edges=edges,
        prior=np.outer(share, normal_hazards(edges, hill_rate(done))),
        strength=(ROOT_STRENGTH, *[DEFAULT_STRENGTH] * (len(LEVELS) - 1)),
        half_life=settings.half_life,
        nodes={},
        longest_s=float(rows.duration_s.max(initial=0.0)),
        fit_commit=commit,
    )


def _located(phase: str, rows: _Rows, settings: FitSettings) -> Location:
    """Location of the positive durations, recent outcomes of a configuration counting more."""
    positive = rows.duration_s > 0.0
    if not positive.any():
        positive[:] = True
    with np.errstate(divide="ignore"):
        log_entry, log_time = np.log(rows.entry_s), np.log(np.maximum(rows.duration_s, RESOLUTION_S))
    used, context = np.unique(rows.context[positive], return_inverse=True)
    leaf = _numbered([rows.contexts[i].configuration() for i in used])[context]
    fresh = _memory(leaf, np.ones(len(leaf), dtype=bool), settings.half_life[-1])
    return locations.fit(
        [rows.contexts[i] for i in used],
        phase,
        locations.Rows(
            log_entry[positive],
            log_time[positive],
            rows.completed[positive],
            rows.weight[positive] * fresh,
            context.astype(np.int64),
        ),
        novel_sd=settings.novel_sd,
        pooling=settings.pooling,
    )


def _standardised(location: Location, phase: str, rows: _Rows) -> tuple[Array, Array]:
    """Residuals of entries and exits in units of spread; completed rows without their own pull on the centre."""
    centre, left = location.centre(rows.contexts)
    scale = np.array([location.scale_of(context, phase) for context in rows.contexts])
    to_come, fitted = spreads(left, scale)
    spread = np.where(rows.completed, fitted[rows.context], to_come[rows.context])
    with np.errstate(divide="ignore"):
        return tuple((np.log(t) - centre[rows.context]) / spread for t in (rows.entry_s, rows.duration_s))  # type: ignore[return-value]


def _memory(group: Ints, counts: Flags, half_life: float | None) -> Array:
    """0.5 ** (outcomes of the group that came later / half_life) per row; `counts` marks outcomes."""
    if half_life is None:
        return np.ones(len(group))
    order = np.argsort(group, kind="stable")
    later: Ints = np.cumsum(counts[order][::-1])[::-1] - counts[order]
    last = np.append(group[order][1:] != group[order][:-1], True)
    base: Ints = later[last][np.cumsum(last) - last]
    weight = np.empty(len(group))
    weight[order] = 0.5 ** ((later - base) / half_life)
    return weight


def _numbered(names: Sequence[str]) -> Ints:
    """Names numbered in order of first appearance."""
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(name, len(seen)) for name in names], dtype=np.int64)


def _counted(blank: Stratum, rows: _Rows) -> Stratum:
    """The stratum with the counts of `rows` in every node, and strengths learned from them."""
    mark = marks(*_standardised(blank.location, blank.phase, rows), rows.completed | rows.failed, blank.edges)
    paths = [context.path(blank.phase) for context in rows.contexts]
    nodes: dict[str, Node] = {}
    strengths = [ROOT_STRENGTH]
    columns, above = blank.prior.shape[1], np.zeros(1, dtype=np.int64)
    ended = rows.weight * ~rows.running
    for depth in range(len(LEVELS)):
        names = list(dict.fromkeys(path[depth] for path in paths))
        number = {name: i for i, name in enumerate(names)}
        of_context = np.array([number[path[depth]] for path in paths], dtype=np.int64)
        group = of_context[rows.context]
        fresh = _memory(group, rows.completed | rows.failed, blank.half_life[depth])
        counted = [
            events(mark, ended * fresh * rows.completed, group, len(names), columns),
            events(mark, ended * fresh * rows.failed, group, len(names), columns),
        ]
        at_risk = exposure(mark, ended * fresh, group, len(names), columns)
        running = _running(mark, rows, group, len(names), columns)
        if depth:
            parent = np.zeros(len(names), dtype=np.int64)
            parent[of_context] = above
            strengths.append(strength(counted[0] + counted[1], at_risk, parent, blank.prior.sum(axis=0)))
        above = of_context
        n = np.bincount(group, rows.completed, len(names))
        n_eff = np.bincount(group, ended * fresh * rows.completed, len(names))
        last = np.zeros(len(names), dtype=np.int64)
        np.maximum.at(last, group, np.where(rows.completed, rows.known_from, 0))
        both = np.stack(counted, axis=1)
        for i, name in enumerate(names):
            nodes[name] = Node(both[i], at_risk[i], running[i], int(n[i]), float(n_eff[i]), int(last[i]))
    return replace(blank, nodes=nodes, strength=tuple(strengths))


def _running(mark: Marks, rows: _Rows, group: Ints, n_groups: int, columns: int) -> Ints:
    """Exposure of running rows in whole units, rounded row by row as `Stratum.after` will take them back."""
    mine = np.flatnonzero(rows.running)
    total = np.zeros((n_groups, columns), dtype=np.int64)
    for block in np.array_split(mine, max(1, len(mine) // 4096)):
        part = Marks(mark.entry[block], mark.entry_share[block], mark.exit[block], mark.exit_share[block])
        each = exposure(part, rows.weight[block], np.arange(len(block)), len(block), columns)
        np.add.at(total, group[block], whole_units(each))
    return total
