"""Measured profiles in the living service: a host that has run nothing is answered from its rates, as known at the commit."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from predictors.contexts import Context
from predictors.synthetic import World, runs
from service.engine import Asking, Question, ask
from service.lineup import Lineup
from service.replay import replay
from service.settings import Settings
from service.upkeep import Upkeep
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import open_reader
from telemetry.tables import HostProfile
from tests.service.living import Living

SLOWNESS = {"north": 1.0, "south": 1.6, "east": 0.7, "west": 1.2}
NEW, SLOWER = "attic", 2.5
WORLD = World(tuple(SLOWNESS.items()), failure_mean_s=None, cancel_mean_s=None)
TRUE_WIDTH = math.exp(1.2816 * WORLD.service_sigma)
"""True p90 over the true median."""
TRUE_S = SLOWER * (WORLD.overhead_s + WORLD.per_item_s * 4 * 64)
HERE = Context(NEW, "cpu", "encoder", "encoder@1", state="cached", batch=4.0, size_in=64.0, corunners=0.0)


def profile(host: str, slowness: float, number: int = 1, *, contended: bool = False, partial: bool = False) -> HostProfile:
    rates = {"matmul_threads_1_flop_per_s": 1e10 / slowness, "file_read_cached_bytes_per_s": 1e9 / slowness}
    told = {name: {"median": rate, "low": rate, "high": rate, "contended": contended} for name, rate in rates.items()}
    return HostProfile(
        profile_id=f"{host}-{number}",
        host=host,
        grant_id="grant-1",
        measured_ns=number,
        condition='{"processor": "x"}',
        rates=json.dumps(told),
        partial=partial,
    )


def profiles() -> list[HostProfile]:
    return [profile(host, slowness) for host, slowness in SLOWNESS.items()]


def service(living: Living, context: Context = HERE) -> dict[str, Any]:
    """The answer for a service that is about to start, which is kept."""
    serving = living.lineup.serving
    assert serving is not None
    number = f"{living.store.last_commit}-{len(living.lineup.ledger)}-{context.host}"
    asking = Asking((0.5, 0.9), number, (number,), 1_800_000_000_000_000_000)
    [answered] = ask(serving, [Question("service", context)], asking)
    assert answered.row is not None
    living.lineup.ledger.append(answered.row)
    told: dict[str, Any] = orjson.loads(answered.body)
    return told


@pytest.fixture(scope="module")
def one_life(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store in which four hosts have run much, and nobody has measured them."""
    folder = tmp_path_factory.mktemp("life")
    settings = Settings(store=folder / "store.duckdb", refit_share=1.0)
    with Store.open(settings.store) as store:
        lineup = Lineup("here/boot-1")
        living = Living(store, lineup, Upkeep(store, lineup, settings))
        living.send(runs(140, seed=3, world=WORLD))
        living.settle()
        living.upkeep.stop()
    return folder


@pytest.fixture
def lived(one_life: Path, tmp_path: Path, revive: Callable[[], Living]) -> Living:
    """That store, taken up again."""
    shutil.copytree(one_life, tmp_path, dirs_exist_ok=True)
    return revive()


def test_a_new_host_is_answered_from_its_profile_with_nothing_else_to_wait_for(lived: Living) -> None:
    before, known = service(lived), service(lived, Context(**HERE.known() | {"host": "north"}))
    lived.store.write(Batch((*profiles(), profile(NEW, SLOWER))))
    lived.settle()
    after = service(lived)
    assert abs(before["quantiles_s"][0] / TRUE_S - 1) > 0.4
    assert abs(after["quantiles_s"][0] / TRUE_S - 1) < 0.12
    wide, narrow = (told["quantiles_s"][1] / told["quantiles_s"][0] for told in (before, after))
    assert abs(narrow / TRUE_WIDTH - 1) < 0.15
    assert narrow < wide
    assert ("shadow", "sibling", "profile_prior") == (
        after["status"],
        before["support"]["provenance"],
        after["support"]["provenance"],
    )
    again = service(lived, Context(**HERE.known() | {"host": "north"}))
    assert "own_host" == again["support"]["provenance"]
    assert abs(again["quantiles_s"][0] / known["quantiles_s"][0] - 1) < 0.1


