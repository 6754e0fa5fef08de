"""Who answers is decided by a rule with evidence, or by an operator, and is on record either way."""

from __future__ import annotations

import orjson
import pytest

from calibrate.evidence.compare import Bounds
from calibrate.evidence.promotion import (
    RULE,
    Action,
    asked,
    in_office,
    may_rule,
    news,
    overruled,
    recorded,
    ruled,
    since_ns,
    withdrawn,
)
from predictors.scores import Interval, binomial_interval
from telemetry.errors import BadField
from telemetry.verdicts import Change

BETTER, WORSE, OPEN = (Bounds(m, m - 0.1, m + 0.1, 500, 50) for m in (0.2, -0.2, 0.05))
KEPT = binomial_interval(50, 500)
BROKEN = binomial_interval(90, 500)


def by_rule(predictor: str, at_ns: int, bounds: Bounds = BETTER) -> Change:
    return recorded(predictor, ruled(bounds, KEPT), bounds, KEPT, f"c-{at_ns}", at_ns)


def by_operator(predictor: str, action: Action, at_ns: int) -> Change:
    return overruled(predictor, action, "ada", "maintenance of node-3", f"c-{at_ns}", at_ns)


@pytest.mark.parametrize(
    ("bounds", "passed", "action", "why"),
    [
        (BETTER, KEPT, Action.PROMOTE, "surely better: +0.2 nats, +0.1 to +0.3 at any look, 500 outcomes of 50 runs"),
        (WORSE, KEPT, Action.RETIRE, "surely worse"),
        (OPEN, KEPT, Action.HOLD, "not surely better"),
        (BETTER, BROKEN, Action.HOLD, "18.0% of outcomes passed its p90"),
        (BETTER, None, Action.HOLD, "a point promises nothing"),
        (Bounds(9.0, None, None, 40, 40), KEPT, Action.HOLD, "too little is known: 40 outcomes"),
    ],
)
def test_the_rule_and_its_reason(bounds: Bounds, passed: Interval | None, action: Action, why: str) -> None:
    found = ruled(bounds, passed)
    assert action is found.action
    assert why in found.reason


def test_a_ruling_is_recorded_with_its_numbers() -> None:
    row = by_rule("network", 5)
    assert ("promotion", "network", "promote", RULE, 5) == (row.kind, row.subject, row.action, row.decided_by, row.made_ns)
    assert 500 == orjson.loads(row.evidence)["bounds"]["n"]
    assert 0.1 == orjson.loads(row.evidence)["passed_p90"]["estimate"]


def test_the_default_answers_until_another_is_promoted() -> None:
    assert "aggregate" == in_office([], "aggregate")
    assert "network" == in_office([by_rule("network", 1)], "aggregate")
    assert "aggregate" == in_office([by_rule("network", 1, WORSE)], "aggregate")


def test_the_former_champion_is_promoted_back_by_the_same_rule() -> None:
    assert "aggregate" == in_office([by_rule("network", 1), by_rule("aggregate", 2)], "aggregate")


def test_a_demoted_one_makes_way_for_the_one_before() -> None:
    changes = [by_rule("network", 1), by_rule("forest", 2), by_operator("forest", Action.DEMOTE, 3)]
    assert "network" == in_office(changes, "aggregate")
    assert "aggregate" == in_office([*changes, by_operator("network", Action.DEMOTE, 4)], "aggregate")


def test_an_operator_overrules_the_rule_until_it_is_withdrawn() -> None:
    held = by_operator("network", Action.HOLD, 1)
    assert not may_rule([held], "network")
    assert may_rule([held], "forest")
    assert not news([held], "network", ruled(BETTER, KEPT), "aggregate")
    over = withdrawn(held, "node-3 is back", 9)
    assert ("node-3 is back", 9) == (over.undone_reason, over.undone_ns)
    assert news([over], "network", ruled(BETTER, KEPT), "aggregate")
    with pytest.raises(BadField, match="withdrawn before"):
        withdrawn(over, "again", 10)


def test_a_withdrawn_promotion_is_as_if_it_had_not_been() -> None:
    assert "aggregate" == in_office([withdrawn(by_rule("network", 1), "mistake", 2)], "aggregate")


def test_only_what_changes_something_is_news() -> None:
    promoted = by_rule("network", 1)
    assert news([], "network", ruled(BETTER, KEPT), "aggregate")
    assert not news([promoted], "network", ruled(BETTER, KEPT), "aggregate")
    assert not news([], "network", ruled(OPEN, KEPT), "aggregate")
    assert news([], "network", ruled(WORSE, KEPT), "aggregate")
    assert not news([by_rule("network", 1, WORSE)], "network", ruled(WORSE, KEPT), "aggregate")


def test_whom_an_operator_put_in_office_no_rule_replaces() -> None:
    put = by_operator("network", Action.PROMOTE, 1)
    for rival in ("aggregate", "forest"):
        assert not news([put], rival, ruled(BETTER, KEPT), "aggregate")
        assert news([withdrawn(put, "canary is over", 2), by_rule("network", 3)], rival, ruled(BETTER, KEPT), "aggregate")


def test_a_hold_leaves_the_one_in_office_there_and_a_retirement_does_not() -> None:
    promoted = by_rule("network", 1)
    assert "network" == in_office([promoted, by_operator("network", Action.HOLD, 2)], "aggregate")
    assert "aggregate" == in_office([promoted, by_operator("network", Action.RETIRE, 2)], "aggregate")


def test_evidence_counts_since_the_one_in_office_took_it() -> None:
    first, second = by_rule("network", 10), by_rule("forest", 20)
    retired = by_rule("other", 30, WORSE)
    assert 0 == since_ns([], "aggregate") == since_ns([retired], "aggregate")
    assert 10 == since_ns([first], "aggregate")
    assert 20 == since_ns([first, second, retired], "aggregate")
    assert 40 == since_ns([first, by_operator("network", Action.DEMOTE, 40)], "aggregate")
    assert 50 == since_ns([withdrawn(first, "mistake", 50)], "aggregate")
    assert 10 == since_ns([first, by_rule("network", 60)], "aggregate"), "promoted again while in office"


def test_former_champions_are_asked_and_the_retired_are_not_until_another_takes_office() -> None:
    first, retired = by_rule("network", 10), by_rule("forest", 20, WORSE)
    assert ("network", "forest") == asked([], ["network", "forest"], "aggregate")
    assert ("forest", "aggregate") == asked([first], ["network", "forest"], "aggregate")
    assert ("aggregate",) == asked([first, retired], ["network", "forest"], "aggregate")
    assert ("forest", "aggregate") == asked([first, withdrawn(retired, "new data", 25)], ["network", "forest"], "aggregate")
    back = by_rule("aggregate", 30)
    assert ("network", "forest") == asked([first, retired, back], ["network", "forest"], "aggregate")


def test_the_default_is_never_retired() -> None:
    promoted = by_rule("network", 1)
    assert not news([promoted], "aggregate", ruled(WORSE, KEPT), "aggregate")
    assert ("aggregate",) == asked([promoted, by_operator("aggregate", Action.RETIRE, 2)], ["network"], "aggregate")


@pytest.mark.parametrize(("operator", "reason"), [("", "why"), ("ada", " "), (RULE, "why")])
def test_an_operator_says_who_and_why(operator: str, reason: str) -> None:
    with pytest.raises(BadField, match="say who decides"):
        overruled("network", Action.PROMOTE, operator, reason, "c", 1)
