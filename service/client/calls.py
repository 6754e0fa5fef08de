"""What to send and how to read it, without I/O: shared by every client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from service.schemas import AnswersOut, Problem
from telemetry.errors import BadField, Busy, DiskFull, NoEvidence, NotReached, PhasecastError, TooLarge, UnknownId

_BY_TYPE: dict[str, type[PhasecastError]] = {
    "bad-field": BadField,
    "busy": Busy,
    "disk-full": DiskFull,
    "no-evidence": NoEvidence,
    "too-large": TooLarge,
    "unknown-id": UnknownId,
}


@dataclass(frozen=True)
class Call:
    """One HTTP call."""

    method: str
    path: str
    body: bytes | None = None


def predict(
    contexts: Sequence[Mapping[str, Any]],
    phases: Sequence[str],
    levels: Sequence[float] | None = None,
    attempt_ids: Sequence[str] | None = None,
) -> Call:
    """Ask how long each phase of each context will take."""
    body: dict[str, Any] = {"contexts": list(contexts), "phases": list(phases)}
    if levels is not None:
        body["levels"] = list(levels)
    if attempt_ids is not None:
        body["attempt_ids"] = list(attempt_ids)
    return Call("POST", "/v1/predict", orjson.dumps(body))


def residual(running: Sequence[Mapping[str, Any]], levels: Sequence[float] | None = None) -> Call:
    """Ask how much longer running phases will take."""
    body: dict[str, Any] = {"running": list(running)}
    if levels is not None:
        body["levels"] = list(levels)
    return Call("POST", "/v1/residual", orjson.dumps(body))


def ingest(attempts: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> Call:
    """Send attempts and events."""
    return Call("POST", "/v1/events", orjson.dumps({"attempts": list(attempts), "events": list(events)}))


def refused(status: int, body: bytes) -> PhasecastError:
    """The error a problem document stands for."""
    try:
        told = Problem.model_validate_json(body)
    except ValueError:
        return NotReached("api", f"status {status}", "this is not a Phasecast API; check the address")
    return _BY_TYPE.get(told.type.rsplit(":", 1)[-1], PhasecastError)(told.field, told.got, told.fix)


def answers(status: int, body: bytes) -> AnswersOut:
    """Answers of predict and residual."""
    if status != 200:
        raise refused(status, body)
    return AnswersOut.model_validate_json(body)


def document(status: int, body: bytes) -> dict[str, Any]:
    """Any other JSON answer."""
    if status != 200:
        raise refused(status, body)
    found: dict[str, Any] = orjson.loads(body)
    return found
