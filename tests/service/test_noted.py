"""A host that slows down, or work never seen, while it is served: on record, kept out of decisions, given again by a replay."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from calibrate.evidence.reactions import Note
from predictors.contexts import Context
from service import reporting
from service.engine import Asking, Question, ask
from service.noted import GONE, Noted, change_id
from service.replay import replay
from telemetry.asof_verdicts import drift_noted
from telemetry.store.batch import Batch
from telemetry.store.reader import open_reader
from telemetry.tables import Attempt, Event
from telemetry.verdicts import Change
from telemetry.words import EventKind
from tests.service.living import Living

HERE = Context(host="north", family="sort", model="quick")
START_NS, S = 1_800_000_000_000_000_000, 1_000_000_000


def work(first: int, durations_s: Sequence[float], context_of: Callable[[int], Context] = lambda _row: HERE) -> Batch:
    """Attempts of one kind, one after the other, of the contexts that their numbers have."""
    rows: list[Attempt | Event] = []
    for row, duration_s in enumerate(durations_s, first):
        rows.append(Attempt(attempt_id=f"a{row:04}", **context_of(row).known()))
        begun_ns = row * 100 * S
        marks = ((EventKind.COMPUTE_START, begun_ns), (EventKind.COMPUTE_FINISH, begun_ns + round(duration_s * S)))
        for kind, at_ns in marks:
            rows.append(
                Event(
                    event_id=f"a{row:04}-{kind}",
                    attempt_id=f"a{row:04}",
                    kind=kind,
                    wall_ns=START_NS + at_ns,
                    monotonic_ns=at_ns,
                    clock_id="north/1",
                    source="test/north",
                )
            )
    return Batch(tuple(rows))


def newcomer(row: int) -> Context:
    return replace(HERE, model=f"v{row}")


def lasting(n: int, factor: float = 1.0) -> list[float]:
    return (factor * np.exp(0.3 * np.random.default_rng(int(10 * factor)).normal(size=n))).tolist()


def asked(living: Living, name: str, context: Context = HERE) -> dict[str, object]:
    """An answer, and its row for the ledger."""
    [answered] = ask(living.lineup.serving, [Question("service", context)], Asking((0.5, 0.9), "r", (name,), START_NS))
    assert answered.row is not None
    living.lineup.ledger.append(answered.row)
    told: dict[str, object] = json.loads(answered.body)
    return told


def slowed_down(living: Living) -> None:
    living.store.write(work(0, lasting(150)))
    living.settle()
    asked(living, "before")
    for first in range(150, 180, 10):
        living.store.write(work(first, lasting(10, 3.0)))
        living.upkeep.tick()
    living.settle()


def noted(living: Living) -> dict[tuple[str, str], Change]:
    with living.store.reader() as reader:
        return {(row.kind, row.action): row for row in drift_noted(reader, living.store.last_commit).values()}


def test_a_slow_down_is_on_record_and_answers_leave_decisions_until_later_ones_have_come_true(
    revive: Callable[[], Living], tmp_path: Path
) -> None:
    living = revive()
    slowed_down(living)
    found = noted(living)
    assert {("drift", "higher"), ("reaction", "shorten_memory"), ("reaction", "shadow_only")} <= set(found)
    drift = found["drift", "higher"]
    told = json.loads(drift.evidence)
    assert ("rule", "service", "sort") == (drift.decided_by, told["phase"], told["family"])
    assert 145 <= (told["since_ns"] - START_NS) / (100 * S) <= 152
    after = asked(living, "after")
    assert ("shadow", True) == (after["status"], "after_drift" in after["reasons"])  # type: ignore[operator]
    living.settle()

    with living.store.reader() as reader:
        report = reporting.drift(reader, living.store.last_commit)
    assert set(found) == {(one.kind, one.action) for one in report.changes}

    living.store.snapshot(tmp_path / "copy.duckdb")
    with open_reader(tmp_path / "copy.duckdb") as reader:
        again = replay(reader, 2**62)
    assert (2, True) == (again.answers, again.identical)

    revived = revive()
    revived.settle()
    assert found == noted(revived)
    assert "after_drift" in asked(revived, "revived")["reasons"]  # type: ignore[operator]


def test_work_never_seen_is_on_record_and_stays_out_of_decisions_while_what_is_familiar_does_not(
    revive: Callable[[], Living], tmp_path: Path
) -> None:
    living = revive()
    living.store.write(work(0, lasting(150)))
    living.settle()
    for first in range(150, 190, 10):
        living.store.write(work(first, lasting(10), newcomer))
        living.upkeep.tick()
    living.settle()
    found = noted(living)
    assert {("drift", "unseen"), ("reaction", "shadow_unseen")} == set(found)
    assert {"model"} == set(json.loads(found["drift", "unseen"].evidence)["new"])
    new, familiar = asked(living, "new", newcomer(150)), asked(living, "familiar")
    assert ("shadow", ["support_drift"]) == (new["status"], new["reasons"])
    assert ("calibrated", []) == (familiar["status"], familiar["reasons"])
    living.settle()
    with living.store.reader() as reader:
        told = reporting.report(reader, living.store.last_commit, 100)
    assert set(found) == {(one.kind, one.action) for one in told.support.drift}
    assert told.support.drift == told.drift.changes

    living.store.snapshot(tmp_path / "copy.duckdb")
    with open_reader(tmp_path / "copy.duckdb") as reader:
        again = replay(reader, 2**62)
    assert (2, True) == (again.answers, again.identical)

    revived = revive()
    revived.settle()
    assert found == noted(revived)
    assert ["support_drift"] == asked(revived, "revived", newcomer(150))["reasons"]
    revived.store.write(work(190, lasting(40), lambda _row: newcomer(150)))  # its own outcomes prove it, and no other
    revived.settle()
    assert ("calibrated", "shadow") == tuple(asked(revived, f"{row}", newcomer(row))["status"] for row in (150, 151))


def test_reactions_of_a_model_that_is_gone_are_undone_and_told_so(living: Living) -> None:
    left = Note("reaction", "service/ seen gone", "shadow_only", 1, "found", "{}")
    kept = Note("drift", "service/ seen gone", "higher", 1, "found", "{}")
    with living.store.reader() as reader:
        rows = [
            Change(change_id=change_id(one), kind=one.kind, subject=one.node, action=one.action, decided_by="rule", made_ns=1,
                   reason=one.reason, evidence=one.evidence)
            for one in (left, kept)
        ]  # fmt: skip
        living.store.write(Batch(tuple(rows)))
        living.store.write(work(0, lasting(20)))
        living.settle()
        model = living.lineup.serving.model
        Noted(living.store).keep(reader, model)
    found = noted(living)
    assert GONE == found["reaction", "shadow_only"].undone_reason
    assert found["drift", "higher"].undone_ns is None


def test_nothing_is_written_twice(living: Living) -> None:
    slowed_down(living)
    commit = living.store.last_commit
    with living.store.reader() as reader:
        keeper = Noted(living.store)
        keeper.keep(reader, living.lineup.serving.model)
        keeper.keep(reader, living.lineup.serving.model)
        keeper.keep(reader, None)
    assert commit == living.store.last_commit


@pytest.mark.parametrize("ended", [0, 7])
def test_a_note_has_one_identity_whether_it_stands_or_not(ended: int) -> None:
    note = Note("reaction", "n", "widen", 5, "why", "{}", ended)
    assert change_id(note) == change_id(note.undone_at(9, "quiet"))
    assert change_id(note) != change_id(Note("reaction", "n", "widen", 6, "why", "{}"))
