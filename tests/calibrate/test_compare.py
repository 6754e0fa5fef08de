"""Comparing two predictors: by how much, how surely, and never fooled by looking again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from calibrate.evidence.compare import BEST, LEAST, RUNS, Paired, compare, on_grid, radius
from predictors.distribution import GRID, Array
from predictors.scores import LEVELS, crps_log
from telemetry.errors import BadField

LIVES, OUTCOMES = 2000, 2000


def crps(mean: Any, truth: Array) -> Array:
    """CRPS of N(mean, 1) in closed form."""
    z = truth - mean
    return np.asarray(z * (2.0 * ndtr(z) - 1.0) + 2.0 * norm.pdf(z) - 1.0 / np.sqrt(np.pi))


def promoted(difference: Array) -> float:
    """Share of lives (n, outcomes) in which the lower bound was above 0 at some look; the formula of `Paired`, all at once."""
    n = np.arange(1, difference.shape[1] + 1)
    total = np.cumsum(difference, axis=1)
    spread = np.maximum(np.cumsum(difference**2, axis=1) - total**2 / n, 0.0)
    worst = np.minimum.accumulate(np.minimum(difference, 0.0), axis=1)
    return float(((total + worst - radius(spread, n)) > 0.0)[:, LEAST - 1 :].any(axis=1).mean())


def test_the_formula_of_many_lives_is_that_of_one() -> None:
    rng = np.random.default_rng(1)
    lives = rng.normal(0.2, 1.0, (40, 400))
    paired = [Paired() for _ in lives]
    crossed = np.zeros(len(lives), dtype=bool)
    for column in range(lives.shape[1]):
        for place, one in enumerate(paired):
            one.add(column, float(lives[place, column]))
            low = one.bounds().low
            crossed[place] |= low is not None and low > 0.0
    assert 0.1 < crossed.mean() < 0.9
    assert crossed.mean() == promoted(lives)


@pytest.mark.parametrize(("champion", "challenger"), [(0.47, -0.47), (0.0, 0.47)], ids=["equal", "10 % worse"])
def test_a_challenger_that_is_not_better_is_promoted_in_at_most_1_percent_of_lives(champion: float, challenger: float) -> None:
    truth = np.random.default_rng(2).standard_normal((LIVES, OUTCOMES))
    assert promoted(crps(champion, truth) - crps(challenger, truth)) <= 0.01


def test_an_equal_challenger_that_loses_rarely_and_much_is_promoted_in_at_most_1_percent_of_lives() -> None:
    losses = np.random.default_rng(3).exponential(1.0, (LIVES, OUTCOMES))
    assert promoted(1.0 - losses) <= 0.01


def test_a_challenger_better_by_10_percent_is_promoted_in_at_least_90_percent_of_lives() -> None:
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((LIVES, OUTCOMES))
    off = rng.standard_normal((2, LIVES, OUTCOMES))  # each errs on its own, beyond what can be foretold
    champion, challenger = crps(0.9 * off[0], truth), crps(0.68 * off[1], truth)
    assert challenger.mean() / champion.mean() == pytest.approx(0.89, abs=0.01)
    assert promoted(champion - challenger) >= 0.9


def test_outcomes_of_one_run_that_move_together_are_not_taken_for_many() -> None:
    rng, fooled, naive = np.random.default_rng(5), 0, 0
    for _ in range(200):
        shared, apart = Paired(), Paired()
        crossed = [False, False]
        for place, difference in enumerate(np.repeat(rng.standard_normal(40), 25) + 0.1 * rng.standard_normal(1000)):
            for which, (one, run) in enumerate(((shared, place // 25), (apart, place))):
                one.add(run, float(difference))
                if place % 25 == 24:
                    low = one.bounds().low
                    crossed[which] |= low is not None and low > 0.0
        fooled, naive = fooled + crossed[0], naive + crossed[1]
    assert fooled <= 0.02 * 200
    assert naive > 0.2 * 200


def test_bounds_by_hand() -> None:
    one = Paired(alpha=0.05)
    for place in range(LEAST):
        one.add(place, 1.0 if place % 2 else 0.0)
    found = one.bounds()
    half = np.sqrt(25.0 * (1 + BEST / 100) * 2 * np.log(1 + np.sqrt(1 + 100 / BEST) / 0.1))
    assert 0.5 == found.mean
    assert found.low == pytest.approx(0.5 - half / 100)
    assert found.high == pytest.approx(0.5 + (half + 1.0) / 100)  # one more as good as the best


def test_nothing_is_said_before_enough_outcomes_of_enough_runs() -> None:
    few, narrow = Paired(), Paired()
    for place in range(LEAST):
        if place:
            few.add(place, 1.0)
        narrow.add(place % (RUNS - 1), 1.0)
    assert (None, LEAST - 1) == (few.bounds().low, few.bounds().n)
    assert (None, RUNS - 1) == (narrow.bounds().low, narrow.bounds().runs)
    assert (0.0, None, 0) == (Paired().bounds().mean, Paired().bounds().low, Paired().bounds().n)


def test_weights_count_an_outcome_for_those_like_it_that_were_censored() -> None:
    weighed, repeated = Paired(), Paired()
    for place in range(LEAST * 2):
        weighed.add(place, float(place % 3), 2.0 if place % 3 else 1.0)
        repeated.add(place, float(place % 3))
        if place % 3:
            repeated.add(place, float(place % 3))
    assert weighed.bounds().mean == pytest.approx(repeated.bounds().mean)
    assert (weighed.squares, weighed.crossed, weighed.weights) == (repeated.squares, repeated.crossed, repeated.weights)


@pytest.mark.parametrize(("difference", "weight"), [(float("nan"), 1.0), (1.0, 0.0), (1.0, float("inf"))])
def test_a_score_that_is_no_number_is_refused(difference: float, weight: float) -> None:
    with pytest.raises(BadField):
        Paired().add("r", difference, weight)


def test_a_comparison_counts_wins_ties_losses_and_finds_the_worst() -> None:
    champion, challenger = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 2.0, 3.5, 9.0])
    found = compare(["a", "b", "c", "d"], champion, challenger, np.ones(4))
    assert (1, 1, 2, 3) == (found.wins, found.ties, found.losses, found.worst)
    assert (2.5, 3.75, None) == (found.champion, found.challenger, found.ratio)


def test_the_interval_resamples_runs_whole() -> None:
    rng = np.random.default_rng(6)
    run = np.repeat(np.arange(30), 20)
    champion = np.repeat(rng.gamma(4.0, 1.0, 30), 20)
    found = compare(run.tolist(), champion, champion * 0.9, np.ones(600))
    assert found.difference is not None
    assert found.ratio is not None
    assert found.ratio.estimate == pytest.approx(0.9)
    assert found.ratio.high - found.ratio.low == pytest.approx(0.0, abs=1e-9)
    means = champion[::20] * 0.1
    assert found.difference.high - found.difference.low == pytest.approx(2 * 1.96 * means.std() / np.sqrt(30), rel=0.15)
    assert found == compare(run.tolist(), champion, champion * 0.9, np.ones(600)), "the draws are decided by the seed"


def test_very_many_runs_have_narrow_intervals_from_fewer_draws() -> None:
    rng = np.random.default_rng(7)
    champion = rng.gamma(4.0, 1.0, 30_000)
    found = compare(range(30_000), champion, champion * 0.9, np.ones(30_000)).difference
    assert found is not None
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.1 * 2.0 / np.sqrt(30_000), rel=0.25)


def test_nothing_to_compare_is_no_error() -> None:
    empty = np.empty(0)
    assert (0, None, None) == ((found := compare([], empty, empty, empty)).n, found.worst, found.difference)


def test_a_point_is_scored_as_the_distance_in_log_time() -> None:
    quantiles_s = on_grid("point", [2.0])[None, : len(LEVELS)]
    assert crps_log([4.0], quantiles_s)[0] == pytest.approx(np.log(2.0))


def test_quantiles_are_joined_in_log_time_and_end_where_they_end() -> None:
    found = on_grid("quantiles", [1.0, 4.0, 8.0], [0.1, 0.5, 0.9])
    assert found[GRID == 0.3][0] == pytest.approx(2.0)
    assert (1.0, 8.0) == (found[0], pytest.approx(found[-1]))


def test_samples_are_their_own_quantiles() -> None:
    found = on_grid("samples", [3.0, 1.0, 2.0, 4.0])
    assert (1.0, 2.0, 4.0) == (found[GRID == 0.25][0], found[GRID == 0.5][0], found[-1])


def test_zero_times_are_legal() -> None:
    assert 0.0 == on_grid("quantiles", [0.0, 0.0], [0.5, 0.9]).max()
    assert np.isfinite(on_grid("quantiles", [0.0, 1.0], [0.5, 0.9])).all()


@pytest.mark.parametrize(
    ("form", "sent_s", "levels", "field"),
    [
        ("point", [1.0, 2.0], [], "sent_s"),
        ("point", [], [], "sent_s"),
        ("samples", [-1.0], [], "sent_s"),
        ("samples", [float("inf")], [], "sent_s"),
        ("quantiles", [2.0, 1.0], [0.5, 0.9], "sent_s"),
        ("quantiles", [1.0, 2.0], [0.9, 0.5], "levels"),
        ("quantiles", [1.0, 2.0], [0.5], "levels"),
        ("quantiles", [1.0], [1.0], "levels"),
    ],
)
def test_a_forecast_that_makes_no_sense_is_refused(form: str, sent_s: list[float], levels: list[float], field: str) -> None:
    with pytest.raises(BadField, match=field):
        on_grid(form, sent_s, levels)
