"""Batches of 1,000 events as a recorder would send them: 125 attempts of eight boundaries each, UUIDv7 ids."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from telemetry.recorder.ids import uuid7
from telemetry.tables import Event
from telemetry.words import EventKind

ATTEMPTS, START_NS = 125, 1_780_000_000_000_000_000
KINDS = (
    EventKind.ELIGIBLE,
    EventKind.RESERVATION_COMMIT,
    EventKind.PHASE_START,
    EventKind.READY,
    EventKind.COMPUTE_START,
    EventKind.COMPUTE_FINISH,
    EventKind.PRODUCER_TERMINATED,
    EventKind.RESOURCE_RELEASED,
)
EVENTS = ATTEMPTS * len(KINDS)


@dataclass(frozen=True)
class Sent:
    """One batch in two forms: as a request's body, and as rows."""

    body: bytes
    rows: tuple[Event, ...]


def batches(n: int) -> list[Sent]:
    """This many batches, every event in them another one."""
    return [_batch(place) for place in range(n)]


def _batch(place: int) -> Sent:
    events: list[dict[str, Any]] = []
    for attempt in range(ATTEMPTS):
        attempt_id = uuid7()
        for step, kind in enumerate(KINDS):
            since_ns = (place * ATTEMPTS + attempt) * 10**9 + step * (7_000_000 + 13_000 * attempt)
            events.append({
                "event_id": uuid7(),
                "attempt_id": attempt_id,
                "kind": kind.value,
                "wall_ns": START_NS + since_ns,
                "monotonic_ns": since_ns,
                "clock_id": "bench/boot-1",
                "source": "recorder@bench:1",
            })  # fmt: skip
    return Sent(orjson.dumps({"events": events}), tuple(Event.model_validate(event) for event in events))
