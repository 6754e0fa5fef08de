"""One question that can't be answered keeps no other answer of its request back, and is not answered with numbers."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from predictors.contexts import Context
from predictors.synthetic import runs
from service.client.aio import async_http_client
from service.plan_schemas import ChancesOut, LatestStartsOut, Unanswered
from service.schemas import AnswersOut
from tests.service.living import Served

SEEN = next(run for run in runs(80, seed=7) if run.attempt.host == "north" and run.events[-1].kind == "resource_released")
KNOWN = Context.of(SEEN.attempt.model_dump()).known()
DESCRIBED = {"context": KNOWN, "phase": "service", "elapsed_s": 0.1}
ENDED = {"attempt_id": "synthetic-7-000000", "phase": "service"}


def plan(name: str, phase: str = "service", **stage: Any) -> dict[str, Any]:
    made = {"name": "only", "kind": "service", "phase": phase} | (stage or {"context": KNOWN})
    return {"plan_id": name, "deadline_s": 3.0, "stages": [made]}


def load(name: str, phase: str = "setup", **stage: Any) -> dict[str, Any]:
    made = {"name": "load", "kind": "setup", "phase": phase} | (stage or {"context": KNOWN})
    return {"question_id": name, "load": made, "need": {"samples_s": [6.0, 7.0]}}


def told(http: httpx.Client, path: str, body: dict[str, Any]) -> bytes:
    reply = http.post(path, json=body)
    assert 200 == reply.status_code, reply.text
    return reply.content


def test_an_ended_attempt_among_others_holds_its_problem(http: httpx.Client) -> None:
    body = told(http, "/v1/residual", {"running": [DESCRIBED, ENDED, {**DESCRIBED, "elapsed_s": 0.2}], "levels": [0.5]})
    first, ended, last = AnswersOut.model_validate_json(body).answers
    assert [0.1, None, 0.2] == [a.elapsed_s for a in (first, ended, last)]
    assert first.quantiles_s is not None
    assert last.quantiles_s is not None
    assert (None, None, "shadow", ["not_running"]) == (ended.quantiles_s, ended.prediction_id, ended.status, ended.reasons)
    assert ended.problem is not None
    assert (404, "attempt_id", ENDED["attempt_id"]) == (ended.problem.status, ended.problem.field, ended.problem.got)
    assert ended.needs == ended.problem.fix
    assert first.problem is None


def test_alone_or_among_its_like_it_is_an_error(http: httpx.Client) -> None:
    for running in ([ENDED], [ENDED, {**ENDED, "attempt_id": "nobody"}]):
        reply = http.post("/v1/residual", json={"running": running})
        assert (404, "attempt_id", ENDED["attempt_id"]) == (reply.status_code, reply.json()["field"], reply.json()["got"])


@pytest.mark.parametrize(
    ("bad", "status", "field", "got"),
    [
        (plan("bad", "polishing"), 409, "phase", "polishing"),
        (plan("bad", running_attempt_id="nobody"), 404, "attempt_id", "nobody"),
    ],
)
def test_a_plan_that_cannot_be_answered_holds_its_problem(
    http: httpx.Client, bad: dict[str, Any], status: int, field: str, got: str
) -> None:
    alone = ChancesOut.model_validate_json(told(http, "/v1/chance", {"plans": [plan("a")]})).answers[0]
    for n_more in (0, 9):  # on both sides of the thread's threshold
        plans = [plan("a"), bad, *(plan(f"more-{i}") for i in range(n_more))]
        first, unanswered, *_ = ChancesOut.model_validate_json(told(http, "/v1/chance", {"plans": plans})).answers
        assert isinstance(unanswered, Unanswered)
        assert ("bad", status, field, got) == (
            unanswered.id,
            unanswered.problem.status,
            unanswered.problem.field,
            unanswered.problem.got,
        )
        assert not isinstance(first, Unanswered)
        assert not isinstance(alone, Unanswered)
        assert alone.probability == first.probability, "the others' draws are what they were"
    reply = http.post("/v1/chance", json={"plans": [bad]})
    assert (status, got) == (reply.status_code, reply.json()["got"])


def test_a_latest_start_that_cannot_be_answered_holds_its_problem(http: httpx.Client) -> None:
    asked = [load("a", "polishing"), load("b"), load("c", running_attempt_id="nobody")]
    body = told(http, "/v1/latest-start", {"questions": asked})
    unknown, answered, nobody = LatestStartsOut.model_validate_json(body).answers
    assert isinstance(unknown, Unanswered)
    assert isinstance(nobody, Unanswered)
    assert not isinstance(answered, Unanswered)
    assert [("a", 409), ("c", 404)] == [(one.id, one.problem.status) for one in (unknown, nobody)]
    assert "b" == answered.question_id


def test_others_are_answered_while_ten_thousand_plans_are_read(answering: Served) -> None:  # H05
    async def within() -> tuple[int, int]:
        async with async_http_client(answering.url, timeout_s=60) as http:
            plans = [plan(f"p{i}", "polishing") for i in range(10_000)]  # nothing is computed: reading them is all there is
            asking = asyncio.create_task(http.post("/v1/chance", json={"plans": plans}))
            alive = 0
            while not asking.done():
                alive += (await http.get("/healthz")).status_code == 200
            return (await asking).status_code, alive

    status, alive = asyncio.run(within())
    assert 409 == status
    assert alive > 20
