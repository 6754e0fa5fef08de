"""Regressions that can be named alone, on cases with a known answer: what they learn from, and what they must not."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from predictors.baselines import aft, boosted_quantiles, cqr, network
from predictors.baselines.boosted_quantiles import LEVELS, encoded
from predictors.baselines.designs import MOST_ROWS, numbered, numbers_of, rows_of
from predictors.contexts import Context
from predictors.frames import Frame
from telemetry.errors import BadField

HERE, THERE = Context(host="a", family="f", size_in=1.0), Context(host="b", family="f", size_in=4.0)
torch = pytest.mark.torch
needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch")


def frame(duration_s: Sequence[float] | np.ndarray, contexts: Sequence[Context] = (HERE, THERE), **other: Any) -> Frame:
    """Completed setups, in order, round robin over the contexts, but for what is said otherwise."""
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


def censored(n: int, seed: int, late: bool = False) -> tuple[Frame, np.ndarray]:
    """Log-normal rows with medians 1 s (HERE) and 3 s (THERE), a third of them censored; and those medians."""
    rng = np.random.default_rng(seed)
    medians = np.array([1.0, 3.0])
    time_s = medians[np.arange(n) % 2] * np.exp(0.4 * rng.normal(size=n))
    cut_s = rng.exponential(5.0, n)
    entry_s = np.where(rng.random(n) < 0.5, rng.uniform(0.2, 3.0, n), 0.0) if late else np.zeros(n)
    end_s = np.minimum(time_s, cut_s)
    seen = end_s > entry_s
    plain = {"context": (np.arange(n) % 2)[seen], "completed": (time_s <= cut_s)[seen], "entry_s": entry_s[seen]}
    full = frame(end_s[seen])
    return Frame(full.contexts, full.phases, duration_s=full.duration_s, **{**vars_of(full), **plain}), medians


def vars_of(rows: Frame) -> dict[str, Any]:
    """Arrays of a frame but for the durations."""
    names = ("context", "phase", "entry_s", "completed", "failed", "running", "weight", "known_from")
    return {name: getattr(rows, name) for name in names}


def quantiles(model: Any, levels: Sequence[float], contexts: Sequence[Context] = (HERE, THERE)) -> np.ndarray:
    return np.asarray(model.predict(list(contexts), ["setup"] * len(contexts)).quantile(levels))


def test_rows_are_standardised_by_phase_and_leave_out_failures_and_zeros() -> None:
    log_s = np.array([0.0, 2.0, 5.0, 5.0, 7.0, 7.0])
    rows = rows_of(
        frame(
            np.append(np.exp(log_s), 0.0),
            completed=np.array([1, 1, 0, 0, 1, 1, 1], dtype=bool),
            failed=np.arange(7) == 2,
            running=np.arange(7) == 3,
            entry_s=np.array([0.0, 0.0, 0.0, np.e, 0.0, 0.0, 0.0]),
        )
    )
    # Completed logs 0, 2, 7, 7: mean 4, variance 9.5, which is also what all phases say.
    sd = np.sqrt(9.5)
    assert_allclose([-4.0 / sd, -2.0 / sd, 1.0 / sd, 3.0 / sd, 3.0 / sd], rows.z, atol=1e-9)
    assert_allclose(-3.0 / sd, rows.z_entry[2], atol=1e-9)
    assert_array_equal([True, True, False, True, True], rows.event)


def test_rows_are_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("predictors.baselines.designs.MOST_ROWS", 2)
    assert 40_000 == MOST_ROWS
    rows = rows_of(frame([1.0, 2.0, 3.0, 5.0]))
    assert_allclose(np.log(5.0 / 3.0), (rows.z[1] - rows.z[0]) * rows.scales["setup"].sd)


def test_values_are_numbered_by_how_often_they_came_then_by_name() -> None:
    assert {"b": 0, "a": 1, "c": 2} == numbered(["c", "b", "a", "b", "a", "b", "a", "b", "c"], 3)
    assert {"b": 0} == numbered(["a", "b", "b"], 1)


def test_an_unknown_number_is_not_zero() -> None:
    assert_array_equal([np.log(5.0), 0.0, np.nan], numbers_of(Context(batch=4.0, size_in=0.0)))


def test_no_row_sees_its_own_outcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boosted_quantiles, "COARSE", 1e-12)
    rows = rows_of(frame(np.exp([0.0, 0.0, 1.0, 2.0, 3.0, 9.0])))
    codes, features, mean = encoded(rows)
    z = rows.z
    # The phase's own node, the first feature: sums before each row over their count and one.
    before = np.array([sum(z[:i]) / (i + 1.0) for i in range(6)])
    assert_allclose(before, features[:, 0], atol=1e-12)
    assert_allclose(0.0, mean[0])
    # Hosts are the second: HERE came at 0, 2 and 4.
    assert_allclose([0.0, z[0] / 2.0, (z[0] + z[2]) / 3.0], features[[0, 2, 4], 1], atol=1e-12)
    after, likely = codes.features([(HERE, "setup"), (Context(host="c", family="g"), "setup")])
    assert_allclose((z[0] + z[2] + z[4]) / 4.0, after[0, 1], atol=1e-12)
    assert_allclose(0.0, after[1, 1], atol=1e-12)
    assert likely[0] != likely[1]


@given(st.integers(1, 38), st.floats(0.01, 100.0))
@settings(max_examples=20, deadline=None)
def test_later_outcomes_change_no_earlier_code(place: int, factor: float) -> None:
    rng = np.random.default_rng(5)
    rows = rows_of(frame(np.exp(rng.normal(size=40))))
    other = np.array(rows.z)
    other[place:] = np.round(other[place:] * factor, 9)
    changed = rows.take(np.arange(40))
    changed.z[:] = other
    for before, after in zip(encoded(rows)[1:], encoded(changed)[1:], strict=True):
        assert_array_equal(before[: place + 1], after[: place + 1])


@pytest.mark.parametrize("late", [False, True])
def test_aft_recovers_a_censored_truth(late: bool) -> None:
    rows, medians = censored(900, 3, late=late)
    found = quantiles(aft.fit(rows, 900), [0.5, 0.9])
    assert_allclose(medians, found[:, 0], rtol=0.08)
    assert_allclose(medians * np.exp(0.4 * 1.2815515655446004), found[:, 1], rtol=0.1)


def test_aft_of_five_rows_with_one_event_answers() -> None:
    rows = frame([8_000.0, 9_000.0, 10_000.0, 12_000.0, 14_000.0], [HERE], completed=np.arange(5) == 2)
    found = quantiles(aft.fit(rows, 5), [0.1, 0.5, 0.9], [HERE, THERE])
    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found, axis=1) > 0.0)


def test_aft_gives_each_phase_one_law_where_the_search_fails(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from lifelines import LogNormalAFTFitter
    from lifelines.exceptions import ConvergenceError

    def fails(*args: Any, **other: Any) -> None:
        raise ConvergenceError("no")

    monkeypatch.setattr(LogNormalAFTFitter, "fit", fails)
    with caplog.at_level(logging.WARNING):
        found = quantiles(aft.fit(frame([1.0, 4.0, 1.0, 4.0]), 4), [0.5])
    assert_allclose(2.0, found)  # the geometric mean of 1 and 4, whatever the host
    assert "each phase has one law" in caplog.text


def test_aft_does_not_mind_a_feature_far_from_zero() -> None:
    rng = np.random.default_rng(8)
    contexts = [Context(size_in=20_000.0 + 10.0 * k) for k in range(-2, 3)]
    time_s = np.exp(0.5 * np.tile(np.arange(-2.0, 3.0), 60) + 0.2 * rng.normal(size=300))
    found = quantiles(aft.fit(frame(time_s, contexts), 300), [0.5], contexts)[:, 0]
    assert_allclose(np.exp(0.5 * np.arange(-2.0, 3.0)), found, rtol=0.1)


def test_boosted_quantiles_know_sizes_apart_that_differ_in_shape() -> None:
    rng = np.random.default_rng(2)
    contexts = [Context(host="a", size_in=float(2**k)) for k in range(5)]
    scale, sd = 2.0 ** np.arange(5), np.array([0.1, 0.1, 0.1, 0.5, 0.5])
    place = np.arange(1000) % 5
    rows = frame(scale[place] * np.exp(sd[place] * rng.normal(size=1000)), contexts)
    found = quantiles(boosted_quantiles.fit(rows, 1000), [0.1, 0.5, 0.9], contexts)
    assert_allclose(scale, found[:, 1], rtol=0.1)
    spread = np.log(found[:, 2] / found[:, 0])
    assert spread[:3].max() < 0.5 * spread[3:].min()


def test_cqr_moves_bounds_by_the_conformal_quantile() -> None:
    # n = 19, 80 %: either side takes rank ceil(0.9 * 20) = 18 of 19 distances past its bound.
    z = np.arange(1.0, 20.0) / 10.0
    zero = np.zeros(19)
    assert_allclose([0.2, 1.8], cqr.moved(zero, zero, zero, z, 0.8))


def test_cqr_leaves_out_levels_without_a_rank() -> None:
    # Of 40 rows 12 conformalise: 10 % needs 11 of them, 1 % needs 101.
    rng = np.random.default_rng(4)
    model = cqr.fit(frame(np.exp(rng.normal(size=40))), 40)
    assert_allclose([0.1, 0.25, 0.5, 0.75, 0.9], LEVELS[model.rule.kept])  # type: ignore[attr-defined]


def test_cqr_widens_what_was_too_narrow() -> None:
    # The older rows hardly vary, the newest do: only what conformalises can tell.
    rng = np.random.default_rng(6)
    log_s = np.append(0.01 * rng.normal(size=280), rng.normal(size=120))
    rows = frame(np.exp(log_s), [HERE])
    plain, conformal = boosted_quantiles.fit(frame(np.exp(log_s[:280]), [HERE]), 280), cqr.fit(rows, 400)
    fresh = np.exp(rng.normal(size=2_000))
    assert np.mean(fresh <= quantiles(plain, [0.9], [HERE])[0]) < 0.6
    # Rank 109 of 120: the coverage is Beta(109, 12), 0.90 +- 0.027.
    assert 0.82 < np.mean(fresh <= quantiles(conformal, [0.9], [HERE])[0]) < 0.97


def test_conformalising_leaves_logging_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def configured(**other: Any) -> None:
        raise AssertionError("the process's logging was set up")

    monkeypatch.setattr(logging, "basicConfig", configured)
    rng = np.random.default_rng(9)
    low = rng.normal(size=30)
    cqr.moved(low, low - 5.0, low - 9.0, rng.normal(size=30), 0.5)


def test_likelihood_counts_by_hand() -> None:
    edges = np.array([0.0, 1.0, 2.0])
    z, z_entry = np.array([1.5, 1.25, -0.25]), np.array([0.5, -np.inf, -np.inf])
    base = rows_of(frame([1.0, 2.0, 3.0], completed=np.array([True, False, True])))
    rows = base.take(np.arange(3))
    rows.z[:], rows.z_entry[:], rows.weight[2] = z, z_entry, 0.5
    events, survived = network.counts(rows, edges)
    assert_array_equal([[0.0, 0.0, 1.0], [0.0, 0.0, 0.0], [0.5, 0.0, 0.0]], events)
    assert_allclose([[0.0, 0.5, 0.0], [1.0, 1.0, 0.25], [0.0, 0.0, 0.0]], survived)


@torch
@needs_torch
def test_network_recovers_a_censored_truth_and_answers_without_torch() -> None:
    import torch as library

    threads = library.get_num_threads()
    rows, medians = censored(1_200, 5)
    model = network.fit(rows, 1_200)
    assert threads == library.get_num_threads()
    assert_allclose(medians, quantiles(model, [0.5])[:, 0], rtol=0.12)
    rule = model.rule
    assert isinstance(rule, network.Network)
    weights = [library.tensor(w) for w in rule.weights]
    codes = library.tensor([network.coded(rule.values, (context, "setup")) for context in (HERE, Context())])
    known = library.tensor(np.array([rule.numbers.features(context) for context in (HERE, Context())]))
    expected = network._logits(library, weights, codes, known).numpy()
    assert_allclose(expected, [rule.logits((context, "setup")) for context in (HERE, Context())], rtol=1e-9)


@torch
@needs_torch
def test_a_host_never_seen_lies_between_those_that_were() -> None:
    rng = np.random.default_rng(7)
    hosts = [Context(host=name) for name in "abcdef"]
    time_s = np.tile([0.5, 1.0, 2.0, 4.0, 8.0, 16.0], 100) * np.exp(0.1 * rng.normal(size=600))
    model = network.fit(frame(time_s, hosts), 600)
    low, median, high = quantiles(model, [0.1, 0.5, 0.9], [Context(host="new")])[0]
    assert low < 1.5
    assert 1.0 < median < 8.0
    assert high > 6.0
    seen = quantiles(model, [0.5], hosts)[:, 0]
    assert_allclose([0.5, 1.0, 2.0, 4.0, 8.0, 16.0], seen, rtol=0.2)


def test_without_torch_the_network_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(BadField, match=r"phasecast\[torch\]") as caught:
        network.fit(frame([1.0, 2.0]), 2)
    assert ("model", "network") == (caught.value.field, caught.value.got)
