"""The generator keeps its word: the law it names is the law it draws from."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import kstest

from predictors.contexts import Context
from predictors.synthetic import Run, World, runs
from telemetry.words import EventKind

QUIET = World(failure_mean_s=None, cancel_mean_s=None)


@pytest.fixture(scope="module")
def drawn() -> list[Run]:
    return runs(2000, seed=3)


@pytest.mark.parametrize("phase", ["setup", "service"])
def test_levels_of_what_was_drawn_are_uniform_under_the_truth(drawn: list[Run], phase: str) -> None:
    contexts = [Context.of(run.attempt.model_dump()) for run in drawn]
    took_s = np.array([[run.setup_s if phase == "setup" else run.service_s] for run in drawn])
    assert kstest(World().law(phase, contexts).cdf(took_s)[:, 0], "uniform").pvalue > 0.001


def test_uninterrupted_attempts_last_exactly_what_was_drawn() -> None:
    for run in runs(50, seed=4, world=QUIET):
        ns = {event.kind: event.monotonic_ns or 0 for event in run.events}
        assert run.setup_s == pytest.approx((ns[EventKind.READY] - ns[EventKind.PHASE_START]) / 1e9, abs=2e-9)
        assert run.service_s == pytest.approx((ns[EventKind.COMPUTE_FINISH] - ns[EventKind.COMPUTE_START]) / 1e9, abs=2e-9)


def test_every_kind_of_ending_occurs_and_nothing_follows_it(drawn: list[Run]) -> None:
    last = {run.events[-1].kind for run in drawn}
    assert {EventKind.RESOURCE_RELEASED, EventKind.FAILED, EventKind.CANCELLED} == last
    for run in drawn:
        times = [event.wall_ns for event in run.events]
        assert times == sorted(times)
        assert len({event.event_id for event in run.events}) == len(run.events)


def test_the_same_seed_gives_the_same_events() -> None:
    assert runs(20, seed=9) == runs(20, seed=9)
    assert runs(20, seed=9) != runs(20, seed=10)
