"""What to send and how to read it, without I/O: shared by every client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson
from pydantic import BaseModel

from service.schemas import Problem
from telemetry.errors import BadField, Busy, DiskFull, NoEvidence, NotReached, PhasecastError, TooLarge, UnknownId

_BY_TYPE: dict[str, type[PhasecastError]] = {
    "bad-field": BadField,
    "busy": Busy,
    "disk-full": DiskFull,
    "no-evidence": NoEvidence,
    "too-large": TooLarge,
    "unknown-id": UnknownId,
}
A = TypeVar("A", bound=BaseModel)


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


def chance(plans: Sequence[Mapping[str, Any]], seed: int = 0) -> Call:
    """Ask with what probability plans complete by their deadlines."""
    return Call("POST", "/v1/chance", orjson.dumps({"plans": list(plans), "seed": seed}))


def latest_start(questions: Sequence[Mapping[str, Any]], seed: int = 0) -> Call:
    """Ask when loads must start at the latest."""
    return Call("POST", "/v1/latest-start", orjson.dumps({"questions": list(questions), "seed": seed}))


def scenarios(attempts: Sequence[Mapping[str, Any]], n_scenarios: int, seed: int = 0) -> Call:
    """Ask for joint draws of setup and service."""
    body = {"attempts": list(attempts), "n_scenarios": n_scenarios, "seed": seed}
    return Call("POST", "/v1/scenarios", orjson.dumps(body))


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


def answer(kind: type[A], status: int, body: bytes) -> A:
    """An answer of the given form."""
    if status != 200:
        raise refused(status, body)
    return kind.model_validate_json(body)


def document(status: int, body: bytes) -> dict[str, Any]:
    """Any other JSON answer."""
    if status != 200:
        raise refused(status, body)
    found: dict[str, Any] = orjson.loads(body)
    return found
