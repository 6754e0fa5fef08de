from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry import asof
from telemetry.ledger import Outcome, Prediction
from telemetry.store import writer
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import Reader
from telemetry.tables import Attempt, Event, Observation, Quarantine

CONTEXT = ["host", "device", "family", "model", "runtime", "precision", "mode", "state", "batch", "size_in", "corunners"]
OBSERVED = ["observation_id", "attempt_id", "phase", "segment", "started_ns", "entry_s", "duration_s"]
OBSERVED += ["ended", "cause", "clock", "known_from"]


def event(event_id: str, attempt_id: str = "a1", source: str = "s") -> Event:
    return Event(event_id=event_id, attempt_id=attempt_id, kind="heartbeat", wall_ns=1, source=source)


def observation(attempt_id: str, duration_s: float | None, **changed: Any) -> Observation:
    values = {"observation_id": f"{attempt_id}/setup/0", "attempt_id": attempt_id, "phase": "setup", "started_ns": 5}
    return Observation(**values | {"duration_s": duration_s, "ended": "running", "clock": "monotonic"} | changed)


def prediction(prediction_id: str, attempt_id: str | None = "a1") -> Prediction:
    asked = {"prediction_id": prediction_id, "request_id": "r", "attempt_id": attempt_id, "phase": "setup", "made_ns": 4}
    made = {"as_of_commit": 0, "model_id": "m", "context": "{}", "path": ["setup"], "level": "phase", "n": 0, "n_eff": 0.0}
    said = {"status": "thin", "reasons": ["not_recalibrated"], "claimed_to": 0.5, "mean_s": 1.0, "horizon_s": 9.0}
    grid = {"levels": [0.5, 0.9], "quantiles_s": [1.0, 2.0], "answer_sha256": "0"}
    return Prediction(**asked, **made, **said, **grid)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as opened:
        yield opened


@pytest.fixture
def reader(store: Store) -> Iterator[Reader]:
    with store.reader() as opened:
        yield opened


def test_events_and_attempts_are_seen_from_their_commit_on(store: Store, reader: Reader) -> None:
    store.write(Batch((event("e2"),)))
    store.write(Batch((event("e1"), event("e0", "a2"), Attempt(attempt_id="a1", host="h"))))
    assert {"a1": [], "a2": []} == asof.events(reader, ["a1", "a2"], 0)
    assert {"a1": [event("e2")]} == asof.events(reader, ["a1"], 1)
    assert {"a1": [event("e2"), event("e1")], "a2": [event("e0", "a2")]} == asof.events(reader, ["a1", "a2"], 2)
    assert {} == asof.attempts(reader, ["a1"], 1)
    assert {"a1": Attempt(attempt_id="a1", host="h")} == asof.attempts(reader, ["a1", "a2"], 2)


def test_touched_names_attempts_with_news_in_the_commits_asked_for(store: Store, reader: Reader) -> None:
    store.write(Batch((event("e1", "b"),)))
    store.write(Batch((Attempt(attempt_id="a"), event("e2", "c"), event("e3", "c"))))
    store.write(Batch((event("e4", "b"),)))
    assert ["a", "c"] == asof.touched(reader, 1, 2)
    assert ["a", "b", "c"] == asof.touched(reader, 0, 3)
    assert [] == asof.touched(reader, 3, 3)


