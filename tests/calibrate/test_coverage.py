"""Coverage counts what outcomes prove, stratum by stratum, and names the worst."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from calibrate.evidence.coverage import LEVELS, Cell, Exceeded, Judged, Stratum, coverage
from predictors.distribution import GRID
from telemetry.words import Ended

A, B = Stratum(False, "service", "cold", "north"), Stratum(False, "service", "cold", "south")


def judged(rows: list[tuple[Stratum, float, Ended]]) -> Judged:
    """Every answer is uniform on [0, 100] s, so the quantile at p is 100 p."""
    quantiles_s = np.tile(100.0 * GRID, (len(rows), 1))
    return Judged([r[0] for r in rows], quantiles_s, np.array([r[1] for r in rows]), [r[2] for r in rows])


def at(cell: Cell, level: float) -> Exceeded:
    return cell.exceeded[LEVELS.index(level)]


def test_exceedance_of_completed_rows_is_counted_with_its_exact_interval() -> None:
    rows = [(A, s, Ended.COMPLETED) for s in (10.0, 60.0, 70.0, 89.0, 91.0, 94.0, 96.0, 98.0, 99.5, 100.0)]
    [cell] = coverage(judged(rows)).cells
    assert (10, 10, 0, 0) == (cell.n, cell.completed, cell.censored, cell.failed)
    assert [9, 6, 4, 2] == [one.misses for one in cell.exceeded]
    assert [0, 0, 0, 0] == [one.unresolved for one in cell.exceeded]
    p90 = at(cell, 0.9)
    assert 0.6 == p90.share.estimate == p90.weighted
    # Clopper-Pearson: each end is where the count seen becomes an event of 2.5 %.
    assert 0.025 == pytest.approx(binom.sf(5, 10, p90.share.low))
    assert 0.025 == pytest.approx(binom.cdf(6, 10, p90.share.high))


def test_a_bound_that_is_met_exactly_is_not_exceeded() -> None:
    [cell] = coverage(judged([(A, 90.0, Ended.COMPLETED)])).cells
    assert [1, 0, 0, 0] == [one.misses for one in cell.exceeded]


@pytest.mark.parametrize("ended", [Ended.CANCELLED, Ended.TIMED_OUT, Ended.RUNNING])
def test_a_censored_row_past_its_bound_is_a_miss_and_below_it_is_unresolved(ended: Ended) -> None:
    [cell] = coverage(judged([(A, 92.0, ended), (A, 20.0, Ended.COMPLETED)])).cells
    assert (2, 1, 1) == (cell.n, cell.completed, cell.censored)
    assert (1, 2, 0) == (at(cell, 0.9).misses, at(cell, 0.9).share.n, at(cell, 0.9).unresolved)
    assert (0, 1, 1) == (at(cell, 0.95).misses, at(cell, 0.95).share.n, at(cell, 0.95).unresolved)


def test_failed_rows_are_counted_and_left_out() -> None:
    [cell] = coverage(judged([(A, 99.9, Ended.FAILED), (A, 20.0, Ended.COMPLETED)])).cells
    assert (2, 1, 0, 1) == (cell.n, cell.completed, cell.censored, cell.failed)
    assert all((0, 1) == (one.misses, one.share.n) for one in cell.exceeded)


def test_a_stratum_of_failures_only_promises_nothing_and_divides_by_nothing() -> None:
    [cell] = coverage(judged([(A, 5.0, Ended.FAILED)])).cells
    assert cell.crps_log is None
    assert all((0.0, 1.0, 0, None) == (one.share.low, one.share.high, one.share.n, one.weighted) for one in cell.exceeded)


def test_no_rows_give_no_cells() -> None:
    nothing = coverage(judged([]))
    assert ((), (), None) == (nothing.cells, nothing.pooled, nothing.worst)


def test_a_fine_headline_does_not_hide_the_stratum_that_is_wrong() -> None:  # field rule C09
    task_a = [(A, i % 100 * 0.9 if i % 100 else 94.0, Ended.COMPLETED) for i in range(900)]
    task_b = [(B, i * 0.9 if i % 10 < 6 else 94.0, Ended.COMPLETED) for i in range(100)]
    found = coverage(judged(task_a + task_b))
    assert found.worst is not None
    assert B == found.worst.stratum
    assert 0.4 == at(found.worst, 0.9).share.estimate
    assert 0.1 < at(found.worst, 0.9).share.low
    [pooled] = found.pooled
    assert (1000, 0.049) == (pooled.n, at(pooled, 0.9).share.estimate)
    assert [100, 900] == sorted(at(cell, 0.9).share.n for cell in found.cells)


def test_answers_given_while_the_phase_ran_are_judged_apart() -> None:
    later = A._replace(while_running=True)
    found = coverage(judged([(A, 95.0, Ended.COMPLETED), (later, 5.0, Ended.COMPLETED)]))
    assert {A: 1, later: 0} == {cell.stratum: at(cell, 0.9).misses for cell in found.cells}
    assert [Stratum(False), Stratum(True)] == [cell.stratum for cell in found.pooled]


def test_weights_undo_the_censoring_of_long_rows() -> None:
    # T uniform on [0, 100] s, lost at a uniform time on [0, 100] s: of the long rows hardly any is seen to its end.
    rng = np.random.default_rng(5)
    length_s, lost_s = rng.uniform(0, 100, 4000), rng.uniform(0, 100, 4000)
    rows = [(A, float(min(t, c)), Ended.COMPLETED if t <= c else Ended.CANCELLED) for t, c in zip(length_s, lost_s, strict=True)]
    [cell] = coverage(judged(rows)).cells
    median = at(cell, 0.5)
    assert median.share.estimate == pytest.approx(0.4, abs=0.03)  # 1/4 outlive 50 s unlost, 3/8 end before it unlost
    assert median.weighted == pytest.approx(0.5, abs=0.03)


def test_the_mean_score_is_that_of_the_completed_rows() -> None:
    lone = coverage(judged([(A, 50.0, Ended.COMPLETED)])).cells[0].crps_log
    with_lost = coverage(judged([(A, 50.0, Ended.COMPLETED), (A, 60.0, Ended.RUNNING)])).cells[0].crps_log
    assert lone is not None
    assert 0.0 < lone
    assert lone == with_lost


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([A, B]), st.floats(0, 200), st.sampled_from(list(Ended))), max_size=30))
def test_counts_add_up_and_cells_come_worst_first(rows: list[tuple[Stratum, float, Ended]]) -> None:
    found = coverage(judged(rows))
    assert len(rows) == sum(cell.n for cell in found.cells) == sum(cell.n for cell in found.pooled)
    for cell in (*found.cells, *found.pooled):
        assert cell.n == cell.completed + cell.censored + cell.failed
        for one in cell.exceeded:
            assert cell.n - cell.failed == one.share.n + one.unresolved
            assert 0.0 <= one.share.low <= one.share.estimate <= one.share.high <= 1.0
            assert one.weighted is None or 0.0 <= one.weighted <= 1.0
    assert sorted((cell.gap for cell in found.cells), reverse=True) == [cell.gap for cell in found.cells]
