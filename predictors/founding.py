"""Founding a stratum on recorded rows: location, residuals, grid, and the counts of every node.

Half of it also founds a phase met for the first time after a fit, which then only counts until the next fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictors import location as locations
from predictors.contexts import LEVELS, Context
from predictors.counts import Marks, edges_of, events, exposure, marks, memory, numbered
from predictors.distribution import Array
from predictors.effects import Ints, summed
from predictors.frames import Flags, Frame
from predictors.joint.dependence import Residuals
from predictors.location import Location
from predictors.model import Change
from predictors.resources import NONE, Rates
from predictors.settings import FitSettings
from predictors.shrink import DEFAULT_STRENGTH, ROOT_STRENGTH, normal_hazards, strength
from predictors.strata import Node, Stratum, spreads, whole_units
from predictors.tails import hill_rate
from telemetry.words import Ended

RESOLUTION_S = 1e-9
"""The store keeps time in ns: where every duration known is 0, the positive part lies there."""


@dataclass(frozen=True)
class Rows:
    """Rows of one phase; `context` indexes `contexts`, arrays have shape (n_rows,); `started_ns` may be empty."""

    contexts: tuple[Context, ...]
    context: Ints
    entry_s: Array
    duration_s: Array
    completed: Flags
    failed: Flags
    running: Flags
    cancelled: Flags
    weight: Array
    known_from: Ints
    started_ns: Ints


def rows_in(frame: Frame, mine: Flags) -> Rows:
    """The rows of a frame that `mine` marks, with the contexts they use."""
    used, context = np.unique(frame.context[mine], return_inverse=True)
    return Rows(
        contexts=tuple(frame.contexts[i] for i in used),
        context=context.astype(np.int64),
        entry_s=frame.entry_s[mine],
        duration_s=frame.duration_s[mine],
        completed=frame.completed[mine],
        failed=frame.failed[mine],
        running=frame.running[mine],
        cancelled=frame.cancelled[mine] if len(frame.cancelled) else np.zeros(int(mine.sum()), dtype=bool),
        weight=frame.weight[mine],
        known_from=frame.known_from[mine],
        started_ns=frame.started_ns[mine] if len(frame.started_ns) else frame.started_ns,
    )


def rows_of(changes: Sequence[Change]) -> Rows:
    """Rows that came with a batch of changes, for a phase met for the first time."""
    came = [change for change in changes if change.sign > 0]
    seen: dict[Context, int] = {}
    return Rows(
        context=np.array([seen.setdefault(c.context, len(seen)) for c in came], dtype=np.int64),
        contexts=tuple(seen),
        entry_s=np.array([c.entry_s for c in came]),
        duration_s=np.array([c.duration_s for c in came]),
        completed=np.array([c.ended == Ended.COMPLETED for c in came]),
        failed=np.array([c.ended == Ended.FAILED for c in came]),
        running=np.array([c.ended == Ended.RUNNING for c in came]),
        cancelled=np.array([c.ended == Ended.CANCELLED for c in came]),
        weight=np.array([c.weight for c in came]),
        known_from=np.array([c.known_from for c in came], dtype=np.int64),
        started_ns=np.array([-1 if c.started_ns is None else c.started_ns for c in came], dtype=np.int64),
    )


def placed(phase: str, rows: Rows, settings: FitSettings, commit: int, rates: Rates = NONE) -> tuple[Stratum, Marks]:
    """A stratum placed by `rows` and measured rates, without counts as yet, and where the rows lie on its grid."""
    location = _located(phase, rows, settings, rates)
    z_entry, z_exit = _standardised(location, phase, rows)
    done = z_exit[rows.completed & np.isfinite(z_exit)]
    edges = edges_of(done, z_exit[rows.failed & np.isfinite(z_exit)])
    ended = np.array([rows.completed.sum(), rows.failed.sum()], dtype=np.float64)
    share = ended / ended.sum() if rows.completed.any() else np.array([1.0, 0.0])
    stratum = Stratum(
        phase=phase,
        location=location,
        edges=edges,
        prior=np.outer(share, normal_hazards(edges, hill_rate(done))),
        strength=(ROOT_STRENGTH, *[DEFAULT_STRENGTH] * (len(LEVELS) - 1)),
        half_life=settings.half_life,
        nodes={},
        longest_s=float(rows.duration_s.max()),
        fit_commit=commit,
    )
    return stratum, marks(z_entry, z_exit, rows.completed | rows.failed, edges)


def residuals(stratum: Stratum, rows: Rows, attempt: Ints) -> Residuals:
    """Standardised residuals of the completed rows; `attempt` (n_rows,) numbers their attempts."""
    done = rows.completed & (rows.duration_s > 0.0)
    z = _standardised(stratum.location, stratum.phase, rows)[1]
    return Residuals(attempt[done], rows.contexts, rows.context[done], z[done])


def _located(phase: str, rows: Rows, settings: FitSettings, rates: Rates) -> Location:
    """Location of the positive durations, recent outcomes of a configuration counting more."""
    positive = rows.duration_s > 0.0
    if not positive.any():
        positive[:] = True
    with np.errstate(divide="ignore"):
        log_entry, log_time = np.log(rows.entry_s), np.log(np.maximum(rows.duration_s, RESOLUTION_S))
    used, context = np.unique(rows.context[positive], return_inverse=True)
    leaf = numbered([rows.contexts[i].configuration() for i in used])[context]
    fresh = memory(leaf, np.ones(len(leaf), dtype=bool), settings.half_life[-1])
    return locations.fit(
        [rows.contexts[i] for i in used],
        phase,
        locations.Rows(
            log_entry[positive],
            log_time[positive],
            rows.completed[positive],
            rows.running[positive],
            rows.weight[positive] * fresh,
            context.astype(np.int64),
            rows.started_ns[positive] if len(rows.started_ns) else rows.started_ns,
        ),
        novel_sd=settings.novel_sd,
        pooling=settings.pooling,
        rates=rates,
    )


def _standardised(location: Location, phase: str, rows: Rows) -> tuple[Array, Array]:
    """Residuals of entries and exits in units of spread; completed rows without their own pull on the centre."""
    centre, left = location.centre(rows.contexts)
    scale = np.array([location.scale_of(context, phase) for context in rows.contexts])
    to_come, fitted = spreads(left, scale)
    spread = np.where(rows.completed, fitted[rows.context], to_come[rows.context])
    with np.errstate(divide="ignore"):
        return tuple((np.log(t) - centre[rows.context]) / spread for t in (rows.entry_s, rows.duration_s))  # type: ignore[return-value]


def counted(blank: Stratum, mark: Marks, rows: Rows) -> Stratum:
    """The stratum with the counts of `rows` in every node, and strengths learned from them."""
    paths = [context.path(blank.phase) for context in rows.contexts]
    nodes: dict[str, Node] = {}
    strengths = [ROOT_STRENGTH]
    above = np.zeros(len(paths), dtype=np.int64)
    for depth, half_life in enumerate(blank.half_life):
        names = list(dict.fromkeys(path[depth] for path in paths))
        of_context = numbered([path[depth] for path in paths])
        level = _level(mark, rows, of_context[rows.context], len(names), blank.prior.shape[1], half_life)
        if depth:
            parent = np.zeros(len(names), dtype=np.int64)
            parent[of_context] = above
            happened = np.array([node.events.sum(axis=0) for node in level])
            at_risk = np.array([node.at_risk for node in level])
            strengths.append(strength(happened, at_risk, parent, blank.prior.sum(axis=0)))
        nodes.update(zip(names, level, strict=True))
        above = of_context
    return replace(blank, nodes=nodes, strength=tuple(strengths))


def _level(mark: Marks, rows: Rows, group: Ints, n_groups: int, columns: int, half_life: float | None) -> list[Node]:
    """The nodes of one level; `group` numbers the node of each row."""
    weight = rows.weight * ~rows.running * memory(group, rows.completed | rows.failed, half_life)
    causes = [events(mark, weight * cause, group, n_groups, columns) for cause in (rows.completed, rows.failed)]
    cancelled = np.zeros((n_groups, columns))  # left to the system as untouched zeros where nothing was cancelled
    if rows.cancelled.any():
        cancelled = events(mark, weight * rows.cancelled, group, n_groups, columns)
    at_risk = exposure(mark, weight, group, n_groups, columns)
    running = _running(mark, rows, group, n_groups, columns)
    n, n_eff = np.bincount(group, rows.completed, n_groups), summed(group, weight * rows.completed, n_groups)
    last = np.zeros(n_groups, dtype=np.int64)
    np.maximum.at(last, group, np.where(rows.completed, rows.known_from, 0))
    happened = np.stack(causes, axis=1)
    return [
        Node(happened[i], at_risk[i], running[i], int(n[i]), float(n_eff[i]), int(last[i]), cancelled[i]) for i in range(n_groups)
    ]


def _running(mark: Marks, rows: Rows, group: Ints, n_groups: int, columns: int) -> Ints:
    """Exposure of running rows in whole units, rounded row by row as `Stratum.after` will take them back."""
    mine = np.flatnonzero(rows.running)
    total = np.zeros((n_groups, columns), dtype=np.int64)
    for block in np.array_split(mine, max(1, len(mine) // 4096)):
        part = Marks(mark.entry[block], mark.entry_share[block], mark.exit[block], mark.exit_share[block])
        each = exposure(part, rows.weight[block], np.arange(len(block)), len(block), columns)
        np.add.at(total, group[block], whole_units(each))
    return total
