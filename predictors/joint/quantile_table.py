"""Quantiles of many stages on one grid, looked up fast in both directions, with what is already known of each stage.

The grid is uniform in the normal score z = Phi^-1(p) from -5.5 to 5.5, so a draw z finds its cell by arithmetic, and linear
interpolation errs by at most cell^2/8 of the second derivative: 2.4e-4 sigma^2 relative for a log-normal. A cell that holds an
atom keeps where the atom begins, so a jump stays a jump; several atoms in one cell become one, an error of at most the cell's
probability (below 2 %). Beyond the ends the outermost quantile stands, at a probability of 2e-8 each.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri

from predictors.distribution import Array, Distribution
from telemetry.errors import BadField

END = 5.5
CELLS = 254
WIDTH = 2.0 * END / CELLS
COARSE = 32
STRIDES = (16, 8, 4, 2, 1)
"""A search first counts every COARSE-th node, then steps on: all steps together are less than COARSE, so none leaves a row."""
JUMP = 0.3
"""A cell whose middle is off its chord by this share of its height holds an atom (a bare jump is off by half)."""
PARTS, SEARCHES = 64, 5
"""An atom's beginning is known to PARTS^-SEARCHES of its cell, 1e-9."""
AT_ONCE = 4_000
"""Knees searched together, which bounds the memory it takes."""
Index = NDArray[np.intp]


@dataclass(frozen=True)
class QuantileTable:
    """Rows of quantiles in s at the nodes, shape (n_rows, CELLS + 1); `knee`: where in its cell an atom begins, else -1."""

    nodes: Array
    knee: Array

    @cached_property
    def has_atoms(self) -> bool:
        """Whether any cell holds one; spares a look-up where none does, and changes no answer."""
        return bool((self.knee >= 0.0).any())

    def at(self, rows: Index, z: Array) -> Array:
        """Quantile in s at level Phi(z): rows (n,), z (n, n_draws)."""
        place = z * (1.0 / WIDTH)
        place += END / WIDTH
        np.clip(place, 0.0, CELLS, out=place)
        whole = np.minimum(np.floor(place), CELLS - 1)
        place -= whole
        cell = whole.astype(np.intp)
        if self.has_atoms:
            knee = self.knee.ravel().take(rows[:, None] * CELLS + cell)
            place = np.where(knee < 0.0, place, place > knee)
        cell += rows[:, None] * (CELLS + 1)
        low = self.nodes.ravel().take(cell)
        cell += 1
        height = self.nodes.ravel().take(cell)
        height -= low
        height *= place
        height += low
        return height

    def score(self, rows: Index, t_s: Array) -> Array:
        """Phi^-1(P(T <= t)) by the inverse of `at`: rows (n,), t_s (n, n_times); -inf below the first node, inf from the last."""
        values, base = self.nodes.ravel(), rows[:, None] * (CELLS + 1)
        passed = np.zeros(t_s.shape, dtype=np.int8)  # every COARSE-th node at or below t
        for node in self.nodes[rows, COARSE - 1 :: COARSE].T:
            passed += (node[:, None] <= t_s).view(np.int8)
        last = passed * np.intp(COARSE)
        last += base - 1  # place of the last node at or below t
        for stride in map(np.intp, STRIDES):  # added, not chosen: a processor guesses such choices wrong half the time
            last += (values.take(last + stride) <= t_s).view(np.int8) * stride
        last -= base
        found = last + 1
        cell = np.clip(last, 0, CELLS - 1, out=last)
        at = base + cell
        low = values.take(at)
        at += 1
        height = values.take(at) - low
        inside = (t_s - low) / np.where(height > 0.0, height, 1.0)
        if self.has_atoms:
            knee = self.knee.ravel().take(rows[:, None] * CELLS + cell)
            inside = np.where(knee < 0.0, inside, knee)
        z = (cell + inside) * WIDTH - END
        return np.where(found == 0, -np.inf, np.where(found > CELLS, np.inf, z))


