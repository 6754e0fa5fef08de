"""Learning after the fit: additions, exact take-backs of running versions, decay, late events."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors import hazards
from predictors.contexts import Context
from predictors.distribution import GRID
from predictors.frames import Frame
from predictors.hazards import FitSettings, HierarchicalHazards
from predictors.model import Change
from telemetry.words import Ended

KNOWN = Context(host="a", family="encoder", model="m@1")
NEW = Context(host="b", family="encoder", model="m@2")
DEFAULT = FitSettings()
UNLIMITED = FitSettings(half_life=(None,) * 6)


def fitted(settings: FitSettings = DEFAULT, n: int = 100) -> HierarchicalHazards:
    """Log-normal setups of one configuration, median 1 s."""
    none = np.zeros(n, dtype=bool)
    time_s = np.exp(np.random.default_rng(1).normal(0.0, 0.2, n))
    zero = np.zeros(n, dtype=np.int64)
    frame = Frame((KNOWN,), ("setup",), zero, zero, np.zeros(n), time_s, ~none, none, none, np.ones(n), np.arange(1, n + 1))
    return hazards.fit(frame, n, settings)


def change(
    duration_s: float, ended: Ended = Ended.COMPLETED, *, sign: int = 1, context: Context = KNOWN, at: int = 101
) -> Change:
    return Change(sign, at, "setup", context, 0.0, duration_s, ended, 1.0, at)


def counts(model: HierarchicalHazards) -> dict[str, tuple[bytes, bytes, bytes, int]]:
    nodes = model.strata["setup"].nodes
    return {key: (n.events.tobytes(), n.at_risk.tobytes(), n.running.tobytes(), n.n) for key, n in nodes.items()}


@settings(max_examples=25, deadline=None)
@given(st.lists(st.floats(1e-3, 1e4), min_size=1, max_size=6), st.sampled_from([KNOWN, NEW]))
def test_a_run_watched_until_it_completes_counts_as_if_it_had_just_completed(ages_s: list[float], context: Context) -> None:
    ages_s = sorted(ages_s)
    model = watched = fitted()
    for place, age_s in enumerate(ages_s):
        if place:
            watched = watched.after([change(ages_s[place - 1], Ended.RUNNING, sign=-1, context=context)], 101)
        watched = watched.after([change(age_s, Ended.RUNNING, context=context)], 101)
    last = [change(ages_s[-1], Ended.RUNNING, sign=-1, context=context), change(ages_s[-1], context=context)]
    assert counts(model.after(last[1:], 102)) == counts(watched.after(last, 102))


def test_running_rows_of_a_fit_are_taken_back_exactly() -> None:
    n, rng = 60, np.random.default_rng(2)
    running = np.arange(n) >= 30
    zero = np.zeros(n, dtype=np.int64)
    time_s = np.exp(rng.normal(0.0, 1.0, n))
    none = np.zeros(n, dtype=bool)
    frame = Frame((KNOWN,), ("setup",), zero, zero, np.zeros(n), time_s, ~running, none, running, np.ones(n), np.arange(1, n + 1))
    model = hazards.fit(frame, n, DEFAULT)
    taken = model.after([change(float(t), Ended.RUNNING, sign=-1) for t in time_s[running]], n + 1)
    assert model.strata["setup"].nodes["setup"].running.sum() > 0
    for node in taken.strata["setup"].nodes.values():
        assert not node.running.any()


def test_an_outcome_changes_answers_without_a_refit() -> None:
    model = fitted()
    before = model.predict([NEW], ["setup"])
    later = model.after([change(3.0 + 0.01 * i, context=NEW) for i in range(40)], 140)
    after = later.predict([NEW], ["setup"])
    assert (False, True) == (before.support[0].matched, after.support[0].matched)
    assert 40 == after.support[0].n
    assert 101 == after.support[0].last_commit
    np.testing.assert_allclose(after.quantile(0.5), 3.2, rtol=0.2)
    assert model.predict([NEW], ["setup"]).quantile(0.5) == before.quantile(0.5)


def test_a_burst_still_running_lifts_the_estimate_with_time() -> None:
    model = fitted()
    medians = [float(model.predict([NEW], ["setup"]).quantile(0.5)[0, 0])]
    for age_s in (60.0, 600.0, 1800.0):
        waiting = model.after([change(age_s, Ended.RUNNING, context=NEW)] * 200, 101)
        medians.append(float(waiting.predict([NEW], ["setup"]).quantile(0.5)[0, 0]))
        assert medians[-1] > age_s
    assert sorted(medians) == medians
    assert not waiting.predict([NEW], ["setup"]).support[0].matched


def test_half_lives_fade_the_leaf_by_outcome_and_nothing_above_it() -> None:
    model = fitted(FitSettings(half_life=(None,) * 5 + (10.0,)))
    later = model.after([change(1.0)] * 10, 101)
    leaf, root = KNOWN.path("setup")[-1], "setup"
    before, after = model.strata["setup"].nodes, later.strata["setup"].nodes
    added = sum(0.5 ** (k / 10.0) for k in range(10))
    np.testing.assert_allclose(after[leaf].events.sum(), before[leaf].events.sum() / 2.0 + added)
    np.testing.assert_allclose(after[leaf].n_eff, before[leaf].n_eff / 2.0 + added)
    assert before[root].events.sum() + 10.0 == after[root].events.sum()


def test_a_fit_fades_rows_as_learning_them_one_by_one_does() -> None:
    model = fitted(FitSettings(half_life=(None,) * 5 + (10.0,)), n=50)
    leaf = model.strata["setup"].nodes[KNOWN.path("setup")[-1]]
    np.testing.assert_allclose(leaf.n_eff, sum(0.5 ** (k / 10.0) for k in range(50)))
    assert 50 == leaf.n


def test_an_outcome_replaced_by_a_late_event_is_taken_back() -> None:
    model = fitted(UNLIMITED)
    there = model.after([change(2.0)], 101)
    back = there.after([replace(change(2.0, at=102), sign=-1, known_from=101)], 102)
    for key, node in model.strata["setup"].nodes.items():
        np.testing.assert_allclose(back.strata["setup"].nodes[key].events, node.events, atol=1e-12)
        np.testing.assert_allclose(back.strata["setup"].nodes[key].at_risk, node.at_risk, atol=1e-12)
        assert node.n == back.strata["setup"].nodes[key].n


def test_taking_back_more_than_is_left_stops_at_nothing() -> None:
    model = fitted(FitSettings(half_life=(None,) * 5 + (1.0,)))
    gone = model.after([change(1.0, sign=-1)] * 200, 101)
    assert min(node.at_risk.min() for node in gone.strata["setup"].nodes.values()) >= 0.0
    assert min(node.events.min() for node in gone.strata["setup"].nodes.values()) >= 0.0


def test_a_phase_met_after_the_fit_is_answered_from_its_first_outcomes() -> None:
    empty = hazards.fit(Frame((), (), *[np.zeros(0, dtype=np.int64)] * 2, *[np.zeros(0)] * 2, *[np.zeros(0, dtype=bool)] * 3,
                              np.zeros(0), np.zeros(0, dtype=np.int64)), 0, FitSettings())  # fmt: skip
    assert not empty.knows("setup")
    waiting = empty.after([change(4.0, Ended.RUNNING)], 1)
    assert not waiting.knows("setup")
    answered = waiting.after([change(4.0, Ended.RUNNING, sign=-1), change(5.0)], 2)
    assert 1 == answered.predict([KNOWN], ["setup"]).support[0].n
    np.testing.assert_allclose(answered.predict([KNOWN], ["setup"]).quantile(0.5), 5.0, rtol=0.7)


@pytest.mark.parametrize("ended", [Ended.CANCELLED, Ended.TIMED_OUT])
def test_censored_rows_only_lengthen(ended: Ended) -> None:
    model = fitted()
    later = model.after([change(1.5, ended)] * 50, 101)
    assert np.all(later.predict([KNOWN], ["setup"]).quantile(GRID[49:]) > model.predict([KNOWN], ["setup"]).quantile(GRID[49:]))
    assert model.strata["setup"].nodes["setup"].n == later.strata["setup"].nodes["setup"].n


def test_the_order_of_two_batches_is_the_order_of_one() -> None:
    rows = [change(float(t), context=c) for t, c in [(1.0, KNOWN), (2.0, NEW), (0.5, KNOWN), (3.0, NEW)]]
    model = fitted()
    assert counts(model.after(rows, 104)) == counts(model.after(rows[:1], 101).after(rows[1:], 104))


def test_configurations_fade_by_their_own_outcomes_only() -> None:
    n, none = 40, np.zeros(40, dtype=bool)
    context = np.arange(n) % 4 // 3  # three outcomes of the one to each of the other
    zero, time_s = np.zeros(n, dtype=np.int64), np.linspace(1.0, 2.0, n)
    frame = Frame(
        (KNOWN, NEW), ("setup",), context, zero, np.zeros(n), time_s, ~none, none, none, np.ones(n), np.arange(1, n + 1)
    )
    nodes = hazards.fit(frame, n, FitSettings(half_life=(None,) * 5 + (10.0,))).strata["setup"].nodes
    for asked, outcomes in ((KNOWN, 30), (NEW, 10)):
        np.testing.assert_allclose(nodes[asked.path("setup")[-1]].n_eff, sum(0.5 ** (k / 10.0) for k in range(outcomes)))
