"""Hosts as they are just now, within the ensemble: a slow-down is followed within twenty outcomes, others stay as they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm

from predictors import ensemblefile, hazards
from predictors.contexts import Context
from predictors.distribution import GRID
from predictors.ensemble import Ensemble
from predictors.experts.histories import HIGH, LAST, LOW, MIDDLE
from predictors.experts.pace import KEPT, LEAST, NARROWEST, Pace, scale_of
from predictors.frames import Frame
from predictors.model import Change
from predictors.settings import FitSettings
from telemetry.words import Ended

HOSTS = ("north", "south", "east", "west")
CONTEXTS = tuple(Context(host=host, family="encoder", model=f"m{i}") for host in HOSTS for i in range(3))
NOISE = 0.3
BEFORE = 600


def frame(n: int = BEFORE) -> Frame:
    """History in which hosts are alike."""
    rng = np.random.default_rng(3)
    return Frame(
        contexts=CONTEXTS,
        phases=("service",),
        context=rng.integers(0, len(CONTEXTS), n),
        phase=np.zeros(n, dtype=np.int64),
        entry_s=np.zeros(n),
        duration_s=np.exp(NOISE * rng.normal(size=n)),
        completed=np.ones(n, dtype=np.bool_),
        failed=np.zeros(n, dtype=np.bool_),
        running=np.zeros(n, dtype=np.bool_),
        weight=np.ones(n),
        known_from=np.arange(1, n + 1),
    )


def told(model: Ensemble, n: int, first: int, slower: float) -> Ensemble:
    """The model asked and told of n rows, one after the other, those of the north that much slower."""
    rng = np.random.default_rng(first)
    for row in range(first, first + n):
        context = CONTEXTS[row % len(CONTEXTS)]
        duration_s = float(np.exp(NOISE * rng.normal())) * (slower if context.host == "north" else 1.0)
        begun = Change(1, row, "service", context, 0.0, 0.0, Ended.RUNNING, 1.0, row, f"{row}", row * 10**9)
        model = model.after([begun], row)
        model = model.after([replace(begun, duration_s=duration_s, ended=Ended.COMPLETED)], row)
    return model


def refitted(model: Ensemble) -> Ensemble:
    return model.refounded(hazards.fit(frame(), BEFORE, FitSettings()), None)


def covered(model: Ensemble, host: str, slower: float) -> float:
    """F_true of the answered p90 on a host that much slower, mean over its contexts."""
    mine = [context for context in CONTEXTS if context.host == host]
    q90 = model.predict(mine, ["service"] * len(mine)).quantile(0.9)[:, 0]
    return float(np.mean(norm.cdf((np.log(q90) - np.log(slower)) / NOISE)))


@pytest.fixture(scope="module")
def steady() -> Ensemble:
    return refitted(told(Ensemble(hazards.fit(frame(), BEFORE, FitSettings())), 240, BEFORE, 1.0))


def test_a_slow_host_is_followed_within_twenty_outcomes_and_others_are_left_alone(steady: Ensemble) -> None:
    firsts = range(2_000, 2_400, 100)  # eighty outcomes from each of these rows on, twenty of them in the north
    slowed, as_ever = ([told(steady, 80, first, slower) for first in firsts] for slower in (2.0, 1.0))
    assert np.mean([covered(model, "north", 2.0) for model in slowed]) >= 0.87
    others = [np.mean([covered(model, "south", 1.0) for model in models]) for models in (as_ever, slowed)]
    assert_allclose(others[0], others[1], atol=0.03)


def crowded(model: Ensemble, n: int, first: int) -> Ensemble:
    """The model asked about n rows that begin on the north at one instant, as long as ever, and told of them as they end."""
    begun = [
        Change(1, row, "service", CONTEXTS[0], 0.0, 0.0, Ended.RUNNING, 1.0, row, f"{row}", 10**13)
        for row in range(first, first + n)
    ]
    model = model.after(begun, first)
    lasted = sorted(np.exp(NOISE * norm.ppf((np.arange(n) + 0.5) / n)).tolist())
    for one, duration_s in zip(np.random.default_rng(1).permutation(np.array(begun, dtype=object)), lasted, strict=True):
        model = model.after([replace(one, duration_s=duration_s, ended=Ended.COMPLETED)], first)
    return model


def level(model: Ensemble, host: str) -> float:
    assert model.pace.cast is not None
    return model.pace.cast.state(host, model.pace.clock_s)[0]


def test_the_longest_of_a_crowd_come_last_and_make_no_host_slow(steady: Ensemble) -> None:
    after = refitted(crowded(steady, 50, 3_000))
    assert level(after, "north") == pytest.approx(level(steady, "north"), abs=0.1)


def test_the_expert_is_the_model_of_record_moved_by_what_is_known_of_the_host(steady: Ensemble) -> None:
    slowed = told(steady, 80, 2_000, 2.0)
    assert slowed.pace.cast is not None
    mean, variance = slowed.pace.cast.state("north", slowed.pace.clock_s)
    record = np.linspace(-1.0, 1.0, len(GRID))
    scale = scale_of(float(record[HIGH] - record[LOW]))
    moved = slowed.pace.moved("north", record)
    assert_allclose(record[MIDDLE] + mean, moved[MIDDLE])
    assert_allclose(np.sqrt(1.0 + variance / scale**2) * (record[-1] - record[MIDDLE]), moved[-1] - moved[MIDDLE])
    assert 0.5 < mean < 0.9
    asked = slowed.ask([CONTEXTS[0]], ["service"])[0]
    assert_allclose(slowed.pace.moved("north", asked.experts[0].astype(np.float64)), asked.experts[-1], atol=1e-5)


def test_a_host_not_met_and_a_context_without_one_are_answered_as_ever(steady: Ensemble) -> None:
    record = np.linspace(-1.0, 1.0, len(GRID))
    for host in ("elsewhere", None):
        assert_array_equal(record, steady.pace.moved(host, record))


def test_outcomes_whose_start_was_not_seen_say_nothing_of_a_pace(steady: Ensemble) -> None:
    begun = Change(1, 1, "service", CONTEXTS[0], 0.0, 0.0, Ended.RUNNING, 1.0, 1, "unseen")
    ended = replace(begun, duration_s=2.0, ended=Ended.COMPLETED)
    after = steady.after([begun], 1).after([ended], 1)
    assert steady.pace == after.pace


def test_levels_are_found_again_beside_new_centres(steady: Ensemble) -> None:
    slowed = told(steady, 80, 2_000, 2.0)
    n = len(slowed.pace.recent)
    absorbed = slowed.pace.refitted(
        lambda contexts, _: (np.log([2.0 if c.host == "north" else 1.0 for c in contexts]), np.ones(n))
    )
    assert absorbed.cast is not None
    assert slowed.pace.cast is not None
    before, after = (cast.state("north", slowed.pace.clock_s)[0] for cast in (slowed.pace.cast, absorbed.cast))
    assert abs(after) < 0.3 < before


def test_nothing_is_said_from_few_outcomes_and_old_ones_are_let_go() -> None:
    fresh = Ensemble(hazards.fit(frame(), BEFORE, FitSettings()))
    few = refitted(told(fresh, LEAST - 1, BEFORE, 1.0))
    assert few.pace.cast is None
    assert refitted(told(few, 1, 3_000, 1.0)).pace.cast is not None
    assert KEPT == len(Pace().having([(few.pace.recent[0], 0.0, 1.0)] * (KEPT + 5)).recent)


def test_a_phase_that_a_new_fit_knows_nothing_of_is_let_go(steady: Ensemble) -> None:
    other = replace(frame(), phases=("setup",))
    anew = steady.refounded(hazards.fit(other, BEFORE, FitSettings()), None)
    assert () == anew.pace.recent
    assert anew.pace.cast is None


def test_a_spread_of_nothing_has_a_least_scale() -> None:
    assert NARROWEST == scale_of(0.0)
    assert_allclose(1.0, scale_of(float(norm.ppf(0.9) - norm.ppf(0.1))))


def test_a_pace_read_back_says_the_same_to_the_bit(steady: Ensemble) -> None:
    slowed = told(steady, 40, 2_000, 2.0)
    arrays: dict[str, np.ndarray] = {}
    back = ensemblefile.unpack(ensemblefile.pack(slowed, arrays), arrays)
    for host in HOSTS:
        assert covered(slowed, host, 1.0) == covered(back, host, 1.0)
    assert covered(told(slowed, 10, 4_000, 2.0), "north", 2.0) == covered(told(back, 10, 4_000, 2.0), "north", 2.0)
    assert covered(refitted(slowed), "north", 2.0) == covered(refitted(back), "north", 2.0)


def test_a_crowd_speaks_through_a_few_that_count_for_one(steady: Ensemble) -> None:
    alone = steady.pace.recent
    assert {1.0} == {ran.weight for ran in alone}
    rows = [Change(1, 0, "service", CONTEXTS[0], 0.0, 0.0, Ended.RUNNING, 1.0, 0, f"of crowd {i}", 10**15) for i in range(60)]
    after = steady.after(rows, 2_000)
    for i, row in enumerate(rows):
        after = after.after([replace(row, duration_s=1.0 + 0.01 * i, ended=Ended.COMPLETED)], 2_001 + i)
    spoken = [ran for ran in after.pace.recent if ran not in alone]
    assert {1.0 / LAST} == {ran.weight for ran in spoken}
    assert 0.4 < sum(ran.weight for ran in spoken) < 2.0
