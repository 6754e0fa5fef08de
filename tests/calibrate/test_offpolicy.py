"""Off-policy evaluation: numbers worked by hand, a known truth found in 93-97 % of logs, and refusal without support."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from calibrate.explore.offpolicy import NOT_COVERED, Evaluation, Limits, Log, evaluate
from predictors.scores import uncensored_before
from telemetry.errors import BadField

LENIENT = Limits(effective=0.0, runs=2)


def four(**values: Any) -> Log:
    """Four decisions of two runs between two actions, logged by a fair coin; the target always takes the second."""
    log = Log(
        run=["r1", "r1", "r2", "r2"],
        taken=np.array([0, 1, 1, 0]),
        logged=np.full((4, 2), 0.5),
        target=np.tile([0.0, 1.0], (4, 1)),
        outcome=np.array([9.0, 2.0, 4.0, 9.0]),
        seen=np.ones(4, dtype=bool),
        kept=np.ones(4),
        expected=np.tile([9.0, 3.0], (4, 1)),
    )
    return replace(log, **values)


def test_four_decisions_by_hand() -> None:
    found = evaluate(four(), LENIENT)
    assert found.ips is not None
    assert found.self_normalised is not None
    assert found.doubly_robust is not None
    assert (2 * 2 + 2 * 4) / 4 == found.ips.estimate
    assert (2 + 4) / 2 == found.self_normalised.estimate
    assert 3 + (2 * (2 - 3) + 2 * (4 - 3)) / 4 == found.doubly_robust.estimate
    assert 2.0 == found.effective  # (2 + 2)^2 / (4 + 4)
    assert (2.0, 0.0, 0.0, 4, 2) == (found.largest_weight, found.cut, found.unlogged, found.decisions, found.runs)
    assert NOT_COVERED == found.not_covered


def test_the_interval_is_made_by_run() -> None:
    found = evaluate(four(), LENIENT).ips
    assert found is not None
    spread = np.sqrt(2 / 1 * ((4 - 6) ** 2 + (8 - 6) ** 2)) / 4  # sums per run 4 and 8, two decisions of 3 expected in each
    assert found.high == pytest.approx(3.0 + 12.706204736 * spread)
    assert 2 == found.n


def test_an_outcome_not_seen_weighs_nothing_and_those_seen_stand_for_it() -> None:
    seen, kept = np.array([True, True, False, True]), np.array([1.0, 0.5, 0.5, 1.0])
    found = evaluate(four(seen=seen, kept=kept, outcome=np.array([9.0, 2.0, np.nan, 9.0])), LENIENT)
    assert found.ips is not None
    assert found.doubly_robust is not None
    assert 2 / 0.5 * 2 / 4 == found.ips.estimate
    assert 3 + 4 * (2 - 3) / 4 == found.doubly_robust.estimate
    assert 3 == found.seen


def test_a_weight_that_is_cut_is_told() -> None:
    logged = np.array([[0.5, 0.5], [0.95, 0.05], [0.5, 0.5], [0.5, 0.5]])
    found = evaluate(four(logged=logged), replace(LENIENT, largest_weight=10.0))
    assert found.ips is not None
    assert found.largest_weight == pytest.approx(20.0)
    assert 0.25 == found.cut
    assert found.cut_mass == pytest.approx(10 / 22)
    assert found.ips.estimate == pytest.approx((10 * 2 + 2 * 4) / 4)


def test_without_support_there_is_no_number() -> None:
    found = evaluate(four(logged=np.array([[1.0, 0.0], [0.5, 0.5], [0.5, 0.5], [0.5, 0.5]])), LENIENT)
    assert (None, None, None) == (found.ips, found.self_normalised, found.doubly_robust)
    assert 0.25 == found.unlogged
    assert found.refused[0].startswith("no support: 25.0%")


def test_an_action_that_could_have_been_taken_but_never_was_is_no_support() -> None:
    found = evaluate(four(taken=np.zeros(4, dtype=np.intp)), LENIENT)
    assert 1.0 == found.unlogged
    assert found.doubly_robust is None


def test_too_few_decisions_and_too_few_runs_are_refused_each_with_its_reason() -> None:
    assert ["too few:", "too few runs:"] == [text[: text.index(":") + 1] for text in evaluate(four()).refused]


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"logged": np.full((4, 2), 0.6)}, "logged"),
        ({"target": np.tile([-1.0, 2.0], (4, 1))}, "target"),
        ({"logged": np.tile([0.0, 1.0], (4, 1))}, "logged"),
        ({"kept": np.zeros(4)}, "kept"),
        ({"outcome": np.full(4, np.inf)}, "outcome"),
        ({"expected": np.full((4, 2), np.nan)}, "outcome"),
        ({"run": []}, "run"),
    ],
)
def test_a_log_that_makes_no_sense_is_refused(values: dict[str, Any], field: str) -> None:
    with pytest.raises(BadField, match=field):
        four(**values)


# A world with a known truth: two kinds of work, three modes, exponential times, a shock shared by each run, and a budget of 3 s
# past which an attempt counts as 3 s. A third of the outcomes is censored before they are known.

MEAN_S = np.array([[1.0, 2.0, 0.6], [0.5, 0.8, 2.5]])
BUDGET_S = 3.0
LOGGED = np.array([[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]])
TARGET = np.array([[0.1, 0.1, 0.8], [0.7, 0.2, 0.1]])
CENSORED_PER_S = 0.42
RUNS, EACH, SHOCK = 120, 20, 0.25


def restricted_mean_s(mean_s: np.ndarray) -> np.ndarray:
    """E[min(T, b)] of an exponential."""
    return mean_s * (1.0 - np.exp(-BUDGET_S / mean_s))


def truth_s() -> float:
    """Mean over kinds (equally often), modes by TARGET, and the shock (a factor of mean 1 by Gauss-Hermite)."""
    at, weight = np.polynomial.hermite_e.hermegauss(40)
    factor = np.exp(SHOCK * at - SHOCK**2 / 2)
    value = restricted_mean_s(MEAN_S[..., None] * factor) @ (weight / weight.sum())
    return float((TARGET * value).sum(axis=1).mean())


def simulated(rng: np.random.Generator, expected: np.ndarray) -> tuple[Log, float]:
    """One log, and the share of its outcomes that is censored. G is the Kaplan-Meier curve of this very log, by kind and mode."""
    n = RUNS * EACH
    kind, run = rng.integers(0, 2, n), np.repeat(np.arange(RUNS), EACH)
    taken = (rng.random((n, 1)) > LOGGED[kind].cumsum(axis=1)).sum(axis=1)
    shock = np.exp(SHOCK * rng.standard_normal(RUNS) - SHOCK**2 / 2)[run]
    due_s = np.minimum(rng.exponential(MEAN_S[kind, taken] * shock), BUDGET_S)
    gone_s = rng.exponential(1 / CENSORED_PER_S, n)
    seen, known_s = due_s <= gone_s, np.minimum(due_s, gone_s)
    kept = np.ones(n)
    for stratum in range(6):
        rows = np.flatnonzero(kind * 3 + taken == stratum)
        kept[rows] = uncensored_before(known_s[rows], ~seen[rows], known_s[rows])
    log = Log(run.tolist(), taken, LOGGED[kind], TARGET[kind], np.where(seen, due_s, np.nan), seen, kept, expected[kind])
    return log, 1.0 - float(seen.mean())


def covered(found: Evaluation, truth: float) -> bool:
    assert found.doubly_robust is not None
    return found.doubly_robust.low <= truth <= found.doubly_robust.high


@pytest.mark.parametrize("off_by", [1.0, 1.3], ids=["outcome model right", "outcome model 30 % too long"])
def test_the_interval_holds_the_truth_in_1000_logs_a_third_censored(off_by: float) -> None:
    rng, truth = np.random.default_rng(10), truth_s()
    expected = restricted_mean_s(MEAN_S) * off_by
    held, lost = [], []
    for _ in range(1000):
        log, share = simulated(rng, expected)
        held.append(covered(evaluate(log), truth))
        lost.append(share)
    assert np.mean(lost) == pytest.approx(1 / 3, abs=0.02)
    assert 0.93 <= np.mean(held) <= 0.97


def test_dropping_censored_outcomes_would_not_have_held_it() -> None:
    rng, truth = np.random.default_rng(10), truth_s()
    naive = []
    for _ in range(50):
        log, _ = simulated(rng, restricted_mean_s(MEAN_S) * 1.3)
        rows = np.flatnonzero(log.seen)
        kept = Log(
            [log.run[row] for row in rows],
            log.taken[rows],
            log.logged[rows],
            log.target[rows],
            log.outcome[rows],
            log.seen[rows],
            np.ones(len(rows)),
            log.expected[rows],
        )
        naive.append(covered(evaluate(kept), truth))
    assert np.mean(naive) < 0.5
