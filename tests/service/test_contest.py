"""Challengers are asked what is served, from the state it came from; whoever is promoted answers, and can be replayed."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from predictors.contexts import Context
from predictors.distribution import GRID
from predictors.synthetic import Run, World, runs
from service import contest
from service.answerers import DEFAULT, file_of, part_of, who
from service.engine import Asking, Question, ask
from service.lineup import Lineup
from service.replay import replay
from service.settings import Settings
from service.shadow import decided, report
from service.shadow_schemas import PromotionIn
from service.upkeep import Upkeep
from telemetry import asof, asof_verdicts
from telemetry.errors import BadField
from telemetry.ledger import Prediction
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.verdicts import ShadowForecast
from tests.service.living import Living, until

SURE = World(failure_mean_s=None, cancel_mean_s=None)


@pytest.fixture(scope="module")
def first_40(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the store and the models of a service that has learned from 40 attempts."""
    settings = Settings(store=tmp_path_factory.mktemp("first") / "store.duckdb", refit_share=1.0)
    with Store.open(settings.store) as store:
        lineup = Lineup("here/boot-1")
        living = Living(store, lineup, Upkeep(store, lineup, settings))
        living.send(runs(40, seed=2, world=SURE))
        living.settle()
        living.upkeep.stop()
    return settings.store.parent


@pytest.fixture
def taught(first_40: Path, tmp_path: Path, revive: Callable[[], Living]) -> Living:
    """A service of one's own that has learned from 40 attempts."""
    shutil.copytree(first_40, tmp_path, dirs_exist_ok=True)
    return revive()


def asked(living: Living, made: Sequence[Run], name: str = "p", factor: float = 1.0) -> list[Prediction]:
    """Ledger rows of services before they begin, queued as answers are; with a `factor`, answers so many times too long."""
    questions = [Question("service", Context.of(run.attempt.model_dump()), run.attempt.attempt_id) for run in made]
    ids = tuple(f"{name}-{run.attempt.attempt_id}" for run in made)
    answers = ask(living.lineup.serving, questions, Asking((0.5,), "r", ids, made[0].events[0].wall_ns))
    rows = [one.row for one in answers if one.row is not None]
    told = [row.model_copy(update={"quantiles_s": [factor * quantile_s for quantile_s in row.quantiles_s]}) for row in rows]
    living.lineup.ledger.extend(told)
    return told


def later(n: int, seed: int) -> list[Run]:
    """Attempts of their own."""
    found = []
    for run in runs(n, seed=seed, world=SURE):
        name = f"{seed}-{run.attempt.attempt_id}"
        events = tuple(e.model_copy(update={"attempt_id": name, "event_id": f"{seed}-{e.event_id}"}) for e in run.events)
        found.append(Run(run.attempt.model_copy(update={"attempt_id": name}), events, run.setup_s, run.service_s))
    return found


def forecasts(living: Living) -> list[ShadowForecast]:
    with living.store.reader() as reader:
        table = reader.arrow("SELECT * FROM shadow_forecasts ORDER BY predictor, attempt_id", [])
    return asof.rows_of(ShadowForecast, table)


def decide(living: Living, action: str, predictor: str) -> str:
    asked_for = PromotionIn.model_validate({"predictor": predictor, "action": action, "operator": "ada", "reason": "canary"})
    row = decided(asked_for, time.time_ns())
    living.store.write(Batch((row,)))
    living.upkeep.tick()
    return row.change_id


def same(living: Living) -> Any:
    with living.store.reader() as reader:
        return replay(reader, living.store.last_commit)


def test_challengers_answer_what_was_served_and_become_known_with_it(taught: Living) -> None:
    [served] = asked(taught, later(1, 5))
    model = taught.lineup.calibrated.model
    taught.upkeep.tick()
    context = Context.of(later(1, 5)[0].attempt.model_dump())
    rows = forecasts(taught)
    assert ["hazards", "median_of_nine"] == [row.predictor for row in rows]
    assert {served.prediction_id} == {row.prediction_id for row in rows}
    for row in rows:
        [expected] = part_of(model, row.predictor).predict([context], ["service"]).quantile(GRID).tolist()
        assert expected == row.quantiles_s
    with taught.store.reader() as reader:
        both = "SELECT known_from FROM predictions UNION SELECT known_from FROM shadow_forecasts"
        assert 1 == len(reader.rows(both))


def test_an_attempt_is_put_to_challengers_once_and_remaining_times_never(taught: Living) -> None:
    [run] = later(1, 5)
    asked(taught, [run])
    taught.upkeep.tick()
    asked(taught, [run], name="again")
    question = Question("service", Context.of(run.attempt.model_dump()), run.attempt.attempt_id, 0.1, "given")
    taught.lineup.ledger.append(ask(taught.lineup.serving, [question], Asking((0.5,), "r", ("aged",), 1))[0].row)
    taught.upkeep.tick()
    assert 2 == len(forecasts(taught))
    assert (1, 0) == (taught.lineup.challenged.asked, taught.lineup.challenged.dropped)


def test_what_comes_at_once_beyond_a_rounds_measure_is_dropped_and_counted(
    taught: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contest, "MOST", 3)
    asked(taught, later(5, 5))
    taught.upkeep.tick()
    assert 6 == len(forecasts(taught))
    assert (3, 2) == (taught.lineup.challenged.asked, taught.lineup.challenged.dropped)


