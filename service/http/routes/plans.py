"""POST /v1/chance, /v1/latest-start, /v1/scenarios: composite questions, answered from the serving model alone."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from predictors.contexts import REMEMBERED, Context
from predictors.plans.forecast_need import Forecast
from predictors.plans.graph import StageKind
from service.engine import Serving
from service.forecast_needs import must_stand
from service.http.limits import body_of, must_be_readable
from service.http.openapi import takes
from service.http.problems import document_of
from service.http.running import Answering, answering
from service.http.tracing import request_id
from service.plan_questions import ChanceQuestion, LatestStartQuestion, Occasion, PlannedStage
from service.plan_schemas import (
    ChanceRequest,
    ChancesOut,
    LatestStartIn,
    LatestStartRequest,
    LatestStartsOut,
    NeedIn,
    PlanIn,
    ScenariosOut,
    ScenariosRequest,
    StageIn,
    Unanswered,
)
from service.planning import PlanAnswered, ask_chances, ask_latest_starts
from service.scenarios import ask_scenarios
from telemetry.errors import BadField, NoEvidence, PhasecastError, TooLarge, TooSlow, UnknownId
from telemetry.recorder.ids import uuid7

router = APIRouter(prefix="/v1", tags=["plans"])
_CONTEXT = {"host": "node-1", "family": "encoder", "state": "cold", "batch": 4, "size_in": 64}
_SETUP = {"name": "load", "kind": "setup", "context": _CONTEXT, "attempt": "a-2"}
CHANCE_EXAMPLE: dict[str, Any] = {
    "plans": [
        {
            "stages": [
                {"name": "wait", "kind": "wait", "planned_s": 0.05},
                {**_SETUP, "after": ["wait"]},
                {
                    "name": "compute",
                    "kind": "service",
                    "context": _CONTEXT,
                    "attempt": "a-2",
                    "after": ["load"],
                    "retries": 1,
                    "retry_wait_s": 0.5,
                },
            ],
            "deadline_s": 2.0,
            "level": 0.95,
        }
    ],
    "seed": 7,
}
LATEST_START_EXAMPLE: dict[str, Any] = {
    "questions": [{"load": _SETUP, "need": {"levels": [0.1, 0.5, 0.9], "values_s": [4.0, 5.0, 7.0]}, "delta": 0.05}],
    "seed": 7,
}
SCENARIOS_EXAMPLE: dict[str, Any] = {"attempts": [{"attempt": "a-2", "context": _CONTEXT}], "n_scenarios": 4, "seed": 7}
P = TypeVar("P", PlanIn, LatestStartIn)
Q = TypeVar("Q", ChanceQuestion, LatestStartQuestion)
B = TypeVar("B", ChanceRequest, LatestStartRequest, ScenariosRequest)
LARGE_BYTES = 64 * 2**10
GIVE_WAY_AFTER = 100
"""Questions after which other callers get their turn."""
IN_A_THREAD_FROM = 24
"""Tries of stages from which the arithmetic would keep other callers waiting: it then runs beside the event loop."""
TRIES_AT_ONCE, MOST_TRIES = 5_000, 100_000
"""Tries of stages that are answered without looking whether anybody still waits, and those of a request."""


@router.post("/chance", response_model=ChancesOut, openapi_extra=takes(ChanceRequest, CHANCE_EXAMPLE))
async def post_chance(request: Request) -> Response:
    """Answer with what probability plans complete by their deadlines; failing or being cancelled is not completing.

    A plan that can't be answered holds its problem in its place, and keeps no other plan's answer back.
    """
    at = answering(request)
    asked = await _read(ChanceRequest, await body_of(request, at.settings.body_limit_bytes))
    _must_be_answerable("plans", [stage for plan in asked.plans for stage in plan.stages])
    found = [one async for one in _each_found(at, _chance, asked.plans)]
    questions = [one for one in found if isinstance(one, ChanceQuestion)]
    occasion = _occasion(at, "chance", len(questions), asked.seed, asked.cvar_level)
    answers = await _asked(ask_chances, request, questions, occasion) if questions else []
    ids = [(plan.plan_id, plan.attempt_id) for plan in asked.plans]
    return _reply(at, "chance", answers, found, ids)


@router.post("/latest-start", response_model=LatestStartsOut, openapi_extra=takes(LatestStartRequest, LATEST_START_EXAMPLE))
async def post_latest_start(request: Request) -> Response:
    """Answer when loads must start at the latest to be ready in time with probability 1 - delta.

    A question that can't be answered holds its problem in its place, and keeps no other answer back.
    """
    at = answering(request)
    asked = await _read(LatestStartRequest, await body_of(request, at.settings.body_limit_bytes))
    _must_be_answerable("questions", [stage for q in asked.questions for stage in (q.load, *(q.need.predecessors or ()))])
    found = [one async for one in _each_found(at, _latest_start, asked.questions)]
    questions = [one for one in found if isinstance(one, LatestStartQuestion)]
    occasion = _occasion(at, "latest_start", len(questions), asked.seed)
    answers = await _asked(ask_latest_starts, request, questions, occasion) if questions else []
    ids = [(question.question_id, question.attempt_id) for question in asked.questions]
    return _reply(at, "latest_start", answers, found, ids)


@router.post("/scenarios", response_model=ScenariosOut, openapi_extra=takes(ScenariosRequest, SCENARIOS_EXAMPLE))
async def post_scenarios(request: Request) -> Response:
    """Draw setup and service of attempts together; the same seed and ids give the same draws, whatever else is asked."""
    at = answering(request)
    asked = await _read(ScenariosRequest, await body_of(request, at.settings.body_limit_bytes))
    drawn = await run_in_threadpool(ask_scenarios, at.lineup.serving, asked)
    at.metrics.answered("scenarios", [drawn["status"]])
    return Response(orjson.dumps(drawn), media_type="application/json")


def _occasion(at: Answering, question: str, n: int, seed: int, cvar_level: float | None = None) -> Occasion:
    known, ids = at.lineup.reliability_of(question), tuple(uuid7() for _ in range(n))
    turn = known.turnout.turn
    return Occasion(request_id(), ids, time.time_ns(), seed, known.calibration_se, cvar_level, known.above_se, turn)


async def _asked(
    ask: Callable[[Serving | None, Sequence[Q], Occasion], list[PlanAnswered]],
    request: Request,
    questions: Sequence[Q],
    occasion: Occasion,
) -> list[PlanAnswered]:
    """Ask at once, or beside the event loop where it takes long: part by part, for as long as anybody waits for the answer.

    All parts are asked of one model. What is answered depends on nothing else in the request, so not on the parts either.
    """
    serving, tries = answering(request).lineup.serving, [_tries(_stages(question)) for question in questions]
    if sum(tries) < IN_A_THREAD_FROM:
        return ask(serving, questions, occasion)
    part = np.cumsum(tries) // TRIES_AT_ONCE
    answers: list[PlanAnswered] = []
    for number in np.unique(part):
        if answers and await request.is_disconnected():
            raise TooSlow("connection", "closed", "wait for the answer, or ask fewer plans a request")
        first, end = np.searchsorted(part, [number, number + 1]).tolist()
        own = replace(occasion, answer_ids=occasion.answer_ids[first:end])
        answers += await run_in_threadpool(ask, serving, questions[first:end], own)
    return answers


def _must_be_answerable(field: str, stages: Sequence[StageIn]) -> None:
    """TooLarge where a request takes so long to answer that it would hold up whoever stops the service."""
    if (tries := sum(1 + (stage.retries or 0) for stage in stages)) > MOST_TRIES:
        fix = f"ask about at most {MOST_TRIES} stages a request, each counted again for every retry; split the batch"
        raise TooLarge(field, f"{tries} stages and retries", fix)


def _tries(stages: Sequence[PlannedStage]) -> int:
    return sum(1 + stage.retries for stage in stages)


async def _read(kind: type[B], raw: bytes) -> B:
    """A body as its model; a large one is read beside the event loop, so that others are answered meanwhile."""
    must_be_readable(raw)
    if len(raw) < LARGE_BYTES:
        return kind.model_validate_json(raw)
    return await run_in_threadpool(kind.model_validate_json, raw)


async def _each_found(at: Answering, read: Callable[[Answering, P], Q], asked: Sequence[P]) -> AsyncIterator[Q | PhasecastError]:
    """Questions with their contexts resolved, or why not; here, where running attempts are kept, and giving way now and then."""
    for i, one in enumerate(asked, 1):
        yield _found(at, read, one)
        if i % GIVE_WAY_AFTER == 0:
            await asyncio.sleep(0)


def _found(at: Answering, read: Callable[[Answering, P], Q], asked: P) -> Q | PhasecastError:
    """A question with its contexts resolved and its phases known, or why it can't be answered."""
    try:
        question = read(at, asked)
    except (UnknownId, BadField) as error:
        return error
    serving = at.lineup.serving
    phases = {stage.phase for stage in _stages(question) if stage.context is not None}
    missing = sorted(phase for phase in phases if serving is None or not serving.model.knows(phase))
    if missing:
        fix = "no finished attempt of these phases is known; POST their events to /v1/events first"
        return NoEvidence("phase", ", ".join(missing), fix)
    return question