def test_a_wall_time_leads_to_the_newest_commit_by_then(store: Store, reader: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([1_000, 2_000])
    monkeypatch.setattr(writer.time, "time_ns", lambda: next(times))
    store.write(Batch((event("e1"),)))
    store.write(Batch((event("e2"),)))
    assert [0, 1, 1, 2, 2] == [asof.commit_at(reader, wall_ns) for wall_ns in (999, 1_000, 1_999, 2_000, 9_999)]


def test_a_replaced_version_still_stands_at_the_commits_before(store: Store, reader: Reader) -> None:
    store.write(Batch((observation("a1", 1.0),)))
    store.write(Batch((observation("a1", 2.5, ended="completed"),)))
    store.write(Batch((), closes=((Observation, ("a1/setup/0",)),)))
    lengths = [[o.duration_s for o in asof.standing(reader, ["a1"], commit).values()] for commit in range(4)]
    assert [[], [1.0], [2.5], []] == lengths
    assert [[], [1.0], [2.5], []] == [asof.observations(reader, commit)["duration_s"].to_pylist() for commit in range(4)]


def test_observations_have_their_columns_context_and_order(store: Store, reader: Reader) -> None:
    store.write(Batch((Attempt(attempt_id="a2", host="h", family="encoder", batch=4.0, size_in=128.0), observation("a2", 2.0))))
    store.write(Batch((observation("a3", 3.0), observation("a1", 1.0))))
    table = asof.observations(reader, 2)
    assert OBSERVED + CONTEXT == table.column_names
    assert ["a2", "a1", "a3"] == table["attempt_id"].to_pylist()
    assert ["h", None, None] == table["host"].to_pylist()
    assert [4.0, None, None] == table["batch"].to_pylist()
    changed = asof.changes(reader, 0, 2)
    assert [*OBSERVED, *CONTEXT, "change", "known_at"] == changed.column_names


def test_absent_phases_and_probes_of_the_host_are_no_evidence(store: Store, reader: Reader) -> None:
    absent = observation("a1", None, ended=None, clock=None, absence="not_applicable")
    store.write(Batch((absent, Attempt(attempt_id="a2", purpose="calibration"), observation("a2", 2.0))))
    assert 0 == asof.observations(reader, 1).num_rows
    assert 0 == asof.changes(reader, 0, 1).num_rows
    assert {"a1/setup/0": absent} == asof.standing(reader, ["a1"], 1)


def test_changes_tell_what_went_before_what_came(store: Store, reader: Reader) -> None:
    store.write(Batch((observation("a1", 1.0),)))
    store.write(Batch((observation("a1", 2.0), observation("a0", 5.0))))
    told = asof.changes(reader, 1, 2).select(["known_at", "change", "observation_id", "duration_s"]).to_pylist()
    expected = [(2, -1, "a1/setup/0", 1.0), (2, 1, "a0/setup/0", 5.0), (2, 1, "a1/setup/0", 2.0)]
    assert expected == [tuple(row.values()) for row in told]


def test_a_late_record_changes_no_context_until_the_observation_is_written_again(store: Store, reader: Reader) -> None:
    store.write(Batch((observation("a1", 1.0),)))
    store.write(Batch((Attempt(attempt_id="a1", host="h"),)))
    assert [None] == asof.observations(reader, 2)["host"].to_pylist()
    assert set() == asof.outdated(reader, ["a1"], 1)
    assert {"a1/setup/0"} == asof.outdated(reader, ["a1", "a2"], 2)
    store.write(Batch((observation("a1", 1.0),), closes=((Observation, ("a1/setup/0",)),)))
    assert set() == asof.outdated(reader, ["a1"], 3)
    assert ["h"] == asof.observations(reader, 3)["host"].to_pylist()
    assert [(-1, None), (1, "h")] == [(row["change"], row["host"]) for row in asof.changes(reader, 2, 3).to_pylist()]
    assert [None] == asof.observations(reader, 1)["host"].to_pylist()


def test_predictions_without_outcome_are_found_until_it_is_known(store: Store, reader: Reader) -> None:
    first, second = prediction("p1"), prediction("p2", "a2")
    outcome = Outcome(prediction_id="p1", observation_id="a1/setup/0", actual_s=1.0, ended="completed", started_ns=5)
    store.write(Batch((first, second, prediction("p3", None))))
    store.write(Batch((outcome,)))
    assert [first, second] == asof.rows_of(Prediction, asof.predictions(reader, 1, unscored=True))
    assert [second] == asof.rows_of(Prediction, asof.predictions(reader, 2, unscored=True))
    assert [] == asof.rows_of(Prediction, asof.predictions(reader, 2, unscored=True, attempt_ids=["a1"]))
    assert ["p1", "p2", "p3"] == asof.predictions(reader, 2)["prediction_id"].to_pylist()
    assert 0 == asof.outcomes(reader, 1).num_rows
    assert [outcome] == asof.rows_of(Outcome, asof.outcomes(reader, 2))


def test_running_attempts_and_quarantined_spans_are_those_of_the_commit_asked_for(store: Store, reader: Reader) -> None:
    span = Quarantine(quarantine_id="a1/setup/0", attempt_id="a1", phase="setup", reason="clocks_mixed", detail="wall, monotonic")
    store.write(Batch((observation("a2", 1.0), observation("a1", 1.0))))
    store.write(Batch((observation("a1", 2.0, ended="failed"), span)))
    store.write(Batch((), closes=((Quarantine, ("a1/setup/0",)),)))
    assert [[], ["a1", "a2"], ["a2"]] == [asof.open_attempts(reader, commit) for commit in range(3)]
    assert [0, 0, 1] == [asof.count_ended(reader, commit) for commit in range(3)]
    assert [{}, {"a1/setup/0": span}, {}] == [asof.quarantined(reader, ["a1"], commit) for commit in (1, 2, 3)]
    assert {} == asof.quarantined(reader, ["a2"], 2)


ATTEMPTS = st.sampled_from(["a1", "a2", "a3"])
EVENTS = st.builds(event, st.sampled_from(["e1", "e2", "e3", "e4"]), ATTEMPTS, st.sampled_from(["s", "t"]))
RECORDS = st.builds(
    lambda attempt_id, host, purpose: Attempt(attempt_id=attempt_id, host=host, purpose=purpose),
    ATTEMPTS,
    st.sampled_from(["h1", "h2"]),
    st.sampled_from(["work", "work", "calibration"]),
)
LENGTHS = st.builds(observation, ATTEMPTS, st.sampled_from([1.0, 2.0]))
ABSENT = st.builds(lambda attempt_id: observation(attempt_id, None, ended=None, absence="unobserved"), ATTEMPTS)
CLOSES = ATTEMPTS.map(lambda attempt_id: (Observation, (f"{attempt_id}/setup/0",)))
BATCHES = st.builds(
    lambda rows, closes: Batch(tuple(rows), tuple(closes)),
    st.lists(st.one_of(EVENTS, RECORDS, LENGTHS, ABSENT), max_size=5),
    st.lists(CLOSES, max_size=1),
)


class Observer:
    """What somebody who reads every acknowledged batch knows, kept as plain dictionaries."""

    def __init__(self) -> None:
        self.events: dict[str, tuple[int, Event]] = {}
        self.records: dict[str, Attempt] = {}
        self.standing: dict[str, Observation] = {}
        self.evidence: dict[str, tuple[Any, ...]] = {}

    def hear(self, batch: Batch, commit: int) -> None:
        for _, (observation_id,) in batch.closes:
            self.standing.pop(observation_id, None)
            self.evidence.pop(observation_id, None)
        for row in batch.rows:
            if isinstance(row, Event):
                self.events.setdefault(row.event_id, (commit, row))
            elif isinstance(row, Attempt):
                self.records.setdefault(row.attempt_id, row)
        for row in batch.rows:
            if isinstance(row, Observation) and row != self.standing.get(row.observation_id):
                self.replace(row, commit)

    def replace(self, row: Observation, commit: int) -> None:
        self.standing[row.observation_id] = row
        self.evidence.pop(row.observation_id, None)
        record = self.records.get(row.attempt_id, Attempt(attempt_id=row.attempt_id))
        if row.duration_s is not None and record.purpose == "work":
            self.evidence[row.observation_id] = (row.observation_id, row.duration_s, record.host, commit)

    def seen(self) -> tuple[Any, ...]:
        timeline = sorted(self.events.values(), key=lambda known: (known[0], known[1].event_id))
        events = {name: [row for _, row in timeline if row.attempt_id == name] for name in ("a1", "a2", "a3")}
        return events, dict(self.records), dict(self.standing), sorted(self.evidence.values(), key=lambda e: (e[3], e[0]))


def told(reader: Reader, commit: int) -> tuple[Any, ...]:
    ids = ["a1", "a2", "a3"]
    evidence = evidence_of(asof.observations(reader, commit).to_pylist())
    return asof.events(reader, ids, commit), asof.attempts(reader, ids, commit), asof.standing(reader, ids, commit), evidence


def evidence_of(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["observation_id"], row["duration_s"], row["host"], row["known_from"]) for row in rows]


