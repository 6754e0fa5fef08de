"""The reading calls: each speaks of one commit, says what it is about, and refuses what it does not know."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import httpx
import pytest

from predictors.contexts import Context
from predictors.synthetic import Run, World, runs
from service.client.sync import http_client
from service.engine import Asking, Question, ask
from telemetry.asof_scored import Scores
from telemetry.store.batch import Batch
from telemetry.tables import Event
from telemetry.words import EventKind
from tests.service.living import Living, Served
from tests.service.watching import ASKED, KNOWN

SURE = World(failure_mean_s=None, cancel_mean_s=None)
REPORTS = [f"/v1/reports{part}" for part in ("", "/coverage", "/sharpness", "/support", "/drift")]
READING = ["/v1/overview", "/v1/running", "/v1/contexts", "/v1/hosts", *REPORTS]


@pytest.fixture(scope="module")
def look(watched: Served) -> Iterator[httpx.Client]:
    with http_client(watched.url, timeout_s=30) as client:
        yield client


@pytest.mark.parametrize("path", READING)
def test_every_reading_call_answers_while_nothing_is_known(asked: httpx.Client, path: str) -> None:
    answer = asked.get(path)
    assert 200 == answer.status_code
    assert "NaN" not in answer.text


def test_the_overview_tells_how_far_the_service_has_come(look: httpx.Client) -> None:
    told = look.get("/v1/overview").json()
    assert told["ready"]
    assert {"setup", "service"} <= set(told["phases"])
    assert told["learned_to"] <= told["last_commit"]
    assert told["as_of_commit"] <= told["learned_to"]
    assert 0 < told["last_commit_ns"] <= told["now_ns"]
    assert 0 < told["model_observations"] <= told["ended"]


def test_coverage_counts_the_named_answers_once_each(look: httpx.Client) -> None:
    told = look.get("/v1/reports/coverage").json()
    assert told["answers"] == sum(row["n"] for row in told["strata"]) == sum(row["n"] for row in told["pooled"])
    assert ASKED <= told["answers"] <= 2 * ASKED  # a setup and a service each, but for attempts cut off before their service
    for row in told["strata"]:
        assert row["n"] == row["completed"] + row["censored"] + row["failed"]
        assert [0.5, 0.9, 0.95, 0.99] == [one["level"] for one in row["exceeded"]]
        assert all(one["low"] <= one["share"] <= one["high"] for one in row["exceeded"])
    worst = max(told["strata"] + told["margins"], key=lambda row: max(map(gap, row["exceeded"])))
    assert told["worst"].startswith(worst["phase"])
    assert all(value in told["worst"] for value in (worst["state"], worst["host"]) if value is not None)


def gap(one: dict[str, float]) -> float:
    return max(one["sure_low"] - one["nominal"], one["nominal"] - one["sure_high"])


def test_a_report_looks_at_as_many_answers_as_asked_for(look: httpx.Client) -> None:
    assert 7 == look.get("/v1/reports/coverage", params={"newest": 7}).json()["answers"]


@pytest.mark.parametrize(("query", "field"), [("newest=0", "newest"), ("newest=many", "newest"), ("latest=5", "latest")])
def test_a_wrong_question_about_coverage_is_refused_by_name(look: httpx.Client, query: str, field: str) -> None:
    answer = look.get(f"/v1/reports/coverage?{query}")
    assert (422, "application/problem+json") == (answer.status_code, answer.headers["content-type"])
    assert field == answer.json()["field"]


def test_hosts_are_listed_with_their_work_and_profile(look: httpx.Client) -> None:
    north, south = look.get("/v1/hosts").json()["hosts"]
    assert ("north", "profile-1", 1) == (north["host"], north["profile_id"], north["running"])
    assert ("south", None, 1) == (south["host"], south["profile_id"], south["running"])
    assert KNOWN + ASKED + 2 == north["attempts"] + south["attempts"]


def test_a_profile_comes_with_what_speaks_against_it_and_its_grant(look: httpx.Client) -> None:
    told = look.get("/v1/hosts/north/profile").json()
    rates = {rate["name"]: rate for rate in told["rates"]}
    assert 9.4e9 == rates["memory_copy_bytes_per_s"]["median"]
    assert ["spread 21% of the median: idle the host and measure again"] == rates["memory_copy_bytes_per_s"]["complaints"]
    assert ("ana", False) == (told["grant"]["granted_by"], told["grant"]["in_force"])
    assert 3600 <= told["age_s"] < 7200
    assert told["condition"]["quota"] is None


@pytest.mark.parametrize("host", ["south", "nobody", "a%2Fb"])
def test_a_host_that_was_never_measured_has_no_profile(look: httpx.Client, host: str) -> None:
    answer = look.get(f"/v1/hosts/{host}/profile")
    assert (404, "host") == (answer.status_code, answer.json()["field"])


def test_running_phases_come_with_their_age_and_what_is_left(look: httpx.Client) -> None:
    before = look.get("/v1/overview").json()["last_commit"]
    told = look.get("/v1/running").json()
    assert 2 == told["attempts"]
    setup, opening = (next(p for p in told["phases"] if p["phase"] == name) for name in ("setup", "open"))
    assert "monotonic" == setup["elapsed_source"]
    assert 0.0 < setup["elapsed_s"]
    assert sorted(setup["remaining_s"]) == setup["remaining_s"]
    assert (None, "shadow", ["no_evidence"]) == (opening["remaining_s"], opening["status"], opening["reasons"])
    look.get("/v1/running")
    assert before == look.get("/v1/overview").json()["last_commit"], "watching must not write to the ledger"


def test_recent_contexts_can_be_asked_about_as_they_are(look: httpx.Client) -> None:
    seen = look.get("/v1/contexts").json()["contexts"]
    assert KNOWN + ASKED + 2 == sum(one["attempts"] for one in seen)
    assert {"north", "south"} == {one["context"]["host"] for one in seen}
    assert 200 == look.post("/v1/predict", json={"contexts": [seen[0]["context"]], "phases": ["service"]}).status_code


def answered(living: Living, run: Run, prediction_id: str, made_ns: int, elapsed_s: float | None = None) -> None:
    """Have the run's service answered and the answer committed."""
    question = Question("service", Context.of(run.attempt.model_dump()), run.attempt.attempt_id, elapsed_s)
    [answer] = ask(living.lineup.serving, [question], Asking((0.5,), "request", (prediction_id,), made_ns))
    living.lineup.ledger.append(answer.row)
    living.upkeep.tick()


