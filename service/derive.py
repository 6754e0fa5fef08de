"""Committed events to observations: reads the touched attempts, and says as one batch what of their observations changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from predictors.contexts import Context
from service.lineup import RunningAttempt
from service.sightings import RunningPhase
from telemetry import asof
from telemetry.rows import Row
from telemetry.store.batch import Batch
from telemetry.store.reader import Reader
from telemetry.tables import Attempt, Event, Observation, Quarantine, StateRow
from telemetry.timelines import OBSERVED, observe
from telemetry.words import AFTERMATH, PHASES, Ended

DERIVED_TO = "derived_to"
V = TypeVar("V", Observation, Quarantine)


@dataclass
class Derived:
    """What one round found: a batch to commit (None if nothing changed), and for each touched attempt whether it still runs.

    `ended` are observations that became final, `corrected` those that were final before and that late events changed.
    """

    batch: Batch | None = None
    running: dict[str, RunningAttempt | None] = field(default_factory=dict)
    ended: list[Observation] = field(default_factory=list)
    corrected: list[Observation] = field(default_factory=list)

    def note(self, before: Observation | None, now: Observation, *, reopened: bool = False) -> None:
        """Keep an observation that is final now; `reopened` tells that it may have seemed so once before it ran on."""
        if _final(now):
            (self.corrected if reopened or (before is not None and _final(before)) else self.ended).append(now)


def _final(row: Observation) -> bool:
    """Whether the phase is over, with a length or a bound that stays."""
    return row.absence is None and row.ended is not Ended.RUNNING


def derived_to(reader: Reader) -> int:
    """Up to which commit events had been turned into observations when the store was last written."""
    found = reader.rows("SELECT value FROM state WHERE name = ? AND known_until IS NULL", (DERIVED_TO,))
    return int(orjson.loads(found[0][0])) if found else 0


def derive(reader: Reader, ids: Sequence[str], upto: int, newest: int) -> Derived:
    """Observe these attempts by what came up to `upto`; versions standing at `newest` that changed are closed and replaced.

    `newest` is at least `upto`: what an earlier round observed may have become known after events that wait for this one.
    """
    if not ids:
        return Derived()
    attempts, events = asof.attempts(reader, ids, upto), asof.events(reader, ids, upto)
    outdated, settled = asof.outdated(reader, ids, newest), asof.settled(reader, ids, newest)
    standing, held = asof.standing(reader, ids, newest), asof.quarantined(reader, ids, newest)
    observed, held_back = _by_attempt(standing), _by_attempt(held)
    done = Derived()
    rows: list[Row] = []
    closes: list[tuple[type[Row], tuple[Any, ...]]] = []
    for attempt_id in ids:
        if not events[attempt_id] or attempt_id in settled:
            continue  # its observations were imported, or their events removed: the events there are can't make them again
        timeline = observe(attempts.get(attempt_id), events[attempt_id])
        # Phases of other names come from importers only, and no event can take them back.
        mine = {key: row for key, row in observed.get(attempt_id, {}).items() if row.phase in OBSERVED}
        kept = held_back.get(attempt_id, {})
        known = {row.observation_id: row for row in timeline.observations}
        # An attempt record that came after its events changes the context of versions already known: they are written again.
        served = mine.get(f"{attempt_id}/service/0")
        for key in _replace(Observation, mine, known, outdated, rows, closes):
            # An output transfer that begins after computing had ended takes up a completion that looked like over.
            reopened = served is not None and _final(served) and known[key].phase == "completion"
            done.note(mine.get(key), known[key], reopened=reopened)
        _replace(Quarantine, kept, {row.quarantine_id: row for row in timeline.quarantined}, set(), rows, closes)
        done.running[attempt_id] = _running(attempts.get(attempt_id), events[attempt_id], timeline.observations)
    if rows or closes:
        rows.append(StateRow(name=DERIVED_TO, value=str(upto)))
        closes.append((StateRow, (DERIVED_TO,)))
        done.batch = Batch(tuple(rows), tuple(closes))
    return done


def _by_attempt(rows: Mapping[str, V]) -> dict[str, dict[str, V]]:
    """Versions grouped by their attempt: each attempt then looks at its own only."""
    grouped: dict[str, dict[str, V]] = {}
    for key, row in rows.items():
        grouped.setdefault(row.attempt_id, {})[key] = row
    return grouped


def _replace(
    table: type[Row],
    standing: Mapping[str, Row],
    known: Mapping[str, Row],
    outdated: set[str],
    rows: list[Row],
    closes: list[tuple[type[Row], tuple[Any, ...]]],
) -> list[str]:
    """Add to rows and closes what turns the `standing` versions into the `known` ones; returns the keys written."""
    written = [key for key, row in known.items() if standing.get(key) != row or key in outdated]
    rows.extend(known[key] for key in written)
    closes.extend((table, (key,)) for key in standing if key not in known or key in written)
    return written


def _running(attempt: Attempt | None, events: Sequence[Event], observations: Sequence[Observation]) -> RunningAttempt | None:
    """The open phases of an attempt, or None when its work is done."""
    open_phases = {}
    for row in observations:
        if row.ended is Ended.RUNNING and row.duration_s is not None and row.phase not in AFTERMATH:
            starts = PHASES[row.phase].starts
            start = next((e for e in events if e.kind in starts and e.wall_ns == row.started_ns), None)
            open_phases[row.phase] = RunningPhase(
                clock_id=start.clock_id if start else None,
                started_monotonic_ns=start.monotonic_ns if start else None,
                seen_s=row.duration_s,
            )
    if not open_phases:
        return None
    return RunningAttempt(Context.of(attempt.model_dump()) if attempt else Context(), open_phases)
