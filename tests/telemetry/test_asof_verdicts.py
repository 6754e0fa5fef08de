"""What was forecast beside the answers, decided, frozen and changed, as it was known at a commit, whatever came later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from telemetry import asof_verdicts
from telemetry.decisions import Credit, Decision
from telemetry.ledger import Prediction
from telemetry.rows import Row
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Attempt, Event, Observation
from telemetry.verdicts import Change, Forecast, Opening, ShadowForecast
from telemetry.words import Ended, EventKind

GRID = [float(k) for k in range(101)]
FAR_NS = 2**62


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(tmp_path / "s.duckdb") as opened:
        yield opened


def put(store: Store, *rows: Row) -> int:
    return store.write(Batch(rows)).commit


def forecast(**values: Any) -> ShadowForecast:
    told = {
        "predictor": "p",
        "attempt_id": "a",
        "phase": "service",
        "form": "point",
        "levels": [],
        "sent_s": [1.0],
        "quantiles_s": GRID,
    }
    return ShadowForecast(**{**told, **values})


def answer(made_ns: int, name: str = "q") -> Prediction:
    return Prediction(
        prediction_id=name,
        request_id="r",
        attempt_id="a",
        phase="service",
        made_ns=made_ns,
        as_of_commit=0,
        model_id="m",
        context="{}",
        path=[],
        form="conditional",
        status="thin",
        reasons=[],
        level="phase",
        n=1,
        n_eff=1.0,
        claimed_to=0.5,
        mean_s=1.0,
        horizon_s=1.0,
        levels=[0.5],
        quantiles_s=GRID,
        answer_sha256="0",
    )


def observed(ended: Ended, duration_s: float, started_ns: int = FAR_NS) -> Observation:
    return Observation(
        observation_id="a/service/0", attempt_id="a", phase="service", started_ns=started_ns, duration_s=duration_s, ended=ended
    )


def shadowed(store: Store, commit: int) -> list[dict[str, Any]]:
    with store.reader() as reader:
        found: list[dict[str, Any]] = asof_verdicts.shadowed(reader, commit, 100).to_pylist()
        return found


def test_what_was_known_of_a_forecast_at_a_commit_is_not_changed_by_what_came_later(store: Store) -> None:
    put(store, Attempt(attempt_id="a", host="north", run_id="r-1"), forecast())
    first = put(store, answer(made_ns=5), answer(made_ns=9, name="later"))
    before = shadowed(store, first)
    put(store, observed(Ended.RUNNING, 1.0))
    last = put(store, observed(Ended.COMPLETED, 2.0))
    assert before == shadowed(store, first)
    [row] = shadowed(store, last)
    assert ("q", 5, GRID) == (row["champion_id"], row["champion_ns"], row["champion_s"])
    assert (None, 2.0, "completed") == (before[0]["ended"], row["duration_s"], row["ended"])
    assert ("north", "r-1", None, False) == (row["host"], row["run"], row["beside"], row["after_event"])
    assert [Ended.RUNNING] == [row["ended"] for row in shadowed(store, last - 1)]


def test_an_answer_given_after_the_phase_began_is_no_champion(store: Store) -> None:
    put(store, forecast(), answer(made_ns=5))
    [row] = shadowed(store, put(store, observed(Ended.COMPLETED, 2.0, started_ns=4)))
    assert (None, "a") == (row["champion_id"], row["run"])


def test_a_challenger_is_paired_with_the_answer_it_was_made_beside_and_others_with_the_first(store: Store) -> None:
    put(store, answer(made_ns=5), answer(made_ns=9, name="later"))
    commit = put(store, forecast(), forecast(predictor="hazards", prediction_id="later"))
    assert {"p": ("q", 5), "hazards": ("later", 9)} == {
        row["predictor"]: (row["champion_id"], row["champion_ns"]) for row in shadowed(store, commit)
    }


def test_only_forecasts_since_an_instant_are_told_and_a_trial_begins_anew_when_it_is_full(store: Store) -> None:
    for place in range(5):
        commit = put(store, forecast(predictor=f"p-{place}", prediction_id="q"))
    put(store, forecast(predictor="from outside"))
    with store.reader() as reader:
        came_ns = [ns for (ns,) in reader.rows("SELECT committed_ns FROM commits WHERE known_from <= ? ORDER BY 1", [commit])][
            -5:
        ]
        since = asof_verdicts.shadowed(reader, commit, 100, came_ns[2])
        assert ["p-3", "p-4"] == sorted(since["predictor"].to_pylist())
        begun = [asof_verdicts.trial_ns(reader, commit, 0, most) for most in (6, 5, 3, 2)]
        assert [0, came_ns[4], came_ns[2], came_ns[3]] == begun
        assert came_ns[3] == asof_verdicts.trial_ns(reader, commit, came_ns[1], 2)


@pytest.mark.parametrize(("event_first", "late"), [(True, True), (False, False)])
def test_a_forecast_that_came_after_an_event_of_its_phase_is_told(store: Store, event_first: bool, late: bool) -> None:
    event = Event(event_id="e", attempt_id="a", kind=EventKind.COMPUTE_START, wall_ns=7, source="s")
    earlier = Event(event_id="e0", attempt_id="a", kind=EventKind.ELIGIBLE, wall_ns=6, source="s")
    put(store, earlier)
    for row in (event, forecast()) if event_first else (forecast(), event):
        put(store, row)
    [row] = shadowed(store, put(store, observed(Ended.RUNNING, 1.0, started_ns=7)))
    assert late is row["after_event"]


def test_decisions_are_told_with_the_first_attempt_that_followed(store: Store) -> None:
    alternatives = '[{"name": "north", "propensity": 1.0}]'
    made = Decision(decision_id="d", decided_ns=1, policy="p", choice="north", propensity=1.0, alternatives=alternatives)
    first = put(store, made, made.model_copy(update={"decision_id": "open", "run_id": "r-9"}))
    put(store, Attempt(attempt_id="a", decision_id="d"))
    last = put(store, observed(Ended.COMPLETED, 2.0), Attempt(attempt_id="again", decision_id="d", retry_of="a"))
    with store.reader() as reader:
        known = asof_verdicts.decided(reader, last, "service", 10).to_pylist()
        before = asof_verdicts.decided(reader, first, "service", 10).to_pylist()
    assert [("d", "d", 2.0, "completed"), ("open", "r-9", None, None)] == [
        (row["decision_id"], row["run"], row["duration_s"], row["ended"]) for row in known
    ]
    assert [None, None] == [row["duration_s"] for row in before]


def test_accounts_and_promotions_stand_as_of_a_commit(store: Store) -> None:
    account = Credit(account="p/risk", unit="misses", share=0.1, cap=1.0, balance=0.5, posted_ns=1, reason="first")
    change = Change(
        change_id="c", kind="promotion", subject="n", action="hold", decided_by="ada", made_ns=1, reason="why", evidence="{}"
    )
    first = put(store, account, change, change.model_copy(update={"change_id": "d", "kind": "drift"}))
    last = put(
        store, account.model_copy(update={"balance": 0.25}), change.model_copy(update={"undone_ns": 2, "undone_reason": "over"})
    )
    with store.reader() as reader:
        assert [0.5, 0.25] == [row.balance for at in (first, last) if (row := asof_verdicts.credit(reader, "p/risk", at))]
        assert None is asof_verdicts.credit(reader, "p/risk", first - 1)
        assert [[None], [2]] == [[row.undone_ns for row in asof_verdicts.promotions(reader, at)] for at in (first, last)]


def test_openings_are_found_by_what_was_scored_and_by_what_was_looked_at(store: Store) -> None:
    frozen = Forecast(forecast_id="f", kind="forecast", name="n", sha256="s", manifest="{}", frozen_ns=1)
    look = Opening(
        opening_id="o",
        forecast_id="population",
        part="locked_test",
        opened_ns=2,
        scored_id="f",
        outcomes_sha256="x",
        model_sha256="m",
        code_sha256="c",
        report="{}",
    )
    first = put(store, frozen)
    last = put(store, look)
    with store.reader() as reader:
        assert (frozen, None) == (asof_verdicts.forecast(reader, "f", first), asof_verdicts.forecast(reader, "f", first - 1))
        assert [[look], [look], []] == [asof_verdicts.openings(reader, name, last) for name in ("f", "population", "other")]
        assert [] == asof_verdicts.openings(reader, "f", first)


def test_the_hash_of_the_evidence_is_that_of_a_commit_and_of_every_value(store: Store) -> None:
    empty = put(store, Attempt(attempt_id="other", host="south"))
    first = put(store, Attempt(attempt_id="a", host="north"), observed(Ended.RUNNING, 1.0))
    with store.reader() as reader:
        before = [asof_verdicts.evidence_sha256(reader, commit) for commit in (empty - 1, empty, first)]
    last = put(store, observed(Ended.COMPLETED, 1.0))
    with store.reader() as reader:
        assert before == [asof_verdicts.evidence_sha256(reader, commit) for commit in (empty - 1, empty, first)]
        assert 4 == len({*before, asof_verdicts.evidence_sha256(reader, last)})
