"""Chances against closed forms and brute force; monotone, deaf to other plans, and never counting a failure as completion."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy.special import gammainc, ndtr

from predictors.families import Exponential, LogNormal, Mixture, Steps
from predictors.joint.quantile_table import timings_of
from predictors.joint.scenarios import stacked
from predictors.plans.chance import ONE_SIDED, Chance, Verdict, chances
from predictors.plans.graph import Plan, Stage, StageKind
from telemetry.errors import BadField

SETUP, SERVICE, WAIT, TRANSFER = StageKind.SETUP, StageKind.SERVICE, StageKind.WAIT, StageKind.TRANSFER


def serial(*timings: int, wait_s: float = 0.0, rho: float = 0.0, attempt: str = "a", request: str = "r") -> Plan:
    """A planned wait, then stages one after the other: all but the last are setups of one attempt, the last its service."""
    stages = [Stage("wait", WAIT, planned_s=wait_s)]
    for place, timing in enumerate(timings):
        last = place == len(timings) - 1
        kind = SERVICE if last else SETUP
        made = Stage(
            f"stage-{place}", kind, (stages[-1].name,), timing=timing, host="h", attempt=attempt, rho=rho if last else 0.0
        )
        stages.append(made)
    return Plan(tuple(stages), request)


def near(expected: float, answer: Chance) -> None:
    """Within five standard errors and what the table's interpolation may cost."""
    assert answer.probability == pytest.approx(expected, abs=5 * answer.mc_se + 5e-4)


@pytest.mark.parametrize("deadline_s", [0.5, 2.0, 5.0, 9.0])
@pytest.mark.parametrize("n_stages", [1, 2, 3])
def test_a_sum_of_exponentials_is_erlang(n_stages: int, deadline_s: float) -> None:
    answer = chances([serial(*range(n_stages))], timings_of(Exponential(np.ones(n_stages))), deadline_s, 0.9, seed=1)[0]
    near(float(gammainc(n_stages, deadline_s)), answer)


def test_a_sum_of_unequal_exponentials_is_hypoexponential_and_a_wait_only_shifts_it() -> None:
    timings = timings_of(Exponential([1.0, 3.0]))
    expected = 1 - (3.0 * np.exp(-4.0 / 3.0) - np.exp(-4.0)) / 2.0
    near(expected, chances([serial(0, 1)], timings, 4.0, 0.9, seed=2)[0])
    near(expected, chances([serial(0, 1, wait_s=1.5)], timings, 5.5, 0.9, seed=2)[0])


def test_a_join_waits_for_the_later_of_two_branches() -> None:
    branches = tuple(Stage(name, TRANSFER, timing=place, host=name) for place, name in enumerate(("left", "right")))
    joined = Plan((*branches, Stage("join", WAIT, ("left", "right"), planned_s=1.0)))
    timings, expected = timings_of(Exponential([1.0, 2.0])), (1 - np.exp(-2.0)) * (1 - np.exp(-1.0))
    for plan, deadline_s in ((Plan(branches), 2.0), (joined, 3.0)):
        near(expected, chances([plan], timings, deadline_s, 0.9, seed=3)[0])


def test_a_planned_wait_beside_a_drawn_stage_joins_it_or_ends_the_plan() -> None:
    drawn, wait = Stage("drawn", TRANSFER, timing=0), Stage("wait", WAIT, planned_s=1.0)
    joined = (drawn, wait, Stage("join", WAIT, ("drawn", "wait"), planned_s=0.5))
    timings = timings_of(Exponential(1.0))
    for stages, shift_s in ((drawn, wait), 0.0), ((wait, drawn), 0.0), (joined, 0.5):
        for deadline_s, expected in ((0.9, 0.0), (2.0, 1 - np.exp(-2.0))):
            answer = chances([Plan(stages)], timings, deadline_s + shift_s, 0.9, seed=22)[0]
            near(expected, answer)
            assert answer.quantiles_s[0] == pytest.approx(1.0 + shift_s, rel=0.01)
            assert answer.sum_of_p95_s == pytest.approx(-np.log(0.05) + shift_s, rel=0.01)


def test_parallel_last_stages_need_no_sampling() -> None:
    branches = tuple(Stage(name, TRANSFER, timing=place, host=name) for place, name in enumerate(("left", "right")))
    answer = chances([Plan(branches)], timings_of(Exponential([1.0, 2.0])), 2.0, 0.9, seed=3)[0]
    assert answer.mc_se == 0.0
    assert answer.n_scenarios == 256