def _stages(question: ChanceQuestion | LatestStartQuestion) -> tuple[PlannedStage, ...]:
    return question.stages if isinstance(question, ChanceQuestion) else (question.load, *question.predecessors)


def _reply(
    at: Answering,
    kind: str,
    answers: Sequence[PlanAnswered],
    found: Sequence[object],
    ids: Sequence[tuple[str | None, str | None]],
) -> Response:
    """Queue the ledger rows, join the bodies with the problems of questions without an answer; raises where there is none."""
    if not answers and isinstance(found[0], PhasecastError):
        raise found[0]
    at.lineup.ledger.extend(a.row for a in answers)
    at.metrics.answered(kind, [a.row.status for a in answers])
    bodies = iter([a.body for a in answers])
    places = [
        _unanswered(one, *names) if isinstance(one, PhasecastError) else next(bodies)
        for one, names in zip(found, ids, strict=True)
    ]
    return Response(b'{"answers":[' + b",".join(places) + b"]}", media_type="application/json")


def _unanswered(error: PhasecastError, own_id: str | None, attempt_id: str | None) -> bytes:
    return Unanswered(problem=document_of(error), id=own_id, attempt_id=attempt_id).model_dump_json().encode()


def _content_key(asked: PlanIn | LatestStartIn) -> str:
    """Keys the draws of a question without an id by its stages and attempt, not by its place in the request or what is late.

    So a chance grows with the deadline, and a later start with the risk.
    """
    told = asked.model_dump_json(exclude_none=True, exclude={"deadline_s", "level", "delta"})
    return "=" + hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


