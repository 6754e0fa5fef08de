"""All levels of a node: the controlled one keeps its bound in what is served, levels never cross, nothing counts twice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.conformal.levels import ADVERTISED
from calibrate.conformal.mixture import CONTROLLED, GAMMA, LAST_GAMMA, MISS, PLACE, Known, Levels, Told
from telemetry.errors import BadField

P90 = ADVERTISED.index(0.9)
outcomes = st.builds(Told, u=st.floats(0.0, 1.0), known=st.sampled_from([Known.ENDED, Known.LOST]), weight=st.floats(0.0, 1.0))


def test_a_new_node_asks_for_what_is_advertised() -> None:
    assert [0.5, 0.1, 0.05, 0.01] == pytest.approx(list(Levels.start().served()[0]))
    assert 0 == Levels.start().crossings()


def test_each_path_moves_by_its_own_gamma() -> None:
    after = Levels.start().after(Told(0.93))  # past p50 and p90, within p95 and p99
    missed = MISS[:, None] + GAMMA * (MISS[:, None] - np.array([1.0, 1.0, 0.0, 0.0])[:, None])
    np.testing.assert_allclose(missed, after.alpha[0])
    assert LAST_GAMMA * (0.1 - 1.0) == pytest.approx(float(after.offset[0]))
    assert 1 == after.n[0]


def test_a_lost_attempt_counts_by_what_its_law_expects() -> None:
    # u = 0.6 is past p50. Of what lies above it, a quarter lies above p90, an eighth above p95, a fortieth above p99.
    after = Levels.start().after(Told(0.6, Known.LOST))
    miss = np.array([1.0, 0.25, 0.125, 0.025])[:, None]
    np.testing.assert_allclose(MISS[:, None] + GAMMA * (MISS[:, None] - miss), after.alpha[0])


def test_running_past_a_bound_is_a_miss_at_once_and_only_once() -> None:
    start = Levels.start()
    running = start.after(Told(0.93, Known.RUNNING), start)
    assert 0 == running.n[0]
    assert np.all(running.alpha[0, 2:] == start.alpha[0, 2:])
    assert np.all(running.share == start.share)
    ended = running.after(Told(0.97, past=0.93), start)
    np.testing.assert_allclose(start.after(Told(0.97), start).alpha, ended.alpha)
    np.testing.assert_allclose(start.after(Told(0.97), start).offset, ended.offset)
    assert 1 == ended.n[0]


def test_a_heartbeat_that_passes_no_bound_changes_nothing() -> None:
    start = Levels.start()
    assert np.all(start.alpha == start.after(Told(0.2, Known.RUNNING), start).alpha)


def test_an_answer_is_judged_by_what_was_asked_then() -> None:
    asked = Levels.start()
    later = asked
    for _ in range(300):
        later = later.after(Told(0.95))
    assert later.served()[0, P90] < 0.06
    judged_then = later.after(Told(0.93), asked)
    judged_now = later.after(Told(0.93))
    assert np.all(judged_then.alpha[0, P90] < later.alpha[0, P90])
    assert np.any(judged_now.alpha[0, P90] > later.alpha[0, P90])


@settings(max_examples=40, deadline=None)
@given(st.lists(outcomes, max_size=120))
def test_levels_never_cross_and_the_controlled_one_is_not_moved(told: list[Told]) -> None:  # field rule C05
    state = Levels.start()
    for one in told:
        state = state.after(one)
        served = state.served()[0]
        assert np.all(np.diff(served) <= 0.0)
        assert state.mixed()[0, PLACE] == served[PLACE]
        assert np.all(np.isfinite(state.alpha))
        assert 1.0 == pytest.approx(float(state.share[0, 0].sum()))


def test_forty_misses_then_four_hundred_hits_stay_finite_at_every_level() -> None:  # field rule C13
    state = Levels.start()
    for u in [1.0] * 40 + [0.0] * 400:
        state = state.after(Told(u))
        assert np.all(np.isfinite(state.served()))
        assert np.all((-GAMMA <= state.alpha) & (state.alpha <= 1.0 + GAMMA))


def test_crossings_are_counted() -> None:
    state = Levels.start()
    mixed = state.alpha.copy()
    mixed[0, ADVERTISED.index(0.95)] = 0.3
    crossed = Levels(state.n, mixed, state.share, state.offset)
    assert 1 == crossed.crossings()
    assert [0.5, 0.1, 0.1, 0.01] == pytest.approx(list(crossed.served()[0]))


ADVERSARIES: dict[str, Callable[[float, int], float]] = {
    "always beyond": lambda alpha, t: 1.0,
    "never": lambda alpha, t: 0.0,
    "just past the bound": lambda alpha, t: min(max(1.0 - alpha + 1e-6, 0.0), 1.0),
    "just within the bound": lambda alpha, t: min(max(1.0 - alpha - 1e-6, 0.0), 1.0),
    "in long turns": lambda alpha, t: float(t // 200 % 2),
    "past what is asked for much": lambda alpha, t: 1.0 if alpha > 0.1 else 0.0,
}


@pytest.mark.parametrize("delay", [0, 25])
@pytest.mark.parametrize("name", ADVERSARIES)
def test_what_is_served_at_the_controlled_level_keeps_its_bound(name: str, delay: int) -> None:
    state, rng = Levels.start(), np.random.default_rng(2)
    waiting: list[tuple[Levels, float]] = []
    misses: list[bool] = []
    for t in range(1500):
        alpha = float(state.served()[0, PLACE])
        waiting.append((state, ADVERSARIES[name](alpha, t)))
        if len(waiting) > delay:
            asked, u = waiting.pop(int(rng.integers(len(waiting))))
            gave = float(asked.served()[0, PLACE])
            misses.append(gave >= 1.0 or u > 1.0 - gave)
            state = state.after(Told(u), asked)
    assert abs(np.mean(misses) - (1.0 - CONTROLLED)) <= float(state.within(delay)[0])
    assert 0.25 > float(state.within()[0])


@pytest.mark.parametrize("factor", [0.5, 1.0, 2.0])
def test_a_base_whose_spread_is_wrong_is_corrected_at_every_level(factor: float) -> None:
    from scipy.special import ndtr

    u = ndtr(np.random.default_rng(4).normal(size=4000) * factor)
    state, missed = Levels.start(), []
    for one in u:
        missed.append(one > 1.0 - state.served()[0])
        state = state.after(Told(float(one)))
    np.testing.assert_allclose(np.mean(missed[500:], axis=0), MISS, atol=0.012)


def test_the_gamma_that_suits_wins_weight() -> None:
    still, turning = Levels.start(), Levels.start()
    rng = np.random.default_rng(5)
    for t in range(1500):
        u = float(rng.random())
        still = still.after(Told(u))
        turning = turning.after(Told(u**3 if t // 250 % 2 else u ** (1 / 3)))
    p50 = ADVERTISED.index(0.5)
    assert float(np.argmax(still.share[0, p50])) == 0
    assert float(np.argmax(turning.share[0, p50])) == 3


@pytest.mark.parametrize("wrong", [{"u": 1.5}, {"u": float("nan")}, {"u": 0.5, "past": -0.1}, {"u": 0.5, "weight": 3.0}])
def test_what_is_told_must_be_in_range(wrong: dict[str, float]) -> None:
    with pytest.raises(BadField, match="u, weight, past"):
        Told(**wrong)  # type: ignore[arg-type]
