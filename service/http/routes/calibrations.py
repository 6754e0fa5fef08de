"""POST, GET and DELETE /v1/calibrations: measure the API's own host under a grant, follow a run, stop it."""

from __future__ import annotations

import socket
import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool

from calibrate.hosts.grants import chosen
from calibrate.hosts.profile import planned
from calibrate.hosts.run import Care
from calibrate.hosts.vitals import Rules
from service.host_schemas import CalibrationIn, CalibrationOut, CalibrationsOut
from service.http.limits import body_of
from service.http.openapi import takes
from service.http.running import Running, running
from service.measuring import planned_out, work_here
from telemetry import asof

router = APIRouter(prefix="/v1/calibrations", tags=["hosts"])
EXAMPLE: dict[str, Any] = {"grant_id": "0f8f2e8a", "probes": ["matmul"], "seconds": 2, "dry_run": True}


@router.get("", response_model=CalibrationsOut)
def get_calibrations(request: Request) -> CalibrationsOut:
    """List runs since the API started."""
    return CalibrationsOut(calibrations=running(request).calibrations.known())


@router.post("", response_model=CalibrationOut, openapi_extra=takes(CalibrationIn, EXAMPLE))
async def post_calibration(request: Request) -> CalibrationOut:
    """Start a run of probes, or tell what one would be. Without a grant that covers all of it, nothing is started."""
    at = running(request)
    asked = CalibrationIn.model_validate_json(await body_of(request, at.settings.question_limit_bytes))
    return await run_in_threadpool(_begun, at, asked)


@router.get("/{run_id}", response_model=CalibrationOut)
def get_calibration(run_id: str, request: Request) -> CalibrationOut:
    """Tell how far a run has come."""
    return running(request).calibrations.one(run_id)


@router.delete("/{run_id}", response_model=CalibrationOut)
def delete_calibration(run_id: str, request: Request) -> CalibrationOut:
    """Stop a run within a second; what it measured is kept, marked partial."""
    return running(request).calibrations.end(run_id)


def _begun(at: Running, asked: CalibrationIn) -> CalibrationOut:
    with at.store.reader() as reader:
        known = asof.grants(reader, at.store.last_commit)
    grant = chosen(known.values(), asked.grant_id, host=socket.gethostname(), now_ns=time.time_ns())
    folder = at.settings.store.absolute().parent
    plan = planned(grant, folder, seconds=asked.seconds, names=asked.probes, threads=asked.threads, peer=asked.peer)
    if asked.dry_run:
        return planned_out(plan)
    rules = Rules(busy=asked.if_busy, patience_s=asked.patience_s, yield_to=tuple(asked.yield_to))
    return at.calibrations.begin(plan, Care(rules, work_here(at.lineup)))
