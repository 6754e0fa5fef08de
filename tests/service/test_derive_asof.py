"""The store as of every commit equals what somebody knew who heard each acknowledged batch, however the events came."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.synthetic import Run, World, runs
from service.derive import derive
from telemetry import asof
from telemetry.store.batch import Batch, Receipt
from telemetry.store.file import Store
from telemetry.store.reader import Reader
from telemetry.tables import Attempt, Event, Observation
from telemetry.timelines import observe

MADE = runs(8, seed=5, world=World(failure_mean_s=2.0, cancel_mean_s=3.0))
NUMBERS = itertools.count()

Known = tuple[dict[str, Event], dict[str, Observation], list[tuple[Any, ...]]]


@dataclass
class Observer:
    """Hears batches and their receipts, and makes of them what it can, with plain lists."""

    records: dict[str, Attempt] = field(default_factory=dict)
    events: dict[str, list[Event]] = field(default_factory=dict)
    standing: dict[str, Observation] = field(default_factory=dict)
    context: dict[str, str | None] = field(default_factory=dict)
    news: set[str] = field(default_factory=set)

    def hear(self, batch: Batch, receipt: Receipt) -> None:
        """Take in what was new; what came again, or as something else under a known id, changes nothing."""
        for row in (row for row, result in zip(batch.rows, receipt.results, strict=True) if result.result == "new"):
            self.news.add(row.attempt_id)
            if isinstance(row, Attempt):
                self.records[row.attempt_id] = row
            else:
                self.events.setdefault(row.attempt_id, []).append(row)

    def conclude(self) -> None:
        """Observe anew whatever there is news of."""
        while self.news:
            attempt_id = self.news.pop()
            if not (events := self.events.get(attempt_id)):
                continue
            record = self.records.get(attempt_id)
            found = {row.observation_id: row for row in observe(record, events).observations}
            for key in [key for key, row in self.standing.items() if row.attempt_id == attempt_id and key not in found]:
                del self.standing[key]
            self.standing |= found
            self.context |= dict.fromkeys(found, record.host if record else None)

    def seen(self) -> Known:
        """Events by id, what stands, and what of it a model may learn from."""
        lengths = [row for row in self.standing.values() if row.absence is None and row.duration_s is not None]
        evidence = [(row.observation_id, row.duration_s, str(row.ended), self.context[row.observation_id]) for row in lengths]
        return {row.event_id: row for rows in self.events.values() for row in rows}, dict(self.standing), sorted(evidence)


def told(reader: Reader, ids: Sequence[str], commit: int) -> Known:
    """The same from the store, as of a commit."""
    events = {row.event_id: row for rows in asof.events(reader, ids, commit).values() for row in rows}
    mine = [row for row in asof.observations(reader, commit).to_pylist() if row["attempt_id"] in ids]
    evidence = sorted((row["observation_id"], row["duration_s"], row["ended"], row["host"]) for row in mine)
    return events, asof.standing(reader, ids, commit), evidence


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One store for all examples: each has attempts of its own."""
    with Store.open(tmp_path_factory.mktemp("asof") / "s.duckdb") as opened:
        yield opened


def renamed(run: Run, example: int) -> list[Attempt | Event]:
    """The rows of a run under names of this example."""
    name = f"{example}-{run.attempt.attempt_id}"
    events = [e.model_copy(update={"attempt_id": name, "event_id": f"{example}-{e.event_id}"}) for e in run.events]
    return [run.attempt.model_copy(update={"attempt_id": name}), *events]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_the_store_as_of_any_commit_is_what_an_observer_knew_then(store: Store, data: st.DataObject) -> None:
    example, made = next(NUMBERS), data.draw(st.lists(st.sampled_from(MADE), min_size=1, max_size=3, unique_by=id))
    rows = [row for run in made for row in renamed(run, example)]
    again = data.draw(st.lists(st.sampled_from(rows), max_size=6))
    other = [row.model_copy(update={"wall_ns": row.wall_ns + 1}) for row in again if isinstance(row, Event)]
    sent = data.draw(st.permutations([*rows, *again, *other]))
    cuts = sorted(data.draw(st.sets(st.integers(1, len(sent)), max_size=6)) | {0, len(sent)})
    ids = sorted({row.attempt_id for row in rows})
    observer, derived_to = Observer(), store.last_commit
    history = {store.last_commit: observer.seen()}
    with store.reader() as reader:
        for place, (low, high) in enumerate(itertools.pairwise(cuts)):
            batch = Batch(tuple(sent[low:high]))
            receipt = store.write(batch)
            observer.hear(batch, receipt)
            history[store.last_commit] = observer.seen()
            if high == len(sent) or data.draw(st.booleans(), label=f"upkeep after batch {place}"):
                upto = store.last_commit
                found = derive(reader, asof.touched(reader, derived_to, upto), upto, store.last_commit)
                observer.conclude()
                if found.batch is not None:
                    store.write(found.batch)
                derived_to = upto
                history[store.last_commit] = observer.seen()
        assert history == {commit: told(reader, ids, commit) for commit in history}
