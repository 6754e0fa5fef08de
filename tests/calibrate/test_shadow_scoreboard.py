"""The scoreboard: who came too late is listed and not scored, the rest is paired with what was served."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtri

from calibrate.evidence.promotion import Action
from calibrate.evidence.shadow import Beside, Place, beside, scoreboard
from predictors.distribution import GRID
from predictors.scores import crps_log
from telemetry.ledger import Prediction
from telemetry.words import Ended


def law(centre_s: float, spread: float = 0.3) -> np.ndarray:
    """Quantiles of a log-normal."""
    return np.asarray(centre_s * np.exp(spread * ndtri(GRID)))


IN_TIME = Beside(
    predictor="planner-1",
    attempt_id="a-0",
    phase="service",
    host="north",
    run="r-0",
    form="quantiles",
    quantiles_s=law(1.0),
    received_ns=100,
    made_beside=False,
    after_event=False,
    answered_ns=100,
    answered_s=law(2.0),
    duration_s=1.0,
    ended=Ended.COMPLETED,
)


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({}, Place.SCORED),
        ({"received_ns": 101}, Place.AFTER_ANSWER),
        ({"received_ns": 101, "made_beside": True}, Place.SCORED),
        ({"after_event": True}, Place.AFTER_EVENT),
        ({"after_event": True, "made_beside": True}, Place.SCORED),
        ({"after_event": True, "answered_ns": None, "answered_s": None}, Place.AFTER_EVENT),
        ({"answered_ns": None, "answered_s": None}, Place.UNPAIRED),
        ({"ended": None, "duration_s": None}, Place.WAITING),
        ({"ended": Ended.FAILED}, Place.FAILED),
        ({"ended": Ended.RUNNING}, Place.CENSORED),
        ({"ended": Ended.CANCELLED}, Place.CENSORED),
    ],
)
def test_where_a_forecast_belongs(change: dict[str, object], place: Place) -> None:
    assert place is replace(IN_TIME, **change).place  # type: ignore[arg-type]


def test_a_late_forecast_is_listed_and_not_scored() -> None:
    late = replace(IN_TIME, received_ns=101, attempt_id="a-1", duration_s=1e6)
    board = scoreboard([IN_TIME, late])
    assert (late,) == board.late
    [standing] = board.standings
    assert (1, 1, 1) == (standing.comparison.n, standing.counts[Place.SCORED], standing.counts[Place.AFTER_ANSWER])


def rows(n: int, own: float = 1.0, seed: int = 2) -> list[Beside]:
    """Truths about 1 s, a champion that says about 2 s, a predictor that says `own`."""
    rng = np.random.default_rng(seed)
    return [
        replace(
            IN_TIME,
            attempt_id=f"a-{k}",
            run=f"r-{k // 4}",
            duration_s=float(np.exp(0.3 * rng.standard_normal())),
            quantiles_s=law(own),
        )
        for k in range(n)
    ]


def test_a_predictor_that_knows_better_wins_surely_and_keeps_its_promises() -> None:
    [standing] = scoreboard(rows(400)).standings
    assert standing.comparison.ratio is not None
    assert standing.comparison.ratio.high < 0.5
    assert Action.PROMOTE is standing.ruling.action
    assert standing.passed[0.9].low < 0.1 < standing.passed[0.9].high
    assert 100 == standing.comparison.runs


def test_one_that_knows_less_is_retired_and_its_worst_attempt_named() -> None:
    given = [replace(row, answered_s=law(1.0)) for row in rows(400, own=3.0)]
    [standing] = scoreboard(given).standings
    assert Action.RETIRE is standing.ruling.action
    lost = [
        crps_log([row.duration_s], [q[:99] for q in (row.quantiles_s, row.answered_s)])
        for row in given
        if row.answered_s is not None
    ]
    assert given[int(np.argmax([own - served for own, served in lost]))].attempt_id == standing.worst_attempt


def test_a_point_is_scored_and_promises_nothing() -> None:
    points = [replace(row, form="point", quantiles_s=np.full(len(GRID), 1.0)) for row in rows(400)]
    [standing] = scoreboard(points).standings
    assert {} == standing.passed
    assert (Action.HOLD, 400) == (standing.ruling.action, standing.comparison.n)


def test_predictors_and_phases_stand_apart() -> None:
    given = rows(6)
    given[1] = replace(given[1], phase="setup")
    given.append(replace(given[0], predictor="other"))
    found = [(one.predictor, one.phase, one.comparison.n) for one in scoreboard(given).standings]
    assert [("other", None, 1), ("planner-1", None, 6), ("planner-1", "service", 5), ("planner-1", "setup", 1)] == found


def test_censored_rows_weigh_through_those_like_them() -> None:
    given = rows(40)
    cut_s = 1.0
    lost = [replace(row, duration_s=cut_s, ended=Ended.CANCELLED) if (row.duration_s or 0) > cut_s else row for row in given[::2]]
    [standing] = scoreboard([*lost, *given[1::2]]).standings
    assert standing.counts[Place.CENSORED] == 40 - standing.comparison.n > 0
    plain = scoreboard([row for row in [*lost, *given[1::2]] if row.place is Place.SCORED]).standings[0]
    assert standing.comparison.champion < plain.comparison.champion, "the long ones that were seen stand for those that were not"


def test_nothing_known_yet_is_no_error() -> None:
    [standing] = scoreboard([replace(IN_TIME, ended=None, duration_s=None)]).standings
    assert (0, 1, None) == (standing.comparison.n, standing.counts[Place.WAITING], standing.worst_attempt)
    assert () == scoreboard([]).standings


def test_a_challenger_answers_beside_the_served_answer() -> None:
    prediction = Prediction.model_construct(prediction_id="p-1", attempt_id="a-1", phase="service")
    row = beside(prediction, "network-2", law(1.0))
    assert ("network-2", "a-1", "service", "p-1") == (row.predictor, row.attempt_id, row.phase, row.prediction_id)
    assert row.quantiles_s == law(1.0).tolist()