@pytest.mark.parametrize("unusable", [{"contended": True}, {"partial": True}])
def test_what_was_measured_beside_others_or_broken_off_places_nobody(lived: Living, unusable: dict[str, bool]) -> None:
    lived.store.write(Batch((*profiles(), profile(NEW, SLOWER, **unusable))))
    lived.settle()
    assert "sibling" == service(lived)["support"]["provenance"]


def test_a_host_without_profile_is_placed_by_nothing_beside_measured_ones(lived: Living) -> None:
    stranger = Context(**HERE.known() | {"host": "cellar"})
    before = service(lived, stranger)
    lived.store.write(Batch((*profiles(), profile(NEW, SLOWER))))
    lived.settle()
    after = service(lived, stranger)
    assert "sibling" == after["support"]["provenance"]
    assert abs(after["quantiles_s"][0] / before["quantiles_s"][0] - 1) < 0.1


def test_a_profile_learned_of_before_a_restart_is_followed_after_it(lived: Living, revive: Callable[[], Living]) -> None:
    lived.store.write(Batch((*profiles(), profile(NEW, SLOWER))))
    again = revive()
    again.settle()
    assert "profile_prior" == service(again)["support"]["provenance"]


def test_answers_from_rates_come_out_again_to_the_byte_and_know_no_later_profile(lived: Living, tmp_path: Path) -> None:
    service(lived)
    lived.store.write(Batch((*profiles(), profile(NEW, SLOWER))))
    lived.settle()
    early = service(lived)
    lived.send(runs(20, seed=4, world=World((*WORLD.slowness, (NEW, SLOWER)), failure_mean_s=None, cancel_mean_s=None)))
    lived.settle()
    service(lived)
    lived.store.write(Batch((profile(NEW, SLOWER / 3, number=2),)))
    lived.settle()
    service(lived)
    lived.settle()
    lived.store.snapshot(tmp_path / "copy.duckdb")
    with open_reader(tmp_path / "copy.duckdb") as reader:
        found = replay(reader, 2**62)
    assert abs(early["quantiles_s"][0] / TRUE_S - 1) < 0.12
    assert (4, [], []) == (found.answers, found.different_answers, found.different_fits)
    assert found.fits >= 3


@pytest.mark.parametrize(("host", "slowness", "fitted"), [(NEW, SLOWER, True), ("cellar", SLOWER, True), ("north", 1.0, False)])
def test_a_few_outcomes_of_a_host_not_met_before_with_profile_or_without_are_followed_by_a_fit(
    lived: Living, host: str, slowness: float, fitted: bool
) -> None:
    lived.store.write(Batch((*profiles(), profile(NEW, SLOWER))))
    lived.settle()
    before = lived.lineup.serving
    lived.send(runs(6, seed=4, world=World(((host, slowness),), failure_mean_s=None, cancel_mean_s=None)))
    lived.settle()
    after = lived.lineup.serving
    assert before is not None
    assert after is not None
    assert fitted == (after.model.fit_commit > before.model.fit_commit)


def test_its_own_outcomes_take_over_from_a_wrong_profile(lived: Living) -> None:
    lived.store.write(Batch((*profiles(), profile(NEW, SLOWER / 3))))
    lived.settle()
    wrong = service(lived)["quantiles_s"][0]
    lived.send(runs(60, seed=5, world=World(((NEW, SLOWER),), failure_mean_s=None, cancel_mean_s=None)))
    lived.settle()
    after = service(lived)
    assert wrong < 0.5 * TRUE_S
    assert abs(after["quantiles_s"][0] / TRUE_S - 1) < 0.15
    assert "own_host" == after["support"]["provenance"]
