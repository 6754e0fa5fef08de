"""POST /v1/traces: the OTLP receiver. A 200 means that what it does not reject is on disk.

JSON or protobuf, plain or gzip. Spans are known by trace id and span id: the same again changes nothing, another content is
rejected and the first kept. What went wrong is told as OTLP does, by `partialSuccess`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field, ValidationError
from starlette.concurrency import run_in_threadpool

from service.http.limits import body_of, unpacked
from service.http.openapi import takes
from service.http.problems import problem
from service.http.running import Running, running
from telemetry.columns import Columns
from telemetry.errors import BadField, Busy, DiskFull, TooLarge
from telemetry.importers.cells import reason
from telemetry.importers.contract import Options
from telemetry.importers.otlp_rows import Taken, last_seen_ns, taken
from telemetry.importers.otlp_wire import from_json, from_protobuf
from telemetry.store.batch import Batch
from telemetry.tables import Attempt, Event, Observation

router = APIRouter(prefix="/v1", tags=["events"])
JSON, PROTOBUF = "application/json", "application/x-protobuf"
MOST_SPANS = 10_000
MOST_TOLD = 5
RETRY_S = 5
EXAMPLE: dict[str, Any] = {
    "resourceSpans": [
        {
            "resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "node-1"}}]},
            "scopeSpans": [
                {
                    "spans": [
                        {
                            "traceId": "5b8efff798038103d269b633813fc60c",
                            "spanId": "eee19b7ec3c1b174",
                            "name": "llm_request",
                            "startTimeUnixNano": "1764400000000000000",
                            "endTimeUnixNano": "1764400001200000000",
                            "attributes": [
                                {"key": "gen_ai.request.model", "value": {"stringValue": "m-7b"}},
                                {"key": "gen_ai.usage.prompt_tokens", "value": {"intValue": "64"}},
                                {"key": "gen_ai.latency.time_in_queue", "value": {"doubleValue": 0.05}},
                                {"key": "gen_ai.latency.time_to_first_token", "value": {"doubleValue": 0.2}},
                            ],
                        }
                    ]
                }
            ],
        }
    ]
}


class TracesIn(BaseModel):
    """An ExportTraceServiceRequest of OTLP."""

    resource_spans: Annotated[list[dict[str, Any]], Field(alias="resourceSpans", description="Spans by who reported them.")]


class PartialSuccess(BaseModel):
    """What was not taken."""

    rejected_spans: Annotated[str, Field(alias="rejectedSpans", description="Spans (count) not taken, as text.")] = "0"
    error_message: Annotated[str, Field(alias="errorMessage", description="Why, for the first few.")] = ""


class TracesOut(BaseModel):
    """An ExportTraceServiceResponse of OTLP."""

    partial_success: Annotated[PartialSuccess | None, Field(alias="partialSuccess", description="Absent if all went well.")] = (
        None
    )


def _takes() -> dict[str, Any]:
    """Documentation of the body, which may also be protobuf."""
    described = takes(TracesIn, EXAMPLE)
    described["requestBody"]["content"][PROTOBUF] = {"schema": {"type": "string", "format": "binary"}}
    return described


@router.post("/traces", response_model=TracesOut, openapi_extra=_takes())
async def post_traces(request: Request) -> Response:
    """Commit the spans of an OTLP exporter as attempts, events and observations."""
    at = running(request)
    media_type = request.headers.get("content-type", JSON).partition(";")[0].strip().lower()
    if media_type not in {JSON, PROTOBUF}:
        return problem(415, "unsupported-media-type", "Content-Type", media_type, f"send {JSON} or {PROTOBUF}")
    limit_bytes = at.settings.body_limit_bytes
    encoding = request.headers.get("content-encoding", "").strip().lower()
    raw = unpacked(await body_of(request, limit_bytes), encoding, limit_bytes)
    # On a thread of its own: thousands of spans take longer than a question may wait.
    done, refused = await run_in_threadpool(_read, raw, media_type)
    try:
        with at.lineup.intake:
            conflicts = await _commit(at, done) if done else {}
    except (Busy, DiskFull) as error:
        # An exporter drops what is answered by 507, and sends again what is answered by 503.
        answer = problem(503, "busy" if isinstance(error, Busy) else "disk-full", error.field, error.got, error.fix)
        answer.headers["Retry-After"] = str(RETRY_S)
        return answer
    n_rejected = len(refused) + len(conflicts)
    at.metrics.ingested("spans", ["taken"] * (len(done) - len(conflicts)) + ["refused"] * n_rejected)
    return _reply(media_type, n_rejected, [*refused, *conflicts.values()])


def _read(raw: bytes, media_type: str) -> tuple[list[Taken], list[str]]:
    """Spans of a body as rows, and why others are not taken. Raises BadField where it holds none, TooLarge past MOST_SPANS."""
    spans = from_json(raw) if media_type == JSON else from_protobuf(raw)
    if len(spans) > MOST_SPANS:
        raise TooLarge("resourceSpans", f"{len(spans)} spans", f"send at most {MOST_SPANS} spans in one request")
    done, refused = [], []
    until_ns = last_seen_ns(spans, Options())
    for span in spans:
        try:
            done.append(taken(span, Options(), until_ns))
        except (BadField, ValidationError) as error:
            refused.append(f"span {span.span_id or '?'}: {reason(error)}")
    return done, refused


async def _commit(at: Running, done: Sequence[Taken]) -> dict[str, str]:
    """Commit attempts and events, then the observations of spans without a conflict; conflicts of events by attempt."""
    rows = tuple(row for one in done for row in one.rows if not isinstance(row, Observation))
    receipt = await asyncio.wrap_future(at.store.submit(Batch(rows)))
    told = list(zip(rows, receipt.results, strict=True))
    new = [row for row, result in told if result.result == "new"]
    attempts, events = ([row for row in new if isinstance(row, table)] for table in (Attempt, Event))
    at.lineup.sightings.note(receipt.commit, Columns.of(Attempt, attempts), Columns.of(Event, events))
    conflicts = {
        row.attempt_id: f"{row.kind} of {row.attempt_id}: {result.problem}"
        for row, result in told
        if isinstance(row, Event) and result.result == "conflict"
    }
    # An observation replaces the one before it, which only the same span as before may do.
    kept = [one for one in done if one.attempt_id not in conflicts]
    inside = tuple(row for one in kept for row in one.rows if isinstance(row, Observation))
    if inside:
        await asyncio.wrap_future(at.store.submit(Batch(inside)))
    return conflicts


def _reply(media_type: str, n_rejected: int, problems: Sequence[str]) -> Response:
    """The answer in the form of the request."""
    message = "; ".join(problems[:MOST_TOLD]) + (f"; {len(problems) - MOST_TOLD} more" if len(problems) > MOST_TOLD else "")
    if media_type == JSON:
        told = {"partialSuccess": {"rejectedSpans": str(n_rejected), "errorMessage": message}} if n_rejected else {}
        return Response(orjson.dumps(told), media_type=JSON)
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    answer = ExportTraceServiceResponse()
    if n_rejected:
        answer.partial_success.rejected_spans = n_rejected
        answer.partial_success.error_message = message
    return Response(answer.SerializeToString(), media_type=PROTOBUF)
