"""What was just committed of running attempts, before upkeep has made observations of it.

Kept and read by the thread that takes events in and answers; upkeep's view takes over as soon as it has seen the commit.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

from predictors.contexts import Context
from telemetry.columns import Columns
from telemetry.words import PHASES, EventKind

MOST = 10_000
"""Attempts remembered; upkeep catches up long before that many others start."""
OPENED: dict[EventKind, tuple[str, ...]] = {k: tuple(p.name for p in PHASES.values() if k in p.starts) for k in EventKind}
ORDER: list[EventKind] = [
    k for k in EventKind if k not in {EventKind.ITERATION_FINISH, EventKind.HEARTBEAT, EventKind.CANCEL_REQUESTED}
]
CLOSED: dict[EventKind, tuple[str, ...]] = {
    k: tuple(p.name for p in PHASES.values() if ORDER.index(p.ends[0]) <= ORDER.index(k)) for k in ORDER
}
"""Phases that a boundary ends or shows to be over; the terminal kinds, which come last, end all."""


@dataclass(frozen=True, slots=True)
class RunningPhase:
    """An open phase: where it started on the source's clock, and the age its newest event proves."""

    clock_id: str | None
    started_monotonic_ns: int | None
    seen_s: float


@dataclass(slots=True)
class Sighting:
    """An attempt as its newest events tell: phases seen to start and not to end, as of `commit`."""

    commit: int = 0
    context: Context = field(default_factory=Context)
    phases: dict[str, RunningPhase] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)


class Sightings:
    """The attempts seen last."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, Sighting] = OrderedDict()

    def note(self, commit: int, attempts: Columns, events: Columns) -> None:
        """Take in the attempts and events that became known at `commit`."""
        names = tuple(attempts.values)
        for values in attempts.tuples():
            record = dict(zip(names, values, strict=True))
            self._at(record["attempt_id"], commit).context = Context.of(record)
        boundaries = events.tuples("attempt_id", "kind", "clock_id", "monotonic_ns")
        for attempt_id, its_own in groupby(boundaries, key=itemgetter(0)):
            seen = self._at(attempt_id, commit)
            for _, kind, clock_id, monotonic_ns in its_own:
                _mark(seen, kind, clock_id, monotonic_ns)

    def of(self, attempt_id: str, after: int) -> Sighting | None:
        """The attempt, if anything of it was committed after `after`."""
        found = self._seen.get(attempt_id)
        return found if found is not None and found.commit > after else None

    def _at(self, attempt_id: str, commit: int) -> Sighting:
        found = self._seen.get(attempt_id)
        if found is None:
            found = self._seen[attempt_id] = Sighting()
        found.commit = commit
        self._seen.move_to_end(attempt_id)
        if len(self._seen) > MOST:
            self._seen.popitem(last=False)
        return found


def _mark(seen: Sighting, kind: EventKind, clock_id: str | None, monotonic_ns: int | None) -> None:
    """Open and close phases by one event; a phase seen to be over does not open again by an event that comes late."""
    over = CLOSED.get(kind, ())
    if seen.phases:
        for name in over:
            seen.phases.pop(name, None)
    seen.closed.update(over)
    for name in OPENED[kind]:
        if name not in seen.closed and name not in seen.phases:
            seen.phases[name] = RunningPhase(clock_id, monotonic_ns, 0.0)
