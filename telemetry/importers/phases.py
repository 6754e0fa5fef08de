"""One phase of an imported attempt as a row: its length and how it ended, or why it has none."""

from __future__ import annotations

from telemetry.importers.instants import Instant
from telemetry.tables import Observation, Quarantine
from telemetry.words import Absence, Clock, Ended


def phase_row(
    attempt_id: str,
    phase: str,
    duration_s: float | None,
    ended: Ended,
    *,
    start: Instant | None = None,
    cause: str | None = None,
    assumed: str | None = None,
    absence: Absence = Absence.UNOBSERVED,
) -> Observation:
    """A length in s off a wall clock that ended so; where it is None the row has `absence` instead, and keeps the cause."""
    known = duration_s is not None
    return Observation(
        observation_id=f"{attempt_id}/{phase}/0",
        attempt_id=attempt_id,
        phase=phase,
        started_ns=start.started_ns if start else None,
        started_text=start.started_text if start else None,
        duration_s=duration_s,
        ended=ended if known else None,
        cause=cause,
        absence=None if known else absence,
        clock=Clock.WALL if known else None,
        assumed=assumed if known else None,
    )


def span_row(
    attempt_id: str,
    phase: str,
    start: Instant,
    end: Instant,
    ended: Ended,
    *,
    cause: str | None = None,
    assumed: str | None = None,
) -> Observation | Quarantine | None:
    """The phase between two times of one clock; set aside where it ends before it starts, None across different zones."""
    since_ns = end.since_ns(start)
    if since_ns is None:
        return None
    if since_ns < 0:
        return Quarantine(
            quarantine_id=f"{attempt_id}/{phase}/0",
            attempt_id=attempt_id,
            phase=phase,
            reason="end_before_start",
            detail=f"start={start.text}, end={end.text}",
        )
    return phase_row(attempt_id, phase, since_ns / 10**9, ended, start=start, cause=cause, assumed=assumed)
