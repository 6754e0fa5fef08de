"""Figures are what their words say, to the number, and know nothing that came later."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from predictors.scores import censoring_weights, crps_log, weighted_mean
from telemetry.asof_scored import BINS, Scores
from telemetry.ledger import Outcome, PlanAnswer, PlanOutcome, Prediction
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Observation
from telemetry.verdicts import Change
from telemetry.words import Ended
from tests.telemetry.answered import SECOND_NS, UNIFORM_S, answer, batch

Told = Sequence[tuple[Prediction, Outcome]]
Figure = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as opened:
        yield opened


@pytest.fixture
def figure(store: Store) -> Figure:
    def read(name: str, told: Told = (), *, newest: int = 1000, commit: int | None = None) -> list[dict[str, Any]]:
        if told:
            store.write(batch(told))
        with store.reader() as reader:
            return Scores(reader, store.last_commit if commit is None else commit, newest).figure(name).to_pylist()

    return read


def pooled(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The row of all answers given at the start."""
    [found] = [row for row in rows if row["phase"] is None and not row["while_running"]]
    return found


def test_misses_are_counted_at_every_level(figure: Figure) -> None:
    told = [answer(i, s) for i, s in enumerate((10.0, 60.0, 70.0, 89.0, 91.0, 94.0, 96.0, 98.0, 99.5, 100.0), 1)]
    row = pooled(figure("coverage", told))
    assert (10, 10, 0) == (row["n"], row["n_completed"], row["n_failed"])
    assert [9, 6, 4, 2] == [row[f"misses_{level}"] for level in (50, 90, 95, 99)]
    assert 0.6 == row["weighted_90"]


def test_a_bound_that_is_met_exactly_is_not_exceeded(figure: Figure) -> None:
    row = pooled(figure("coverage", [answer(1, 90.0)]))
    assert [1, 0, 0, 0] == [row[f"misses_{level}"] for level in (50, 90, 95, 99)]


@pytest.mark.parametrize("ended", [Ended.CANCELLED, Ended.TIMED_OUT])
def test_a_censored_row_past_its_bound_is_a_miss_and_below_it_is_unresolved(figure: Figure, ended: Ended) -> None:
    row = pooled(figure("coverage", [answer(1, 92.0, ended), answer(2, 20.0)]))
    assert (2, 1) == (row["n"], row["n_completed"])
    assert (1, 2) == (row["misses_90"], row["resolved_90"])
    assert (0, 1) == (row["misses_95"], row["resolved_95"])


def test_failed_rows_are_counted_and_left_out(figure: Figure) -> None:
    row = pooled(figure("coverage", [answer(1, 99.9, Ended.FAILED), answer(2, 20.0)]))
    assert (2, 1, 1) == (row["n"], row["n_completed"], row["n_failed"])
    assert (0, 1) == (row["misses_50"], row["resolved_50"])


def test_a_stratum_of_failures_only_divides_by_nothing(figure: Figure) -> None:
    row = pooled(figure("coverage", [answer(1, 5.0, Ended.FAILED)]))
    assert (1, 0, None) == (row["n"], row["resolved_90"], row["weighted_90"])
    assert [] == figure("sharpness")


def test_a_running_phase_counts_as_long_as_it_is_known_to_and_only_from_then_on(store: Store, figure: Figure) -> None:
    asked, _ = answer(1, 0.0)
    running = Observation(
        observation_id="a-1/service/0", attempt_id="a-1", phase="service", started_ns=1_000 * SECOND_NS, duration_s=95.5,
        ended=Ended.RUNNING, clock="monotonic",
    )  # fmt: skip
    store.write(Batch((asked,)))
    store.write(Batch((running,)))
    row = pooled(figure("coverage"))
    assert (1, 0, 1, 0) == (row["n"], row["n_completed"], row["misses_95"], row["misses_99"])
    assert [] == figure("coverage", commit=1)


