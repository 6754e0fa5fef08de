"""Forecasts of others, the scoreboard, and who answers: POST /v1/shadow/forecasts, GET /v1/reports/shadow, /v1/promotions."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from service import shadow
from service.http.limits import body_of
from service.http.openapi import takes
from service.http.routes.reports import told
from service.http.running import running
from service.logged import logged
from service.shadow_schemas import LoggedOut, PromotionIn, PromotionOut, ShadowOut, ShadowQuery, ShadowRequest, WithdrawalIn
from telemetry import asof_verdicts
from telemetry.store.batch import Batch

router = APIRouter(prefix="/v1", tags=["shadow"])
FORECASTS: dict[str, Any] = {
    "forecasts": [
        {
            "predictor": "planner-3",
            "attempt_id": "a-17",
            "phase": "service",
            "levels": [0.5, 0.9],
            "quantiles_s": [0.8, 1.3],
        },
        {"predictor": "planner-3", "attempt_id": "a-17", "phase": "setup", "point_s": 2.5},
    ]
}
PROMOTION: dict[str, Any] = {
    "predictor": "network",
    "action": "hold",
    "operator": "ada",
    "reason": "node-3 gets a new driver this week",
}


@router.post("/shadow/forecasts", response_model=LoggedOut, openapi_extra=takes(ShadowRequest, FORECASTS))
async def post_forecasts(request: Request) -> LoggedOut:
    """Take forecasts of somebody else. They count as received when they are committed, and that must be before we answer."""
    at = running(request)
    asked = ShadowRequest.model_validate_json(await body_of(request, at.settings.body_limit_bytes))
    given = [(f"{one.predictor}/{one.attempt_id}/{one.phase}", partial(shadow.row_of, one)) for one in asked.forecasts]
    return await logged(at.store, given)


@router.get("/reports/shadow", response_model=ShadowOut)
def get_shadow(request: Request, query: Annotated[ShadowQuery, Query()]) -> Response:
    """Compare those who do not answer with what was served: by how much, how surely, and what the rule says."""
    return told(request, query, lambda reader, commit: shadow.report(reader, commit, query.newest))


@router.post("/promotions", response_model=PromotionOut, openapi_extra=takes(PromotionIn, PROMOTION))
async def post_promotion(request: Request) -> PromotionOut:
    """Decide as an operator who answers, from the next round on; the rule keeps off until the decision is withdrawn."""
    at = running(request)
    asked = PromotionIn.model_validate_json(await body_of(request, at.settings.question_limit_bytes))
    row = shadow.decided(asked, time.time_ns())
    await asyncio.wrap_future(at.store.submit(Batch((row,))))
    return shadow.told(row)


@router.delete("/promotions/{change_id}", response_model=PromotionOut)
async def delete_promotion(change_id: str, request: Request, query: Annotated[WithdrawalIn, Query()]) -> PromotionOut:
    """Withdraw a decision; it stays on record with the reason."""
    store = running(request).store
    with store.reader() as reader:
        changes = asof_verdicts.promotions(reader, store.last_commit)
    row = shadow.ended(changes, change_id, query.reason, time.time_ns())
    await asyncio.wrap_future(store.submit(Batch((row,))))
    return shadow.told(row)
