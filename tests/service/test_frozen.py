"""Freezing and scoring, on the command line and over HTTP: what was changed is refused, each with a message of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from typer.testing import CliRunner

from predictors.synthetic import runs
from service.cli.main import app
from service.cli.options import Failure
from service.client.sync import http_client
from service.settings import models_folder
from telemetry.errors import PhasecastError
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.words import TERMINAL_KINDS
from tests.service.living import Served, until
from tests.service.watching import moved

COHORT: dict[str, Any] = {
    "name": "fork, common load",
    "numbers": [
        {"id": "p99", "predicted": 9.66, "unit": "s", "error": "relative_to_predicted", "tolerance": 0.15},
        {"id": "rate", "predicted": 0.5808, "unit": "workflows/s", "error": "relative_to_actual", "tolerance": 0.15},
    ],
    "contrasts": [{"id": "tier", "predicted": -0.0358}],
    "calls": [{"id": "gate", "predicted": True, "bound": 0.95}],
}
OUTCOMES: dict[str, Any] = {
    "numbers": {"p99": 12.0, "rate": 0.588},
    "contrasts": {"tier": 0.1096},
    "calls": {"gate": [74.1, 119.7]},
}


class Desk:
    """A folder with a store, in which somebody runs commands."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, folder / "s.duckdb"

    def at(self, name: str) -> Path:
        return self.folder / name

    def put(self, name: str, value: Any) -> Path:
        path = self.at(name)
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return path

    def run(self, *arguments: object, code: int = 0) -> str:
        done = CliRunner().invoke(app, [*map(str, arguments), "--store", str(self.store)])
        if code == 0:
            assert 0 == done.exit_code, done.exception
            return done.output
        assert isinstance(done.exception, PhasecastError), done.output
        return Failure.of(done.exception).text()


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_a_cohort_is_frozen_and_scored_misses_first(desk: Desk) -> None:
    frozen = json.loads(desk.run("freeze", desk.put("cohort.json", COHORT), desk.at("frozen.json"), "--json"))
    assert frozen["forecast_id"] == frozen["sha256"][:16]
    told = desk.run("score", desk.at("frozen.json"), desk.put("outcomes.json", OUTCOMES)).splitlines()
    assert [
        "  MISS number p99: relative_to_predicted +24.22%, tolerance 15.00%",
        "  MISS contrast tier: sign reversed: predicted -3.58%, measured +10.96%",
        "numbers: 1 misses, 0 missing, 1 hits",
        "contrasts: 1 misses, 0 missing, 0 hits",
        "calls: 0 misses, 0 missing, 1 hits",
        "worst case: p99; information: 2 with unstated",
    ] == told[1:]


def test_a_file_is_never_frozen_over(desk: Desk) -> None:
    cohort = desk.put("cohort.json", COHORT)
    assert "it exists" in desk.run("freeze", cohort, cohort, code=1)


def test_each_thing_that_was_changed_is_refused_with_its_own_message(desk: Desk) -> None:
    model, data, code = (desk.put(name, name) for name in ("model.bin", "data.csv", "predict.py"))
    own = ("--model", model, "--data", data, "--code", code)
    desk.run("freeze", desk.put("cohort.json", COHORT), desk.at("frozen.json"), *own)
    outcomes = desk.put("outcomes.json", OUTCOMES)
    desk.run("score", desk.at("frozen.json"), outcomes, *own)
    told = []
    for path in (model, data, code):
        kept = path.read_text()
        path.write_text(kept + "!")
        told.append(desk.run("score", desk.at("frozen.json"), outcomes, *own, code=1))
        path.write_text(kept)
    outcomes.write_text(json.dumps(OUTCOMES | {"contrasts": {"tier": -0.1}}))
    told.append(desk.run("score", desk.at("frozen.json"), outcomes, *own, code=1))
    outcomes.write_text(json.dumps(OUTCOMES))
    frozen = desk.at("frozen.json")
    frozen.write_text(frozen.read_text().replace("9.66", "9.67"))
    told.append(desk.run("score", desk.at("frozen.json"), outcomes, *own, code=1))
    starts = ["model_sha256", "data_sha256", "code_sha256", "outcomes", "manifest"]
    assert starts == [text.removeprefix("phasecast: ").split(":")[0] for text in told]
    assert 5 == len({text.split("->")[1] for text in told})


