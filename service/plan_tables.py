"""Laws of a model as quantile tables, made once and kept while it serves: planners ask about the same contexts again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from predictors.contexts import Context
from predictors.distribution import Array, Support
from predictors.joint.quantile_table import CELLS, Index, QuantileTable, Timings, table_of, timings_of
from predictors.model import Model
from service.plan_retries import tried_again

MOST = 8_192
"""Laws kept, at 2 KB each, or 4 KB where any of them has an atom."""


class Kind(NamedTuple):
    """What decides the law of a stage not begun; wait_s is what passes before it is tried again."""

    context: Context
    phase: str
    retries: int = 0
    wait_s: float = 0.0


@dataclass(frozen=True)
class Tabulated:
    """Laws of kinds of stages, one row each, that have not begun.

    `p_complete` (n,) is their probability of completing, `rho` the correlation of setup and service in the context.
    """

    place: dict[Kind, int]
    table: QuantileTable
    supports: tuple[Support, ...]
    p_complete: Array
    rho: tuple[float, ...]

    def timings(self, rows: Index) -> Timings:
        """The stages at `rows`; the table stays where it is."""
        return Timings(self.table, rows, np.zeros(len(rows)), np.full(len(rows), np.nan), self.p_complete[rows])

    def alone(self, rows: Index) -> Timings:
        """The same with a table of these rows only, to be stacked with others."""
        table = QuantileTable(self.table.nodes[rows], self.table.knee[rows])
        return Timings(table, np.arange(len(rows)), np.zeros(len(rows)), np.full(len(rows), np.nan), self.p_complete[rows])


NONE = Tabulated({}, QuantileTable(np.empty((0, CELLS + 1)), np.empty((0, CELLS))), (), np.empty(0), ())


class Tables:
    """Laws of one model asked for lately. What is kept is replaced whole, so threads may share it, and changes no answer."""

    def __init__(self) -> None:
        self._kept = NONE

    def holding(self, model: Model, kinds: Sequence[Kind]) -> tuple[Tabulated, list[int]]:
        """Laws of at least these kinds, whose phases the model must know, and the row of each.

        A row's bits depend on its kind alone.
        """
        kept = self._kept
        rows = [kept.place.get(kind, -1) for kind in kinds]
        new = list(dict.fromkeys(kind for kind, row in zip(kinds, rows, strict=True) if row < 0))
        if not new:
            return kept, rows
        if len(kept.place) + len(new) > MOST:
            kept, new = NONE, list(dict.fromkeys(kinds))
        found = _joined(kept, _tabulated(model, new))
        if len(found.place) <= MOST:
            self._kept = found
        return found, [found.place[kind] for kind in kinds]


def _tabulated(model: Model, kinds: list[Kind]) -> Tabulated:
    """Laws of these kinds in their order."""
    contexts, phases = [kind.context for kind in kinds], [kind.phase for kind in kinds]
    law, complete = model.predict(contexts, phases), model.p_complete(contexts, phases, np.zeros(len(kinds)))
    table = timings_of(law).table
    for i, kind in enumerate(kinds):
        if kind.retries:
            tries = tried_again(model, *kind)
            again = table_of(tries.law)
            table.nodes[i], table.knee[i], complete[i] = again.nodes[0], again.knee[0], tries.p_complete
    rho = {context: model.dependence.correlation(context) for context in dict.fromkeys(contexts)}
    return Tabulated(
        {kind: i for i, kind in enumerate(kinds)},
        table,
        law.support,
        complete,
        tuple(rho[context] for context in contexts),
    )


def _joined(first: Tabulated, second: Tabulated) -> Tabulated:
    """The laws of both, first before second."""
    n, tables = len(first.place), (first.table, second.table)
    nodes = np.concatenate([table.nodes for table in tables])
    if any(table.has_atoms for table in tables):
        knee = np.concatenate([table.knee for table in tables])
    else:
        knee = np.broadcast_to(-1.0, (len(nodes), CELLS))  # of no size
    return Tabulated(
        {**first.place, **{kind: n + i for kind, i in second.place.items()}},
        QuantileTable(nodes, knee),
        (*first.supports, *second.supports),
        np.concatenate([first.p_complete, second.p_complete]),
        (*first.rho, *second.rho),
    )