def test_atoms_are_met_exactly_at_the_deadline() -> None:
    timings = timings_of(Steps([[0.1, 0.4], [0.2, 0.6]]))
    for deadline_s, expected in ((0.1 + 0.2, 0.25), (0.299, 0.0), (0.4 + 0.2, 0.5), (0.1 + 0.6, 0.75), (1.0, 1.0)):
        near(expected, chances([serial(0, 1)], timings, deadline_s, 0.9, seed=4)[0])


@pytest.mark.parametrize("rho", [-0.5, 0.5])
def test_brute_force_with_correlated_bimodal_setup(rho: float) -> None:
    setup = Mixture([LogNormal(0.2, 0.1), LogNormal(2.0, 0.2)], [0.7, 0.3])
    rng = np.random.default_rng(5)
    eps = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], 1_000_000)
    grid = np.linspace(0.0005, 0.9995, 20_001)
    total = np.interp(ndtr(eps[:, 0]), grid, setup.quantile(grid)[0]) + np.exp(0.5 * eps[:, 1])
    timings = stacked(timings_of(setup), timings_of(LogNormal(1.0, 0.5)))
    for deadline_s in (1.0, 2.0, 4.0):
        near(float(np.mean(total <= deadline_s)), chances([serial(0, 1, rho=rho)], timings, deadline_s, 0.95, seed=6)[0])


def test_two_attempts_on_one_host_are_late_together_as_brute_force_has_it() -> None:
    rng, share = np.random.default_rng(7), 0.6
    state = rng.normal(size=(1_000_000, 1))
    eps = np.sqrt(share) * state + np.sqrt(1 - share) * rng.normal(size=(1_000_000, 2))
    both = np.exp(0.5 * eps).max(axis=1)
    alone = Stage("one", SERVICE, timing=0, host="h", attempt="1", share=share)
    other = Stage("two", SERVICE, timing=1, host="h", attempt="2", share=share)
    answer = chances([Plan((alone, other))], timings_of(LogNormal([1.0, 1.0], 0.5)), 1.5, 0.9, seed=8)[0]
    near(float(np.mean(both <= 1.5)), answer)
    near(float(ndtr(np.log(1.5) / 0.5)), chances([Plan((alone,))], timings_of(LogNormal([1.0, 1.0], 0.5)), 1.5, 0.9, seed=8)[0])


def test_a_correlation_that_leaves_a_shared_state_no_room_still_holds() -> None:
    rng, rho = np.random.default_rng(20), -0.5
    eps = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], 1_000_000)
    pair = (
        Stage("setup", SETUP, timing=0, host="h", attempt="1", share=0.6),
        Stage("service", SERVICE, ("setup",), timing=0, host="h", attempt="1", share=0.6, rho=rho),
        Stage("brief", SERVICE, timing=1, host="h", attempt="2", share=0.6),
    )
    answer = chances([Plan(pair)], timings_of(LogNormal([1.0, 1e-6], 0.5)), 2.8, 0.9, seed=21)[0]
    near(float(np.mean(np.exp(0.5 * eps).sum(axis=1) <= 2.8)), answer)


def test_a_running_setup_counts_from_now_and_a_finished_one_conditions_the_service() -> None:
    rng, rho = np.random.default_rng(9), 0.6
    eps = rng.multivariate_normal([0, 0], [[1, rho], [rho, 1]], 2_000_000)
    late = np.exp(0.4 * eps[:, 0]) > 1.5
    total = np.exp(0.4 * eps[late, 0]) - 1.5 + np.exp(0.5 * eps[late, 1])
    law = LogNormal([1.0, 1.0], [0.4, 0.5])
    running = timings_of(law, elapsed_s=[1.5, np.nan])
    near(float(np.mean(total <= 2.0)), chances([serial(0, 1, rho=rho)], running, 2.0, 0.9, seed=10)[0])
    finished = timings_of(law, took_s=[np.exp(0.4 * 1.5), np.nan])
    exact = float(ndtr((np.log(2.0) / 0.5 - rho * 1.5) / np.sqrt(1 - rho**2)))
    near(exact, chances([serial(0, 1, rho=rho)], finished, 2.0, 0.9, seed=10)[0])


def test_a_running_service_after_a_known_setup_is_its_conditional_residual() -> None:
    rho, elapsed_s, known = 0.6, 2.0, 1.0
    left = np.sqrt(1 - rho**2)
    sf = [float(ndtr((rho * known - np.log(t) / 0.5) / left)) for t in (elapsed_s, elapsed_s + 1.0)]
    timings = timings_of(LogNormal([1.0, 1.0], [0.4, 0.5]), took_s=[np.exp(0.4 * known), np.nan], elapsed_s=[np.nan, elapsed_s])
    near(1 - sf[1] / sf[0], chances([serial(0, 1, rho=rho)], timings, 1.0, 0.9, seed=11)[0])