def folded(reader: Reader, after: int, upto: int) -> list[tuple[Any, ...]]:
    """`observations(after)` with the changes since applied one by one; each that goes must be there."""
    evidence = evidence_of(asof.observations(reader, after).to_pylist())
    rows = asof.changes(reader, after, upto).to_pylist()
    for row, value in zip(rows, evidence_of(rows), strict=True):
        if row["change"] == 1:
            evidence.append(value)
        else:
            evidence.remove(value)
    return sorted(evidence, key=lambda e: (e[3], e[0]))


@settings(max_examples=15, deadline=None)
@given(st.lists(BATCHES, max_size=6), st.data())
def test_the_past_is_what_an_observer_had_then_however_late_doubled_or_disordered(
    batches: list[Batch], data: st.DataObject
) -> None:
    with TemporaryDirectory() as folder, Store.open(Path(folder) / "s.duckdb") as store, store.reader() as reader:
        observer = Observer()
        history = {0: observer.seen()}
        for batch in batches + batches[:2]:
            commit = store.write(batch).commit
            observer.hear(batch, commit)
            history[commit] = observer.seen()
        assert history == {commit: told(reader, commit) for commit in history}
        after, upto = sorted(data.draw(st.tuples(*[st.sampled_from(sorted(history))] * 2)))
        assert history[upto][3] == folded(reader, after, upto)
