"""How chances came out turns the next ones: against scikit-learn's logistic regression, by hand, and on plans said wrongly."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression

from calibrate.evidence.reliability import Reliability
from calibrate.evidence.turnout import EDGES, NOTHING, SHIFT_SD, STRETCHES, Turnout
from predictors.plans.turn import AS_SAID

chances = st.floats(0.0, 1.0)


def after(*outcomes: tuple[float, bool]) -> Turnout:
    found = NOTHING
    for said, met in outcomes:
        found = found.after(said, met=met)
    return found


def drawn(shift: float, stretch: float, n: int, seed: int) -> list[tuple[float, bool]]:
    """Chances said, and outcomes of chances whose logits lie elsewhere."""
    random = np.random.default_rng(seed)
    said = expit(random.normal(2.0, 1.5, n))
    return list(zip(said.tolist(), (random.random(n) < expit(shift + stretch * logit(said))).tolist(), strict=True))


def test_nothing_is_turned_before_an_outcome_nor_once_the_only_one_was_taken_back() -> None:
    assert AS_SAID == NOTHING.turn
    assert NOTHING == after((0.8, True)).after(0.8, met=True, sign=-1)


def test_one_outcome_of_an_even_chance_by_hand() -> None:
    # met: 1 - p = shift / SHIFT_SD^2 with logit(p) = shift, since a logit of 0 says nothing of the stretch
    shift, stretch = after((0.5, True)).turn
    assert 1.0 - expit(shift) == pytest.approx(shift / SHIFT_SD**2)
    assert 1.0 == stretch


def test_it_is_what_a_logistic_regression_finds_where_outcomes_outweigh_the_prior() -> None:
    outcomes = drawn(-0.4, 0.7, 20_000, seed=3)
    x = logit([said for said, _ in outcomes])[:, None]
    fitted = LogisticRegression(C=np.inf).fit(x, [met for _, met in outcomes])
    assert (fitted.intercept_[0], fitted.coef_[0, 0]) == pytest.approx(after(*outcomes).turn, abs=0.03)


@pytest.mark.parametrize(("shift", "stretch"), [(0.0, 1.0), (-1.0, 1.0), (0.0, 0.5), (0.6, 1.4)])
def test_turned_chances_come_out_as_often_as_they_say(shift: float, stretch: float) -> None:
    turn, later = after(*drawn(shift, stretch, 2_000, seed=1)).turn, drawn(shift, stretch, 5_000, seed=2)
    said = np.array([one for one, _ in later])
    off = np.abs(turn.of(said) - expit(shift + stretch * logit(said)))
    assert off.mean() < 0.02
    if (shift, stretch) != AS_SAID:
        assert np.abs(said - expit(shift + stretch * logit(said))).mean() > 2.0 * off.mean()


@settings(max_examples=100)
@given(st.lists(st.tuples(chances, st.booleans()), max_size=60))
def test_any_outcomes_leave_a_turn_that_keeps_the_order(outcomes: list[tuple[float, bool]]) -> None:
    turn = after(*outcomes).turn
    assert np.isfinite(turn).all()
    assert STRETCHES[0] <= turn.stretch <= STRETCHES[1]


@settings(max_examples=50)
@given(st.lists(st.tuples(chances, st.booleans()), min_size=1, max_size=20), st.data())
def test_what_is_taken_back_was_never_there(outcomes: list[tuple[float, bool]], data: st.DataObject) -> None:
    gone = data.draw(st.integers(0, len(outcomes) - 1))
    said, met = outcomes[gone]
    assert after(*outcomes[:gone], *outcomes[gone + 1 :]) == after(*outcomes).after(said, met=met, sign=-1)


def test_it_passes_from_process_to_process_as_json() -> None:
    found = Reliability().after(0.8, met=False, said=0.97).after(0.3, met=True)
    assert found == Reliability.of(json.loads(json.dumps(asdict(found))))


def test_bins_are_ordered_and_split_at_their_edges() -> None:
    assert sorted(EDGES) == list(EDGES)
    assert (1, 1) == (after((EDGES[0], True)).bins[1][0], after((EDGES[0] - 1e-9, True)).bins[0][0])
