"""Turned chances keep their order and their ends, and can be turned back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

from predictors.plans.turn import AS_SAID, Turn

SAID = np.array([0.0, 0.1, 0.5, 0.9, 0.99, 1.0])
turns = st.builds(Turn, st.floats(-3.0, 3.0), st.floats(0.25, 4.0))


def test_by_hand() -> None:
    # odds of 9 become 9^0.5 e^-1
    assert 3.0 * np.exp(-1.0) / (1.0 + 3.0 * np.exp(-1.0)) == pytest.approx(Turn(-1.0, 0.5).of(np.array(0.9)))


def test_as_said_is_the_same_array_and_error() -> None:
    assert AS_SAID.of(SAID) is SAID is AS_SAID.back(SAID)
    assert AS_SAID.spread(SAID, SAID) is SAID


@given(turns)
@settings(max_examples=100)
def test_order_and_ends_stand_and_it_turns_back(turn: Turn) -> None:
    turned = turn.of(SAID)
    assert (np.diff(turned) > 0.0).all()
    assert (0.0, 1.0) == (turned[0], turned[-1])
    assert SAID == pytest.approx(turn.back(turned), abs=1e-9)


def test_an_error_is_turned_with_what_it_is_about() -> None:
    turn = Turn(-0.5, 0.6)
    p, se = np.array([0.5]), np.array([1e-5])
    slope = 0.6 * expit(-0.5) * expit(0.5) / 0.25
    assert slope * se == pytest.approx(turn.spread(p, se), rel=1e-3)


def test_an_error_at_the_end_reaches_inwards() -> None:
    turn = Turn(-0.5, 1.0)
    assert 1.0 - turn.of(np.array([0.99])) == pytest.approx(turn.spread(np.array([1.0]), np.array([0.01])))
