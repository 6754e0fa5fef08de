"""Alarms are answered by kind, harder when they repeat, and each reaction ends by its rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from calibrate.evidence.drift import Alarm, Change, Run, Watch, threshold
from calibrate.evidence.reactions import NEEDED, Action, Reaction, Score, follow, undone, widened

LIMIT = threshold()


def alarm(change: Change) -> Alarm:
    return Alarm(change, since_ns=70, outcomes=31, evidence=25_000.0, threshold=LIMIT)


def quiet(n: int, evidence: float = 10.0) -> Watch:
    return Watch(np.zeros(128, np.int32), n, (Run(holds=evidence),))


def standing(action: Action, outcomes: int, misses: int) -> Reaction:
    [one] = [one for one in follow("n", Score.DURATION, alarm(Change.HIGHER), 90) if one.action is action]
    return replace(one, outcomes=outcomes, misses=misses)


@pytest.mark.parametrize(
    ("change", "actions"),
    [
        (Change.HIGHER, {Action.WIDEN, Action.SHORTEN, Action.SHADOW}),
        (Change.WIDER, {Action.WIDEN, Action.SHORTEN, Action.SHADOW}),
        (Change.LOWER, {Action.SHORTEN, Action.SHADOW}),
        (Change.NARROWER, {Action.SHORTEN}),
    ],
)
def test_what_follows_depends_on_what_changed(change: Change, actions: set[Action]) -> None:
    assert actions == {one.action for one in follow("n", Score.DURATION, alarm(change), 90)}


def test_a_reaction_says_why_and_since_when() -> None:
    one = follow("service/north", Score.DURATION, alarm(Change.HIGHER), 90)[0]
    assert ("service/north", Action.WIDEN, 1.5, 70, 90) == (one.node, one.action, one.amount, one.since_ns, one.began_ns)
    assert "log residuals became higher over the last 31 outcomes (evidence 2.5e+04, threshold 2e+04)" == one.reason


def test_a_second_alarm_while_reactions_stand_hands_over_to_the_parent() -> None:
    first = follow("n", Score.DURATION, alarm(Change.HIGHER), 90)
    assert Action.PARENT in {one.action for one in follow("n", Score.DURATION, alarm(Change.LOWER), 95, first)}
    assert Action.PARENT not in {one.action for one in follow("other", Score.DURATION, alarm(Change.LOWER), 95, first)}


def test_new_kinds_of_work_are_kept_out_of_decisions_and_fewer_of_them_need_nothing() -> None:
    [one] = follow("n", Score.SUPPORT, alarm(Change.HIGHER), 90)
    assert Action.SHADOW is one.action
    assert one.reason.startswith("counts of new values became higher")
    assert () == follow("n", Score.SUPPORT, alarm(Change.LOWER), 90)


def test_answers_since_are_counted() -> None:
    one = standing(Action.WIDEN, 0, 0).after(missed=True).after(missed=False)
    assert (2, 1) == (one.outcomes, one.misses)


@pytest.mark.parametrize("action", [Action.WIDEN, Action.SHORTEN, Action.SHADOW])
def test_a_reaction_ends_after_enough_quiet_outcomes_that_keep_the_promise(action: Action) -> None:
    needed = NEEDED[action]
    assert undone(standing(action, needed - 1, 6), quiet(needed), LIMIT) is None
    assert undone(standing(action, needed, 6), quiet(needed - 1), LIMIT) is None
    assert undone(standing(action, needed, 6), quiet(needed), LIMIT) is not None


def test_a_reaction_stands_while_evidence_gathers_again() -> None:
    assert undone(standing(Action.WIDEN, 200, 20), quiet(200, evidence=2_000.0), LIMIT) is None
    assert undone(standing(Action.WIDEN, 200, 20), quiet(200, evidence=1_999.0), LIMIT) is not None


def test_a_reaction_stands_while_bounds_are_passed_too_often() -> None:
    # 12 of 60: the exact interval begins at 0.108; 11 of 60: at 0.095.
    assert undone(standing(Action.WIDEN, 60, 12), quiet(60), LIMIT) is None
    assert undone(standing(Action.WIDEN, 60, 11), quiet(60), LIMIT) is not None


def test_too_few_misses_are_no_reason_to_stay_wide() -> None:
    said = undone(standing(Action.WIDEN, 300, 0), quiet(300), LIMIT)
    assert said is not None
    assert "quiet for 300 outcomes" in said
    assert "0 of 300 answers passed their p90" in said


def test_widened_quantiles_stand_farther_from_the_median_on_both_sides() -> None:
    found = widened(np.array([[0.0, 1.0, 4.0, 16.0], [0.0, 0.0, 0.0, 5.0]]), np.array([4.0, 0.0]), 1.5)
    assert [0.0, 0.5, 4.0, 32.0] == pytest.approx(list(found[0]))
    assert [0.0, 0.0, 0.0, 5.0] == list(found[1])
