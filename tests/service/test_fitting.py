"""A fit made in a process of its own is the one made here, to the bit; one that dies is told and made again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from calibrate.conformal import saved
from predictors import modelfile
from predictors.experts.forest import LEAST_ROWS, Forest
from predictors.synthetic import World, runs
from service.fitting import Apart, History, Known, founded, refitted
from service.replay import replay
from telemetry import asof
from telemetry.store.reader import open_reader
from tests.service.living import Living, until

SURE = World(failure_mean_s=None, cancel_mean_s=None)


@pytest.fixture
def known(living: Living) -> Known:
    """What is known of 60 attempts, with lessons drawn at random."""
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    rng = np.random.default_rng(3)
    features, residual = rng.normal(size=(2 * LEAST_ROWS, 4)), rng.normal(size=2 * LEAST_ROWS)
    features[0, 0] = np.nan  # unknown
    with living.store.reader() as reader:
        observations = asof.observations(reader, living.store.last_commit)
    return Known(living.store.last_commit, observations, {}, 1, features, residual)


def test_a_fit_made_apart_is_the_fit_made_here_to_the_bit(known: Known) -> None:
    here, there = refitted(known), Apart().refitted(known)
    assert modelfile.packed(here.record) == modelfile.packed(there.record)
    assert here.forest is not None
    assert there.forest is not None
    for one in fields(Forest):
        mine, its = getattr(here.forest, one.name), getattr(there.forest, one.name)
        assert (mine.dtype, mine.tobytes()) == (its.dtype, its.tobytes())


def test_a_model_founded_apart_is_the_one_founded_here_to_the_bit(known: Known) -> None:
    history = History(known.commit, known.observations, ())
    there = Apart().founded(history)
    assert there is not None
    assert saved.packed(founded(history)) == saved.packed(there)
    nothing = History(known.commit, known.observations.slice(0, 0), ())
    assert Apart().founded(nothing) is None


def test_a_forest_is_grown_when_it_is_time(known: Known) -> None:
    assert Apart().refitted(replace(known, grown_at=10**9)).forest is None


def test_a_fit_that_is_ended_ends_at_once_and_no_other_begins(known: Known) -> None:
    apart, raised = Apart(), list[BaseException]()

    def fit() -> None:
        try:
            apart.refitted(known)
        except ChildProcessError as error:
            raised.append(error)

    thread = threading.Thread(target=fit)
    thread.start()
    until(lambda: apart._process is not None)
    assert apart._process is not None
    child = psutil.Process(apart._process.pid)
    apart.end()
    thread.join(timeout=10)
    assert ["the process that fitted ended with -9"] == [str(error) for error in raised]
    assert not child.is_running()
    with pytest.raises(ChildProcessError, match="no fit begins"):
        apart.refitted(known)


def test_refits_of_a_service_are_made_by_a_nicer_process_and_replayed(
    living: Living, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nice = list[int]()
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    monkeypatch.setattr("service.refit.APART_FROM", 1)
    living.upkeep._refitter.go_apart()
    apart = living.upkeep._refitter._apart
    assert apart is not None
    assert living.lineup.serving is not None
    before = living.lineup.serving.model_id
    living.send(runs(30, seed=4, world=SURE))
    living.upkeep.tick()
    while apart._process is None or (apart._process.poll() is None and not any(nice)):
        if apart._process is not None:
            nice.append(psutil.Process(apart._process.pid).nice() - psutil.Process().nice())
        time.sleep(0.001)
    assert 10 == nice[-1]
    living.settle()
    assert before != living.lineup.serving.model_id
    living.store.snapshot(tmp_path / "copy.duckdb")
    with open_reader(tmp_path / "copy.duckdb") as reader:
        found = replay(reader, 2**62)
    assert [] == found.different_fits


def test_a_fit_whose_process_was_killed_is_told_and_made_again(
    revive: Callable[[], Living], monkeypatch: pytest.MonkeyPatch
) -> None:
    living = revive()
    living.send(runs(60, seed=2, world=SURE))
    living.settle()
    assert living.lineup.serving is not None
    before = living.lineup.serving.model_id
    refitter = living.upkeep._refitter
    monkeypatch.setattr("service.refit.APART_FROM", 1)
    monkeypatch.setattr("service.refit.RETRY_S", 0.0)
    refitter.go_apart()
    living.send(runs(30, seed=4, world=SURE))
    living.upkeep.tick()
    until(lambda: refitter._apart is not None and refitter._apart._process is not None)
    refitter._apart._process.kill()  # type: ignore[union-attr]
    refitter.wait()
    living.upkeep.tick()
    assert refitter.trouble == "fit: ChildProcessError: the process that fitted ended with -9"
    assert before == living.lineup.serving.model_id
    living.settle()
    assert before != living.lineup.serving.model_id
    assert refitter.trouble is None
