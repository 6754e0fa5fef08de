"""Challengers answer the questions that were served, are scored beside the answers, and are ruled on with evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from calibrate.evidence.promotion import Action
from predictors.contexts import Context
from predictors.distribution import GRID
from predictors.synthetic import runs
from service.answerers import DEFAULT
from service.engine import Asking, Question, Serving, ask
from service.shadow import board_as_of, challenged, decided, report, rulings
from service.shadow_schemas import PromotionIn
from telemetry.ledger import Prediction
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Attempt, Observation
from telemetry.words import Ended
from tests.service.taught import context_of, serving_of

START_NS = 2_000_000_000_000_000_000
CONTEXTS = [context_of(run) for run in runs(150, seed=11)]


@pytest.fixture(scope="module")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    return serving_of(tmp_path_factory.mktemp("taught") / "s.duckdb", runs(200, seed=3))


def answered(serving: Serving, contexts: Sequence[Context], name: str = "a", **values: Any) -> list[Prediction]:
    """Ledger rows of services of attempts in these contexts."""
    questions = [Question("service", context, f"{name}-{place}", **values) for place, context in enumerate(contexts)]
    asking = Asking((0.5,), "r", tuple(f"p-{question.attempt_id}" for question in questions), START_NS - 1)
    return [one.row for one in ask(serving, questions, asking) if one.row is not None]


def test_a_challenger_that_is_the_champion_says_the_same(serving: Serving) -> None:
    served = answered(serving, CONTEXTS[:4])
    rows = challenged({"twin": serving.model}, served)
    assert [(row.prediction_id, row.quantiles_s) for row in rows] == [(row.prediction_id, row.quantiles_s) for row in served]


def test_only_whole_lengths_of_named_attempts_are_asked_and_each_once(serving: Serving) -> None:
    [first] = answered(serving, CONTEXTS[:1])
    nobody = first.model_copy(update={"attempt_id": None})
    again = first.model_copy(update={"prediction_id": "again"})
    aged = answered(serving, CONTEXTS[1:2], "b", elapsed_s=1.0)
    unknown = first.model_copy(update={"phase": "epoch"})
    asked = challenged({"twin": serving.model}, [nobody, first, again, *aged, unknown])
    assert [first.prediction_id] == [row.prediction_id for row in asked]


def test_a_challenger_that_knows_more_than_the_answer_did_is_left_out(serving: Serving) -> None:
    ahead = serving.model.after([], serving.model.commit + 1)
    assert [] == challenged({"ahead": ahead}, answered(serving, CONTEXTS[:2]))


def lived(store: Store, serving: Serving, predictor: str) -> int:
    """Attempts answered about by a champion that says five times too long, and forecast by one that is right; the commit."""
    rng, rows = np.random.default_rng(5), list[Any]()
    for place, answer in enumerate(answered(serving, CONTEXTS)):
        assert answer.attempt_id is not None
        duration_s = float(np.interp(rng.random(), GRID, answer.quantiles_s))
        rows += [
            answer.model_copy(update={"quantiles_s": [5.0 * quantile for quantile in answer.quantiles_s]}),
            *challenged({predictor: serving.model}, [answer]),
            Attempt(attempt_id=answer.attempt_id, run_id=f"run-{place // 5}"),
            Observation(
                observation_id=f"{answer.attempt_id}/service/0",
                attempt_id=answer.attempt_id,
                phase="service",
                started_ns=START_NS,
                duration_s=duration_s,
                ended=Ended.COMPLETED,
            ),
        ]
    return store.write(Batch(tuple(rows))).commit


def test_a_better_challenger_is_promoted_by_the_rule_once_and_an_operator_overrules_it(serving: Serving, tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        commit = lived(store, serving, "network")
        with store.reader() as reader:
            [standing] = board_as_of(reader, commit, 1000).standings
            [ruling] = rulings(reader, commit, now_ns=1)
        assert (150, 30, True) == (standing.comparison.n, standing.comparison.runs, standing.made_beside)
        assert (Action.PROMOTE, "network", "rule") == (ruling.action, ruling.subject, ruling.decided_by)
        assert 150 == orjson.loads(ruling.evidence)["bounds"]["n"]
        commit = store.write(Batch((ruling,))).commit
        with store.reader() as reader:
            assert () == rulings(reader, commit, now_ns=2), "it answers already"
            assert "network" == report(reader, commit, 1000).in_office
        demoted = decided(PromotionIn(predictor="network", action="demote", operator="ada", reason="too slow"), now_ns=3)
        commit = store.write(Batch((demoted,))).commit
        with store.reader() as reader:
            assert () == rulings(reader, commit, now_ns=4), "the operator has the last word"
            assert DEFAULT == report(reader, commit, 1000).in_office


def test_an_outside_predictor_is_scored_and_never_put_in_office(serving: Serving, tmp_path: Path) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        outside = [
            row.model_copy(update={"prediction_id": None})
            for row in challenged({"planner": serving.model}, answered(serving, CONTEXTS))
        ]
        store.write(Batch(tuple(outside)))
        commit = lived(store, serving, "network")
        with store.reader() as reader:
            assert ["network"] == [one.subject for one in rulings(reader, commit, now_ns=1)]
            told = {one.predictor: one for one in report(reader, commit, 1000).standings}
    assert ("outside", "challenger") == (told["planner"].source, told["network"].source)
    assert ("promote", 150) == (told["planner"].action, told["planner"].counts["scored"])
