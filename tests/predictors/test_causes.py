"""Incidence by cause: hand-worked counts, sums, a competing truth, and what cancellation could hide."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors import hazards, modelfile
from predictors.causes import CANCELLED, CAUSES, COMPLETED, FAILED, Incidence, incidence_of
from predictors.contexts import Context
from predictors.counts import events, exposure, marks
from predictors.distribution import Support
from predictors.frames import Frame
from predictors.hazards import FitSettings, HierarchicalHazards
from predictors.model import Change
from telemetry.errors import BadField, NoEvidence
from telemetry.words import Ended

HERE, THERE = Context(host="a", family="encoder"), Context(host="b", family="encoder")
SCALES_S, SHAPES = (5.0, 8.476, 9.577), (2.0, 1.2, 1.5)
"""Latent Weibull times to completion, failure and cancellation: 30 % fail, 20 % are cancelled."""
HORIZONS_S = np.array([1.0, 2.0, 3.0, 5.0, 8.0])
ANY = Support("phase", 1, 1.0, 10.0)


def truth(t_s: np.ndarray) -> np.ndarray:
    """F_c(t) = integral of h_c S: numerically, on a grid of 0.1 ms."""
    step = 1e-4
    mid = np.arange(step / 2, 60.0, step)
    s = np.exp(-sum((mid / a) ** k for a, k in zip(SCALES_S, SHAPES, strict=True)))
    rates = [k / a * (mid / a) ** (k - 1.0) for a, k in zip(SCALES_S, SHAPES, strict=True)]
    return np.array([np.interp(t_s, mid + step / 2, np.cumsum(rate * s) * step) for rate in rates])


def frame(time_s: np.ndarray, cause: np.ndarray, contexts: tuple[Context, ...] = (HERE,), **other: Any) -> Frame:
    """Rows of `service`; cause 0 completed, 1 failed, 2 cancelled, 3 timed out."""
    n = len(time_s)
    plain = (np.arange(n) % len(contexts), np.zeros(n, dtype=np.int64), np.zeros(n), np.asarray(time_s, dtype=np.float64))
    none = np.zeros(n, dtype=bool)
    rows = Frame(
        contexts, ("service",), *plain, cause == 0, cause == 1, none, np.ones(n), np.arange(1, n + 1), cancelled=cause == 2
    )  # fmt: skip
    return replace(rows, **other)


def competing(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Times of ending and their causes, from the truth."""
    rng = np.random.default_rng(seed)
    latent = np.stack([a * rng.weibull(k, n) for a, k in zip(SCALES_S, SHAPES, strict=True)])
    return latent.min(axis=0), latent.argmin(axis=0)


def fit(rows: Frame) -> HierarchicalHazards:
    return hazards.fit(rows, len(rows), FitSettings(half_life=(None,) * 6))


def asked(model: HierarchicalHazards, context: Context = HERE) -> Incidence:
    found = model.incidence(context, "service")
    assert found is not None
    return found


@pytest.fixture(scope="module")
def mixed() -> Incidence:
    return asked(fit(frame(*competing(1000, 4))))


def test_the_truth_of_the_tests_has_thirty_per_cent_failures_and_twenty_cancellations() -> None:
    np.testing.assert_allclose([0.5, 0.3, 0.2], truth(np.array([59.0]))[:, 0], atol=1e-3)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_incidence_is_true_to_two_per_cent_at_five_horizons(seed: int) -> None:
    found = asked(fit(frame(*competing(8000, seed))))
    np.testing.assert_allclose(truth(HORIZONS_S), found.by(HORIZONS_S), atol=0.02)


def test_incidences_and_survival_sum_to_one_at_every_time(mixed: Incidence) -> None:
    t_s = np.concatenate([[0.0, 1e-300, 1e-9], np.linspace(0.0, 30.0, 2000), mixed.times_s, mixed.times_s * 1.001, [1e6, 1e30]])
    np.testing.assert_allclose(1.0, mixed.by(t_s).sum(axis=0) + mixed.survival(t_s), rtol=0.0, atol=1e-9)


