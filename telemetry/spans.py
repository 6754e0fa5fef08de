"""One attempt's events in time order, cut into the segments of each phase. Pure; lengths are read elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from telemetry.tables import Event
from telemetry.words import PHASES, TERMINAL_KINDS, CancelReason, Ended, EventKind, Phase

_K = EventKind
RANK = {kind: rank for rank, kind in enumerate(EventKind)}
"""Place of a kind in a plain attempt; orders events of one instant."""
LAUNCH = Phase("launch", (_K.COMPUTE_START,), (_K.COMPUTE_FINISH,))
"""Host time spent handing work to a device, where `compute_finish` says `launch_only`. No length of the work itself."""
INTO_DEVICE = "host_to_device"
"""Direction of a transfer that is never one of output."""


@dataclass(frozen=True, slots=True)
class Span:
    """One segment of a phase, as far as its boundaries were seen."""

    phase: Phase
    segment: int
    start: Event | None
    end: Event | None


@dataclass(frozen=True, slots=True)
class Stop:
    """What ended the attempt early: the moment that counts, the event that made it final, and how that reads in a row."""

    at: Event
    by: Event
    ended: Ended
    cause: str | None

    @property
    def confirmed(self) -> bool:
        """False for a mere request for cancellation, which the attempt may still outrun."""
        return self.by.kind in TERMINAL_KINDS


@dataclass(frozen=True)
class Record:
    """Events of one attempt in time order, without repeats."""

    attempt_id: str
    resident: bool
    events: tuple[Event, ...]

    @cached_property
    def place(self) -> dict[str, int]:
        """Position in time order by event_id."""
        return {event.event_id: index for index, event in enumerate(self.events)}

    @cached_property
    def kinds(self) -> dict[EventKind, list[Event]]:
        """Events by kind, in time order."""
        found: dict[EventKind, list[Event]] = {}
        for event in self.events:
            found.setdefault(event.kind, []).append(event)
        return found

    @cached_property
    def firsts(self) -> dict[EventKind, Event]:
        """The mark that counts of each kind."""
        return {kind: mark for kind, events in self.kinds.items() if (mark := _first_mark(events)) is not None}

    @cached_property
    def transfers(self) -> list[Span]:
        """One span per stage index that was reported."""
        return _stage_spans(PHASES["transfer"], self)

    @cached_property
    def stop(self) -> Stop | None:
        """The earliest interruption, if any. Without a terminal event that is a request for cancellation."""
        request = self.first(_K.CANCEL_REQUESTED)
        stops = [
            Stop(event, event, ended, event.reason)
            for kind, ended in ((_K.FAILED, Ended.FAILED), (_K.TIMED_OUT, Ended.TIMED_OUT))
            if (event := self.first(kind)) is not None
        ]
        confirmed = self.first(_K.CANCELLED)
        if confirmed is not None or (request is not None and not stops):
            stops.append(_cancelled(request, confirmed))
        return min(stops, key=lambda stop: self.place[stop.at.event_id], default=None)

    @property
    def over(self) -> bool:
        """Whether the attempt has computed its result or was ended early."""
        return any(kind in self.kinds for kind in (_K.COMPUTE_FINISH, *TERMINAL_KINDS))

    def first(self, *kinds: EventKind) -> Event | None:
        """First mark of the first kind present; see `_first_mark`."""
        for kind in kinds:
            if kind in self.firsts:
                return self.firsts[kind]
        return None

    def before(self, one: Event, other: Event) -> bool:
        """Whether `one` comes strictly before `other`."""
        return self.place[one.event_id] < self.place[other.event_id]


def _first_mark(events: Sequence[Event]) -> Event | None:
    """The first of some events of one kind; one that ends a launch only counts where there is no other."""
    return next((event for event in events if not event.launch_only), events[0] if events else None)


def in_time_order(events: Iterable[Event]) -> tuple[Event, ...]:
    """Distinct dated events by time: monotonic where all share one clock, since the wall may have been stepped."""
    dated = {event.event_id: event for event in events if event.wall_ns or event.monotonic_ns}.values()
    one_clock = len({event.clock_id for event in dated}) == 1 and all(
        event.clock_id is not None and event.monotonic_ns is not None for event in dated
    )

    def key(event: Event) -> tuple[int, int, str]:
        time_ns = event.monotonic_ns if one_clock and event.monotonic_ns is not None else event.wall_ns
        return (time_ns, RANK[event.kind], event.event_id)

    return tuple(sorted(dated, key=key))


def _cancelled(request: Event | None, confirmed: Event | None) -> Stop:
    """The cancellation counted from its request where there is one; at least one of the two is given."""
    at, by = request or confirmed, confirmed or request
    assert at is not None
    assert by is not None
    return Stop(at, by, Ended.CANCELLED, at.reason or by.reason or CancelReason.UNKNOWN.value)


def spans_of(phase: Phase, record: Record) -> list[Span]:
    """The segments of a phase. All but queue and transfer have exactly one, which may lack both boundaries."""
    if phase.name == "queue":
        return _queue_spans(phase, record)
    if phase.repeats:
        return record.transfers
    end = record.first(*phase.ends)
    if phase.name == "warmup":
        return [Span(phase, 0, _warmup_start(record, end), end)]
    if phase.name == "owner_wait":
        return [Span(phase, 0, _owner_wait_start(record, end), end)]
    if phase.name == "completion":
        return [Span(phase, 0, record.first(*phase.starts), _completion_end(record))]
    return [Span(phase, 0, record.first(*phase.starts), end)]


def launch_of(record: Record) -> Span | None:
    """The span from compute start to the first finish that was one of launching only, if that was marked."""
    start = record.first(*LAUNCH.starts)
    launched = next((event for event in record.kinds.get(_K.COMPUTE_FINISH, ()) if event.launch_only), None)
    return Span(LAUNCH, 0, start, launched) if start is not None and launched is not None else None


def _queue_spans(phase: Phase, record: Record) -> list[Span]:
    """Waits for a reservation: a wait lasts from the first mark of being eligible to the first reservation after it."""
    marks = [event for event in record.events if event.kind in (*phase.starts, *phase.ends)]
    spans: list[Span] = []
    waiting: Event | None = None
    for mark in marks:
        if mark.kind in phase.starts:
            waiting = waiting or mark
        elif waiting is not None:
            spans.append(Span(phase, len(spans), waiting, mark))
            waiting = None
    if waiting is not None or not spans:
        # Without any finished wait, a reservation from before the mark is this wait's end, and wrong: it must not vanish.
        spans.append(Span(phase, len(spans), waiting, None if spans else record.first(*phase.ends)))
    return spans


def _stage_spans(phase: Phase, record: Record) -> list[Span]:
    """The spans of a phase that repeats, in order of their stage."""
    found: dict[int, dict[EventKind, list[Event]]] = {}
    for event in record.events:
        if event.kind in (*phase.starts, *phase.ends):
            found.setdefault(event.stage_index or 0, {}).setdefault(event.kind, []).append(event)
    return [
        Span(phase, stage, _first_mark(seen.get(phase.starts[0], ())), _first_mark(seen.get(phase.ends[0], ())))
        for stage, seen in sorted(found.items())
    ]


def _completion_end(record: Record) -> Event | None:
    """The last finish of an output transfer, else the end of computing; none while an output transfer is under way."""
    computed = record.first(_K.COMPUTE_FINISH)
    if computed is None:
        return None
    ends = [stage.end for stage in record.transfers if _is_output(stage, computed, record)]
    if any(end is None for end in ends):
        return None
    return max((computed, *(end for end in ends if end is not None)), key=lambda event: record.place[event.event_id])


def _is_output(stage: Span, computed: Event, record: Record) -> bool:
    """Whether a transfer carries results: it was still to end when computing had, and did not bring the input.

    What was begun before computing is input. Where computing was only launched, so is what was begun before that mark.
    """
    if INTO_DEVICE in {event.direction for event in (stage.start, stage.end) if event is not None}:
        return False
    if stage.end is not None and record.before(stage.end, computed):
        return False
    from_here = computed if computed.launch_only else record.first(_K.COMPUTE_START) or computed
    return stage.start is None or record.before(from_here, stage.start)


def _owner_wait_start(record: Record, end: Event | None) -> Event | None:
    """The reservation that led to the phase start: that of the last wait in the queue before it, else the first mark."""
    waits = [span.end for span in _queue_spans(PHASES["queue"], record) if span.end is not None]
    in_time = [wait for wait in waits if end is None or record.before(wait, end)]
    return in_time[-1] if in_time else record.first(_K.RESERVATION_COMMIT)


def _warmup_start(record: Record, end: Event | None) -> Event | None:
    """The last transfer's finish before the warm-up was over, else host materialisation; none while a transfer is under way.

    Where its end was not seen, it was over when the attempt was ready: transfers after that carry something else.
    """
    over = end or record.first(_K.READY, _K.COMPUTE_START, _K.COMPUTE_FINISH)
    if over is None and any(stage.end is None for stage in record.transfers):
        return None
    finishes = [stage.end for stage in record.transfers if stage.end is not None]
    in_time = [finish for finish in finishes if over is None or record.before(finish, over)]
    if in_time:
        return max(in_time, key=lambda finish: record.place[finish.event_id])
    return record.first(_K.HOST_MATERIALIZED) or (finishes[0] if finishes and end is not None else None)
