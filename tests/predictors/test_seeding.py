"""A host without history starts where its measured rates put it, as wide as such starts were off on hosts left out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from predictors import hazards, location, modelfile
from predictors.contexts import Context, groups_of
from predictors.ensemble import Ensemble
from predictors.experts.histories import Histories, Learning
from predictors.frames import Frame
from predictors.hazards import HierarchicalHazards
from predictors.location import Location, Rows
from predictors.model import Change
from predictors.resources import NONE, Rates, explaining, speeds
from predictors.seeding import LEAST_HOSTS, design, learned
from predictors.settings import FitSettings
from telemetry.words import Ended

HOSTS = ("ash", "elm", "fir", "oak", "yew")
SPEED = {"ash": 1.0, "elm": 0.5, "fir": 2.0, "oak": 1.5, "yew": 0.7, "new": 0.25}
MODELS = 4


def rates_of(*hosts: str, noise: float = 0.0) -> Rates:
    """Rates in proportion to speeds, off by `noise` in log units."""
    rng = np.random.default_rng(11)
    return {host: {"matmul_threads_1_flop_per_s": 1e9 * SPEED[host] * float(np.exp(rng.normal(0, noise)))} for host in hosts}


def contexts() -> list[Context]:
    return [Context(host=host, family="sort", model=f"m{m}") for host in HOSTS for m in range(MODELS)]


def rows_of(known: list[Context], *, each: int = 10, sd: float = 0.1) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Log times in proportion to work over speed, and the context of each."""
    rng = np.random.default_rng(5)
    truth = np.array([0.4 * int((c.model or "m0")[1:]) - np.log(SPEED[c.host or ""]) for c in known])
    context = np.repeat(np.arange(len(known)), each)
    return truth[context] + rng.normal(0, sd, len(context)), context


def fitted(rates: Rates, known: list[Context] | None = None) -> Location:
    known = contexts() if known is None else known
    log_time, context = rows_of(known)
    n = len(log_time)
    rows = Rows(np.full(n, -np.inf), log_time, np.ones(n, dtype=bool), np.zeros(n, dtype=bool), np.ones(n), context)
    return location.fit(known, "service", rows, novel_sd=0.5, pooling=5.0, rates=rates)


NEW = Context(host="new", family="sort", model="m0")
TRUE = -np.log(SPEED["new"])


def test_rates_of_one_and_of_all_threads_are_resources_of_their_own_however_many_all_are() -> None:
    told = {"matmul_threads_1_flop_per_s": 2.0, "matmul_threads_8_flop_per_s": 9.0, "matmul_threads_4_flop_per_s": 7.0}
    assert {"matmul_flop_per_s of one thread": np.log(2.0), "matmul_flop_per_s of all threads": np.log(9.0)} == speeds(told)
    assert ["matmul_flop_per_s of all threads", "matmul_flop_per_s of one thread"] == sorted(
        speeds({"matmul_threads_1_flop_per_s": 2.0})
    )


def test_seconds_of_warm_up_are_speeds_upside_down_and_other_seconds_are_none() -> None:
    told = {
        "warmup_import_s": 2.0,
        "matmul_threads_1_single_s": 0.1,
        "network_round_trip_s": 1e-4,
        "memory_copy_bytes_per_s": 5.0,
    }
    assert {"warmup_import_s": -np.log(2.0), "memory_copy_bytes_per_s": np.log(5.0)} == speeds(told)
    assert {} == speeds({"a_per_s": 0.0, "b_per_s": float("nan"), "c_per_s": -1.0, "d_per_s": float("inf")})


@pytest.mark.parametrize(
    ("phase", "expected"),
    [
        ("read", ("file_read_cold_bytes_per_s", "checkpoint_decode_cold_bytes_per_s")),
        ("transfer", ("network_bytes_per_s",)),
        ("warmup", ("warmup_import_s",)),
        ("service", ("matmul_flop_per_s of one thread", "memory_copy_bytes_per_s")),
        ("epoch", ("matmul_flop_per_s of one thread", "memory_copy_bytes_per_s")),
    ],
)
def test_a_phase_is_explained_by_what_it_waits_for(phase: str, expected: tuple[str, ...]) -> None:
    told = ("matmul_flop_per_s of one thread", "file_read_cold_bytes_per_s", "network_bytes_per_s", "warmup_import_s")
    told += ("memory_copy_bytes_per_s", "checkpoint_decode_cold_bytes_per_s")
    assert set(expected) == set(explaining(phase, told))


def test_where_no_rate_is_of_the_kind_that_explains_a_phase_all_do() -> None:
    assert ("memory_copy_bytes_per_s",) == explaining("read", ["memory_copy_bytes_per_s"])


def test_a_host_never_seen_starts_where_its_rates_put_it() -> None:
    plain, told = fitted(NONE), fitted(rates_of(*HOSTS, "new"))
    (before,), (wide,) = plain.centre([NEW])
    (after,), (narrow,) = told.centre([NEW])
    assert abs(before - TRUE) > 1.0  # four times slower than the middle, which nobody could know
    assert abs(after - TRUE) < 0.15
    assert narrow < wide / 4


