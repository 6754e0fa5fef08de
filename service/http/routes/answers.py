"""POST /v1/predict and /v1/residual: the hot path. No disk, no lock, no fit; the ledger row is queued after rendering."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from predictors.changing import ContextChange
from predictors.contexts import Context
from service.engine import Asking, Question, ask
from service.http.limits import body_of, must_be_readable
from service.http.openapi import takes
from service.http.problems import document_of
from service.http.running import Answering, answering
from service.http.tracing import request_id
from service.schemas import Answer, AnswersOut, PredictRequest, ResidualRequest, RunningIn
from telemetry.errors import BadField, PhasecastError, TooLarge, UnknownId
from telemetry.recorder.ids import uuid7
from telemetry.words import Status

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


async def _answers(at: Answering, kind: str, questions: list[Question], levels: list[float]) -> list[bytes]:
    """Answer, count, queue the ledger rows; the answers' bodies in order."""
    ids = tuple(uuid7() for _ in questions)
    asking = Asking(tuple(levels), request_id(), ids, time.time_ns())
    if len(questions) < IN_A_THREAD_FROM:
        answers = ask(at.lineup.serving, questions, asking)
    else:
        answers = await run_in_threadpool(ask, at.lineup.serving, questions, asking)
    at.lineup.ledger.extend(a.row for a in answers if a.row is not None)
    at.metrics.answered(kind, [a.row.status if a.row is not None else Status.SHADOW for a in answers])
    return [a.body for a in answers]


def _joined(bodies: Iterable[bytes]) -> Response:
    return Response(b'{"answers":[' + b",".join(bodies) + b"]}", media_type="application/json")


@router.post("/predict", response_model=AnswersOut, openapi_extra=takes(PredictRequest, PREDICT_EXAMPLE))
async def post_predict(request: Request) -> Response:
    """Answer contexts x phases: how long each phase will take, as quantiles, mean and support."""
    at = answering(request)
    raw = await body_of(request, at.settings.question_limit_bytes)
    must_be_readable(raw)
    asked = PredictRequest.model_validate_json(raw)
    if (count := len(asked.contexts) * len(asked.phases)) > at.settings.batch_limit:
        raise TooLarge("contexts", count, f"ask at most {at.settings.batch_limit} phases of contexts a request")
    named: list[str] | list[None] = asked.attempt_ids or [None] * len(asked.contexts)
    contexts = [Context(**c.model_dump()) for c in asked.contexts]
    questions = [
        Question(phase, c, a, horizon_s=asked.horizon_s) for c, a in zip(contexts, named, strict=True) for phase in asked.phases
    ]
    return _joined(await _answers(at, "predict", questions, asked.levels))


@router.post("/residual", response_model=AnswersOut, openapi_extra=takes(ResidualRequest, RESIDUAL_EXAMPLE))
async def post_residual(request: Request) -> Response:
    """Answer how much longer each running phase will take, given that it has lasted this long."""
    at = answering(request)
    raw = await body_of(request, at.settings.question_limit_bytes)
    must_be_readable(raw)
    asked = ResidualRequest.model_validate_json(raw)
    found = [_question(at, item) for item in asked.running]
    questions = [one for one in found if isinstance(one, Question)]
    if not questions and isinstance(found[0], PhasecastError):
        raise found[0]
    answers = iter(await _answers(at, "residual", questions, asked.levels))
    return _joined(
        next(answers) if isinstance(one, Question) else _unanswered(item, one, asked.levels)
        for item, one in zip(asked.running, found, strict=True)
    )


def _question(at: Answering, item: RunningIn) -> Question | PhasecastError:
    """Described attempts are taken at their word; named ones are looked up among those running, which may fail."""
    if item.context is not None and item.elapsed_s is not None:
        context = Context(**item.context.model_dump())
        return _changed(Question(item.phase, context, item.attempt_id, item.elapsed_s, "given"), item)
    assert item.attempt_id is not None
    try:
        return _changed(at.lineup.running_question(item.attempt_id, item.phase, item.elapsed_s), item)
    except (UnknownId, BadField) as error:
        return error


def _changed(question: Question, item: RunningIn) -> Question:
    """The question with what changed since the start: a phase whose context has just changed is at least so old."""
    if not item.changes:
        return question
    changes = tuple(ContextChange.of(change.model_dump()) for change in item.changes)
    return replace(question, changes=changes, elapsed_s=max(question.elapsed_s or 0.0, changes[-1].at_elapsed_s))


def _unanswered(item: RunningIn, error: PhasecastError, levels: list[float]) -> bytes:
    """In the place of an answer about an attempt that does not run, so that it keeps nobody else's answer back."""
    nothing = dict.fromkeys(Answer.model_fields) | {
        "attempt_id": item.attempt_id,
        "phase": item.phase,
        "elapsed_s": item.elapsed_s,
        "form": "conditional",
        "status": Status.SHADOW,
        "reasons": ["not_running"],
        "levels": levels,
        "claimed_to": 0.0,
        "beyond": [],
        "as_of_commit": 0,
        "made_ns": time.time_ns(),
        "needs": error.fix,
        "problem": document_of(error),
    }
    return Answer.model_validate(nothing).model_dump_json().encode()
