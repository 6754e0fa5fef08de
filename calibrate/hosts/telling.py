"""Runs of probes as attempts and events: the same telemetry as real work, marked `calibration`: no model learns from them."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from calibrate.hosts.run import ProbeRun
from telemetry.recorder.ids import clock_id, uuid7
from telemetry.rows import Row
from telemetry.samples import processor_name
from telemetry.tables import Attempt, Event
from telemetry.words import CancelReason, EventKind, Purpose

FAMILY = "probe"


def rows_of(runs: Sequence[ProbeRun], grant_id: str) -> list[Row]:
    """An attempt and its events for each run that began; `grant_id` is their run."""
    return [row for run in runs if run.ended_ns for row in _rows(run, grant_id)]


def _rows(run: ProbeRun, grant_id: str) -> list[Row]:
    host, attempt_id = socket.gethostname(), uuid7()
    attempt = Attempt(
        attempt_id=attempt_id,
        run_id=grant_id,
        node_id=run.probe.name,
        purpose=Purpose.CALIBRATION,
        host=host,
        device=run.device or processor_name(),
        family=FAMILY,
        model=run.probe.granted_as,
        runtime=run.told.facts.get("backend"),
    )

    def event(kind: EventKind, at_ns: int, reason: str | None = None) -> Event:
        return Event(
            event_id=uuid7(),
            attempt_id=attempt_id,
            kind=kind,
            wall_ns=run.wall_ns + at_ns - run.began_ns,
            monotonic_ns=at_ns,
            clock_id=clock_id(),
            source=f"calibrate@{host}",
            reason=reason,
        )

    begin = event(EventKind.COMPUTE_START, run.began_ns)
    if run.attended.ended_by is not None:
        stopped = (event(kind, run.ended_ns, CancelReason.POLICY) for kind in (EventKind.CANCEL_REQUESTED, EventKind.CANCELLED))
        return [attempt, begin, *stopped]
    if run.failed is not None:
        return [attempt, begin, event(EventKind.FAILED, run.ended_ns, run.failed)]
    return [attempt, begin, event(EventKind.COMPUTE_FINISH, run.ended_ns)]
