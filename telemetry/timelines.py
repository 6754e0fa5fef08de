"""Timelines: the events of one attempt to its observations, one per phase and segment. Pure, and blind to arrival order.

Rules
* The first mark of a kind wins. A second `eligible` after a reservation opens the next segment of `queue`; transfers are
  told apart by `stage_index` (absent counts as 0).
* A phase completes at its end. `failed` and `timed_out` interrupt the phases open at that moment. A cancellation counts from
  its request: phases open then are censored there, unless the attempt was never confirmed `cancelled` and they went on to end.
* A phase that was begun, not ended and not interrupted is running, known to last until the attempt's newest event on the
  clock of its start. Where a later boundary shows that its end went unseen, it is unobserved.
* A collector that joins mid-phase sends the phase's start kind when it joins, with the attribute `{"phase_age_s": x}`: the
  phase was x s old then. The row's entry_s is x and its duration counts from the true start.
* A quarantined span has no observation. An absent phase has a row without duration, once the attempt is over or a
  boundary shows that its span can no longer be seen whole; `transfer` only has rows where a transfer was reported.
* A boundary marked `launch_only` is when launching device work ended, and nobody knows when the work did: what it bounds is
  absent as launch_only, unless an honest mark of the same kind came too. `launch` is compute start to that mark.
* `completion` ends with the last transfer that carries results out, where one is still to end when computing has.
* Any event is a proof of life at its time, `iteration_finish` and `heartbeat` are nothing else; token counts stay in the events.
* An event of wall time 0 (and no monotonic reading) carries no time, as exporters write it for "not ended": passed over.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.clocks import NS_PER_S, Length, Unusable, device_length, host_length
from telemetry.errors import BadField
from telemetry.spans import LAUNCH, RANK, Record, Span, Stop, in_time_order, launch_of, spans_of
from telemetry.tables import Attempt, Event, Observation, Quarantine
from telemetry.words import AFTERMATH, PHASES, Absence, Clock, Ended, EventKind, State

_K = EventKind
# Boundaries that no attempt crosses out of order. Transfers may overlap reading and computing, progress marks prove nothing.
_SPINE = (
    *(_K.ELIGIBLE, _K.RESERVATION_COMMIT, _K.PHASE_START, _K.CHECKPOINT_OPEN, _K.HOST_MATERIALIZED, _K.WARMUP_FINISH),
    *(_K.READY, _K.COMPUTE_START, _K.COMPUTE_FINISH, _K.PRODUCER_TERMINATED, _K.RESOURCE_RELEASED),
)
_BESIDE_TRANSFERS = frozenset({_K.COMPUTE_START, _K.COMPUTE_FINISH})
_SHARING_ENDS = frozenset({"completion", LAUNCH.name})
_AFTER_ALL = frozenset({"transfer", "completion", *AFTERMATH})
OBSERVED = frozenset({*PHASES, LAUNCH.name})
"""Names of phases that events can make observations of; those of any other name were imported."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the events of one attempt say, in the order of the phase table."""

    observations: tuple[Observation, ...]
    quarantined: tuple[Quarantine, ...]


def observe(attempt: Attempt | None, events: Sequence[Event]) -> Timeline:
    """Observations and quarantined spans of one attempt; the same for any order and repetition of its events.

    attempt: its record if it has arrived; without it a resident model's setup reads as unobserved.
    events: all events of this attempt known so far. Raises BadField if they belong to several attempts.
    Ids are `attempt_id/phase/segment`.
    """
    ids = {event.attempt_id for event in events} | ({attempt.attempt_id} if attempt else set())
    if len(ids) > 1:
        raise BadField("attempt_id", sorted(ids), "pass the events of one attempt at a time")
    if not events:
        return Timeline((), ())
    record = Record(ids.pop(), attempt is not None and attempt.state == State.RESIDENT, in_time_order(events))
    spans = [span for phase in PHASES.values() for span in spans_of(phase, record)]
    if launched := launch_of(record):
        spans.append(launched)
    rows = [_settle(span, record) for span in spans]
    return Timeline(
        tuple(row for row in rows if isinstance(row, Observation)), tuple(row for row in rows if isinstance(row, Quarantine))
    )


def _settle(span: Span, record: Record) -> Observation | Quarantine | None:
    """The row of one span, or None while nothing can be said about it."""
    start, end, stop = span.start, span.end, record.stop
    if record.resident and span.phase.in_setup and (start is None or end is None):
        return _absent(span, record, Absence.NOT_APPLICABLE) if record.over else None
    if start is None:
        return _absent(span, record, Absence.UNOBSERVED) if record.over or end is not None else None
    if not start.launch_only and stop is not None and _interrupts(stop, span, start, record):
        return _measured(span, start, stop.at, record, stop.ended, stop.cause)
    if span.phase is not LAUNCH and (start.launch_only or (end is not None and end.launch_only)):
        return _absent(span, record, Absence.LAUNCH_ONLY)
    if end is not None:
        return _measured(span, start, end, record, Ended.COMPLETED, None)
    return _open(span, start, record)


