"""Coverage tells shares with their intervals, brackets what is not known, and names the worst."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from calibrate.evidence.coverage import LEVELS, Cell, Exceeded, cells, shares, worst
from predictors.scores import binomial_interval


def counted(*groups: tuple[str, int, int, int, int]) -> dict[str, list[Any]]:
    """Groups of (name, answers, failed, resolved, misses), the same at every level; what is resolved has completed."""
    rows: dict[str, list[Any]] = {name: [g[i] for g in groups] for i, name in enumerate(("host", "n", "n_failed", "n_completed"))}
    for level in (50, 90, 95, 99):
        rows |= {f"resolved_{level}": [g[3] for g in groups], f"misses_{level}": [g[4] for g in groups]}
    return rows


def at(cell: Cell, level: float) -> Exceeded:
    return cell.exceeded[LEVELS.index(level)]


def test_a_share_comes_with_its_exact_interval() -> None:
    [cell] = cells(counted(("north", 10, 0, 10, 6)), ("host",))
    p90 = at(cell, 0.9)
    assert (0.6, 10) == (p90.share.estimate, p90.share.n)
    # Clopper-Pearson: each end is where the count seen becomes an event of 2.5 %.
    assert 0.025 == pytest.approx(binom.sf(5, 10, p90.share.low))
    assert 0.025 == pytest.approx(binom.cdf(6, 10, p90.share.high))
    assert p90.always.low < p90.share.low < p90.share.high < p90.always.high


def test_counts_add_up_and_the_unresolved_are_bracketed() -> None:
    [cell] = cells(counted(("north", 20, 4, 12, 3)), ("host",))
    assert ({"host": "north"}, 20, 12, 4, 4) == (cell.place, cell.n, cell.completed, cell.censored, cell.failed)
    p90 = at(cell, 0.9)
    assert (4, 3 / 16, 7 / 16) == (p90.unresolved, p90.if_kept, p90.if_missed)


def test_a_stratum_of_failures_only_promises_nothing() -> None:
    [cell] = cells(counted(("north", 1, 1, 0, 0)), ("host",))
    assert all((0.0, 1.0, 0, 0.0, 0.0) == (e.share.low, e.share.high, e.share.n, e.if_kept, e.if_missed) for e in cell.exceeded)


def test_the_worst_is_the_one_farthest_outside_not_the_largest_share() -> None:  # field rule C09
    found = cells(counted(("few", 3, 0, 3, 2), ("many", 100, 0, 100, 40)), ("host",))
    assert [2 / 3, 0.4] == [at(cell, 0.9).share.estimate for cell in found]
    assert found[1] == worst(found)
    assert 0.99 == found[1].farthest.level
    assert worst(()) is None


def test_a_stratum_of_which_only_misses_are_known_is_not_called_off() -> None:
    # 5 of 5 resolved ones passed, 95 were cut off before: the share may be anything from 5 to 100 %, and 10 % is promised.
    rows = counted(("north", 100, 0, 5, 5)) | {"n_completed": [0]}
    [cell] = cells(rows, ("host",))
    assert (0.05, 1.0) == (at(cell, 0.9).if_kept, at(cell, 0.9).if_missed)
    assert at(cell, 0.9).share.low > 0.4
    assert at(cell, 0.9).gap < 0.0


def test_no_groups_give_no_cells() -> None:
    assert () == cells({name: [] for name in counted(("x", 1, 0, 1, 0))}, ("host",))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 400), st.integers(0, 400))
def test_many_intervals_at_once_are_those_one_by_one(misses: int, hits: int) -> None:
    low, high = shares(np.array([misses]), np.array([misses + hits]))
    one = binomial_interval(misses, misses + hits)
    assert (pytest.approx(one.low, abs=1e-12), pytest.approx(one.high, abs=1e-12)) == (low[0], high[0])