def test_without_any_rate_a_fit_is_the_same_to_the_bit() -> None:
    frame = _frame()
    untold = modelfile.packed(hazards.fit(frame, len(frame), FitSettings()))
    assert untold == modelfile.packed(hazards.fit(frame, len(frame), FitSettings(), NONE))
    assert untold == modelfile.packed(
        hazards.fit(frame, len(frame), FitSettings(), rates_of("new"))
    )  # told of no host of the fit


def test_a_host_without_profile_is_answered_as_far_off_as_ever_beside_profiled_ones() -> None:
    plain, told = fitted(NONE), fitted(rates_of(*HOSTS[:4], "new"))
    stranger = Context(host="stranger", family="sort", model="m0")
    (before,), (wide,) = plain.centre([stranger])
    (after,), (still,) = told.centre([stranger])
    np.testing.assert_allclose(after, before, atol=0.05)
    np.testing.assert_allclose(still, wide, rtol=0.1)


def test_of_fewer_than_three_hosts_the_physics_moves_the_mean_and_all_stays_unknown() -> None:
    plain, told = fitted(NONE), fitted(rates_of("ash", "new"))
    (before,), (wide,) = plain.centre([NEW])
    (after,), (still,) = told.centre([NEW])
    np.testing.assert_allclose(after - before, TRUE, atol=0.35)  # four times slower than ash, which is near the middle
    assert still >= wide


def test_a_profile_that_tells_less_than_nothing_is_left_aside() -> None:
    opposite = {host: {"matmul_threads_1_flop_per_s": 1.0 / SPEED[host]} for host in (*HOSTS, "new")}
    assert fitted(opposite).effects.seed is None


def test_noisy_rates_leave_more_unknown() -> None:
    exact, noisy = (fitted(rates_of(*HOSTS, "new", noise=noise)).centre([NEW])[1][0] for noise in (0.0, 0.3))
    assert noisy > 2 * exact


def test_a_host_with_history_hands_over_to_it() -> None:
    # Its rates say four times slower than it is: one run hardly counts against them, forty do.
    wrong = rates_of(*HOSTS, "new", noise=0.1) | {"new": {"matmul_threads_1_flop_per_s": 0.25e9 / 4}}
    truth, found = float(TRUE), []
    for n in (0, 1, 40):
        known = [*contexts(), *[NEW] * bool(n)]
        log_time, context = rows_of(contexts())
        own = np.full(n, truth)
        rows = Rows(
            np.full(len(log_time) + n, -np.inf),
            np.append(log_time, own),
            np.ones(len(log_time) + n, dtype=bool),
            np.zeros(len(log_time) + n, dtype=bool),
            np.ones(len(log_time) + n),
            np.append(context, np.full(n, len(contexts()))),
        )
        found.append(location.fit(known, "service", rows, novel_sd=0.5, pooling=5.0, rates=wrong).centre([NEW])[0][0])
    assert found[0] > found[1] > found[2]
    np.testing.assert_allclose(found[2], truth, atol=0.1)


def test_a_host_that_lacks_some_rates_is_judged_by_those_it_has() -> None:
    both = {host: {"a_per_s": SPEED[host], "b_per_s": SPEED[host]} for host in HOSTS}
    told = fitted(both | {"new": {"a_per_s": SPEED["new"]}})
    np.testing.assert_allclose(told.centre([NEW])[0][0], TRUE, atol=0.2)
    assert told.effects.seed is not None
    assert "other" not in fitted(both | {"other": {"c_per_s": 1.0}}).effects.seed.starts  # type: ignore[union-attr]


def test_the_slope_is_learned_where_hosts_are_enough() -> None:
    # Twice the rate makes the work here 2^0.6 times as fast: overheads.
    flatter = {host: {"matmul_threads_1_flop_per_s": SPEED[host] ** (1 / 0.6)} for host in (*HOSTS, "new")}
    seed = fitted(flatter).effects.seed
    assert seed is not None
    assert len(HOSTS) == seed.n_hosts >= LEAST_HOSTS
    np.testing.assert_allclose(sum(seed.slope.values()), -0.6, atol=0.1)