def test_an_outcome_that_came_later_is_not_seen(store: Store, figure: Figure) -> None:
    prediction, outcome = answer(1, 95.0)
    store.write(batch([(prediction, outcome)]))
    store.write(Batch((outcome.model_copy(update={"actual_s": 5.0}),), closes=((Outcome, ("p-000001",)),)))
    assert [1, 0] == [pooled(figure("coverage", commit=commit))["misses_50"] for commit in (1, 2)]


def test_only_the_first_answer_of_an_attempt_and_kind_counts(figure: Figure) -> None:
    later = {"attempt_id": "a-1", "made_ns": 999 * SECOND_NS + 5}
    rest = answer(4, 10.0, attempt_id="a-1", elapsed_s=5.0)
    rows = figure("coverage", [answer(1, 95.0), answer(2, 5.0, **later), rest])
    assert (1, 1) == (pooled(rows)["n"], pooled(rows)["misses_90"])
    assert [1] == [row["n"] for row in rows if row["phase"] is None and row["while_running"]]


def test_the_newest_are_those_that_started_last(figure: Figure) -> None:
    told = [answer(1, 95.0), answer(2, 5.0), answer(3, 5.0)]
    assert [0, 1] == [
        pooled(figure("coverage", told[:0] if newest == 3 else told, newest=newest))["misses_90"] for newest in (2, 3)
    ]


def test_a_fine_headline_does_not_hide_the_stratum_that_is_wrong(figure: Figure) -> None:  # field rule C09
    good = [answer(i, 94.0 if i % 100 == 0 else 10.0, context={"family": "a"}) for i in range(900)]
    bad = [answer(900 + i, 10.0 if i % 10 < 6 else 94.0, context={"family": "b"}) for i in range(100)]
    rows = figure("coverage", good + bad)
    assert {"a": (9, 900), "b": (40, 100)} == {r["family"]: (r["misses_90"], r["n"]) for r in rows if r["family"] is not None}
    assert (49, 1000) == (pooled(rows)["misses_90"], pooled(rows)["n"])


def test_shapes_batches_and_concurrency_are_told_in_classes_and_the_unknown_apart(figure: Figure) -> None:
    known = {"size_in": 300.0, "batch": 8.0, "corunners": 2.0}
    rows = figure("coverage", [answer(1, 5.0, context=known), answer(2, 5.0, context={})])
    for name, words in (("size_class", "256 to below 512"), ("batch_class", "8 to below 16"), ("concurrency", "2 to below 4")):
        assert {words: 1, "": 1} == {row[name]: row["n"] for row in rows if row[name] is not None}


def test_weights_undo_the_censoring_of_long_rows(figure: Figure) -> None:
    # T uniform on [0, 100] s, lost at a uniform time on [0, 100] s: of the long rows hardly any is seen to its end.
    rng = np.random.default_rng(5)
    length_s, lost_s = rng.uniform(0, 100, 2000), rng.uniform(0, 100, 2000)
    ended = [Ended.COMPLETED if t <= c else Ended.CANCELLED for t, c in zip(length_s, lost_s, strict=True)]
    told = [answer(i, float(min(length_s[i], lost_s[i])), ended[i]) for i in range(2000)]
    row = pooled(figure("coverage", told, newest=2000))
    assert pytest.approx(0.4, abs=0.04) == row["misses_50"] / row["resolved_50"]
    assert pytest.approx(0.5, abs=0.04) == row["weighted_50"]