def test_incidences_start_at_zero_and_never_fall(mixed: Incidence) -> None:
    t_s = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 5000)])
    found = mixed.by(t_s)
    np.testing.assert_allclose(0.0, found[:, 0], atol=1e-11)
    assert np.diff(found, axis=1).min() >= -1e-12


def test_four_attempts_in_two_columns_by_hand() -> None:
    # Columns: the atom, up to 1 s, up to 2 s, open. Of four, one fails in the first; of three, one completes in the second and
    # one is cancelled half-way through it; one goes on, and is cut at its end.
    z_exit = np.log([1.0, 2.0, np.sqrt(2.0), 2.0])
    mark = marks(np.full(4, -np.inf), z_exit, np.array([True, True, False, False]), np.log([1.0, 2.0]))
    one, group = np.ones(4), np.zeros(4, dtype=np.int64)
    cause = np.array([FAILED, COMPLETED, CANCELLED, 3])
    at_risk = exposure(mark, one, group, 1, 4)[0]
    np.testing.assert_allclose([4.0, 4.0, 2.5, 0.0], at_risk)
    counts = np.stack([events(mark, one * (cause == c), group, 1, 4)[0] for c in range(3)])
    ratio = np.divide(counts, at_risk, out=np.array([[0.0] * 3 + [1.0], [0.0] * 4, [0.0] * 4]), where=at_risk > 0.0)
    found = incidence_of(ratio, np.log([1.0, 2.0]), 1.0, np.log(2.0), ANY)
    np.testing.assert_allclose([0.0, 0.25, 0.0], found.by(np.array([1.0]))[:, 0], atol=1e-9)
    # In the second column ends 1 - 0.6 exp(-0.5) of 0.75: rates -log(1 - 0.4) of completing and 0.4 / (1 - 0.2) of cancelling.
    ended, rates = 0.75 * (1.0 - 0.6 * np.exp(-0.5)), (-np.log(0.6), 0.5)
    expected = [ended * rates[0] / sum(rates), 0.25, ended * rates[1] / sum(rates)]
    np.testing.assert_allclose(expected, found.by(np.array([2.0]))[:, 0], atol=1e-9)
    np.testing.assert_allclose(1.0 - 0.25 - ended, found.survival(np.array([2.0]))[0])


def test_without_failures_or_cancellations_it_is_the_law_of_the_model() -> None:
    rng = np.random.default_rng(1)
    time_s = np.where(rng.random(200) < 0.1, 0.0, np.exp(rng.normal(size=200)))
    model = fit(frame(time_s, np.zeros(200, dtype=np.int64)))
    t_s = np.concatenate([[0.0], np.geomspace(1e-6, 1e6, 200)])
    np.testing.assert_allclose(model.predict([HERE], ["service"]).cdf(t_s)[0], asked(model).by(t_s)[COMPLETED], atol=1e-10)


def test_time_given_completion_is_the_model_s_where_nothing_is_cancelled() -> None:
    time_s, cause = competing(2000, 5)
    model = fit(frame(time_s[cause < 2], cause[cause < 2]))
    far_s = 1e9
    expected = model.predict([HERE], ["service"]).cdf(HORIZONS_S)[0]
    np.testing.assert_allclose(expected, asked(model).given_completion(HORIZONS_S, far_s), atol=0.003)


def test_time_given_completion_ends_at_the_horizon_and_is_inverted(mixed: Incidence) -> None:
    p = np.array([0.01, 0.5, 0.9, 0.99])
    q_s = mixed.quantile_given_completion(p, 4.0)
    assert q_s.max() < 4.0
    np.testing.assert_allclose(p, mixed.given_completion(q_s, 4.0), atol=1e-9)
    np.testing.assert_array_equal([1.0, 1.0], mixed.given_completion(np.array([4.0, 9.0]), 4.0))
    expected = truth(np.array([2.0]))[COMPLETED, 0] / truth(np.array([4.0]))[COMPLETED, 0]
    assert expected == pytest.approx(mixed.given_completion(np.array([2.0]), 4.0)[0], abs=0.05)


