"""`phasecast fit` lets what is known take over at once, and tells who is believed where; `--explain` only tells."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from predictors.ensemble import EXPERTS
from predictors.synthetic import runs
from service.local import fitted_now, saved_model
from service.settings import models_folder
from telemetry import asof
from telemetry.errors import NoEvidence, UnknownId
from telemetry.store.file import Store
from telemetry.store.reader import open_reader
from tests.service.living import Living
from tests.service.test_cli import phasecast


def fits(store: Path) -> list[str]:
    """Models of a store, newest first."""
    with open_reader(store) as reader:
        return [row.model_id for row in asof.models(reader, 2**62)]


@pytest.fixture
def left(living: Living) -> Path:
    """A store that was taught twice, and left."""
    for seed in (2, 3):
        living.send(runs(30, seed=seed))
        living.settle()
    living.upkeep.stop()
    living.store.close()
    living.upkeep.stop = lambda: None  # type: ignore[method-assign]
    living.store.close = lambda: None  # type: ignore[method-assign]
    return living.store.path


def test_explaining_fits_nothing_and_gives_weights_that_sum_to_one(left: Path) -> None:
    before = fits(left)
    told = saved_model(left)
    assert (before[0], "calibrated", True) == (told.model_id, told.family, told.forest)
    assert {"phase", "novelty", "family", "host", "model", "configuration"} == {one.level for one in told.strata}
    for one in told.strata:
        assert list(EXPERTS) == list(one.weights)
        assert 1.0 == pytest.approx(sum(one.weights.values()))
        assert bool(one.losses) == (one.n > 0.0)
    assert before == fits(left)


def test_a_fit_on_demand_takes_over_and_goes_on_from_the_model_before(left: Path) -> None:
    before = fits(left)
    told = fitted_now(left)
    assert before == fits(left)[1:]
    assert told.model_id == fits(left)[0]
    with open_reader(left) as reader:
        assert before[0] == json.loads(asof.models(reader, 2**62)[0].settings)["parent"]


def test_the_command_tells_strata_with_weights_and_losses(left: Path) -> None:
    told = phasecast("fit", "--explain", "--store", left)
    assert (0, "") == (told.code, told.err)
    for part in ("experts fitted as of commit", "service/", "novelty", "hazards"):
        assert part in told.out
    found = json.loads(phasecast("fit", "--explain", "--store", left, "--json").out)
    assert {"level", "name", "n", "weights", "losses"} == set(found["strata"][0])


def test_a_store_with_nothing_ended_says_what_to_send(tmp_path: Path) -> None:
    Store.open(tmp_path / "empty.duckdb").close()
    with pytest.raises(NoEvidence, match="send completed attempts"):
        fitted_now(tmp_path / "empty.duckdb")
    with pytest.raises(UnknownId, match="no such file"):
        saved_model(tmp_path / "none.duckdb")


def test_a_model_file_that_is_lost_is_founded_anew(left: Path) -> None:
    for path in models_folder(left).iterdir():
        path.unlink()
    with pytest.raises(NoEvidence):
        saved_model(left)
    before = fits(left)
    told = fitted_now(left)
    assert told.forest
    with open_reader(left) as reader:
        newest = next(row for row in asof.models(reader, 2**62) if row.model_id == told.model_id)
    assert newest.model_id not in before
    assert json.loads(newest.settings)["parent"] is None
