"""Changes while running: work done is counted at the pace it was done at, and what is left at the pace of now."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from predictors import hazards, laws
from predictors.changing import ContextChange, Paced, changed, course
from predictors.contexts import Context
from predictors.distribution import GRID, Distribution
from predictors.families import Exponential, LogNormal, Steps
from predictors.frames import Frame
from predictors.scores import LEVELS, crps_log, ratio_by_blocks
from telemetry.errors import BadField

ALONE = Context(host="north", corunners=0.0)
MEDIAN_S = {0.0: 10.0, 1.0: 20.0, 2.0: 40.0}


def known(contexts: Sequence[Context], phases: Sequence[str]) -> Distribution:
    """Ten seconds alone, twice and four times as long beside one and two others."""
    assert len(contexts) == len(phases)
    return LogNormal([MEDIAN_S[c.corunners or 0.0] for c in contexts], 0.3)


def joined(at_s: float, corunners: float) -> ContextChange:
    return ContextChange(at_s, {"corunners": corunners})


def test_without_changes_it_is_the_plain_residual() -> None:
    plain = LogNormal([10.0], 0.3).residual(4.0)
    assert_array_equal(plain.quantile(GRID), changed(known, ALONE, "service", 4.0, []).quantile(GRID))


def test_age_is_the_work_done_and_what_remains_takes_longer_at_half_the_pace() -> None:
    found = course(known, ALONE, "service", 8.0, [joined(4.0, 1.0)])
    assert (6.0, 0.5) == pytest.approx((found.age_s, found.pace))  # 4 s at pace 1, 4 s at pace 1/2
    assert_allclose(2.0 * LogNormal([10.0], 0.3).residual(6.0).quantile(GRID), found.remaining.quantile(GRID))


def test_paces_follow_one_another() -> None:
    found = course(known, ALONE, "service", 12.0, [joined(2.0, 2.0), joined(6.0, 1.0), joined(10.0, 0.0)])
    assert (2.0 + 4.0 / 4.0 + 4.0 / 2.0 + 2.0, 1.0) == pytest.approx((found.age_s, found.pace))


def test_a_change_to_the_same_context_changes_nothing() -> None:
    same = changed(known, ALONE, "service", 8.0, [joined(4.0, 0.0)])
    assert_array_equal(changed(known, ALONE, "service", 8.0, []).quantile(GRID), same.quantile(GRID))


def test_a_change_now_only_stretches_what_remains() -> None:
    now = changed(known, ALONE, "service", 4.0, [joined(4.0, 1.0)])
    assert_allclose(2.0 * changed(known, ALONE, "service", 4.0, []).quantile(GRID), now.quantile(GRID))


def test_a_change_at_the_start_is_the_other_context() -> None:
    crowded = LogNormal([20.0], 0.3).residual(8.0)
    assert_allclose(crowded.quantile(GRID), changed(known, ALONE, "service", 8.0, [joined(0.0, 1.0)]).quantile(GRID))


def test_fields_not_named_stay_as_they_were() -> None:
    asked: list[Context] = []

    def watched(contexts: Sequence[Context], phases: Sequence[str]) -> Distribution:
        asked.extend(contexts)
        return known(contexts, phases)

    changes = [joined(1.0, 1.0), ContextChange(2.0, {"mode": "split"})]
    changed(watched, ALONE, "service", 3.0, changes)
    assert [ALONE, Context(host="north", corunners=1.0), Context(host="north", corunners=1.0, mode="split")] == asked


def test_a_change_comes_out_of_its_record_as_it_went_in() -> None:
    change = ContextChange(1.5, {"corunners": 2.0, "mode": "split"})
    assert {"at_elapsed_s": 1.5, "corunners": 2.0, "mode": "split"} == change.record()
    assert change == ContextChange.of({**change.record(), "host": None})


def test_where_zero_is_the_median_there_is_no_pace_to_compare() -> None:
    def instant(contexts: Sequence[Context], phases: Sequence[str]) -> Distribution:
        return Steps([[0.0, 0.0, 3.0] if c.corunners else [1.0, 2.0, 3.0] for c in contexts])

    assert 1.0 == course(instant, ALONE, "queue", 1.0, [joined(0.5, 1.0)]).pace


@pytest.mark.parametrize(
    "changes",
    [
        [joined(9.0, 1.0)],
        [joined(3.0, 1.0), joined(2.0, 0.0)],
        [joined(-1.0, 1.0)],
        [joined(math.nan, 1.0)],
        [ContextChange(1.0, {"colour": "red"})],
    ],
)
def test_changes_that_cannot_be_are_refused(changes: list[ContextChange]) -> None:
    with pytest.raises(BadField, match="changes"):
        changed(known, ALONE, "service", 8.0, changes)


@pytest.mark.parametrize("law", laws.DISTRIBUTION_LAWS, ids=lambda law: law.__name__)
def test_the_remaining_time_obeys_the_laws(law: object) -> None:
    assert callable(law)
    law(changed(known, ALONE, "service", 8.0, [joined(4.0, 1.0)]))
    law(Paced(Exponential([0.5, 2.0]), [0.25, 3.0]))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0.0, 30.0), st.sampled_from([0.0, 1.0, 2.0])), max_size=5), st.floats(0.0, 30.0))
def test_age_never_exceeds_the_clock_where_others_only_slow(rows: list[tuple[float, float]], waited_s: float) -> None:
    changes = [joined(at_s, corunners) for at_s, corunners in sorted(rows)]
    elapsed_s = waited_s + (changes[-1].at_elapsed_s if changes else 0.0)
    found = course(known, ALONE, "service", elapsed_s, changes)
    assert elapsed_s / 4.0 - 1e-9 <= found.age_s <= elapsed_s + 1e-9
    later = course(known, ALONE, "service", elapsed_s + 1.0, changes)
    assert found.age_s + found.pace == pytest.approx(later.age_s)


SLOWER = 1.8


def recorded(rng: np.random.Generator, n: int) -> Frame:
    """Whole runs alone and beside a co-runner, as they complete."""
    contexts = (ALONE, Context(host="north", corunners=1.0))
    context = rng.integers(0, 2, n)
    time_s = 2.0 * np.exp(0.3 * rng.normal(size=n)) * np.where(context == 1, SLOWER, 1.0)
    yes, no = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
    return Frame(
        contexts, ("service",), context, np.zeros(n, dtype=np.int64), np.zeros(n), time_s, yes, no, no, np.ones(n), np.arange(n)
    )


def test_knowing_that_a_corunner_joined_half_way_beats_ignoring_it() -> None:
    rng = np.random.default_rng(11)
    model = hazards.fit(recorded(rng, 400), 400, hazards.FitSettings())
    told, ignored, actual, run = [], [], [], []
    for number, work_s in enumerate(2.0 * np.exp(0.3 * rng.normal(size=500))):
        join_s = float(rng.uniform(0.7, 1.3))  # about half-way
        ends_s = join_s + (work_s - join_s) * SLOWER
        for elapsed_s in (join_s, join_s + 0.4, join_s + 0.8):
            if work_s > join_s and ends_s > elapsed_s:
                law = changed(model.predict, ALONE, "service", elapsed_s, [joined(join_s, 1.0)])
                told.append(law.quantile(LEVELS)[0])
                ignored.append(changed(model.predict, ALONE, "service", elapsed_s, []).quantile(LEVELS)[0])
                actual.append(ends_s - elapsed_s)
                run.append(number)
    ratio = ratio_by_blocks(crps_log(actual, np.array(told)), crps_log(actual, np.array(ignored)), run, confidence=0.95)
    assert ratio.n > 400
    assert ratio.high < 1.0
    covered = np.mean(np.array(actual) <= np.array(told)[:, 89])
    assert 0.9 == pytest.approx(covered, abs=0.05)