def _open(span: Span, start: Event, record: Record) -> Observation | Quarantine:
    """The row of a span that was begun, and not seen to end."""
    begun_in_vain = record.stop is not None and record.stop.confirmed and record.before(start, record.stop.by)
    # Whichever way clocks put the two, what has ended computes no more; only its results may still be carried out.
    begun_after_all = record.over and span.phase.name not in _AFTER_ALL
    if begun_in_vain or begun_after_all or _overtaking(span, start, record) is not None:
        return _absent(span, record, Absence.UNOBSERVED)
    return _running(span, start, record)


def _interrupts(stop: Stop, span: Span, start: Event, record: Record) -> bool:
    """Whether the span was open when the attempt was stopped."""
    if record.before(stop.at, start):
        return False
    end = span.end or _overtaking(span, start, record)
    return end is None or (stop.confirmed and record.before(stop.at, end))


def _overtaking(span: Span, start: Event, record: Record) -> Event | None:
    """The first boundary after an open span's start that shows it to be over, at a moment nobody saw."""
    last_end = max(RANK[kind] for kind in span.phase.ends)
    proofs = {kind for kind in _SPINE if RANK[kind] > last_end}
    if span.phase.repeats:
        proofs -= _BESIDE_TRANSFERS
    if span.phase.name == "owner_wait":
        proofs.add(_K.ELIGIBLE)  # back in the queue
    return next((event for event in record.events if event.kind in proofs and record.before(start, event)), None)


def _measured(span: Span, start: Event, end: Event, record: Record, ended: Ended, cause: str | None) -> Observation | Quarantine:
    """A span with a length: device reading of its own end first, then the host's clocks; or why it has none."""
    age_s = _age_s(start)
    if isinstance(age_s, Unusable):
        return _quarantined(span, record, age_s)
    length = host_length(start, end)
    counted_from_s = age_s
    # An event's device reading belongs to the one phase it ends; others may share that end.
    if end is span.end and end.device_elapsed_s is not None and span.phase.name not in _SHARING_ENDS:
        length, counted_from_s = device_length(end.device_elapsed_s, length, age_s), 0.0
    if isinstance(length, Unusable):
        return _quarantined(span, record, length)
    if counted_from_s + length.length_s < age_s:
        return _quarantined(span, record, Unusable("end_before_entry", f"entry={age_s} s, length={length.length_s} s"))
    return _row(span, start, record, age_s, counted_from_s + length.length_s, ended, cause, length.clock)


def _running(span: Span, start: Event, record: Record) -> Observation | Quarantine:
    """An open span, as long as the attempt's newest event on the clock of its start shows it to be.

    A suspended host stops its monotonic clock, so this stays a lower bound whatever the wall says.
    """
    age_s = _age_s(start)
    if isinstance(age_s, Unusable):
        return _quarantined(span, record, age_s)
    if start.clock_id is not None and start.monotonic_ns is not None:
        on_clock = [event.monotonic_ns for event in record.events if event.clock_id == start.clock_id]
        since_ns = max(reading for reading in on_clock if reading is not None) - start.monotonic_ns
        clock = Clock.MONOTONIC
    else:
        lengths = [host_length(start, event) for event in record.events]
        since_ns = max(round(found.length_s * NS_PER_S) for found in lengths if isinstance(found, Length))
        clock = Clock.WALL
    return _row(span, start, record, age_s, age_s + since_ns / NS_PER_S, Ended.RUNNING, None, clock)


def _age_s(start: Event) -> float | Unusable:
    """Age of the phase at its first event: 0, or what a collector that joined late says; attributes are the source's own text."""
    if start.attributes is None or "phase_age_s" not in start.attributes:
        return 0.0
    try:
        attributes = json.loads(start.attributes)
    except ValueError:
        return 0.0
    age_s = attributes.get("phase_age_s", 0.0) if isinstance(attributes, dict) else 0.0
    is_number = isinstance(age_s, int | float) and not isinstance(age_s, bool)
    if not is_number or not 0 <= age_s <= start.wall_ns / NS_PER_S:  # before 1970 nothing began
        return Unusable("bad_phase_age", f"phase_age_s={str(age_s)[:40]}; a number of s from 0 was expected")
    return float(age_s)


def _row(
    span: Span, start: Event, record: Record, entry_s: float, duration_s: float, ended: Ended, cause: str | None, clock: Clock
) -> Observation:
    """An observation with a duration; its start lies before its first event by the entry."""
    return Observation(
        observation_id=_id(span, record),
        attempt_id=record.attempt_id,
        phase=span.phase.name,
        segment=span.segment,
        started_ns=max(0, start.wall_ns - round(entry_s * NS_PER_S)),
        entry_s=entry_s,
        duration_s=duration_s,
        ended=ended,
        cause=cause,
        clock=clock,
    )


def _absent(span: Span, record: Record, absence: Absence) -> Observation:
    """An observation that says why there is no duration."""
    return Observation(
        observation_id=_id(span, record),
        attempt_id=record.attempt_id,
        phase=span.phase.name,
        segment=span.segment,
        started_ns=span.start.wall_ns if span.start else None,
        absence=absence,
    )


def _quarantined(span: Span, record: Record, why: Unusable) -> Quarantine:
    """A span that could not be used."""
    return Quarantine(
        quarantine_id=_id(span, record),
        attempt_id=record.attempt_id,
        phase=span.phase.name,
        reason=why.reason,
        detail=why.detail,
    )


def _id(span: Span, record: Record) -> str:
    """attempt_id/phase/segment."""
    return f"{record.attempt_id}/{span.phase.name}/{span.segment}"