def test_fast_failure_is_not_fast_completion() -> None:
    """Half of the attempts fail within a blink; what completes takes a second. By 1.2 s at most half has completed."""
    timings = timings_of(LogNormal(1.0, 0.01), p_complete=0.5)
    answer = chances([serial(0)], timings, 1.2, 0.9, seed=12)[0]
    assert answer.probability == pytest.approx(0.5, abs=1e-6)
    assert answer.verdict is Verdict.DOES_NOT_HOLD
    assert chances([serial(0)], timings, 0.5, 0.9, seed=12)[0].probability == 0.0
    assert answer.quantiles_s[0] == pytest.approx(1.0, rel=0.01)  # times given completion


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.05, 20.0), min_size=2, max_size=6, unique=True), st.integers(0, 2**63))
def test_a_later_deadline_is_never_less_likely_met(deadlines: list[float], seed: int) -> None:
    timings, ordered = timings_of(LogNormal([1.0, 2.0, 0.5], [0.5, 0.8, 1.0])), sorted(deadlines)
    answers = chances([serial(0, 1, 2, rho=0.4)] * len(ordered), timings, ordered, 0.9, seed=seed, most_scenarios=256)
    assert all(a.probability <= b.probability for a, b in pairwise(answers))
    assert all(a.expected_lateness_s >= b.expected_lateness_s for a, b in pairwise(answers))


def test_a_higher_level_never_turns_a_no_into_a_yes() -> None:
    levels = [0.5, 0.8, 0.9, 0.95, 0.99, 0.999]
    answers = chances([serial(0, 1)] * 6, timings_of(Exponential([1.0, 1.0])), 5.0, levels, seed=13)
    order = [Verdict.HOLDS, Verdict.CANNOT_CERTIFY, Verdict.DOES_NOT_HOLD]
    ranks = [order.index(answer.verdict) for answer in answers]
    assert ranks == sorted(ranks)
    assert {Verdict.HOLDS, Verdict.DOES_NOT_HOLD} <= {answer.verdict for answer in answers}


def test_no_bit_depends_on_what_else_is_asked() -> None:
    rng = np.random.default_rng(14)
    timings = timings_of(LogNormal(np.exp(rng.normal(size=40)), 0.6), elapsed_s=[0.5] * 10 + [np.nan] * 30)
    plans = [serial(*rng.integers(0, 40, size=1 + i % 3), rho=0.3, attempt=f"a{i}", request=f"r{i % 7}") for i in range(150)]
    shared = Plan(tuple(Stage(str(i), SERVICE, timing=i, host="h", attempt=str(i), share=0.4) for i in range(8, 12)))
    plans += [shared] * 2
    deadlines = rng.uniform(0.5, 8.0, size=len(plans))
    whole = chances(plans, timings, deadlines, 0.95, seed=15, cvar_level=0.9)
    order = rng.permutation(len(plans))[:40]
    part = chances([plans[i] for i in order], timings, deadlines[order], 0.95, seed=15, cvar_level=0.9)
    assert [whole[i] for i in order] == part
    assert [whole[i] for i in order[:5]] == [
        chances([plans[i]], timings, deadlines[i], 0.95, seed=15, cvar_level=0.9)[0] for i in order[:5]
    ]


def test_the_stated_monte_carlo_error_is_honest() -> None:
    timings = timings_of(LogNormal([1.0, 1.0, 1.0], [0.5, 0.8, 0.4]))
    answers = [chances([serial(0, 1, 2, rho=0.4)], timings, 5.0, 0.5, seed=seed, most_scenarios=256)[0] for seed in range(300)]
    truth = np.mean([answer.probability for answer in answers])
    missed = np.mean([abs(answer.probability - truth) > ONE_SIDED * answer.mc_se for answer in answers])
    assert missed < 0.16  # two-sided 10 % where the replicates are normal


def test_256_plain_scenarios_cannot_certify_99_percent() -> None:
    timings = timings_of(Steps([[1.0], [1.0], [1.0]]))
    few = chances([serial(0, 1, 2)], timings, 9.0, 0.99, seed=16, most_scenarios=256)[0]
    assert (few.probability, few.verdict, few.n_scenarios) == (1.0, Verdict.CANNOT_CERTIFY, 256)
    assert few.lower == pytest.approx(1 - 3 / 256)
    assert chances([serial(0, 1, 2)], timings, 9.0, 0.99, seed=16)[0].verdict is Verdict.HOLDS


