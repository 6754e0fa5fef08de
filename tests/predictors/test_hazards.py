"""The model of record on cases with a known answer: censoring, entry, atoms, causes, sparse and unseen strata."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from numpy.typing import NDArray

from predictors import hazards
from predictors.contexts import Context
from predictors.counts import events, exposure, marks
from predictors.distribution import Support
from predictors.frames import Frame
from predictors.hazards import FitSettings, HierarchicalHazards
from predictors.shrink import shrunk
from predictors.strata import curve_of
from telemetry.errors import BadField, NoEvidence

HERE = Context(host="a", family="encoder", model="m@1", state="cached")


def frame(duration_s: Sequence[float] | NDArray[np.float64], contexts: Sequence[Context] = (HERE,), **other: Any) -> Frame:
    """Completed rows of `setup`, in order, round robin over the contexts, but for what is said otherwise."""
    n = len(duration_s)
    plain: dict[str, Any] = {
        "context": np.arange(n) % len(contexts),
        "phase": np.zeros(n, dtype=np.int64),
        "entry_s": np.zeros(n),
        "completed": np.ones(n, dtype=bool),
        "failed": np.zeros(n, dtype=bool),
        "running": np.zeros(n, dtype=bool),
        "weight": np.ones(n),
        "known_from": np.arange(1, n + 1),
    }
    return Frame(tuple(contexts), ("setup",), duration_s=np.asarray(duration_s, dtype=np.float64), **plain | other)


def fit(rows: Frame) -> HierarchicalHazards:
    return hazards.fit(rows, len(rows), FitSettings())


def quantile(model: HierarchicalHazards, p: float, context: Context = HERE) -> float:
    return float(model.predict([context], ["setup"]).quantile(p)[0, 0])


def test_one_node_without_pseudo_counts_is_kaplan_meier() -> None:
    rng = np.random.default_rng(1)
    entry = np.where(rng.random(300) < 0.3, rng.integers(0, 8, 300), 0).astype(float)
    exit_ = entry + rng.integers(1, 20, 300)
    event = rng.random(300) < 0.6
    edges = np.log(np.arange(1.0, 41.0))
    with np.errstate(divide="ignore"):
        mark = marks(np.log(entry), np.log(exit_), event, edges)
    one, group = np.ones(300), np.zeros(300, dtype=np.int64)
    d, n = events(mark, one * event, group, 1, 42)[0], exposure(mark, one, group, 1, 42)[0]
    survival = np.cumprod(1.0 - shrunk(d, n, np.zeros(42), 0.0)[:-1])
    times = np.arange(1.0, 25.0)
    expected = KaplanMeierFitter().fit(exit_, event, entry=entry).survival_function_at_times(times)
    np.testing.assert_allclose(survival[1:25], expected, atol=1e-12)


def test_competing_causes_by_hand() -> None:
    # Of 4, one fails early, then two of three complete, and the rest leaves as the last did: F(complete) = 1/2, then all.
    found = curve_of(
        np.array([[0.0, 0.0, 2 / 3, 1.0, 1.0], [0.0, 1 / 4, 0.0, 0.0, 0.0]]),
        np.log([1.0, 2.0, 3.0]),
        1.0,
        5.0,
        Support("phase", 3, 3.0, 3.0),
    )
    np.testing.assert_allclose(found.p_complete, 3 / 4, rtol=1e-6)
    np.testing.assert_allclose(np.exp(-found.hazard_at(np.array([1.0, 2.0]))), [1.0, 1 / 3], rtol=1e-6)


def test_median_and_p90_of_plain_data() -> None:
    rng = np.random.default_rng(2)
    model = fit(frame(np.exp(rng.normal(1.0, 0.4, 3000))))
    np.testing.assert_allclose([quantile(model, 0.5), quantile(model, 0.9)], [np.exp(1.0), np.exp(1.0 + 1.2816 * 0.4)], rtol=0.05)


def test_p90_survives_forty_percent_cancelled() -> None:
    rng = np.random.default_rng(3)
    time_s, cancel_s = np.exp(rng.normal(0.0, 0.5, 4000)), rng.exponential(2.2, 4000)
    done = time_s <= cancel_s
    assert 0.35 < 1.0 - done.mean() < 0.45
    model = fit(frame(np.minimum(time_s, cancel_s), completed=done))
    assert np.quantile(time_s[done], 0.9) < 0.95 * np.exp(0.5 * 1.2816)
    np.testing.assert_allclose(quantile(model, 0.9), np.exp(0.5 * 1.2816), rtol=0.06)


def test_late_joiners_do_not_lengthen() -> None:
    rng = np.random.default_rng(4)
    time_s, entry_s = np.exp(rng.normal(0.0, 0.5, 8000)), np.exp(rng.normal(0.0, 0.5, 8000))
    seen = time_s > entry_s
    model = fit(frame(time_s[seen], entry_s=entry_s[seen]))
    np.testing.assert_allclose(quantile(model, 0.5), 1.0, rtol=0.1)


def test_time_outs_are_not_the_time_needed() -> None:
    time_s = np.minimum(np.random.default_rng(5).lognormal(6.0, 0.5, 200), 600.0)
    model = fit(frame(time_s, completed=time_s < 600.0))
    assert quantile(model, 0.95) > 600.0


def test_an_instant_is_an_atom_not_a_small_number() -> None:
    rng = np.random.default_rng(6)
    time_s = np.where(np.arange(500) % 10 < 7, 0.0, 2.0 * np.exp(0.1 * rng.normal(size=500)))
    model = fit(frame(time_s))
    assert 0.0 == quantile(model, 0.5)
    np.testing.assert_allclose(model.predict([HERE], ["setup"]).cdf(0.0), 0.7, atol=0.02)
    np.testing.assert_allclose(quantile(model, 0.85), 2.0, rtol=0.05)


def test_instants_alone_are_answered_too() -> None:
    assert 0.0 == quantile(fit(frame(np.zeros(20))), 0.9)


def test_hangs_do_not_stretch_the_time_given_completion() -> None:
    rng = np.random.default_rng(7)
    time_s = np.exp(rng.normal(0.0, 0.2, 1000))
    hung = rng.random(1000) < 0.2
    model = fit(frame(np.where(hung, 600.0, time_s), completed=~hung, failed=hung))
    assert quantile(model, 0.95) < 2.0
    np.testing.assert_allclose(model.p_complete([HERE], ["setup"], np.zeros(1)), 1.0 - hung.mean(), atol=0.02)


def test_what_outlived_the_fast_failures_will_complete_and_what_outlived_completion_hangs() -> None:
    rng = np.random.default_rng(7)
    fate = rng.choice(3, 4000, p=[0.2, 0.7, 0.1])  # fails at once, completes, hangs until it is given up as failed
    time_s = np.choose(fate, [0.01, 1.0, 100.0]) * np.exp(rng.normal(0.0, 0.1, 4000))
    model = fit(frame(time_s, completed=fate == 1, failed=fate != 1))
    found = model.p_complete([HERE] * 3, ["setup"] * 3, np.array([0.0, 0.3, 20.0]))
    np.testing.assert_allclose([0.7, 0.875, 0.0], found, atol=0.03)


def test_two_modes_stay_two() -> None:
    rng = np.random.default_rng(8)
    time_s = np.where(rng.random(2000) < 0.6, 0.2, 2.0) * np.exp(0.05 * rng.normal(size=2000))
    model = fit(frame(time_s))
    between = model.predict([HERE], ["setup"]).cdf([0.3, 1.4])[0]
    assert between[1] - between[0] < 0.02
    np.testing.assert_allclose(between[0], 0.6, atol=0.03)


def test_tied_causes_are_exact_and_repeatable() -> None:
    rows = frame([5.0, 5.0, 5.0], completed=np.array([True, False, False]), failed=np.array([False, True, False]))
    first, second = (fit(rows).predict([HERE], ["setup"]).quantile([0.1, 0.5, 0.9]) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_allclose(fit(rows).p_complete([HERE], ["setup"], np.zeros(1)), 0.5, atol=0.05)


def test_one_event_among_five_is_answered() -> None:
    rows = frame([8000.0, 9000.0, 10000.0, 12000.0, 14000.0], completed=np.array([True, False, False, False, False]))
    model = fit(rows)
    assert 8000.0 < quantile(model, 0.5) < 4.0 * 14000.0
    assert 1 == model.predict([HERE], ["setup"]).support[0].n


def test_most_still_running_lifts_the_median_past_all_that_ended() -> None:
    done = np.array([True] * 4 + [False] * 8)
    model = fit(frame([10.0, 11.0, 12.0, 13.0] + [60.0] * 8, completed=done, running=~done))
    assert quantile(model, 0.5) > 13.0
    assert 4 / 5 == model.predict([HERE], ["setup"]).support[0].claimed_to


def test_a_phase_that_never_ended_is_refused_by_name() -> None:
    model = fit(frame([600.0] * 9, completed=np.zeros(9, dtype=bool), running=np.ones(9, dtype=bool)))
    assert not model.knows("setup")
    with pytest.raises(NoEvidence, match="setup"):
        model.predict([HERE], ["setup"])


def test_a_new_version_that_only_runs_is_answered_by_its_parent_past_its_age() -> None:
    new = Context(host="a", family="encoder", model="m@2", state="cached")
    time_s = np.append(np.exp(np.random.default_rng(9).normal(0.0, 0.2, 60)), np.full(9, 40.0))
    done = np.arange(69) < 60
    model = fit(frame(time_s, (HERE, new), context=np.where(done, 0, 1), completed=done, running=~done))
    support = model.predict([new], ["setup"]).support[0]
    assert not support.matched
    assert ("host", 60) == (support.level, support.n)
    assert quantile(model, 0.5, new) > 40.0
    np.testing.assert_allclose(quantile(model, 0.5), 1.0, rtol=0.1)


def test_an_unseen_version_is_wider_than_a_seen_one() -> None:
    rng = np.random.default_rng(10)
    contexts = [Context(host="a", family="encoder", model=f"m@{i}") for i in range(12)]
    time_s = np.exp(np.resize(rng.normal(0.0, 0.7, 12), 600) + rng.normal(0.0, 0.05, 600))
    model = fit(frame(time_s, contexts))
    spread = [
        np.log(quantile(model, 0.9, c) / quantile(model, 0.1, c))
        for c in (contexts[0], Context(host="a", family="encoder", model="m@99"))
    ]
    assert spread[1] > 5.0 * spread[0]
    assert spread[1] > 1.0


def test_sparse_configurations_borrow_their_shape() -> None:
    rng = np.random.default_rng(11)
    contexts = [Context(host=f"h{i}", family="encoder", model="m") for i in range(50)]
    time_s = np.exp(rng.normal(0.0, 0.3, 152))
    context = np.append(np.resize(np.arange(49), 150), [49, 49])
    support = (model := fit(frame(time_s, contexts, context=context))).predict([contexts[49]], ["setup"]).support[0]
    assert ("configuration", 2, True) == (support.level, support.n, support.matched)
    ratio = quantile(model, 0.9, contexts[49]) / quantile(model, 0.5, contexts[49])
    np.testing.assert_allclose(np.log(ratio), 1.2816 * 0.3, rtol=0.35)


@pytest.mark.parametrize("n", [1, 2, 5, 50])
def test_no_quantile_passes_four_times_the_longest_known(n: int) -> None:
    time_s = np.exp(np.random.default_rng(n).normal(3.0, 1.0, n))
    assert quantile(fit(frame(time_s)), 0.999) <= 4.0 * time_s.max()


def test_old_outcomes_of_a_configuration_fade() -> None:
    time_s = np.append(np.full(2000, 1.0), np.full(2000, 2.0)) * np.exp(0.02 * np.random.default_rng(12).normal(size=4000))
    model = fit(frame(time_s))
    assert model.predict([HERE], ["setup"]).support[0].n_eff < 600
    np.testing.assert_allclose(quantile(model, 0.5), 2.0, rtol=0.1)


@pytest.mark.parametrize("half_life", [(None,), (None,) * 5 + (0.0,)])
def test_settings_that_make_no_sense_are_refused(half_life: tuple[float | None, ...]) -> None:
    with pytest.raises(BadField, match="half_life"):
        FitSettings(half_life=half_life)


def test_a_clock_that_repeats_itself_to_the_digit_is_fitted() -> None:
    contexts = [Context(host="a", size_in=float(2**i) - 1.0, batch=float(2**i)) for i in range(4)]
    model = fit(frame([1.0, 2.0, 4.0, 8.0] * 500, contexts))
    np.testing.assert_allclose([quantile(model, 0.5, c) for c in contexts], [1.0, 2.0, 4.0, 8.0], rtol=0.02)


def test_failures_far_below_the_first_completion_are_told_apart_by_age() -> None:
    rng = np.random.default_rng(9)
    failed = np.arange(200) % 2 == 0
    time_s = np.where(failed, 0.1, 12.0) * np.exp(rng.normal(0.0, 0.1, 200))
    model = fit(frame(time_s, completed=~failed, failed=failed))
    found = model.p_complete([HERE] * 4, ["setup"] * 4, np.array([0.0, 0.5, 2.0, 6.0]))
    np.testing.assert_allclose([0.5, 1.0, 1.0, 1.0], found, atol=0.05)
