"""A decision is logged whole or refused: without propensities that make sense it tells nothing later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from telemetry.decisions import Decision, listed
from telemetry.store.batch import Batch
from telemetry.store.file import Store


def decision(*alternatives: dict[str, Any], **values: Any) -> Decision:
    told = {"decision_id": "d-1", "decided_ns": 5, "policy": "greedy-2", "choice": "a", "propensity": 0.9, **values}
    return Decision(alternatives=orjson.dumps(list(alternatives)).decode(), **told)


BOTH = ({"name": "a", "propensity": 0.9, "resource_safe": True}, {"name": "b", "propensity": 0.1})


def test_a_decision_keeps_its_alternatives_in_order() -> None:
    assert list(BOTH) == listed(decision(*BOTH).alternatives)


def test_an_alternative_that_is_never_taken_may_be_listed() -> None:
    assert (
        "b"
        == listed(decision({"name": "a", "propensity": 1}, {"name": "b", "propensity": 0}, propensity=1.0).alternatives)[1][
            "name"
        ]
    )


@pytest.mark.parametrize(
    ("alternatives", "values", "told"),
    [
        (BOTH, {"choice": "c"}, "not among the alternatives a, b"),
        (BOTH, {"propensity": 0.8}, "says 0.9"),
        (BOTH, {"propensity": 0.0}, "greater than 0"),
        (BOTH[:1], {}, "sum to 0.9"),
        ((BOTH[0], BOTH[0]), {}, "comes twice"),
        (({"name": "a", "propensity": True},), {}, "propensity of 'a' is True"),
        (({"name": "a"},), {}, "propensity of 'a' is None"),
        (({"propensity": 1.0},), {}, "each with its name"),
        ((), {}, "one alternative or more"),
    ],
)
def test_a_decision_that_makes_no_sense_is_refused(alternatives: tuple[dict[str, Any], ...], values: Any, told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        decision(*alternatives, **values)


def test_a_decision_sent_twice_is_kept_once_and_a_different_one_is_a_conflict(tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        results = [
            store.write(Batch((row,))).results[0].result
            for row in (decision(*BOTH), decision(*BOTH), decision(*BOTH, policy="other"))
        ]
        assert ["new", "repeat", "conflict"] == results
