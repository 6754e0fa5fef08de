"""The average of experts obeys every law, is judged by what was said at the asking, and learns once from each outcome."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from predictors import laws
from predictors.contexts import Context
from predictors.distribution import GRID, Distribution
from predictors.ensemble import EXPERTS, PRIOR, Ensemble, speaks_for_all
from predictors.frames import Frame
from predictors.model import Change
from telemetry.errors import NoEvidence
from telemetry.words import Ended
from tests.predictors.experts_taught import PAIRS, begun, ended, fitted, learned, part, recorded, taught

HERE = PAIRS[0][0]


@pytest.fixture(scope="module")
def known() -> Ensemble:
    return taught(recorded())


@pytest.fixture(scope="module")
def young() -> Ensemble:
    """Experts that were fitted and asked nothing yet."""
    return fitted(part(recorded(), slice(60)))


def change(key: str, duration_s: float, ended_as: Ended, sign: int = 1, context: Context = HERE) -> Change:
    return Change(sign, 1, "setup", context, 0.0, duration_s, ended_as, 1.0, 1, key)


def asked(*keys: str, context: Context = HERE) -> list[Change]:
    return [change(key, 0.0, Ended.RUNNING, context=context) for key in keys]


def done(key: str, duration_s: float, context: Context = HERE) -> Change:
    return change(key, duration_s, Ended.COMPLETED, context=context)


@pytest.mark.parametrize("law", laws.DISTRIBUTION_LAWS, ids=lambda law: law.__name__)
def test_answers_obey(law: Callable[[Distribution], None], known: Ensemble) -> None:
    law(known.predict(*PAIRS))


@pytest.mark.parametrize("law", laws.MODEL_LAWS, ids=lambda law: law.__name__)
def test_models_obey(law: Callable[[laws.Fit, Frame, laws.Pairs], None]) -> None:
    law(taught, recorded(120), PAIRS)


@pytest.mark.parametrize("per_second", [1e3, 1e9])
def test_units_do_not_matter_even_in_nanoseconds(per_second: float) -> None:
    frame = recorded(120)
    longer = replace(frame, duration_s=frame.duration_s * per_second)
    q = taught(longer).predict(*PAIRS).quantile(GRID) / per_second
    assert_allclose(q, taught(frame).predict(*PAIRS).quantile(GRID), rtol=1e-6)


def test_what_is_known_is_that_of_the_model_of_record(known: Ensemble) -> None:
    assert (("queue", "setup"), True, False) == (known.phases, known.knows("setup"), known.knows("service"))
    assert known.record.outcomes("setup") == known.outcomes("setup")
    assert (240, 60) == (known.commit, known.fit_commit)
    elapsed_s = np.zeros(len(PAIRS[0]))
    assert_array_equal(known.record.p_complete(*PAIRS, elapsed_s), known.p_complete(*PAIRS, elapsed_s))
    with pytest.raises(NoEvidence, match="service"):
        known.predict([HERE], ["service"])


def test_an_answer_is_the_weighted_average_of_log_quantiles(known: Ensemble) -> None:
    [one] = known.ask([HERE], ["setup"])
    assert_allclose(1.0, one.weights.sum())
    assert (len(EXPERTS), len(GRID)) == one.experts.shape
    averaged = sum(weight * said.astype(np.float64) for weight, said in zip(one.weights, one.experts, strict=True))
    lower = GRID <= 0.5  # above the median an answer may be held back by what is known of the phase
    assert_allclose(averaged[lower], one.mixed[lower], atol=1e-6)
    assert np.all(one.mixed <= averaged + 1e-6)


def test_experts_that_know_nothing_yet_say_what_the_model_of_record_says(young: Ensemble) -> None:
    [one] = young.ask([HERE], ["setup"])
    assert_array_equal(PRIOR, one.weights)
    assert_array_equal(np.tile(one.experts[0], (len(EXPERTS), 1)), one.experts)
    record = young.record.predict([HERE], ["setup"])
    assert_allclose(0.0, one.zero, atol=1e-9)
    levels = GRID[:90]
    assert_allclose(record.quantile(levels), young.predict([HERE], ["setup"]).quantile(levels), rtol=1e-5)


def test_equal_questions_are_answered_once_and_alike(known: Ensemble) -> None:
    first, other, again = known.ask([HERE, PAIRS[0][1], HERE], ["setup"] * 3)
    assert first is again
    assert other is not first


def test_rows_begun_together_are_a_crowd_and_do_not_see_each_other(young: Ensemble) -> None:
    together = young.after(asked("a", "b") + asked("c", context=PAIRS[0][1]), 61)
    assert {"a", "b", "c"} == set(together.pending)
    # Both contexts differ in state, the root of what is judged: two of one kind, one of the other.
    assert [{2}, {2}, {1}] == [set(together.pending[key].crowd) for key in "abc"]
    assert_array_equal(young.ask([HERE], ["setup"])[0].mixed, together.pending["b"].mixed)


def test_an_outcome_is_judged_by_what_was_said_when_it_was_asked(young: Ensemble) -> None:
    at_first = young.after(asked("slow"), 61)
    said = at_first.pending["slow"].mixed
    later = at_first
    for i in range(30):
        later = later.after(asked(f"r{i}"), 62 + i).after([done(f"r{i}", 50.0)], 62 + i)
    assert np.abs(later.ask([HERE], ["setup"])[0].mixed - said).max() > 1.0
    [told] = later.after([done("slow", 3.0)], 99).told
    assert ("slow", 3.0, True) == (told.key, told.duration_s, told.ended)
    assert_array_equal(said, told.asked.mixed)


def test_weight_goes_to_experts_that_were_right(young: Ensemble) -> None:
    model = young
    for i in range(60):  # ten times as long as fitted: recent history knows, the fit does not
        model = model.after(asked(f"r{i}"), 61 + i).after([done(f"r{i}", 30.0 * (1.0 + 0.01 * (i % 3)))], 61 + i)
    before, after = (dict(zip(EXPERTS, one.ask([HERE], ["setup"])[0].weights, strict=True)) for one in (young, model))
    assert after["hazards"] < 0.01 * before["hazards"]
    assert after["configuration"] > 3.0 * before["configuration"]
    assert_allclose(30.3, model.predict([HERE], ["setup"]).quantile(0.5)[0, 0], rtol=0.05)


def test_failures_and_outcomes_that_took_no_time_teach_nothing(young: Ensemble) -> None:
    begin = young.after(asked("failed", "instant", "fine"), 61)
    after = begin.after([change("failed", 2.0, Ended.FAILED), done("instant", 0.0), done("fine", 2.0)], 62)
    assert 1 == len(after.lessons) == after.histories.known(HERE, "setup")
    assert {"failed": False, "instant": True, "fine": True} == {told.key: told.ended for told in after.told}
    assert not after.pending


def test_a_cancelled_row_teaches_that_it_would_have_lasted_longer(young: Ensemble) -> None:
    after = young.after(asked("a"), 61).after([change("a", 3.0, Ended.CANCELLED)], 62)
    [residual] = after.lessons.arrays()[1]
    assert residual + young.ask([HERE], ["setup"])[0].centre > np.log(3.0) + 0.01
    [told] = after.told
    assert (3.0, False) == (told.duration_s, told.ended)


def test_a_row_that_still_runs_stays_asked_and_teaches_nothing(young: Ensemble) -> None:
    after = young.after(asked("a"), 61).after([change("a", 1.5, Ended.RUNNING)], 62)
    assert ({"a"}, 0, ()) == (set(after.pending), len(after.lessons), after.told)


def test_a_correction_does_not_teach_twice(young: Ensemble) -> None:
    once = young.after(asked("a"), 61).after([done("a", 2.0)], 62)
    again = once.after([change("a", 2.0, Ended.COMPLETED, sign=-1), done("a", 2.5)], 63)
    assert 1 == len(once.lessons) == len(again.lessons)
    assert once.outcomes("setup") == again.outcomes("setup")
    assert not again.pending


def test_a_row_never_asked_is_asked_as_of_before_it_was_known(young: Ensemble) -> None:
    [told] = young.after([done("new", 2.0)], 61).told
    assert_array_equal(young.ask([HERE], ["setup"])[0].mixed, told.asked.mixed)


def test_rows_of_unknown_phases_or_without_a_name_are_passed_over(young: Ensemble) -> None:
    strange = Change(1, 61, "never met", HERE, 0.0, 0.0, Ended.RUNNING, 1.0, 61, "x")
    after = young.after([strange, *asked("")], 61)
    assert {} == after.pending


def test_fits_anew_keep_the_memory(known: Ensemble) -> None:
    other = fitted(recorded())
    anew = known.refounded(other.record, None)
    assert anew.record is other.record
    assert (known.forest, known.histories, known.weights, known.lessons) == (
        anew.forest,
        anew.histories,
        anew.weights,
        anew.lessons,
    )


def test_in_steps_of_any_size_outcomes_of_a_burst_are_learned_alike(young: Ensemble) -> None:
    frame = recorded()
    start = young.after([begun(frame, row) for row in range(60, 72)], 60)
    outcomes: Sequence[Change] = [ended(frame, row) for row in range(60, 72)]
    whole, stepped = start.after(outcomes, 72), start
    for i, outcome in enumerate(outcomes):
        stepped = stepped.after([outcome], 61 + i)
    assert_array_equal(whole.predict(*PAIRS).quantile(GRID), stepped.predict(*PAIRS).quantile(GRID))


def test_two_that_learned_the_same_say_the_same(known: Ensemble) -> None:
    assert_array_equal(known.predict(*PAIRS).quantile(GRID), taught(recorded()).predict(*PAIRS).quantile(GRID))
    assert len(known.lessons) == len(learned(fitted(part(recorded(), slice(60))), recorded()).lessons)


def test_of_rows_asked_at_one_instant_one_speaks_and_of_others_each(known: Ensemble) -> None:
    asked = known.ask(*PAIRS)[0]
    alone, crowd = (replace(asked, crowd=(m,) * len(asked.path)) for m in (1, 50))
    assert all(speaks_for_all(alone, f"row-{i}") for i in range(50))
    spoken = [sum(speaks_for_all(crowd, f"row-{i}") for i in range(first, first + 50)) for first in range(0, 20_000, 50)]
    assert np.mean(spoken) == pytest.approx(1.0, abs=0.15)
    assert max(spoken) < 8
