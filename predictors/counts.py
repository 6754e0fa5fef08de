"""Event and at-risk counts on a grid of standardised residuals: the sufficient statistics of every node.

Columns, with edges e_0 < ... < e_m: 0 is the atom at zero, 1 lies below e_0, k + 1 is (e_{k-1}, e_k], the last one is open.
An event is in one column and at risk in all before it and in its own; a censored row is at risk in its last column for
the share of it that it passed; delayed entry takes away what lay before it. In the open column, exposure is a length in z.
Exposures of running rows are whole multiples of 1 / UNIT, so that taking one back leaves no rounding behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array
from predictors.effects import Ints, summed

UNIT = 2.0**20
SHARES: Array = np.concatenate([[0.0, 0.001, 0.0025, 0.005, 0.01], np.arange(1, 50) / 50.0, [0.99, 0.995, 0.9975, 0.999]])
DECILES: Array = np.arange(11) / 10.0
NORMAL: Array = np.array([-4.0, -3.0, -2.3, -1.6, -1.3, -1.0, -0.7, -0.5, -0.25, 0.0, 0.25, 0.5, 0.7, 1.0, 1.3, 1.6, 2.3, 3.0])


@dataclass(frozen=True)
class Marks:
    """Where rows begin and end on the grid, arrays of shape (n_rows,): columns and the share passed of each."""

    entry: Ints
    entry_share: Array
    exit: Ints
    exit_share: Array


def edges_of(z: Array, failed: Array) -> Array:
    """At most 86 edges: quantiles of the residuals of completions, and a coarse normal grid for what few rows leave open.

    Deciles of failures join them, however far off they lie: what has outlived the fast failures is another thing.
    """
    parts = [np.quantile(z, SHARES) if len(z) else z, np.quantile(failed, DECILES) if len(failed) else failed, NORMAL]
    found: Array = np.unique(np.concatenate(parts))
    apart = np.append(True, np.diff(found) > 1e-6)
    kept: Array = found[apart]
    return kept


def marks(z_entry: Array, z_exit: Array, event: NDArray[np.bool_], edges: Array) -> Marks:
    """Places of rows on the grid; z is minus infinity at age zero."""
    entry, entry_share = _column(z_entry, edges)
    exit_, exit_share = _column(z_exit, edges)
    closed = event & (exit_ < len(edges) + 1)
    entry_share = np.where(closed & (entry == exit_), 0.0, entry_share)
    return Marks(entry, entry_share, exit_, np.where(closed, 1.0, exit_share))


def _column(z: Array, edges: Array) -> tuple[Ints, Array]:
    """Column of each z and the share of it that lies below z (its length, in the open one)."""
    column = np.searchsorted(edges, z, side="left") + 1
    low = edges[np.maximum(column - 2, 0)]
    high = edges[np.minimum(column - 1, len(edges) - 1)]
    width = np.where((column >= 2) & (column <= len(edges)), high - low, 1.0)
    below = np.exp(np.minimum(z - edges[0], 0.0))
    share = np.where(column == 1, below, (np.maximum(z, edges[0]) - low) / width)
    age_zero = np.isneginf(z)
    return np.where(age_zero, 0, column).astype(np.int64), np.where(age_zero, 0.0, share)


def exposure(m: Marks, weight: Array, group: Ints, n_groups: int, n_columns: int) -> Array:
    """At-risk counts summed by group, shape (n_groups, n_columns)."""
    return _passed(m.exit, m.exit_share, weight, group, n_groups, n_columns) - _passed(
        m.entry, m.entry_share, weight, group, n_groups, n_columns
    )


def _passed(column: Ints, share: Array, weight: Array, group: Ints, n_groups: int, n_columns: int) -> Array:
    """Columns passed on the way to a place: all before it whole, its own by its share."""
    cell = group * n_columns + column
    size = n_groups * n_columns
    at = summed(cell, weight, size).reshape(n_groups, n_columns)
    partly = summed(cell, weight * share, size).reshape(n_groups, n_columns)
    past = np.cumsum(at[:, ::-1], axis=1)[:, ::-1] - at
    past[:, -1] = 0.0
    return past + partly


def events(m: Marks, weight: Array, group: Ints, n_groups: int, n_columns: int) -> Array:
    """Events summed by group, shape (n_groups, n_columns); `weight` is 0 for rows that are none of the cause."""
    return summed(group * n_columns + m.exit, weight, n_groups * n_columns).reshape(n_groups, n_columns)


def memory(group: Ints, counts: NDArray[np.bool_], half_life: float | None) -> Array:
    """0.5 ** (outcomes of the group that came later / half_life) per row; `counts` marks outcomes."""
    if half_life is None or not len(group):
        return np.ones(len(group))
    order = np.argsort(group, kind="stable")
    later: Ints = np.cumsum(counts[order][::-1])[::-1] - counts[order]
    last = np.append(group[order][1:] != group[order][:-1], True)
    base: Ints = later[last][np.cumsum(last) - last]
    weight = np.empty(len(group))
    weight[order] = 0.5 ** ((later - base) / half_life)
    return weight


def numbered(names: Sequence[str]) -> Ints:
    """Names numbered in order of first appearance."""
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(name, len(seen)) for name in names], dtype=np.int64)
