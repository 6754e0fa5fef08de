"""Events of one attempt on given clocks, and what a timeline says of them, in short."""

from __future__ import annotations

from typing import Any

from telemetry.tables import Event, Observation
from telemetry.timelines import Timeline

S = 1_000_000_000
WALL_NS = 1_700_000_000 * S
HERE = "host-a/boot-1"


def event(kind: str, at_s: float, **fields: Any) -> Event:
    """An event of attempt `a` at `at_s` on both clocks of one process."""
    values = {
        "event_id": f"{kind}@{at_s}",
        "attempt_id": "a",
        "kind": kind,
        "wall_ns": WALL_NS + round(at_s * S),
        "monotonic_ns": 5_000 * S + round(at_s * S),
        "clock_id": HERE,
        "source": "recorder@host-a:1",
    }
    return Event(**{**values, **fields})


def wall_only(kind: str, at_s: float, **fields: Any) -> Event:
    return event(kind, at_s, **{"monotonic_ns": None, "clock_id": None, **fields})


def rows(timeline: Timeline) -> dict[str, Observation]:
    """Observations by `phase` or `phase/segment` past the first."""
    return {f"{o.phase}/{o.segment}" if o.segment else o.phase: o for o in timeline.observations}


def lengths(timeline: Timeline) -> dict[str, tuple[float, str]]:
    return {name: (o.duration_s, o.ended) for name, o in rows(timeline).items() if o.duration_s is not None}


def reasons(timeline: Timeline) -> dict[str, str]:
    return {q.phase: q.reason for q in timeline.quarantined}