def table_of(distribution: Distribution) -> QuantileTable:
    """Tabulate every context of a distribution, one row each."""
    z = np.linspace(-END, END, 2 * CELLS + 1)
    fine = distribution.quantile(ndtr(z))
    nodes = np.ascontiguousarray(fine[:, ::2])
    height = np.diff(nodes, axis=1)
    off_chord = np.abs(fine[:, 1::2] - (nodes[:, 1:] + nodes[:, :-1]) / 2.0)
    jumps = (off_chord > JUMP * height) & (height > 1e-9 * nodes[:, 1:])
    knee = np.full(height.shape, -1.0)
    row, cell = np.nonzero(jumps)
    if len(row):
        for part in np.array_split(np.arange(len(row)), 1 + len(row) // AT_ONCE):
            at, within = row[part], cell[part]
            knee[at, within] = _knees(distribution, at, within, nodes[at, within], nodes[at, within + 1])
    return QuantileTable(nodes, knee)


def _knees(distribution: Distribution, row: Index, cell: Index, low_s: Array, high_s: Array) -> Array:
    """Share of each cell, rows ascending, at which the quantile passes the middle between its ends low_s and high_s.

    A search in PARTS parts at a time, as long as one part holds most of the height: a bend is soon found to be none.
    """
    middle, least = (low_s + high_s) / 2.0, JUMP * (high_s - low_s)
    low, width, left = np.zeros(len(row)), 1.0, np.arange(len(row))
    for _ in range(SEARCHES):
        told = _parted(distribution, row[left], cell[left], low[left], width)
        width /= PARTS
        part = (told <= middle[left, None]).sum(axis=1)
        low[left] += width * part
        ends = np.column_stack([low_s[left], told, high_s[left]])
        low_s[left], high_s[left] = ends[np.arange(len(left)), part], ends[np.arange(len(left)), part + 1]
        left = left[high_s[left] - low_s[left] > least[left]]
        if not len(left):
            break
    return low


def _parted(distribution: Distribution, row: Index, cell: Index, low: Array, width: float) -> Array:
    """Quantiles at the PARTS - 1 points within (low, low + width) of each cell, all cells of a row in one go.

    The cost is in calls for rows, not in levels.
    """
    rows, first, place = np.unique(row, return_index=True, return_inverse=True)
    turn = np.arange(len(row)) - first[place]
    z = np.zeros((len(rows), int(turn.max()) + 1, PARTS - 1))
    z[place, turn] = (cell[:, None] + low[:, None] + width * np.arange(1, PARTS) / PARTS) * WIDTH - END
    told = distribution.take(rows).quantile(ndtr(z).reshape(len(rows), -1))
    return np.asarray(told.reshape(z.shape)[place, turn])


@dataclass(frozen=True)
class Timings:
    """Remaining times of n stages given what was observed of each.

    `row` says which row of `table` holds a stage's time still to come. `passed` is F(elapsed), 0 where a stage has not started.
    `known` is the normal score of a finished stage's duration and NaN otherwise; its remaining time is zero. `p_complete` is the
    probability that a stage completes at all; the times are those given that it does.
    """

    table: QuantileTable
    row: Index
    passed: Array
    known: Array
    p_complete: Array

    @property
    def n(self) -> int:
        """Number of stages."""
        return len(self.passed)

    @property
    def observed(self) -> NDArray[np.bool_]:
        """Stages that run or have finished, shape (n,)."""
        return (self.passed > 0.0) | ~np.isnan(self.known)

    def take(self, index: Index) -> Timings:
        """The stages at `index`, in that order, with repeats allowed; the table stays where it is."""
        return Timings(self.table, self.row[index], self.passed[index], self.known[index], self.p_complete[index])


def timings_of(
    distribution: Distribution,
    *,
    elapsed_s: ArrayLike | None = None,
    took_s: ArrayLike | None = None,
    p_complete: ArrayLike = 1.0,
) -> Timings:
    """Timings of stages with the given whole durations, one context each.

    elapsed_s (n,): age of a running stage, NaN where it does not run; took_s (n,): length of a finished one, NaN where it has not
    finished. A finished stage at an atom takes the middle of the atom's levels.
    """
    n = distribution.n_contexts
    elapsed, took = _optional("elapsed_s", elapsed_s, n), _optional("took_s", took_s, n)
    complete = np.array(np.broadcast_to(np.asarray(p_complete, dtype=np.float64), (n,)))
    if not np.all((complete >= 0.0) & (complete <= 1.0)):
        raise BadField("p_complete", p_complete, "give probabilities")
    table, passed, known = table_of(distribution), np.zeros(n), np.full(n, np.nan)
    nodes, knee = table.nodes, table.knee
    running, finished = np.flatnonzero(~np.isnan(elapsed)), np.flatnonzero(~np.isnan(took))
    if len(running):
        part = distribution.take(running)
        left = table_of(part.residual(elapsed[running]))
        nodes[running], knee[running] = left.nodes, left.knee
        passed[running] = np.minimum(part.cdf(elapsed[running][:, None])[:, 0], 1.0 - 1e-15)
    if len(finished):
        known[finished] = _score_of(distribution.take(finished), took[finished][:, None])
        nodes[finished], knee[finished] = 0.0, -1.0
    return Timings(QuantileTable(nodes, knee), np.arange(n), passed, known, complete)


def _score_of(distribution: Distribution, length_s: Array) -> Array:
    """Normal score of one known length per context, (n, 1); at an atom that of the middle of its levels."""
    below = distribution.cdf(np.nextafter(length_s, -np.inf))
    return np.clip(ndtri((below + distribution.cdf(length_s)) / 2.0)[:, 0], -END, END)


def _optional(name: str, values: ArrayLike | None, n: int) -> Array:
    """Times with NaN where there is none, shape (n,); refuses negative and infinite ones."""
    times = np.full(n, np.nan) if values is None else np.array(np.broadcast_to(np.asarray(values, dtype=np.float64), (n,)))
    if np.any(times < 0.0) or np.any(np.isinf(times)):
        raise BadField(name, values, "give times of 0 s or more, NaN where there is none")
    return times