def test_calibration_error_widens_the_bound() -> None:
    timings = timings_of(Exponential(1.0))
    sure = chances([serial(0)], timings, 3.0, 0.94, seed=17)[0]
    doubted = chances([serial(0)], timings, 3.0, 0.94, seed=17, calibration_se=0.02)[0]
    assert (sure.verdict, doubted.verdict) == (Verdict.HOLDS, Verdict.CANNOT_CERTIFY)
    assert doubted.lower == pytest.approx(1 - np.exp(-3.0) - ONE_SIDED * 0.02, abs=1e-4)


def test_few_outcomes_behind_a_plan_widen_the_bound_as_they_would_that_of_a_share() -> None:
    timings, p = timings_of(Exponential(1.0)), 1 - np.exp(-3.0)
    given, learned = (chances([serial(0)], timings, 3.0, 0.9, seed=17, behind=n)[0] for n in (np.inf, 25.0))
    assert (0.0, Verdict.HOLDS) == (given.evidence_se, given.verdict)
    assert Verdict.CANNOT_CERTIFY is learned.verdict
    assert np.sqrt(p * (1 - p) / 25) == pytest.approx(learned.evidence_se, rel=1e-3)
    assert p - ONE_SIDED * learned.evidence_se == pytest.approx(learned.lower, abs=1e-4)


def test_answers_that_were_too_low_keep_a_plan_from_being_refuted_and_take_nothing_from_its_bound() -> None:
    timings, p = timings_of(Exponential(1.0)), 1 - np.exp(-3.0)
    alike, too_low = (
        chances([serial(0)], timings, 3.0, 0.96, seed=17, calibration_se=0.002, above_se=above)[0] for above in (None, 0.02)
    )
    assert (Verdict.DOES_NOT_HOLD, Verdict.CANNOT_CERTIFY) == (alike.verdict, too_low.verdict)
    assert [p - ONE_SIDED * 0.002] * 2 == pytest.approx([alike.lower, too_low.lower], abs=1e-4)


def test_tail_lateness_and_the_sum_of_p95s_by_hand() -> None:
    timings = timings_of(Exponential([1.0, 1.0]))
    single = chances([serial(0)], timings, 1.0, 0.9, seed=18, cvar_level=0.9)[0]
    assert_allclose([np.log(2), -np.log(0.1), -np.log(0.05)], single.quantiles_s[:3], rtol=0.05)
    assert single.expected_lateness_s == pytest.approx(np.exp(-1.0), rel=0.05)
    assert single.cvar_s == pytest.approx(1 - np.log(0.1), rel=0.1)
    assert chances([serial(0, 1)], timings, 1.0, 0.9, seed=18)[0].sum_of_p95_s == pytest.approx(-2 * np.log(0.05), rel=1e-3)
    assert chances([serial(0)], timings, 1.0, 0.9, seed=18)[0].cvar_s is None


@pytest.mark.parametrize(
    ("stages", "field"),
    [
        ((), "stages"),
        ((Stage("a", WAIT, ("b",), planned_s=1.0), Stage("b", WAIT, planned_s=1.0)), r"a\.after"),
        ((Stage("a", WAIT, planned_s=1.0), Stage("a", WAIT, planned_s=1.0)), "name"),
        ((Stage("a", SERVICE, timing=7),), "timing"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused_by_field(stages: tuple[Stage, ...], field: str) -> None:
    with pytest.raises(BadField, match=field):
        chances([Plan(stages)], timings_of(Exponential(1.0)), 1.0, 0.9, seed=1)


@pytest.mark.parametrize(
    "values",
    [{}, {"planned_s": 1.0, "timing": 0}, {"planned_s": -1.0}, {"planned_s": np.inf}, {"timing": -1}, {"timing": 0, "rho": 2.0}],
)
def test_a_stage_that_makes_no_sense_is_refused_by_name(values: dict[str, float]) -> None:
    with pytest.raises(BadField, match=r"load\."):
        chances([Plan((Stage("load", SETUP, **values),))], timings_of(Exponential(1.0)), 1.0, 0.9, seed=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("deadline_s", "level"), [(np.inf, 0.9), (np.nan, 0.9), (1.0, 1.0), (1.0, 0.0)])
def test_impossible_questions_are_refused(deadline_s: float, level: float) -> None:
    with pytest.raises(BadField):
        chances([serial(0)], timings_of(Exponential(1.0)), deadline_s, level, seed=1)


def test_a_deadline_that_has_passed_has_no_chance_and_a_plan_of_waits_no_doubt() -> None:
    assert chances([serial(0)], timings_of(Exponential(1.0)), -1.0, 0.9, seed=1)[0].probability == 0.0
    only = Plan((Stage("wait", WAIT, planned_s=2.0),))
    assert [1.0, 0.0] == [chances([only], timings_of(Exponential(1.0)), d, 0.9, seed=1)[0].probability for d in (2.0, 1.9)]