def test_one_host_by_hand() -> None:
    # x = 0 for the only host of the fit, so c = m v / (v + v + n); the other, e times slower, lies at c + 1, unsure by its own v,
    # by c, whose variance is v (v + n) / (v + v + n), and by the slope.
    made = design("service", {"a": {"x_per_s": np.e}, "b": {"x_per_s": 1.0}}, 0, ["a"])
    assert made is not None
    seed = learned(made, np.array([0.4]), np.array([0.25]), 0.25)
    assert seed is not None
    c, unsure_c, slope_variance = 0.4 / 3.0, 0.25 * 0.5 / 0.75, 0.2**2
    np.testing.assert_allclose([seed.starts["a"].log_time, seed.starts["b"].log_time], [c, c + 1.0])
    np.testing.assert_allclose(seed.starts["b"].variance, 0.25 + unsure_c + slope_variance)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-3, 3), min_size=1, max_size=8),
    st.lists(st.floats(1e-3, 1e3), min_size=9, max_size=9),
    st.floats(1e-4, 2.0),
)
def test_starts_are_finite_and_unsure_whatever_was_measured(means: list[float], measured: list[float], unprofiled: float) -> None:
    hosts = [f"h{i}" for i in range(len(means))]
    rates = {
        host: {"a_per_s": rate, "file_read_cold_bytes_per_s": rate**2}
        for host, rate in zip([*hosts, "x"], measured, strict=False)
    }
    made = design("service", rates, 0, hosts)
    assert made is not None
    seed = learned(made, np.array(means), np.full(len(means), 0.01), unprofiled)
    for start in seed.starts.values() if seed is not None else ():
        assert np.isfinite(start.log_time)
        assert 0.0 < start.variance < np.inf


def _frame() -> Frame:
    known = contexts()
    log_time, context = rows_of(known)
    n = len(log_time)
    none = np.zeros(n, dtype=bool)
    order = np.random.default_rng(2).permutation(n)
    return Frame(
        tuple(known),
        ("service",),
        context[order],
        np.zeros(n, dtype=np.int64),
        np.zeros(n),
        np.exp(log_time[order]),
        ~none,
        none,
        none,
        np.ones(n),
        np.arange(1, n + 1, dtype=np.int64),
    )


@pytest.fixture(scope="module")
def model() -> HierarchicalHazards:
    frame = _frame()
    return hazards.fit(frame, len(frame), FitSettings(), rates_of(*HOSTS, "new"))


def test_the_model_answers_from_rates_and_says_so(model: HierarchicalHazards) -> None:
    np.testing.assert_allclose(np.log(model.predict([NEW], ["service"]).quantile(np.array([[0.5]]))), [[TRUE]], atol=0.15)
    assert model.rests_on_rates(NEW, "service")
    assert not model.rests_on_rates(contexts()[0], "service")
    assert not model.rests_on_rates(Context(host="stranger"), "service")
    assert not model.rests_on_rates(NEW, "setup")
    assert 0.0 == model.of_host(Context(host="stranger"), "service")
    assert model.of_host(NEW, "service") > 1.0


def test_what_is_placed_by_rates_is_judged_apart_until_it_has_run_once(model: HierarchicalHazards) -> None:
    placed, stranger = Ensemble(model), Context(host="stranger", family="sort", model="m0")
    apart, known, other = (placed.path(context, "service") for context in (NEW, contexts()[0], stranger))
    assert ("service/", "service/ placed", "service/ placed sort") == apart[:3]
    assert ["service/ novelty 0"] * 2 == [known[1], other[1]]  # nothing was told to the ensemble itself yet
    begun = Change(1, 201, "service", NEW, 0.0, 0.0, Ended.RUNNING, 1.0, 201, "a/service/0")
    after = placed.after([begun], 201).after([replace(begun, duration_s=4.0, ended=Ended.COMPLETED)], 202)
    assert "service/ novelty 1" == after.path(NEW, "service")[1]
    assert "service/ placed" in after.weights.nodes


def test_what_lasted_on_all_hosts_is_moved_by_what_is_known_of_this_one() -> None:
    learning = Learning(Histories())
    for seconds in range(1, 40):
        learning.take(contexts()[0], "service", float(np.log(seconds)), 0.0, None)
    known, here, there = learning.done(), groups_of(contexts()[0], "service"), groups_of(NEW, "service")
    for plain, moved in zip(known.pooled(there), known.pooled(there, 0.5), strict=True):
        np.testing.assert_allclose(moved, np.asarray(plain) + 0.5)
    own, pulled = known.pooled(here)[1], known.pooled(here, 0.5)[1]
    assert own is not None
    assert pulled is not None
    assert 0.0 < float(np.max(pulled - own)) < 0.1  # its own 39 outcomes are as they were


def test_a_model_file_keeps_rates(model: HierarchicalHazards) -> None:
    content = modelfile.packed(model)
    again = modelfile.unpacked(content)
    assert content == modelfile.packed(again)
    assert again.strata["service"].location.effects.seed == model.strata["service"].location.effects.seed


def test_a_host_that_is_the_only_one_of_a_fit_places_others() -> None:
    alone = [context for context in contexts() if context.host == "ash"]
    log_time, context = rows_of(alone)
    n = len(log_time)
    rows = Rows(np.full(n, -np.inf), log_time, np.ones(n, dtype=bool), np.zeros(n, dtype=bool), np.ones(n), context)
    told, plain = (
        location.fit(alone, "service", rows, novel_sd=0.5, pooling=5.0, rates=rates) for rates in (rates_of("ash", "new"), NONE)
    )
    (moved,), (left,) = told.centre([NEW])
    np.testing.assert_allclose(moved - plain.centre([NEW])[0][0], TRUE)
    assert left >= 0.25
