"""POST /v1/forecasts, /v1/forecasts/populations and /v1/forecasts/{id}/score: forecasts frozen before outcomes exist."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

from fastapi import APIRouter, Request
from starlette.concurrency import run_in_threadpool

from service import frozen
from service.frozen_schemas import CohortIn, FrozenOut, PopulationIn, ScoreIn, ScoreOut
from service.http.limits import body_of
from service.http.openapi import takes
from service.http.running import Running, running
from telemetry import asof_verdicts
from telemetry.errors import UnknownId
from telemetry.store.batch import Batch
from telemetry.verdicts import Forecast

ONE_LOOK = threading.Lock()
router = APIRouter(prefix="/v1/forecasts", tags=["forecasts"])
COHORT: dict[str, Any] = {
    "name": "chain, common load",
    "numbers": [
        {"id": "p99", "predicted": 9.66, "unit": "s", "error": "relative_to_predicted", "tolerance": 0.15, "run": "seed 702"}
    ],
    "contrasts": [{"id": "tier against none", "predicted": -0.036}],
    "calls": [{"id": "store gate", "predicted": True, "bound": 0.95}],
}
POPULATION: dict[str, Any] = {
    "name": "graphs",
    "generator": {"name": "graphs", "version": "3"},
    "ranges": {"depth": [2, 9], "joins": ["all", "any"]},
    "parts": {
        name: {"sha256": digit * 64, "families": [f"family {digit}"], "seeds": [int(digit)]}
        for name, digit in (("development", "1"), ("validation", "2"), ("locked_test", "3"))
    },
}
OUTCOMES: dict[str, Any] = {"outcomes": '{"numbers": {"p99": 9.9}, "calls": {"store gate": [74.1, 119.7]}}'}


@router.post("", response_model=FrozenOut, openapi_extra=takes(CohortIn, COHORT))
async def post_forecast(request: Request) -> FrozenOut:
    """Freeze a cohort: what is asked of the model that serves, and forecasts of one's own."""
    at = running(request)
    cohort = CohortIn.model_validate_json(await body_of(request, at.settings.body_limit_bytes))
    row = await run_in_threadpool(_frozen, at, cohort)
    await asyncio.wrap_future(at.store.submit(Batch((row,))))
    return frozen.told(row)


@router.post("/populations", response_model=FrozenOut, openapi_extra=takes(PopulationIn, POPULATION))
async def post_population(request: Request) -> FrozenOut:
    """Seal a population before tuning, by the hashes of its parts."""
    at = running(request)
    asked = PopulationIn.model_validate_json(await body_of(request, at.settings.body_limit_bytes))
    row = frozen.sealed_population(asked, time.time_ns())
    await asyncio.wrap_future(at.store.submit(Batch((row,))))
    return frozen.told(row)


@router.get("/{forecast_id}", response_model=FrozenOut)
def get_forecast(forecast_id: str, request: Request) -> FrozenOut:
    """Give the sealed file of what was frozen."""
    store = running(request).store
    with store.reader() as reader:
        row = asof_verdicts.forecast(reader, forecast_id, store.last_commit)
    if row is None:
        raise UnknownId("forecast_id", forecast_id, "nothing was frozen here under this id")
    return frozen.told(row)


@router.post("/{forecast_id}/score", response_model=ScoreOut, openapi_extra=takes(ScoreIn, OUTCOMES))
async def post_score(forecast_id: str, request: Request) -> ScoreOut:
    """Score frozen forecasts; refused where manifest, model, data, program or outcomes are not what they were."""
    at = running(request)
    asked = ScoreIn.model_validate_json(await body_of(request, at.settings.body_limit_bytes))
    return await run_in_threadpool(_scored, at, forecast_id, asked)


def _frozen(at: Running, cohort: CohortIn) -> Forecast:
    with at.store.reader() as reader:
        return frozen.frozen(cohort, at.lineup.serving, reader, at.store.last_commit, time.time_ns())


def _scored(at: Running, forecast_id: str, asked: ScoreIn) -> ScoreOut:
    """Score, and commit the look before anybody else looks: a locked part has one first look."""
    with ONE_LOOK, at.store.reader() as reader:
        found, opening = frozen.scored(forecast_id, asked, reader, at.store.path, at.store.last_commit, time.time_ns())
        if not found.repeated:
            at.store.write(Batch((opening,)))
        return found