def test_whether_it_ever_completes_is_an_interval_that_time_outs_leave_open() -> None:
    # Nine in ten are timed out at 1 s: what they would have done later no data say.
    n = 1000
    time_s = np.where(np.arange(n) % 10 == 0, 0.5 + np.arange(n) / n / 10, 1.0)
    found = asked(fit(frame(time_s, np.where(np.arange(n) % 10 == 0, 0, 3))))
    low, high = found.ever()
    assert (0.1, 1.0) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=1e-6))
    assert 1.0 == found.supported_to_s


def test_what_failed_by_then_never_completes(mixed: Incidence) -> None:
    low, high = mixed.ever()
    assert high - low < 0.01
    assert 0.5 == pytest.approx(high, abs=0.05)


def test_without_cancellations_both_ends_of_the_bound_are_what_is_answered() -> None:
    time_s, cause = competing(4000, 6)
    done = fit(frame(time_s[cause == 0], cause[cause == 0]))
    for bound, level in zip(asked(done).cancellation_bound(59.0), (0.5, 0.9, 0.99), strict=True):
        assert (level, True) == (bound.level, bound.reached)
        assert bound.if_ended_then_s == bound.if_never_s
        assert float(done.predict([HERE], ["service"]).quantile(level)[0, 0]) == pytest.approx(bound.if_never_s, rel=1e-6)


def test_the_bound_holds_what_cancelled_attempts_would_really_have_done() -> None:
    # Attempts that would last long are cancelled more: ordinary censoring errs, the bound does not.
    rng = np.random.default_rng(7)
    full_s = np.exp(0.5 * rng.normal(size=6000))
    cancelled = (full_s > 1.5) & (rng.random(6000) < 0.6)
    seen_s = np.where(cancelled, 1.0 + 0.4 * rng.random(6000), full_s)
    model = fit(frame(seen_s, np.where(cancelled, 2, 0)))
    median, p90, _ = asked(model).cancellation_bound(6.0)
    for bound, level in ((median, 0.5), (p90, 0.9)):
        assert bound.if_ended_then_s * 0.99 <= np.quantile(full_s, level) <= bound.if_never_s * 1.01
    assert p90.if_ended_then_s < float(model.predict([HERE], ["service"]).quantile(0.9)[0, 0]) < np.quantile(full_s, 0.9)


def test_a_level_that_is_never_reached_is_a_lower_bound_at_the_horizon() -> None:
    found = asked(fit(frame(np.arange(1.0, 101.0), np.where(np.arange(100) % 2 == 0, 0, 2))))
    p99 = found.cancellation_bound(200.0)[2]
    assert (0.99, 200.0, False) == (p99.level, p99.if_never_s, p99.reached)
    assert p99.if_ended_then_s < 200.0


@pytest.mark.parametrize("horizon_s", [0.0, -1.0, np.inf, np.nan])
def test_a_horizon_is_a_finite_time_after_the_start(mixed: Incidence, horizon_s: float) -> None:
    with pytest.raises(BadField, match="horizon_s"):
        mixed.cancellation_bound(horizon_s)


def test_a_phase_without_outcomes_has_no_incidence() -> None:
    with pytest.raises(NoEvidence, match="setup"):
        fit(frame(*competing(50, 1))).incidence(HERE, "setup")


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.floats(1e-3, 1e3), st.integers(0, 3)), min_size=1, max_size=30), st.floats(1e-3, 1e6))
def test_any_mixture_of_endings_is_answered_in_finite_numbers_that_sum(ends: list[tuple[float, int]], horizon_s: float) -> None:
    time_s, cause = np.array([t for t, _ in [*ends, (1.0, 0)]]), np.array([c for _, c in [*ends, (1.0, 0)]])
    found = asked(fit(frame(time_s, cause)), THERE)
    by, left = found.by(np.array([horizon_s]))[:, 0], found.survival(np.array([horizon_s]))[0]
    assert 1.0 == pytest.approx(by.sum() + left, abs=1e-9)
    assert min(by.min(), left) >= -1e-12
    bounds = found.cancellation_bound(horizon_s)
    assert all(0.0 <= b.if_ended_then_s <= b.if_never_s <= horizon_s for b in bounds)
    q_s = found.quantile_given_completion(np.array([0.1, 0.5, 0.99]), horizon_s)
    assert np.all(np.isfinite(q_s))
    assert np.all(np.diff(q_s) >= 0.0)


