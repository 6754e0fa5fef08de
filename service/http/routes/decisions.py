"""Choices with all they could have been, advice on trying others, and what another policy would have met."""

from __future__ import annotations

import threading
import time
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from service import exploring, policies
from service.http.limits import body_of
from service.http.openapi import takes
from service.http.routes.reports import told
from service.http.running import Running, running
from service.logged import logged
from service.shadow_schemas import AdviceIn, AdviceOut, DecisionsRequest, LoggedOut, PolicyOut, PolicyQuery
from telemetry import asof_verdicts
from telemetry.store.batch import Batch

ONE_POSTING = threading.Lock()
router = APIRouter(prefix="/v1", tags=["decisions"])
EXAMPLE: dict[str, Any] = {
    "decisions": [
        {
            "decision_id": "d-1",
            "decided_ns": 1_764_400_000_000_000_000,
            "run_id": "run-1",
            "policy": "earliest-finish-2",
            "choice": "north",
            "alternatives": [
                {"name": "north", "propensity": 0.95, "resource_safe": True, "permitted": True, "expected": 0.8},
                {"name": "south", "propensity": 0.05, "resource_safe": True, "permitted": True, "expected": 1.1},
                {"name": "split", "propensity": 0.0},
            ],
        }
    ]
}
ADVICE: dict[str, Any] = {
    "decision_id": "d-2",
    "account": "planner-1",
    "ordinary": "north",
    "alternatives": [
        {"name": "north", "resource_safe": True, "permitted": True, "supported": True, "misses": 0.02},
        {"name": "south", "resource_safe": True, "permitted": True, "supported": True, "misses": 0.05},
        {"name": "split"},
    ],
}


@router.post("/decisions", response_model=LoggedOut, openapi_extra=takes(DecisionsRequest, EXAMPLE))
async def post_decisions(request: Request) -> LoggedOut:
    """Log decisions; each gets a result of its own. Attempts name the decision they follow by its id."""
    at = running(request)
    asked = DecisionsRequest.model_validate_json(await body_of(request, at.settings.body_limit_bytes))
    return await logged(at.store, [(one.decision_id, one.row) for one in asked.decisions])


@router.post("/decisions/advice", response_model=AdviceOut, openapi_extra=takes(AdviceIn, ADVICE))
async def post_advice(request: Request) -> AdviceOut:
    """Advise whether to try an alternative that is safe, permitted and supported; what that may cost is paid from an account."""
    at = running(request)
    asked = AdviceIn.model_validate_json(await body_of(request, at.settings.question_limit_bytes))
    return await run_in_threadpool(_advised, at, asked)


def _advised(at: Running, asked: AdviceIn) -> AdviceOut:
    """Advise and post, one after another: two that read one balance would spend it twice."""
    with ONE_POSTING, at.store.reader() as reader:
        standing = asof_verdicts.credit(reader, exploring.account_name(asked), at.store.last_commit)
        advice, posting = exploring.advised(asked, standing, time.time_ns())
        at.store.write(Batch((posting,)))
        return advice


@router.get("/reports/policies", response_model=PolicyOut)
def get_policy(request: Request, query: Annotated[PolicyQuery, Query()]) -> Response:
    """Judge another policy by the decisions that were logged, or say why they can't tell."""
    return told(request, query, lambda reader, commit: policies.report(reader, commit, query))