def _chance(at: Answering, plan: PlanIn) -> ChanceQuestion:
    """A plan keyed by its id, or by what it asks."""
    return ChanceQuestion(
        stages=tuple(_stage(at, stage) for stage in plan.stages),
        deadline_s=plan.deadline_s,
        level=plan.level,
        key=plan.plan_id or _content_key(plan),
        plan_id=plan.plan_id,
        attempt_id=plan.attempt_id,
    )


def _latest_start(at: Answering, question: LatestStartIn) -> LatestStartQuestion:
    """A load keyed likewise; predecessors named by id are those its outcome is compared with."""
    before = question.need.predecessors or []
    load = _stage(at, question.load)
    return LatestStartQuestion(
        load=load,
        delta=question.delta,
        key=question.question_id or _content_key(question),
        question_id=question.question_id,
        attempt_id=question.attempt_id,
        predecessors=tuple(_stage(at, stage) for stage in before),
        samples_s=tuple(question.need.samples_s or ()),
        levels=tuple(question.need.levels or ()),
        values_s=tuple(question.need.values_s or ()),
        needed_by=tuple(stage.running_attempt_id for stage in before if stage.running_attempt_id is not None),
        forecasts=_forecasts(question.need, load.context or Context()),
    )


def _forecasts(need: NeedIn, load: Context) -> tuple[Forecast, ...]:
    """Forecast records that stand; BadField tells of one that does not."""
    records, workflows = need.forecasts or [], {workflow.workflow_id: workflow for workflow in need.workflows}
    must_stand(records, workflows, load.model, load.mode, time.time_ns())
    told = {"release_s", "samples_s", "levels", "values_s", "weight", "count", "confidence"}
    return tuple(Forecast(one.workflow_id, one.invalidation_id, **one.model_dump(include=told)) for one in records)


def _stage(at: Answering, stage: StageIn) -> PlannedStage:
    """A stage as asked; a running attempt is looked up and aged by its own clock."""
    kind, phase, ago_s = StageKind(stage.kind), stage.phase or stage.kind, stage.told_ago_s or 0.0
    if stage.planned_s is not None:
        return PlannedStage(stage.name, kind, stage.after, max(stage.planned_s - ago_s, 0.0))
    again = (stage.retries or 0, stage.retry_wait_s or 0.0, stage.channel or "")
    if stage.running_attempt_id is not None:
        name = stage.running_attempt_id
        seen = at.lineup.running_question(name, phase, None)
        own = stage.attempt or name
        return PlannedStage(stage.name, kind, stage.after, None, seen.context, phase, own, seen.elapsed_s, None, *again)
    assert stage.context is not None
    known, attempt = _context(*stage.context.__dict__.values()), stage.attempt or ""
    elapsed_s = None if stage.elapsed_s is None else stage.elapsed_s + ago_s
    return PlannedStage(stage.name, kind, stage.after, None, known, phase, attempt, elapsed_s, stage.took_s, *again)


@lru_cache(maxsize=REMEMBERED)
def _context(*values: Any) -> Context:
    """The context of these values, in the order of its fields, in which `ContextIn` has them; equal ones are made once."""
    return Context(*values)
