"""Exploration is advised only where it is safe, and only as far as its account of misses reaches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.explore.advice import Alternative, RiskAccount, advise
from telemetry.errors import BadField

USUAL = Alternative("usual", resource_safe=True, permitted=True, supported=True, misses=0.01)
OTHER = Alternative("other", resource_safe=True, permitted=True, supported=True, misses=0.06)
RICH = RiskAccount(0.001, 0.05, 0.05)


def test_a_safe_alternative_is_tried_with_the_chance_the_account_pays_for() -> None:
    found = advise("usual", [USUAL, OTHER], RiskAccount(), draw=0.0)
    assert found.propensities == {"usual": pytest.approx(1 - 0.02), "other": pytest.approx(0.02)}  # 0.001 a decision over 0.05
    assert found.extra_misses == pytest.approx(0.001)
    assert found.account.balance == pytest.approx(0.0)


def test_no_chance_is_larger_than_the_most_allowed() -> None:
    found = advise("usual", [USUAL, OTHER], RICH, draw=0.0, most=0.05)
    assert 0.05 == found.propensities["other"]
    assert found.account.balance == pytest.approx(0.05 - 0.05 * 0.05)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"resource_safe": None}, "resource_safety_unmarked"),
        ({"resource_safe": False}, "not_resource_safe"),
        ({"permitted": False}, "not_permitted"),
        ({"supported": False}, "unsupported_mode"),
    ],
)
def test_an_alternative_that_may_not_be_tried_is_left_out_with_its_reason(change: dict[str, bool | None], why: str) -> None:
    found = advise("usual", [USUAL, replace(OTHER, **change)], RICH, draw=0.999999)
    assert ({"other": why}, {"usual": 1.0}, "usual") == (found.excluded, found.propensities, found.choice)
    assert 0.0 == found.extra_misses


def test_unmarked_is_what_an_alternative_is_unless_somebody_said_otherwise() -> None:
    assert {"x": "resource_safety_unmarked"} == advise("usual", [USUAL, Alternative("x")], RICH, draw=0.5).excluded


def test_work_with_a_protected_deadline_is_never_explored_with() -> None:
    found = advise("usual", [USUAL, OTHER], RICH, draw=0.999999, protected=True)
    assert ({"usual": 1.0}, {"other": "protected_deadline"}) == (found.propensities, found.excluded)


def test_unknown_speed_may_be_explored_at_the_price_of_a_sure_miss() -> None:
    found = advise("usual", [USUAL, replace(OTHER, misses=None)], RiskAccount(), draw=0.5)
    assert found.propensities["other"] == pytest.approx(0.001 / 0.99)


def test_a_better_alternative_costs_nothing() -> None:
    found = advise("usual", [replace(USUAL, misses=0.2), OTHER], RiskAccount(balance=-1.0), draw=0.5)
    assert (0.05, 0.0) == (found.propensities["other"], found.extra_misses)


def test_a_spent_account_stops_exploring_and_says_so() -> None:
    found = advise("usual", [USUAL, OTHER], RiskAccount(balance=-0.1), draw=0.5)
    assert ({"usual": 1.0}, ("risk_budget_spent",)) == (found.propensities, found.reasons)


def test_the_draw_decides_by_the_propensities() -> None:
    third = replace(OTHER, name="third")
    chosen = [advise("usual", [USUAL, OTHER, third], RICH, draw, most=0.2).choice for draw in (0.0, 0.79, 0.81, 0.91)]
    assert ["usual", "usual", "other", "third"] == chosen


def test_the_ordinary_choice_must_be_among_the_alternatives() -> None:
    with pytest.raises(BadField, match="list each once"):
        advise("gone", [USUAL], RICH, draw=0.0)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.one_of(st.none(), st.floats(0, 1)), st.one_of(st.none(), st.floats(0, 1))), max_size=300))
def test_expected_misses_never_pass_the_share_and_propensities_sum_to_one(
    misses: list[tuple[float | None, float | None]],
) -> None:
    account, spent = RiskAccount(0.002, 0.02), 0.0
    for usual, other in misses:
        found = advise("usual", [replace(USUAL, misses=usual), replace(OTHER, misses=other)], account, draw=0.5)
        assert sum(found.propensities.values()) == pytest.approx(1.0)
        account, spent = found.account, spent + found.extra_misses
    assert spent <= 0.002 * len(misses) + 1e-9
