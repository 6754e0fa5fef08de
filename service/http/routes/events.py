"""POST /v1/events: batches of attempts and events; a 200 means that what is `new` or `repeat` is on disk."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response

from service.http.limits import body_of
from service.http.openapi import takes
from service.http.running import running
from service.schemas import IngestOut, IngestRequest
from telemetry import ingest

router = APIRouter(prefix="/v1", tags=["events"])
EXAMPLE: dict[str, Any] = {
    "attempts": [{"attempt_id": "a-1", "host": "node-1", "family": "encoder", "state": "cold", "batch": 4, "size_in": 64}],
    "events": [
        {
            "event_id": "e-1",
            "attempt_id": "a-1",
            "kind": "compute_start",
            "wall_ns": 1_764_400_000_000_000_000,
            "monotonic_ns": 5_000_000_000,
            "clock_id": "node-1/boot-1",
            "source": "recorder@node-1",
        },
        {
            "event_id": "e-2",
            "attempt_id": "a-1",
            "kind": "compute_finish",
            "wall_ns": 1_764_400_000_250_000_000,
            "monotonic_ns": 5_250_000_000,
            "clock_id": "node-1/boot-1",
            "source": "recorder@node-1",
        },
    ],
}


@router.post("/events", response_model=IngestOut, openapi_extra=takes(IngestRequest, EXAMPLE))
async def post_events(request: Request) -> Response:
    """Commit a batch. Each item gets a result of its own; a bad item never spoils the others."""
    at = running(request)
    with at.lineup.intake:
        raw = await body_of(request, at.settings.body_limit_bytes)
        prepared = ingest.read(raw)
        receipt = await asyncio.wrap_future(at.store.submit(prepared.batch))
        at.lineup.sightings.note(receipt.commit, *prepared.new(receipt))
    told = ingest.reply(prepared, receipt)
    for table in ("attempts", "events"):
        at.metrics.ingested(table, [one["result"] for one in told[table]])
    return Response(orjson.dumps(told), media_type="application/json")
