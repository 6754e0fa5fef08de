"""The closed vocabularies: event kinds, phases, endings, kinds of absence, clocks, statuses.

Standard library only, since the recorder imports it inside the measured process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class EventKind(StrEnum):
    """A phase boundary of an attempt, in the order of a plain attempt; the last four end one early."""

    ENQUEUE = "enqueue"
    ELIGIBLE = "eligible"
    RESERVATION_COMMIT = "reservation_commit"
    PHASE_START = "phase_start"
    CHECKPOINT_OPEN = "checkpoint_open"
    HOST_MATERIALIZED = "host_materialized"
    TRANSFER_START = "transfer_start"
    TRANSFER_FINISH = "transfer_finish"
    WARMUP_FINISH = "warmup_finish"
    READY = "ready"
    COMPUTE_START = "compute_start"
    FIRST_OUTPUT = "first_output"
    ITERATION_FINISH = "iteration_finish"
    HEARTBEAT = "heartbeat"
    COMPUTE_FINISH = "compute_finish"
    PRODUCER_TERMINATED = "producer_terminated"
    RESOURCE_RELEASED = "resource_released"
    CANCEL_REQUESTED = "cancel_requested"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


TERMINAL_KINDS = frozenset({EventKind.FAILED, EventKind.CANCELLED, EventKind.TIMED_OUT})


class Ended(StrEnum):
    """How a phase ended, or that it has not: `completed` and `failed` are events, the rest right-censored."""

    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    RUNNING = "running"
    LOST = "lost"


CENSORED = frozenset({Ended.CANCELLED, Ended.TIMED_OUT, Ended.RUNNING, Ended.LOST})
"""`lost`: last seen at that length, never seen to end; also what lies above the last bucket of a histogram."""


class Absence(StrEnum):
    """Why a phase has no duration. Censored is not among them: a censored phase has a lower bound."""

    NOT_APPLICABLE = "not_applicable"
    UNOBSERVED = "unobserved"
    LAUNCH_ONLY = "launch_only"


class Clock(StrEnum):
    """Which clock a duration was read from, best first."""

    DEVICE = "device"
    MONOTONIC = "monotonic"
    WALL = "wall"


class State(StrEnum):
    """State of what an attempt loads; imported tables may carry names of their own."""

    COLD = "cold"
    CACHED = "cached"
    CACHE_UNKNOWN = "cache_unknown"
    RESIDENT = "resident"


class CancelReason(StrEnum):
    """Why an attempt was cancelled; policy cancellations can be informative about its length."""

    USER = "user"
    POLICY = "policy"
    SHUTDOWN = "shutdown"
    UNKNOWN = "unknown"


class Status(StrEnum):
    """What an answer may be used for, in order of precedence."""

    SHADOW = "shadow"
    EXTRAPOLATED = "extrapolated"
    THIN = "thin"
    CALIBRATED = "calibrated"


class Purpose(StrEnum):
    """Whether an attempt was somebody's work or a granted probe of the host."""

    WORK = "work"
    CALIBRATION = "calibration"


class Scope(StrEnum):
    """What a token is good for: sending what happened, asking, or everything."""

    INGEST = "ingest"
    QUERY = "query"
    ADMIN = "admin"


@dataclass(frozen=True)
class Phase:
    """A span between two boundaries.

    `starts` and `ends` list alternatives, the first one present counts; `in_setup` marks what a resident
    model does not have; `repeats` tells spans apart by the event's `stage_index`.
    """

    name: str
    starts: tuple[EventKind, ...]
    ends: tuple[EventKind, ...]
    in_setup: bool = False
    repeats: bool = False


_K = EventKind
PHASES: dict[str, Phase] = {
    phase.name: phase
    for phase in (
        Phase("eligibility_wait", (_K.ENQUEUE,), (_K.ELIGIBLE,)),
        Phase("queue", (_K.ELIGIBLE,), (_K.RESERVATION_COMMIT,)),
        Phase("owner_wait", (_K.RESERVATION_COMMIT,), (_K.PHASE_START,)),
        Phase("open", (_K.PHASE_START,), (_K.CHECKPOINT_OPEN,), in_setup=True),
        Phase("read", (_K.CHECKPOINT_OPEN,), (_K.HOST_MATERIALIZED,), in_setup=True),
        Phase("transfer", (_K.TRANSFER_START,), (_K.TRANSFER_FINISH,), in_setup=True, repeats=True),
        Phase("warmup", (_K.TRANSFER_FINISH, _K.HOST_MATERIALIZED), (_K.WARMUP_FINISH,), in_setup=True),
        Phase("setup", (_K.PHASE_START,), (_K.READY,), in_setup=True),
        Phase("time_to_first_output", (_K.COMPUTE_START,), (_K.FIRST_OUTPUT,)),
        Phase("service", (_K.COMPUTE_START,), (_K.COMPUTE_FINISH,)),
        Phase("drain", (_K.COMPUTE_FINISH,), (_K.PRODUCER_TERMINATED,)),
        Phase("release", (_K.PRODUCER_TERMINATED,), (_K.RESOURCE_RELEASED,)),
        Phase("completion", (_K.ELIGIBLE,), (_K.COMPUTE_FINISH,)),
    )
}

AFTERMATH = ("drain", "release")
"""What follows the work itself. Many sources never mark its end, and an attempt does not run on for that."""
IMPORTED_GRANT = "imported"
"""Stands for the grant of a profile read from somebody else's file: nobody was asked for it here."""