def test_the_same_look_is_the_same_and_is_on_record_once(desk: Desk) -> None:
    desk.run("freeze", desk.put("cohort.json", COHORT), desk.at("frozen.json"))
    outcomes = desk.put("outcomes.json", OUTCOMES)
    first, second = (json.loads(desk.run("score", desk.at("frozen.json"), outcomes, "--json")) for _ in range(2))
    assert (False, True) == (first["repeated"], second["repeated"])
    assert first | {"repeated": True} == second
    with duckdb.connect(str(desk.store), read_only=True) as store:
        assert [(1,)] == store.execute("SELECT count(*) FROM openings").fetchall()


def test_a_manifest_resealed_after_an_edit_is_not_what_was_frozen(desk: Desk) -> None:
    desk.run("freeze", desk.put("cohort.json", COHORT), desk.at("frozen.json"))
    other = json.loads(json.dumps(COHORT))
    other["numbers"][0]["predicted"] = 12.0
    elsewhere = Desk(desk.folder / "elsewhere")
    elsewhere.folder.mkdir()
    elsewhere.run("freeze", elsewhere.put("cohort.json", other), elsewhere.at("frozen.json"))
    resealed = elsewhere.at("frozen.json")
    assert "nothing was frozen here" in desk.run("score", resealed, desk.put("outcomes.json", OUTCOMES), code=1)


def test_a_locked_part_opens_once_for_frozen_code_and_model(desk: Desk) -> None:
    outcomes = {
        name: desk.put(f"{name}.json", OUTCOMES | {"contrasts": {"tier": k / 10}})
        for k, name in enumerate(("dev", "val", "locked"), 1)
    }
    parts = {
        part: {"file": f"{name}.json", "families": [name], "seeds": [k]}
        for k, (part, name) in enumerate((("development", "dev"), ("validation", "val"), ("locked_test", "locked")))
    }
    population = {"name": "p", "generator": {"name": "g", "version": "1"}, "ranges": {"depth": [1, 4]}, "parts": parts}
    sealed = json.loads(desk.run("freeze", desk.put("population.json", population), desk.at("sealed.json"), "--json"))
    model, code = desk.put("model.bin", "m"), desk.put("predict.py", "c")
    held = ("--model", model, "--code", code)

    def freeze(name: str, part: str, *hashes: object) -> Path:
        cohort = COHORT | {"name": name, "population": sealed["forecast_id"], "part": part}
        desk.run("freeze", desk.put(f"{name}-cohort.json", cohort), desk.at(f"{name}.frozen"), *hashes)
        return desk.at(f"{name}.frozen")

    assert "made_from.code_sha256" in desk.run("score", freeze("bare", "locked_test"), outcomes["locked"], code=1)
    first = freeze("first", "locked_test", *held)
    assert "locked_test" in desk.run("score", first, outcomes["dev"], *held, code=1)
    report = json.loads(desk.run("score", first, outcomes["locked"], *held, "--json"))
    assert ("locked_test", False) == (report["part"], report["repeated"])
    assert json.loads(desk.run("score", first, outcomes["locked"], *held, "--json"))["repeated"]
    model.write_text("tuned")
    again = freeze("again", "locked_test", *held)
    assert "already_opened: locked_test" in desk.run("score", again, outcomes["locked"], *held, code=1)
    tuned = freeze("tuned", "validation", *held)
    assert "validation" == json.loads(desk.run("score", tuned, outcomes["val"], *held, "--json"))["part"]


# The model's own forecasts.