def test_scores_are_those_of_the_library_weights_and_all(figure: Figure) -> None:
    rng = np.random.default_rng(6)
    actual_s = np.round(rng.uniform(1, 100, 300), 3)
    lost = rng.uniform(size=300) < 0.3
    told = [answer(i, float(s), Ended.CANCELLED if lost[i] else Ended.COMPLETED) for i, s in enumerate(actual_s)]
    row = pooled(figure("sharpness", told))
    weight = censoring_weights(actual_s, lost, [["all"] * 300])[~lost]
    score = crps_log(actual_s[~lost], np.tile(UNIFORM_S[:99], (int((~lost).sum()), 1)))
    assert pytest.approx(weighted_mean(score, weight), abs=1e-8) == row["crps_log"]
    log_s = np.log(actual_s[~lost])
    among = np.abs(log_s[:, None] - log_s).mean(axis=1) - np.abs(log_s[:, None] - log_s).mean() / 2
    assert pytest.approx(weighted_mean(among, weight), abs=1e-8) == row["crps_unconditional"]
    assert pytest.approx(np.log(9.0), abs=1e-9) == row["width_log"]


def test_the_score_is_that_of_the_library_for_every_shape_of_answer(figure: Figure) -> None:
    rng = np.random.default_rng(8)
    shapes = {
        "atom": np.full(101, 3.0),
        "of nothing": np.zeros(101),
        "half nothing": np.concatenate([np.zeros(50), np.geomspace(1e-3, 1e3, 51)]),
        "over all sizes": np.geomspace(1e-9, 1e15, 101),
        "heavy": np.exp(np.sort(rng.normal(0.0, 4.0, 101))),
    }
    actual_s = (1e-7, 3.0, 50.0, 1e6)
    told = [
        answer(100 * row + i, y, quantiles_s=list(quantiles_s), context={"family": name})
        for row, (name, quantiles_s) in enumerate(shapes.items())
        for i, y in enumerate(actual_s)
    ]
    found = {row["family"]: row["crps_log"] for row in figure("sharpness", told) if row["family"] is not None}
    scores = {name: crps_log(actual_s, np.tile(quantiles_s[:99], (4, 1))) for name, quantiles_s in shapes.items()}
    assert {name: pytest.approx(score.mean(), abs=1e-8) for name, score in scores.items()} == found


def test_the_last_nine_are_those_that_had_ended_when_the_question_was_put(figure: Figure) -> None:
    # a-1 to a-3 took 1, 2 and 8 s; a-4 was asked about after a-2 and before a-3 ended: median of 1 and 2 in log time.
    asked_ns = 3_000 * SECOND_NS + SECOND_NS
    told = [answer(1, 1.0), answer(2, 2.0), answer(3, 8.0), answer(4, 4.0, made_ns=asked_ns)]
    row = pooled(figure("sharpness", told))
    errors = [np.log(2.0), abs(np.log(8.0) - np.log(2.0) / 2), abs(np.log(4.0) - np.log(2.0) / 2)]
    assert pytest.approx(np.mean(errors), abs=1e-8) == row["crps_of_nine"]


def test_biases_have_the_sign_of_what_was_too_short(figure: Figure) -> None:
    told = [answer(i, s) for i, s in enumerate((60.0, 75.0, 90.0), 1)]  # p50 and mean are 50 s
    assert pytest.approx(0.5) == pooled(figure("sharpness", told))["mean_bias"]
    assert pytest.approx(np.log(1.5)) == pooled(figure("bias"))["median_off"]


def test_ends_fall_into_the_twentieth_they_belong_to(figure: Figure) -> None:
    rows = figure("pit", [answer(1, 2.0), answer(2, 52.0), answer(3, 53.0), answer(4, 150.0)])
    assert {0: 1, 10: 2, BINS - 1: 1} == {row["bin"]: row["n"] for row in rows}


def test_an_atom_is_spread_over_its_levels(figure: Figure) -> None:
    told = [answer(i, 7.0, quantiles_s=[7.0] * 101) for i in range(400)]
    rows = figure("pit", told)
    assert list(range(BINS)) == [row["bin"] for row in rows]
    assert max(row["n"] for row in rows) < 45  # 20 expected of each; 45 is more than five standard deviations off


def test_time_is_cut_into_parts_of_equal_counts(figure: Figure) -> None:
    rows = figure("over_time", [answer(i, 95.0 if i <= 24 else 5.0) for i in range(1, 49)])
    assert [2] * 24 == [row["n"] for row in rows]
    assert [2] * 12 + [0] * 12 == [row["misses_90"] for row in rows]
    assert [row["from_ns"] for row in rows] == sorted(row["from_ns"] for row in rows)


