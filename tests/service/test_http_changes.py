"""POST /v1/residual about attempts whose context changed while they ran."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

KNOWN = {"host": "north", "device": "cpu", "family": "encoder", "model": "encoder@1", "state": "cold", "batch": 4, "size_in": 64}
JOINED = {"at_elapsed_s": 0.1, "batch": 8}


def asked(**changed: Any) -> dict[str, Any]:
    """One running service, 0.2 s old."""
    return {"running": [{"context": {**KNOWN, "corunners": 0}, "phase": "service", "elapsed_s": 0.2, **changed}]}


def answer(http: httpx.Client, question: dict[str, Any]) -> dict[str, Any]:
    reply = http.post("/v1/residual", json=question)
    assert 200 == reply.status_code, reply.text
    return dict(reply.json()["answers"][0])


def test_more_work_at_half_the_pace_leaves_more_to_wait_for(http: httpx.Client) -> None:
    plain, changed = answer(http, asked()), answer(http, asked(changes=[JOINED]))
    assert changed["pace"] < 0.8
    assert 0.1 + 0.1 * changed["pace"] == pytest.approx(changed["operational_age_s"])
    assert changed["quantiles_s"][0] > 1.1 * plain["quantiles_s"][0]
    assert "pace" not in plain


def test_changes_that_come_to_nothing_leave_the_answer_as_it_was(http: httpx.Client) -> None:
    back = [{"at_elapsed_s": 0.1, "batch": 4}]
    plain, same = answer(http, asked()), answer(http, asked(changes=back))
    assert plain["quantiles_s"] == same["quantiles_s"]
    assert (1.0, 0.2) == pytest.approx((same["pace"], same["operational_age_s"]))


def test_a_context_never_seen_makes_the_answer_a_shadow_one(http: httpx.Client) -> None:
    told = answer(http, asked(changes=[{"at_elapsed_s": 0.1, "mode": "split"}]))
    assert ("shadow", True) == (told["status"], "unseen_configuration" in told["reasons"])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([{"at_elapsed_s": 0.3, "batch": 8}], "none later than elapsed_s"),
        ([JOINED, {"at_elapsed_s": 0.05, "batch": 4}], "in order"),
        ([{"at_elapsed_s": 0.1}], "say what changed"),
        ([{"at_elapsed_s": -1, "batch": 8}], "at_elapsed_s"),
        ([{"at_elapsed_s": 0.1, "family": "decoder"}], "family"),
    ],
)
def test_changes_that_cannot_be_are_refused_and_named(http: httpx.Client, changes: list[dict[str, Any]], says: str) -> None:
    reply = http.post("/v1/residual", json=asked(changes=changes))
    assert 422 == reply.status_code
    assert says in reply.text