def test_ties_of_causes_do_not_depend_on_their_order() -> None:
    first = fit(frame(np.full(3, 5.0), np.array([0, 1, 2])))
    second = fit(frame(np.full(3, 5.0), np.array([2, 1, 0])))
    at = np.array([4.0, 5.0, 6.0])
    np.testing.assert_allclose(asked(first).by(at), asked(second).by(at), rtol=1e-12)
    completed, failed, _ = asked(first).by(np.array([1e30]))[:, 0]
    assert completed == pytest.approx(failed, abs=0.05)


def test_a_host_that_cancels_more_says_so_and_a_new_host_lies_between() -> None:
    time_s, cause = competing(1000, 8)
    cause = np.where((np.arange(1000) % 2 == 1) & (cause == 0), 2, cause)
    model = fit(frame(time_s, cause, (HERE, THERE)))
    here, there, new = (asked(model, c).by(np.array([20.0]))[CANCELLED, 0] for c in (HERE, THERE, Context(host="c")))
    assert here < new < there
    assert (0.2, 0.7) == (pytest.approx(here, abs=0.07), pytest.approx(there, abs=0.07))


def test_a_cancellation_learned_after_the_fit_counts_as_one_fitted_on() -> None:
    model = fit(frame(*competing(300, 9)))
    change = Change(1, 301, "service", HERE, 0.0, 2.0, Ended.CANCELLED, 1.0, 301)
    later = model.after([change], 301)
    node, before = later.strata["service"].nodes["service"], model.strata["service"].nodes["service"]
    assert before.cancelled.sum() + 1.0 == node.cancelled.sum()
    assert asked(model).by(HORIZONS_S)[CANCELLED, -1] < asked(later).by(HORIZONS_S)[CANCELLED, -1]
    gone = later.after([replace(change, sign=-1)], 302)
    np.testing.assert_allclose(asked(model).by(HORIZONS_S), asked(gone).by(HORIZONS_S), atol=1e-12)


def test_cancellations_outlive_the_model_file_and_are_told_as_missing_from_older_ones() -> None:
    model = fit(frame(*competing(300, 10)))
    newest, older, oldest = [modelfile.packed(form) for form in modelfile.forms(model)]
    assert older == oldest  # nothing hangs together here
    np.testing.assert_array_equal(asked(model).by(HORIZONS_S), asked(modelfile.unpacked(newest)).by(HORIZONS_S))
    former = modelfile.unpacked(older)
    assert former.incidence(HERE, "service") is None
    assert older == modelfile.packed(former)
    change = Change(1, 301, "service", HERE, 0.0, 2.0, Ended.CANCELLED, 1.0, 301)
    assert former.after([change], 301).incidence(HERE, "service") is None


def test_causes_are_named_in_the_order_of_their_rows() -> None:
    assert (Ended.COMPLETED, Ended.FAILED, Ended.CANCELLED) == CAUSES
    assert (0, 1, 2) == (COMPLETED, FAILED, CANCELLED)


@pytest.mark.parametrize("elapsed_s", [0.0, 2.0])
def test_times_to_failure_are_those_of_attempts_that_failed_and_from_an_age_on_those_that_were_left(elapsed_s: float) -> None:
    time_s, cause = competing(60_000, seed=9)
    learned = fit(frame(time_s, cause)).incidence(HERE, "service")
    assert learned is not None
    later, again = competing(400_000, seed=10)
    failed_s = later[(again == FAILED) & (later > elapsed_s)] - elapsed_s
    levels = np.array([0.1, 0.5, 0.9])
    assert np.quantile(failed_s, levels) == pytest.approx(learned.quantile_given_failure(levels, elapsed_s), rel=0.08)
