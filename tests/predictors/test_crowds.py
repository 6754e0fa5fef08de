"""Of rows that begin together the short ones end first: neither they nor the last to end may speak for the rest."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from predictors.contexts import Context, groups_of
from predictors.distribution import GRID
from predictors.ensemble import CROWD, EXPERTS, Ensemble
from predictors.experts.histories import EXACT, LAST, Histories, Learning, speaks_for
from predictors.experts.imputed import beyond
from predictors.model import Change
from telemetry.words import Ended
from tests.predictors.experts_taught import PAIRS, fitted, part, recorded

NEW = Context(host="never met", family="encoder", state="cold", size_in=8.0)
EVEN = np.linspace(-1.0, 1.0, len(GRID))


def change(key: str, duration_s: float, ended: Ended, context: Context = NEW) -> Change:
    return Change(1, 61, "setup", context, 0.0, duration_s, ended, 1.0, 61, key)


@pytest.fixture(scope="module")
def young() -> Ensemble:
    return fitted(part(recorded(), slice(60)))


def crowd(young: Ensemble, n: int, ended: int) -> Ensemble:
    """`n` rows begun at once on a host never met, of which `ended` have finished, in order of length."""
    begun = young.after([change(f"row {i}", 0.0, Ended.RUNNING) for i in range(n)], 61)
    return begun.after([change(f"row {i}", 0.01 * (i + 1), Ended.COMPLETED) for i in range(ended)], 62)


def test_while_more_run_than_have_ended_all_experts_answer_as_the_model_of_record(young: Ensemble) -> None:
    early = crowd(young, 3 * CROWD, CROWD).ask([NEW], ["setup"])[0]
    for expert in early.experts[1:]:
        assert_array_equal(early.experts[0], expert)
    late = crowd(young, 3 * CROWD, 2 * CROWD).ask([NEW], ["setup"])[0]
    assert not np.array_equal(late.experts[0], late.experts[EXPERTS.index("median_of_nine")])


def test_a_few_that_run_are_no_crowd(young: Ensemble) -> None:
    few = crowd(young, CROWD, 1).ask([NEW], ["setup"])[0]
    assert not np.array_equal(few.experts[0], few.experts[EXPERTS.index("median_of_nine")])


def test_running_elsewhere_does_not_count(young: Ensemble) -> None:
    here = PAIRS[0][0]
    known = young.after([change("done", 1.0, Ended.COMPLETED, here)], 61)
    busy = crowd(known, 3 * CROWD, 0)
    assert not busy._mostly_running(groups_of(here, "setup")[8])


def test_about_nine_of_a_crowd_speak_for_it() -> None:
    assert all(speaks_for(LAST, f"row {i}") for i in range(50))
    speaking = [i for i in range(2000) if speaks_for(50, f"row {i}")]
    assert_allclose(2000 * LAST / 50, len(speaking), rtol=0.15)
    assert [speaks_for(50, f"row {i}") for i in range(9)] == [speaks_for(50, f"row {i}") for i in range(9)]


def test_one_that_does_not_speak_is_counted_and_leaves_short_memories_alone() -> None:
    learning = Learning(Histories())
    for i, speaks in enumerate((True, False, True)):
        learning.take(NEW, "setup", float(i), 0.0, None, speaks=speaks)
    known = learning.done()
    recent = known.recents[groups_of(NEW, "setup")[EXACT]]
    assert (3, (0.0, 2.0)) == (recent.n, recent.last)
    assert 3 == len(known.windows[groups_of(NEW, "setup")[EXACT]])
    # One third of the way from the first to the third.
    assert_allclose((3, 2 / 3), (known.means[groups_of(NEW, "setup")[EXACT]].n, known.means[groups_of(NEW, "setup")[EXACT]].fast))


def test_the_last_to_end_do_not_make_the_median_of_a_crowd(young: Ensemble) -> None:
    after = crowd(young, 100, 100)
    median = after.histories.recents[groups_of(NEW, "setup")[EXACT]].median
    speaking = [0.01 * (i + 1) for i in range(100) if i == 0 or speaks_for(100, f"row {i}")][-LAST:]
    assert_allclose(np.log(np.median(speaking)), median)
    assert median < np.log(0.93)  # the last nine alone would say 0.96 s


def test_what_a_row_given_up_might_have_come_to_lies_past_its_bound_as_the_answer_does() -> None:
    bound = float(np.exp(EVEN[49]))  # the median
    drawn = np.array([beyond(EVEN, bound, f"row {i}") for i in range(2000)], dtype=np.float64)
    assert drawn.min() >= EVEN[49]
    assert_allclose([EVEN[74], EVEN[94]], np.quantile(drawn, [0.5, 0.9]), atol=0.03)
    assert beyond(EVEN, bound, "row 1") == beyond(EVEN, bound, "row 1")


def test_past_the_longest_answered_it_is_the_bound_itself() -> None:
    assert_allclose(np.log(9.0), np.float64(beyond(EVEN, 9.0, "row")))


def test_a_row_given_up_before_nearly_all_that_was_answered_says_nothing_of_its_like(young: Ensemble) -> None:
    tenth = float(np.exp(np.interp(0.1, GRID, EVEN)))
    assert beyond(EVEN, 0.999 * tenth, "row") is None
    assert beyond(EVEN, 1.001 * tenth, "row") is not None
    begun = young.after([change("given up", 0.0, Ended.RUNNING)], 61)
    given_up = begun.after([change("given up", 1e-6, Ended.CANCELLED)], 62)
    assert dict(begun.histories.recents) == dict(given_up.histories.recents)
    assert begun.weights.nodes == given_up.weights.nodes
    assert ["given up"] == [told.key for told in given_up.told]