def test_an_answer_of_a_state_that_is_gone_is_dropped(taught: Living) -> None:
    [row] = asked(taught, later(1, 5))
    taught.lineup.ledger[0] = row.model_copy(update={"as_of_commit": row.as_of_commit - 1})
    taught.upkeep.tick()
    assert [] == forecasts(taught)
    assert (0, 1) == (taught.lineup.challenged.asked, taught.lineup.challenged.dropped)


def test_a_challenger_that_fails_keeps_nobody_back(
    taught: Living, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = contest.challenged

    def failing(others: dict[str, Any], rows: Sequence[Prediction]) -> list[ShadowForecast]:
        if "hazards" in others:
            raise ZeroDivisionError
        return one(others, rows)

    monkeypatch.setattr(contest, "challenged", failing)
    asked(taught, later(1, 5))
    taught.upkeep.tick()
    assert ["median_of_nine"] == [row.predictor for row in forecasts(taught)]
    assert "challenger hazards did not answer" in caplog.text
    assert None is taught.lineup.trouble


def test_a_part_that_is_promoted_answers_until_it_is_demoted_and_all_of_it_can_be_replayed(taught: Living) -> None:
    before = taught.lineup.serving
    decide(taught, "promote", "hazards")
    promoted = taught.lineup.serving
    assert (f"{before.model_id}/hazards", "hazards") == (promoted.model_id, who(promoted.model_id))
    assert before.model_id == file_of(promoted.model_id) == taught.lineup.calibrated.model_id
    made = later(12, 5)
    asked(taught, made)
    taught.upkeep.tick()
    assert {DEFAULT, "median_of_nine"} == {row.predictor for row in forecasts(taught)}
    taught.send(made[:6])
    taught.upkeep.tick()
    assert promoted.model.commit < taught.lineup.serving.model.commit, "it learns as the whole does"
    asked(taught, made[6:], name="second")
    taught.settle()
    decide(taught, "demote", "hazards")
    assert taught.lineup.calibrated is taught.lineup.serving
    asked(taught, later(3, 6))
    taught.upkeep.tick()
    found = same(taught)
    assert (21, True, 0) == (found.answers, found.identical, found.beyond)


def test_a_promoted_part_goes_on_over_a_refit(taught: Living) -> None:
    decide(taught, "promote", "aggregate")
    before = taught.lineup.serving.model_id
    taught.send(later(10, 7))
    taught.upkeep.fit_now()
    after = taught.lineup.serving.model_id
    assert before != after
    assert ("aggregate", "aggregate") == (who(before), who(after))
    asked(taught, later(3, 6))
    taught.upkeep.tick()
    assert same(taught).identical


def test_a_rule_that_is_promoted_is_fitted_first_learns_on_and_can_be_replayed(
    taught: Living, revive: Callable[[], Living]
) -> None:
    living = taught
    decide(living, "promote", "median_of_nine_rule")
    assert DEFAULT == who(living.lineup.serving.model_id), "nothing waits for its fit"
    assert living.upkeep._contest.wait()
    living.upkeep.tick()
    assert "median_of_nine_rule" == who(living.lineup.serving.model_id)
    made = later(12, 5)
    asked(living, made[:6])
    living.send(made[:6])
    living.settle()
    asked(living, made[6:], name="second")
    living.upkeep.tick()
    served = living.lineup.serving
    assert served.model.fit_commit < served.model.commit
    found = same(living)
    assert (12, True, 0) == (found.answers, found.identical, found.beyond)
    again = revive()
    again.upkeep.first_fit()
    assert "median_of_nine_rule" == who(again.lineup.serving.model_id), "a process without rounds waits for its fit"
    assert served.model_id != again.lineup.serving.model_id


def test_a_restart_knows_who_is_in_office(taught: Living, revive: Callable[[], Living]) -> None:
    living = taught
    decide(living, "promote", "hazards")
    before = living.lineup.serving
    again = revive().lineup.serving
    assert (before.model_id, before.model.commit) == (again.model_id, again.model.commit)


def test_nobody_is_put_in_office_whom_nobody_here_can_ask() -> None:
    stranger = PromotionIn(predictor="planner-3", action="promote", operator="ada", reason="it is better")
    with pytest.raises(BadField, match="nobody here goes by that name; give one of default, aggregate, hazards"):
        decided(stranger, 1)
    assert "hold" == decided(stranger.model_copy(update={"action": "hold"}), 1).action


def test_a_better_challenger_is_promoted_by_the_rule_and_the_former_champion_watches_it(taught: Living) -> None:
    """Answers were five times too long, as far as the ledger tells, and the challengers' were not."""
    living, made = taught, later(130, 9)
    for start in range(0, len(made), 26):
        part = made[start : start + 26]
        asked(living, part, factor=5.0)
        living.upkeep.tick()
        living.send(part)
        living.settle()
    until(lambda: living.upkeep.tick() or who(living.lineup.serving.model_id) != DEFAULT)
    with living.store.reader() as reader:
        [change] = asof_verdicts.promotions(reader, living.store.last_commit)
        told = report(reader, living.store.last_commit, 1000)
    assert ("promote", "rule") == (change.action, change.decided_by)
    assert {change.subject} == {told.in_office, who(living.lineup.serving.model_id)}
    assert all(one.runs < 50 for one in told.standings), "what was compared before was of another champion"
    asked(living, later(3, 10))
    living.upkeep.tick()
    rest = {DEFAULT, "hazards", "median_of_nine"} - {change.subject}
    assert rest == {row.predictor for row in forecasts(living) if row.attempt_id.startswith("10-")}