def test_answers_while_running_are_cut_by_the_share_of_the_usual_time(figure: Figure) -> None:
    # The p50 answered at the start is 50 s: 10, 30 and 60 s are a fifth, more than half and more than all of it.
    rests = [answer(i, 95.0, attempt_id="a-1", elapsed_s=s) for i, s in ((2, 10.0), (3, 11.0), (4, 30.0), (5, 60.0))]
    rows = figure("elapsed", [answer(1, 155.0), *rests])
    assert [(0.0, 1), (0.5, 1), (1.0, 1)] == [(row["elapsed_from"], row["n"]) for row in rows]
    assert [1, 1, 1] == [row["misses_90"] for row in rows]


def test_plans_are_grouped_by_what_was_answered(store: Store, figure: Figure) -> None:
    made = {
        "request_id": "r",
        "question": "chance",
        "needed_by": [],
        "as_of_commit": 0,
        "model_id": "m",
        "asked": "{}",
        "level": 0.9,
    }
    said = {"mc_se": 0.0, "calibration_se": 0.0, "lower": 0.8, "p_complete": 1.0, "expected_late_s": 0.0, "status": "thin"}
    rows: list[Any] = []
    for i, (probability, met) in enumerate([(0.92, True), (0.94, False), (0.3, False), (0.97, None)]):
        held = {"verdict": "holds" if probability > 0.9 else "does_not_hold", "reasons": [], "answer_sha256": "0"}
        rows.append(PlanAnswer(answer_id=f"q{i}", attempt_id=f"a{i}", made_ns=i, probability=probability, **made, **said, **held))
        rows.append(PlanOutcome(answer_id=f"q{i}", actual_s=1.0, ended=Ended.COMPLETED, met=met))
    store.write(Batch(tuple(rows)))
    low, high = figure("plans")
    assert (0.0, 1, 0, 0.3, 0) == (low["answered_from"], low["n"], low["met"], low["answered"], low["held"])
    assert (0.9, 2, 1, pytest.approx(0.93), 2, 1) == tuple(
        high[name] for name in ("answered_from", "n", "met", "answered", "held", "held_and_met")
    )
    assert pytest.approx((0.08**2 + 0.94**2) / 2) == high["brier"]


def test_support_counts_answers_without_outcomes_too(store: Store, figure: Figure) -> None:
    store.write(Batch((answer(1, 0.0)[0], answer(2, 0.0, status="calibrated", n=90, n_eff=80.0)[0])))
    [row] = [row for row in figure("support") if row["phase"] is None]
    assert (2, 1, 1, 0) == tuple(row[name] for name in ("answers", "thin", "calibrated", "shadow"))
    assert (49.0, 5.0) == (row["median_n"], row["least_n_eff"])
    assert {("thin", "too_few"): 1, ("calibrated", "too_few"): 1} == {
        (row["status"], row["reason"]): row["answers"] for row in figure("reasons")
    }


def test_the_drift_log_has_everything_but_promotions(store: Store, figure: Figure) -> None:
    made = {"subject": "service", "decided_by": "rule", "reason": "why", "evidence": "{}"}
    kinds = [("c1", "drift", 2), ("c2", "promotion", 1), ("c3", "reaction", 1)]
    store.write(Batch(tuple(Change(change_id=i, kind=kind, action="widen", made_ns=at, **made) for i, kind, at in kinds)))
    assert ["c3", "c1"] == [row["change_id"] for row in figure("drift")]


def test_the_same_figures_come_out_of_any_order_of_adding(figure: Figure) -> None:
    rng = np.random.default_rng(7)
    told = [answer(i, float(s)) for i, s in enumerate(rng.uniform(0.1, 100, 500))]
    first = figure("sharpness", told)
    assert first == figure("sharpness")
