"""At commit t an answer depends on nothing later: shown by giving answers again, also after the future was changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import duckdb
import pytest

from predictors.changing import ContextChange
from predictors.contexts import Context
from predictors.synthetic import runs
from service.derive import DERIVED_TO
from service.engine import Asking, Question, ask
from service.lineup import Lineup
from service.replay import replay
from service.settings import Settings
from service.upkeep import Upkeep
from telemetry import asof
from telemetry.ledger import Prediction
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import open_reader
from telemetry.tables import Event
from telemetry.timelines import observe
from tests.service.living import Living


@pytest.fixture(scope="module")
def one_life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of a short life: attempts overlap, events come out of order and late, questions in between."""
    folder = tmp_path_factory.mktemp("life")
    settings = Settings(store=folder / "store.duckdb", refit_outcomes=120, refit_share=1.0)
    with Store.open(settings.store) as store:
        lineup = Lineup("here/boot-1")
        living = Living(store, lineup, Upkeep(store, lineup, settings))
        _live(living)
        store.snapshot(folder / "lived.duckdb")
        living.upkeep.stop()
    return folder / "lived.duckdb"


@pytest.fixture
def lived(one_life: Path, tmp_path: Path) -> Path:
    """A copy of that snapshot to play with."""
    return Path(shutil.copy(one_life, tmp_path / "lived.duckdb"))


def _live(living: Living) -> None:
    rng = Random(7)
    attempts = runs(50, seed=11)
    events = sorted((e for run in attempts for e in run.events), key=lambda e: e.wall_ns + rng.choice([0, 0, 0, 3_000_000_000]))
    contexts = {run.attempt.attempt_id: Context.of(run.attempt.model_dump()) for run in attempts}
    living.store.write(Batch(tuple(run.attempt for run in attempts if rng.random() < 0.9)))
    for begin in range(0, len(events), 10):
        living.store.write(Batch(tuple(events[begin : begin + 10])))
        living.upkeep.tick()
        if living.lineup.serving is not None:
            _ask_some(living, rng, contexts, events[begin : begin + 10])
    living.store.write(Batch(tuple(run.attempt for run in attempts)))
    living.settle()


def _ask_some(living: Living, rng: Random, contexts: dict[str, Context], around: list[Event]) -> None:
    """Ask for whole phases and remaining times of attempts whose events just came."""
    assert living.lineup.serving is not None
    questions = [
        Question(phase, contexts[e.attempt_id], e.attempt_id, age_s, "given" if age_s is not None else None, horizon_s, changes)
        for e in rng.sample(around, min(3, len(around)))
        for phase, age_s, horizon_s, changes in (
            ("setup", None, None, ()),
            ("service", None, 0.5, ()),
            ("service", rng.choice([0.0, 0.2, 5.0]), None, ()),
            ("service", 0.2, None, (ContextChange(0.0, {"batch": 1.0}), ContextChange(0.1, {"batch": 8.0, "mode": "shared"}))),
        )
    ]
    ids = tuple(f"{living.store.last_commit}-{i}" for i in range(len(questions)))
    answered = ask(living.lineup.serving, questions, Asking((0.5, 0.9), ids[0], ids, 1_800_000_000_000_000_000))
    living.lineup.ledger.extend(a.row for a in answered if a.row is not None)


def test_every_served_answer_and_every_fit_comes_out_again_to_the_byte(lived: Path) -> None:
    with open_reader(lived) as reader:
        found = replay(reader, asof.commit_at(reader, 2**62))
    assert found.answers > 100
    assert found.fits > 1
    assert ([], []) == (found.different_answers, found.different_fits)


def test_changing_everything_after_a_commit_changes_no_answer_before_it(lived: Path, tmp_path: Path) -> None:
    with open_reader(lived) as reader:
        known = sorted({row.as_of_commit for row in asof.rows_of(Prediction, asof.predictions(reader, 2**62))})
    assert len(known) >= 20
    for commit in Random(3).sample(known, 6):
        changed = tmp_path / f"changed-{commit}.duckdb"
        shutil.copy(lived, changed)
        _change_the_future(changed, commit)
        with open_reader(changed) as reader:
            found = replay(reader, 2**62)
            before = {row.prediction_id for row in asof.rows_of(Prediction, asof.predictions(reader, 2**62))}
        assert before
        assert before.isdisjoint(found.different_answers)
        changed.unlink()


def _change_the_future(store: Path, commit: int) -> None:
    """Keep answers made as of `commit` or before; double, fail, add and drop what became known later."""
    with duckdb.connect(str(store)) as connection:
        later = f"known_from > {commit}"
        connection.execute(f"DELETE FROM predictions WHERE as_of_commit > {commit}")
        connection.execute(f"DELETE FROM models WHERE fit_commit > {commit}")
        connection.execute(f"DELETE FROM observations WHERE {later} AND hash(observation_id) % 5 = 0")
        connection.execute(f"UPDATE observations SET duration_s = 2 * duration_s + 1 WHERE {later} AND duration_s IS NOT NULL")
        connection.execute(
            f"UPDATE observations SET ended = 'failed' WHERE {later} AND ended = 'completed' AND hash(attempt_id) % 2 = 0"
        )
        connection.execute(
            f"UPDATE observations SET known_until = NULL WHERE known_until > {commit} AND hash(attempt_id) % 2 = 0"
        )
        connection.execute(f"UPDATE attempts SET host = 'elsewhere', size_in = 1e6 WHERE {later}")


def test_a_change_before_the_commit_is_seen(lived: Path) -> None:
    with duckdb.connect(str(lived)) as connection:
        connection.execute("UPDATE observations SET duration_s = 2 * duration_s WHERE known_from < 30 AND duration_s IS NOT NULL")
    with open_reader(lived) as reader:
        found = replay(reader, 2**62)
    assert len(found.different_answers) > found.answers / 2
    assert not found.identical


def test_observations_standing_at_a_commit_follow_from_the_events_known_by_then(lived: Path) -> None:
    with open_reader(lived) as reader:
        rows = reader.rows(
            "SELECT CAST(value AS BIGINT), known_from FROM state WHERE name = ? ORDER BY known_from", (DERIVED_TO,)
        )
        ids = [i for (i,) in reader.rows("SELECT DISTINCT attempt_id FROM events")]
        for upto, commit in Random(5).sample(rows, 10):
            attempts, events = asof.attempts(reader, ids, upto), asof.events(reader, ids, upto)
            expected = {o.observation_id: o for i in ids if events[i] for o in observe(attempts.get(i), events[i]).observations}
            assert expected == asof.standing(reader, ids, commit)


def test_the_store_of_a_killed_process_replays_too(revive: Callable[[], Living], tmp_path: Path) -> None:
    living = revive()
    living.send(runs(60, seed=2))
    living.settle()
    again = revive()
    asked = runs(5, seed=3)
    again.send(asked)
    again.settle()
    contexts = {run.attempt.attempt_id: Context.of(run.attempt.model_dump()) for run in asked}
    _ask_some(again, Random(1), contexts, [run.events[0] for run in asked])
    again.settle()
    again.store.snapshot(tmp_path / "copy.duckdb")
    with open_reader(tmp_path / "copy.duckdb") as reader:
        found = replay(reader, 2**62)
    assert (12, True) == (found.answers, found.identical)
