"""`phasecast shadow` on a store that nobody holds, and while it is served."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from calibrate.evidence.compare import on_grid
from service.cli.main import app
from telemetry.errors import PhasecastError, UnknownId
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.verdicts import ShadowForecast
from tests.service.living import Served


def forecast(attempt_id: str, *, beside: str | None = None) -> ShadowForecast:
    return ShadowForecast(
        predictor="planner-3",
        attempt_id=attempt_id,
        phase="service",
        form="point",
        levels=[],
        sent_s=[2.0],
        quantiles_s=on_grid("point", [2.0]).tolist(),
        prediction_id=beside,
    )


def shadow(store: Path, *arguments: str) -> str:
    done = CliRunner().invoke(app, ["shadow", *arguments, "--store", str(store)])
    if isinstance(done.exception, PhasecastError):
        raise done.exception
    assert 0 == done.exit_code, done.output
    return done.output


def told(store: Path, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(shadow(store, *arguments, "--json"))
    return found


@pytest.fixture(params=["free", "served"])
def store(request: pytest.FixtureRequest, start_server: Callable[[Path], Served], tmp_path: Path) -> Path:
    """A store with two forecasts of attempts that nobody answered about."""
    path = tmp_path / "s.duckdb"
    with Store.open(path) as opened:
        opened.write(Batch((forecast("a-1"), forecast("a-2"))))
    if request.param == "served":
        start_server(path)
    return path


def test_the_scoreboard_and_decisions_on_record(store: Path) -> None:
    lines = shadow(store).splitlines()
    assert "in office: default; 0 forecasts came too late" == lines[0]
    assert lines[1].startswith("planner-3 [outside] all phases: 0 scored of 0 runs")
    [standing] = told(store)["standings"]
    assert {"unpaired": 2} == {name: count for name, count in standing["counts"].items() if count}

    made = told(store, "promote", "network", "--reason", "canary on node-3", "--by", "ada")
    assert ("network", "promote", "ada") == (made["subject"], made["action"], made["decided_by"])
    assert "network" == told(store)["in_office"]
    assert "withdrawn network, decided by ada" in shadow(store, "withdraw", made["change_id"], "--reason", "over")
    assert "default" == told(store)["in_office"]
    assert f"{made['change_id']} promote network by ada: canary on node-3; withdrawn: over" in shadow(store)
    assert "hold forest" in shadow(store, "hold", "forest", "--reason", "new driver", "--by", "ada")
    assert "demote forest" in shadow(store, "demote", "forest", "--reason", "slow", "--by", "ada")
    with pytest.raises(UnknownId, match="change_id"):
        shadow(store, "withdraw", "nothing", "--reason", "x")
