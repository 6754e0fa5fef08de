"""Logged decisions as arrays: which outcome counts, what was expected, and what a policy may choose."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtri

from calibrate.explore.decided import Decided, always, least_expected, log_of
from calibrate.explore.offpolicy import evaluate
from predictors.distribution import GRID
from telemetry.errors import BadField
from telemetry.words import Ended


def alternative(name: str, propensity: float, expected: float | None = 2.0, **values: Any) -> dict[str, Any]:
    return {"name": name, "propensity": propensity, "expected": expected, "resource_safe": True, "permitted": True, **values}


NORTH, SOUTH = alternative("north", 0.8, 1.0), alternative("south", 0.2, 3.0)
ONE = Decided("d-1", "r-1", "north", (NORTH, SOUTH), 2.0, Ended.COMPLETED, {})


@pytest.mark.parametrize(
    ("change", "outcome", "seen"),
    [
        ({}, 2.0, True),
        ({"duration_s": 9.0}, 5.0, True),
        ({"ended": Ended.FAILED}, 5.0, True),
        ({"ended": Ended.RUNNING}, 2.0, False),
        ({"ended": Ended.RUNNING, "duration_s": 6.0}, 5.0, True),
        ({"ended": Ended.CANCELLED}, 2.0, False),
        ({"ended": None, "duration_s": None}, 0.0, False),
    ],
)
def test_the_outcome_is_the_length_within_the_limit_where_that_is_known(
    change: dict[str, Any], outcome: float, seen: bool
) -> None:
    log = log_of([replace(ONE, **change)], always("north"), 5.0)
    assert (outcome, seen) == (log.outcome[0], log.seen[0])


def test_a_policy_that_always_takes_one_takes_it_wherever_it_is_open() -> None:
    alone = replace(ONE, decision_id="d-2", alternatives=(alternative("north", 1.0),))
    barred = replace(
        ONE,
        decision_id="d-3",
        alternatives=(NORTH, {**SOUTH, "propensity": 0.0, "resource_safe": None}, alternative("east", 0.2)),
    )
    log = log_of([ONE, alone, barred], always("south"), 5.0)
    assert [[0, 0, 1], [0, 1, 0], [0.2, 0.8, 0]] == log.target.tolist()


def test_the_policy_of_least_expectation_takes_what_is_expected_first() -> None:
    assert [[1.0, 0.0]] == log_of([replace(ONE, choice="south")], least_expected, 5.0).target.tolist()


def test_a_policy_that_chooses_what_it_may_not_is_refused() -> None:
    unmarked = replace(ONE, alternatives=(alternative("north", 1.0), {**SOUTH, "propensity": 0.0, "resource_safe": None}))
    with pytest.raises(BadField, match="marked resource_safe"):
        log_of([unmarked], lambda _one, _expected_s: {"south": 1.0}, 5.0)


def test_what_was_expected_is_the_mean_within_the_limit_of_the_answer_that_was_used() -> None:
    quantiles_s = np.exp(0.5 * ndtri(GRID))
    named = replace(ONE, alternatives=({**NORTH, "prediction_id": "p-1"}, SOUTH), answers={"p-1": quantiles_s})
    whole, cut = (np.asarray(log_of([named], always("north"), within_s).expected)[0] for within_s in (1e9, 1.0))
    assert whole[0] == pytest.approx(np.exp(0.125), rel=0.005)
    assert cut[0] == pytest.approx(np.exp(0.125) * 0.3085 + 0.5, rel=0.005)  # E[X; X < 1] = e^(s^2/2) Phi(-s), plus P(X > 1)
    assert [3.0, 1.0] == [whole[1], cut[1]]


def test_without_an_expectation_for_all_there_is_no_doubly_robust_estimate() -> None:
    blind = [replace(one, alternatives=(NORTH, {**SOUTH, "expected": None})) for one in world(600, 4)]
    found = evaluate(log_of(blind, always("north"), 3.0))
    assert found.doubly_robust is None
    assert found.self_normalised is not None
    assert ("no doubly robust estimate: nothing was expected of some alternatives",) == found.refused
    assert [[1.0, 0.0]] == log_of(blind[:1], least_expected, 3.0).target.tolist()


def test_nothing_logged_is_refused() -> None:
    with pytest.raises(BadField, match="nothing is logged"):
        log_of([], always("north"), 5.0)


def world(n: int, seed: int) -> list[Decided]:
    """North takes 1 s in the mean, south 2 s; half of the work is cancelled at random times."""
    rng, found = np.random.default_rng(seed), []
    for k in range(n):
        choice = "south" if rng.random() < 0.2 else "north"
        took_s, cut_s = rng.exponential(2.0 if choice == "south" else 1.0), rng.exponential(2.0)
        ended = Ended.COMPLETED if took_s <= cut_s else Ended.CANCELLED
        found.append(
            replace(ONE, decision_id=f"d-{k}", run=f"r-{k // 10}", choice=choice, duration_s=min(took_s, cut_s), ended=ended)
        )
    return found


@pytest.mark.parametrize(("name", "mean_s"), [("north", 1.0), ("south", 2.0)])
def test_what_each_alternative_would_have_met_is_found_through_the_cancellations(name: str, mean_s: float) -> None:
    found = evaluate(log_of(world(6000, 3), always(name), 3.0)).doubly_robust
    assert found is not None
    assert found.low <= mean_s * (1 - np.exp(-3.0 / mean_s)) <= found.high
    assert found.high - found.low < 0.3