def judged_now(living: Living, commit: int | None = None) -> list[tuple[str, str, float]]:
    with living.store.reader() as reader:
        for statement in Scores(reader, living.store.last_commit if commit is None else commit, newest=100).setup:
            reader.rows(statement)
        return reader.rows("SELECT prediction_id, ended, actual_s FROM answers ORDER BY started_ns, prediction_id")


def test_only_the_first_answer_of_an_attempt_and_phase_is_judged(living: Living) -> None:
    living.send(runs(40, seed=2, world=SURE))
    living.settle()
    [run] = runs(1, seed=5, world=SURE)
    start_ns = run.events[0].wall_ns
    answered(living, run, "second", start_ns + 1)
    answered(living, run, "first", start_ns)
    answered(living, run, "while running", start_ns + 2, elapsed_s=run.service_s / 2)
    living.send([run])
    living.settle()
    found = {name: (ended, actual_s) for name, ended, actual_s in judged_now(living)}
    assert {"first", "while running"} == found.keys()
    assert ("completed", pytest.approx(run.service_s, abs=1e-8)) == found["first"]
    assert ("completed", pytest.approx(run.service_s / 2, abs=1e-8)) == found["while running"]


def test_a_phase_that_still_runs_counts_as_long_as_it_is_known_to_and_past_its_bound_is_a_miss(living: Living) -> None:
    living.send(runs(40, seed=2, world=SURE))
    living.settle()
    [run] = runs(1, seed=5, world=SURE)
    answered(living, run, "asked", run.events[0].wall_ns)
    begun = list(takewhile(lambda event: event.kind is not EventKind.COMPUTE_FINISH, run.events))
    start = begun[-1]
    living.store.write(Batch((run.attempt, *begun, heartbeat(start, "beat-1", 1.0))))
    living.settle()
    one_second = living.store.last_commit
    assert [("asked", "running", pytest.approx(1.0))] == judged_now(living)
    living.store.write(Batch((heartbeat(start, "beat-2", 900.0),)))
    living.settle()
    assert [("asked", "running", pytest.approx(900.0))] == judged_now(living)
    assert [("asked", "running", pytest.approx(1.0))] == judged_now(living, one_second)
    with living.store.reader() as reader:
        [row] = Scores(reader, living.store.last_commit, newest=100).figure("over_time").to_pylist()
    assert (0, 1) == (row["n_completed"], row["misses_99"])


def heartbeat(start: Event, event_id: str, after_s: float) -> Event:
    """A sign of life so long after the start."""
    later_ns = round(after_s * 1e9)
    moved = {"wall_ns": start.wall_ns + later_ns, "monotonic_ns": (start.monotonic_ns or 0) + later_ns}
    return start.model_copy(update={"event_id": event_id, "kind": EventKind.HEARTBEAT, **moved})
