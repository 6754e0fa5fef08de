"""POST /v1/decisions and GET /v1/reports/policies: choices with all they could have been, and what others would have met."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from service import policies
from service.http.limits import body_of
from service.http.openapi import takes
from service.http.running import running
from service.logged import logged
from service.shadow_schemas import DecisionsRequest, LoggedOut, PolicyOut, PolicyQuery

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


@router.post("/decisions", response_model=LoggedOut, openapi_extra=takes(DecisionsRequest, EXAMPLE))
async def post_decisions(request: Request) -> LoggedOut:
    """Log decisions; each gets a result of its own. Attempts name the decision they follow by its id."""
    at = running(request)
    asked = DecisionsRequest.model_validate_json(await body_of(request, at.settings.body_limit_bytes))
    return await logged(at.store, [(one.decision_id, one.row) for one in asked.decisions])


@router.get("/reports/policies", response_model=PolicyOut)
def get_policy(request: Request, query: Annotated[PolicyQuery, Query()]) -> PolicyOut:
    """Judge another policy by the decisions that were logged, or say why they can't tell."""
    store = running(request).store
    with store.reader() as reader:
        return policies.report(reader, store.last_commit, query)
