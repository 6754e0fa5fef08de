"""Scores against hand-worked numbers and against the reference scorer on real timings."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import astuple
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr, ndtri

from predictors import scores
from predictors.scores import LEVELS, Interval
from telemetry.errors import BadField


def reference(shared: Path, name: str) -> ModuleType:
    """A module of the shared bench, loaded by path."""
    folder = str(shared / "bench")
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location(f"bench_{name}", f"{folder}/{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def test_pinball_by_hand() -> None:
    assert_allclose([0.9 * 2.0, 0.1 * 3.0, 0.0], scores.pinball([5.0, 0.0, 3.0], 3.0, 0.9))


def test_crps_of_a_perfect_point_is_zero_and_of_a_factor_is_its_log() -> None:
    sure = np.ones((2, 99))
    # with all quantiles at 1 s and truth e s the loss is 2 mean(p) * 1 = 1 nat
    assert_allclose([0.0, 1.0], scores.crps_log([1.0, np.e], sure))


def test_crps_below_the_floor_is_not_told_apart() -> None:
    assert_array_equal([0.0], scores.crps_log([0.0], np.zeros((1, 99)), floor_s=1e-3))
    assert_array_equal([0.0], scores.crps_log([0.0], np.full((1, 99), 1e-3), floor_s=1e-3))


def test_crps_of_a_log_normal_is_near_its_closed_form() -> None:
    # CRPS of N(0, 1) at z: z (2 Phi(z) - 1) + 2 phi(z) - 1/sqrt(pi)
    z = np.array([-1.0, 0.0, 2.0])
    exact = z * (2 * ndtr(z) - 1) + 2 * np.exp(-z * z / 2) / np.sqrt(2 * np.pi) - 1 / np.sqrt(np.pi)
    assert_allclose(exact, scores.crps_log(np.exp(z), np.tile(np.exp(ndtri(LEVELS)), (3, 1))), atol=0.02)


def test_exact_binomial_interval_by_hand() -> None:
    assert_allclose([0.0, 0.0, 1 - 0.025**0.1, 10], astuple(scores.binomial_interval(0, 10)))
    assert_allclose([1.0, 0.025**0.1, 1.0, 10], astuple(scores.binomial_interval(10, 10)))
    assert Interval(0.0, 0.0, 1.0, 0) == scores.binomial_interval(0, 0)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 60), st.floats(0.02, 0.98))
def test_exact_binomial_interval_covers_at_least_as_often_as_it_says(n: int, share: float) -> None:
    k = np.arange(n + 1)
    counts = np.array([1.0])
    for _ in range(n):
        counts = np.append(counts, 0.0) * (1 - share) + np.append(0.0, counts) * share
    held = [scores.binomial_interval(int(i), n, 0.9).low <= share <= scores.binomial_interval(int(i), n, 0.9).high for i in k]
    assert counts[held].sum() >= 0.9 - 1e-9


def test_exceedance_counts_what_lies_above_and_not_what_ties() -> None:
    got = scores.exceedance([1.0, 2.0, 3.0, 4.0], 3.0)
    assert (got.estimate, got.n) == (0.25, 4)


def test_ratio_by_blocks_by_hand() -> None:
    # sums by block: score 3, 5; reference 4, 4; ratio 1; d = -1, +1; var = 2/1 * 2 / 64; t(0.95, 1 df) = 6.3138
    got = scores.ratio_by_blocks([1.0, 2.0, 5.0], [2.0, 2.0, 4.0], ["a", "a", "b"])
    assert_allclose([1.0, 1.0 - 6.313751514675043 / 4, 1.0 + 6.313751514675043 / 4], [got.estimate, got.low, got.high])
    assert got.n == 2


def test_ratio_of_one_block_is_refused() -> None:
    with pytest.raises(BadField, match="two blocks"):
        scores.ratio_by_blocks([1.0], [1.0], ["a"])


def test_ratio_intervals_hold_their_confidence_when_rows_of_a_block_move_together() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(400):
        block = np.repeat(np.arange(12), 20)
        shared = rng.normal(0, 0.3, 12)[block]
        other = rng.exponential(1.0, 240)
        mine = other + shared + rng.normal(0, 0.1, 240)
        got = scores.ratio_by_blocks(mine, other, list(block))
        held += got.low <= 1.0 <= got.high
    assert held / 400 == pytest.approx(0.9, abs=0.05)


def test_censoring_curve_by_hand() -> None:
    # at 2 one of the three still there is lost, an ending at 2 precedes it; at 3 one of one
    before = scores.uncensored_before([1.0, 2.0, 2.0, 3.0], [False, True, False, True], [1.0, 2.0, 2.5, 3.0, 9.0])
    assert_allclose([1.0, 1.0, 0.5, 0.5, 0.0], before)


def test_weights_undo_independent_cancellation() -> None:
    rng = np.random.default_rng(7)
    length, cancel = rng.exponential(1.0, 20_000), rng.exponential(2.0, 20_000)
    seen, lost = np.minimum(length, cancel), cancel < length
    weight = scores.censoring_weights(seen, lost, [["all"] * 20_000])
    assert scores.weighted_mean(seen[~lost] <= 1.0, weight[~lost]) == pytest.approx(1 - np.exp(-1.0), abs=0.02)
    assert np.mean(seen[~lost] <= 1.0) > 0.7  # what dropping the cancelled would have said
    assert weight.max() <= scores.LARGEST_WEIGHT


def test_small_strata_weigh_as_their_parent() -> None:
    seen, lost = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, False, True, False])
    fine = ["a", "a", "b", "b"]
    parent = scores.censoring_weights(seen, lost, [["x"] * 4])
    assert_array_equal(parent, scores.censoring_weights(seen, lost, [["x"] * 4, fine]))
    assert_array_equal([1.0, 2.0, 1.0, 2.0], scores.censoring_weights(seen, lost, [["x"] * 4, fine], least=2))


def test_a_cancelled_run_past_its_bound_is_a_miss_and_one_before_it_is_unknown() -> None:
    miss, resolved = scores.resolved_misses([5.0, 2.0, 2.0, 5.0], [True, True, False, False], 3.0)
    assert_array_equal([True, False, False, True], miss)
    assert_array_equal([True, False, True, True], resolved)


def test_weighted_misses_are_unbiased_where_dropping_the_unknown_is_not() -> None:
    rng = np.random.default_rng(11)
    length, cancel = rng.exponential(1.0, 20_000), rng.exponential(2.0, 20_000)
    seen, lost = np.minimum(length, cancel), cancel < length
    bound = np.full(20_000, np.log(10.0))  # the true p90
    miss, resolved = scores.resolved_misses(seen, lost, bound)
    weight = scores.censoring_weights(seen, lost, [["all"] * 20_000], at_s=np.minimum(seen, bound))
    assert scores.weighted_mean(miss[resolved], weight[resolved]) == pytest.approx(0.1, abs=0.01)
    assert miss[resolved].mean() < 0.07


def test_scores_agree_with_the_reference_scorer(shared_dir: Path) -> None:
    judge = reference(shared_dir, "score")
    frame = judge.load(str(shared_dir / "datasets" / "model_load.parquet"))
    rng = np.random.default_rng(3)
    lost = rng.random(len(frame)) < 0.2
    frame.loc[lost, "outcome"] = "censored"
    path = [list(frame[name]) for name in ("phase", "family", "host")]
    mine = scores.censoring_weights(frame["duration_s"].to_numpy(), frame["outcome"].isin(judge.LOST).to_numpy(), path)
    assert_allclose(judge.censoring_weights(frame), mine)
    actual = np.maximum(frame["duration_s"].to_numpy(), 1e-6)
    answers = actual[:, None] * np.exp(rng.normal(0, 0.5, (len(frame), 1)) + np.sort(rng.normal(0, 1, (len(frame), 99))))
    expected = 2 * judge.pinball(np.log(actual), np.log(answers), judge.LEVELS).mean(axis=1)
    assert_allclose(expected, scores.crps_log(actual, answers))
