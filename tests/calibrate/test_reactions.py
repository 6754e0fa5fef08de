"""Alarms are answered by kind, harder when they repeat, and each reaction ends by its rule."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from calibrate.evidence.drift import BETS, Alarm, Change, Watch, threshold
from calibrate.evidence.reactions import AMOUNT, NEEDED, Action, Note, Reaction, follow, undone, widening

LIMIT = threshold()


def alarm(change: Change) -> Alarm:
    return Alarm(change, since_ns=70, outcomes=31, evidence=25_000.0, threshold=LIMIT)


def quiet(n: int, evidence: float = 10.0) -> Watch:
    return Watch(n, (evidence, *(0.0,) * (len(BETS) - 1)))


def standing(action: Action, outcomes: int, misses: int) -> Reaction:
    return Reaction("n", action, AMOUNT[action], 70, 90, "found", outcomes, misses, outcomes, misses)


@pytest.mark.parametrize(
    ("change", "actions"),
    [
        (Change.HIGHER, {Action.SHORTEN, Action.SHADOW}),
        (Change.WIDER, {Action.SHORTEN, Action.SHADOW}),
        (Change.LOWER, {Action.SHORTEN, Action.SHADOW}),
        (Change.NARROWER, {Action.SHORTEN}),
        (Change.UNSEEN, {Action.APART}),
    ],
)
def test_what_follows_depends_on_what_changed(change: Change, actions: set[Action]) -> None:
    assert actions == {one.action for one in follow("n", alarm(change), 90)}


def test_what_is_new_leaves_what_is_known_alone_and_says_that_durations_are_not_meant() -> None:
    [one] = follow("n", alarm(Change.UNSEEN), 90)
    assert (
        "values or shapes never seen came more often over the last 31 that began (evidence 2.5e+04, threshold 2e+04)"
        == one.reason
    )


def test_a_reaction_says_why_and_since_when() -> None:
    one = follow("service/north", alarm(Change.HIGHER), 90)[0]
    assert ("service/north", Action.SHORTEN, AMOUNT[Action.SHORTEN], 70, 90) == (
        one.node,
        one.action,
        one.amount,
        one.since_ns,
        one.began,
    )
    assert "log times became higher over the last 31 outcomes (evidence 2.5e+04, threshold 2e+04)" == one.reason


def test_what_changes_again_while_reactions_stand_keeps_its_past_and_hands_over_to_the_parent() -> None:
    assert {Action.PARENT, Action.SHADOW} == {one.action for one in follow("n", alarm(Change.LOWER), 95, again=True)}


def test_answers_are_widened_where_those_since_a_change_are_passed_too_often() -> None:
    # 4 of 10: the exact interval begins at 0.122; 3 of 10: at 0.067.
    assert widening(standing(Action.SHADOW, 10, 3), 95) is None
    assert widening(standing(Action.SHADOW, 9, 9), 95) is None
    assert widening(standing(Action.APART, 10, 4), 95) is None
    assert widening(standing(Action.SHORTEN, 10, 4), 95) is None
    assert (Reaction("n", Action.WIDEN, 1.5, 70, 95, "4 of 10 answers since a change passed their p90")) == widening(
        standing(Action.SHADOW, 10, 4), 95
    )


def test_a_crowd_counts_once_towards_widening_and_in_full_towards_the_end() -> None:
    one = standing(Action.SHADOW, 0, 0)
    for row in range(500):
        one = one.after(missed=row < 250, speaks=row % 50 == 0)
    assert (500, 250, 10, 5) == (one.outcomes, one.misses, one.spoken, one.spoken_misses)
    assert widening(one, 95) is not None
    assert widening(replace(one, spoken=9), 95) is None


def test_notes_tell_what_was_found_and_when_it_was_undone() -> None:
    found = Note.drift("n", alarm(Change.HIGHER), 90, {"host": "north"})
    assert ("drift", "higher", False) == (found.kind, found.action, found.stands)
    assert {"host": "north", "since_ns": 70, "outcomes": 31, "evidence": 25_000.0, "threshold": LIMIT} == json.loads(
        found.evidence
    )
    begun = Note.of(standing(Action.SHADOW, 0, 0))
    assert begun.stands
    ended = begun.undone_at(120, "quiet")
    assert (False, 120, "quiet", True) == (ended.stands, ended.ended, ended.ended_reason, ended.same(begun))
    assert {"amount": 1.0, "since_ns": 70, "needs_outcomes": 100} == json.loads(begun.evidence)


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
