"""POST /v1/predict and /v1/residual: the hot path. No disk, no lock, no fit; the ledger row is queued after rendering."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from predictors.contexts import Context
from service.engine import Asking, Question, ask
from service.http.limits import body_of
from service.http.openapi import takes
from service.http.running import Running, running
from service.schemas import AnswersOut, PredictRequest, ResidualRequest, RunningIn
from telemetry.errors import TooLarge
from telemetry.recorder.ids import uuid7

IN_A_THREAD_FROM = 100
"""Questions from which answering them would keep other callers waiting: it then happens beside the event loop."""
router = APIRouter(prefix="/v1", tags=["answers"])
PREDICT_EXAMPLE: dict[str, Any] = {
    "contexts": [{"host": "node-1", "family": "encoder", "state": "cold", "batch": 4, "size_in": 64}],
    "phases": ["service"],
    "levels": [0.5, 0.9],
}
RESIDUAL_EXAMPLE: dict[str, Any] = {
    "running": [{"context": {"host": "node-1", "family": "encoder"}, "phase": "service", "elapsed_s": 0.1}],
    "levels": [0.5, 0.9],
}


async def _reply(at: Running, questions: list[Question], levels: list[float]) -> Response:
    """Answer, queue the ledger rows, join the bodies."""
    ids = tuple(uuid7() for _ in questions)
    asking = Asking(tuple(levels), uuid7(), ids, time.time_ns())
    if len(questions) < IN_A_THREAD_FROM:
        answers = ask(at.lineup.serving, questions, asking)
    else:
        answers = await run_in_threadpool(ask, at.lineup.serving, questions, asking)
    at.lineup.ledger.extend(a.row for a in answers if a.row is not None)
    return Response(b'{"answers":[' + b",".join([a.body for a in answers]) + b"]}", media_type="application/json")


@router.post("/predict", response_model=AnswersOut, openapi_extra=takes(PredictRequest, PREDICT_EXAMPLE))
async def post_predict(request: Request) -> Response:
    """Answer contexts x phases: how long each phase will take, as quantiles, mean and support."""
    at = running(request)
    asked = PredictRequest.model_validate_json(await body_of(request, at.settings.question_limit_bytes))
    if (count := len(asked.contexts) * len(asked.phases)) > at.settings.batch_limit:
        raise TooLarge("contexts", count, f"ask at most {at.settings.batch_limit} phases of contexts a request")
    named: list[str] | list[None] = asked.attempt_ids or [None] * len(asked.contexts)
    contexts = [Context(**c.model_dump()) for c in asked.contexts]
    questions = [
        Question(phase, c, a, horizon_s=asked.horizon_s) for c, a in zip(contexts, named, strict=True) for phase in asked.phases
    ]
    return await _reply(at, questions, asked.levels)


@router.post("/residual", response_model=AnswersOut, openapi_extra=takes(ResidualRequest, RESIDUAL_EXAMPLE))
async def post_residual(request: Request) -> Response:
    """Answer how much longer each running phase will take, given that it has lasted this long."""
    at = running(request)
    asked = ResidualRequest.model_validate_json(await body_of(request, at.settings.question_limit_bytes))
    return await _reply(at, [_question(at, item) for item in asked.running], asked.levels)


def _question(at: Running, item: RunningIn) -> Question:
    """Described attempts are taken at their word; named ones are looked up among those running."""
    if item.context is not None and item.elapsed_s is not None:
        return Question(item.phase, Context(**item.context.model_dump()), item.attempt_id, item.elapsed_s, "given")
    assert item.attempt_id is not None
    return at.lineup.running_question(item.attempt_id, item.phase, item.elapsed_s)