@pytest.fixture(scope="module")
def served(start_server: Callable[[Path], Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server that has learned from 60 attempts."""
    found = start_server(tmp_path_factory.mktemp("frozen") / "s.duckdb")
    with http_client(found.url, timeout_s=30) as http:
        for run in runs(60, seed=5):
            http.post("/v1/events", json=moved(run, time.time_ns())).raise_for_status()
        until(lambda: http.get("/readyz").status_code == 200)
    return found


def cohort_of(attempts: list[Any]) -> dict[str, Any]:
    """Medians of services of attempts to come."""
    names = {"host", "device", "family", "model", "state", "batch", "size_in", "corunners"}
    return {
        "name": "next twenty",
        "asked": [
            {
                "id": run.attempt.attempt_id,
                "phase": "service",
                "context": run.attempt.model_dump(include=names, exclude_none=True),
                "attempt_id": run.attempt.attempt_id,
                "tolerance": 0.5,
                "reference": 100.0,
            }
            for run in attempts
        ],
    }


def test_the_models_forecasts_are_frozen_before_and_scored_after(served: Served, tmp_path: Path) -> None:
    later = [run for run in runs(90, seed=5)[60:] if not {event.kind for event in run.events} & TERMINAL_KINDS]
    desk = Desk(tmp_path)
    desk.store = served.store
    frozen = json.loads(desk.run("freeze", desk.put("cohort.json", cohort_of(later)), desk.at("frozen.json"), "--json"))
    assert "none of the attempts has completed" in desk.run("score", desk.at("frozen.json"), code=1)
    with http_client(served.url, timeout_s=30) as http:
        manifest = json.loads(http.get(f"/v1/forecasts/{frozen['forecast_id']}").json()["file"])["manifest"]
        assert all(len(manifest["made_from"][name]) == 64 for name in ("model_sha256", "data_sha256", "code_sha256"))
        for run in later:
            http.post("/v1/events", json=moved(run, time.time_ns())).raise_for_status()

        def counts() -> dict[str, int]:
            found: dict[str, int] = score(http, frozen)["report"]["counts"]["numbers"]
            return found

        until(lambda: counts()["missing"] == 0)
        report = score(http, frozen)["report"]
    assert len(later) == sum(report["counts"]["numbers"].values())
    assert len(later) == report["against"]["wins"], "the reference was far off everywhere"
    assert [0.5, 0.9, 0.95, 0.99] == [one["level"] for one in report["passed"]]


def score(http: httpx.Client, frozen: dict[str, Any]) -> dict[str, Any]:
    answer = http.post(f"/v1/forecasts/{frozen['forecast_id']}/score", json={})
    assert 200 == answer.status_code, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("changed", ["model_sha256", "data_sha256"])
def test_a_swapped_model_file_and_rewritten_observations_are_found_in_the_store(desk: Desk, changed: str) -> None:
    with Store.open(desk.store) as store:
        store.write(Batch(tuple(row for run in runs(60, seed=5) for row in (run.attempt, *run.events))))
    later = runs(63, seed=5)[60:]
    desk.run("freeze", desk.put("cohort.json", cohort_of(later)), desk.at("frozen.json"))
    outcomes = desk.put("outcomes.json", {"numbers": {later[0].attempt.attempt_id: 1.0}})
    desk.run("score", desk.at("frozen.json"), outcomes)
    if changed == "model_sha256":
        for file in models_folder(desk.store).iterdir():
            file.write_bytes(file.read_bytes() + b"!")
    else:
        with duckdb.connect(str(desk.store)) as store:
            store.execute("UPDATE observations SET duration_s = duration_s * 2 WHERE phase = 'service'")
    assert changed in desk.run("score", desk.at("frozen.json"), outcomes, code=1)


def test_what_was_never_frozen_is_not_there(served: Served) -> None:
    with http_client(served.url) as http:
        assert [404, 404] == [http.get("/v1/forecasts/x").status_code, http.post("/v1/forecasts/x/score", json={}).status_code]
        body = {"name": "c", "numbers": COHORT["numbers"], "population": "x", "part": "validation"}
        assert 404 == http.post("/v1/forecasts", json=body).status_code
