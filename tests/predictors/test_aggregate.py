"""Weights, losses and the weight of crowds, worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from predictors import aggregate
from predictors.aggregate import Judged, Weights, crowds, losses, shares
from predictors.distribution import GRID

EVEN = np.array([0.5, 0.5])


@pytest.fixture(autouse=True)
def settings_of_the_example(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers below are worked with these."""
    for name, value in {"HALF_LIFE": 200.0, "N0": 30.0, "TAU": 2.0, "MOST": 400.0}.items():
        monkeypatch.setattr(aggregate, name, value)


def judged(path: tuple[str, ...], *loss: float, share: float = 1.0) -> Judged:
    return Judged(path, (share,) * len(path), np.array(loss))


def test_a_single_time_is_as_wrong_as_it_is_far_off() -> None:
    experts = np.repeat(np.array([[1.0], [2.0], [4.0]], dtype=np.float32), len(GRID), axis=1)
    assert_allclose([1.0, 0.0, 2.0], losses(2.0, experts), atol=1e-6)


def test_an_even_spread_is_wrong_by_a_twelfth_of_its_width() -> None:
    # CRPS of U(0, 1) at its middle: the integral of (F - 1{t > 1/2})^2 is 2 * (1/2)^3 / 3. Levels 0.01 ... 0.99 stand for all.
    assert_allclose(1.0 / 12.0, losses(0.5, GRID[None, :].astype(np.float32)), rtol=0.012)


def test_the_prior_speaks_before_any_outcome() -> None:
    assert_array_equal([0.75, 0.25], Weights(np.array([0.75, 0.25])).at(("phase", "host")))


def test_one_outcome_moves_weights_by_the_square_root_of_one() -> None:
    known = Weights(EVEN).having([judged(("phase",), 1.0, 2.0)])
    better = 1.0 / (1.0 + math.exp(-2.0))  # twice as wrong: behind by 1, TAU sqrt(1) = 2
    assert_allclose([better, 1.0 - better], known.at(("phase",)))


def test_a_node_is_shrunk_to_its_parent() -> None:
    known = Weights(EVEN).having([judged(("phase", "a"), 1.0, 2.0), judged(("phase", "b"), 3.0, 1.0)])
    # Root: n = 1.99654, mean losses 2.00173 and 1.49913.
    # Node a: (1 + 30 * 2.00173) / 31 = 1.96942 and (2 + 30 * 1.49913) / 31 = 1.51529.
    assert_allclose([0.30007, 0.69993], known.at(("phase", "a")), rtol=1e-4)
    assert_array_equal(known.at(("phase",)), known.at(("phase", "never met")))
    assert known.at(("phase", "b"))[0] < known.at(("phase",))[0] < known.at(("phase", "a"))[0]


def test_old_losses_fade_by_half_in_a_half_life() -> None:
    known = Weights(EVEN).having([judged(("phase",), 5.0, 1.0)])
    for _ in range(200):
        known = known.having([judged(("phase",), 0.0, 0.0)])
    assert_allclose([2.5, 0.5], known.nodes["phase"].total)


def test_evidence_past_the_most_sharpens_no_further() -> None:
    nodes = [
        Weights(EVEN, Weights(EVEN).nodes.having({"phase": aggregate.Losses(n, n * np.array([1.0, 1.1]))})) for n in (400, 9e9)
    ]
    assert_allclose(nodes[0].at(("phase",)), nodes[1].at(("phase",)))
    assert_allclose(1.0 / (1.0 + math.exp(-2.0 * 20.0 * 0.1)), nodes[0].at(("phase",))[0])


def test_an_expert_that_is_never_wrong_takes_all_and_ties_keep_the_prior() -> None:
    once = Weights(np.array([0.2, 0.3, 0.5])).having([judged(("phase",), 0.0, 1.0, 0.0)])
    assert_allclose([0.2 / 0.7, 0.0, 0.5 / 0.7], once.at(("phase",)))


def test_an_expert_asked_alone_weighs_all_however_far_behind_the_others_it_is() -> None:
    alone = Weights(np.array([0.0, 1.0]))
    known = alone.having([judged(("a",), 1e-9, 1.0) for _ in range(500)])
    assert [0.0, 1.0] == known.at(("a",)).tolist()


def test_a_crowd_is_counted_in_each_node() -> None:
    crowd = crowds([("phase", "a"), ("phase", "b"), ("phase", "a")])
    assert {"phase": 3, "a": 2, "b": 1} == crowd
    assert_allclose([1 / 2, 2 / 3], shares(("phase", "a"), crowd, 0.5))
    assert_allclose([1 / 3, 1 / 2], shares(("phase", "a"), crowd, 1.0))
    assert (1.0, 1.0) == shares(("phase", "b"), crowd, 0.0)


def test_a_crowd_that_moves_as_one_counts_as_one() -> None:
    crowd = [judged(("phase",), 1.0, 2.0, share=1.0 / 500)] * 500
    assert_allclose(1.0, Weights(EVEN).having(crowd).nodes["phase"].n, rtol=0.005)


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0.0, 9.0), st.floats(0.0, 9.0)), max_size=30))
@settings(max_examples=100, deadline=None)
def test_weights_are_shares_and_knowing_more_makes_a_new_value(told: list[tuple[str, float, float]]) -> None:
    none = Weights(np.array([0.9, 0.1]))
    once = none.having([judged(("phase", key), *loss) for key, *loss in told])
    stepped = none
    for key, *loss in told:
        stepped = stepped.having([judged(("phase", key), *loss)])
    for key in "abc":
        assert_allclose(1.0, once.at(("phase", key)).sum())
        assert np.all(once.at(("phase", key)) >= 0.0)
        assert_array_equal(once.at(("phase", key)), stepped.at(("phase", key)))
    assert_array_equal([0.9, 0.1], none.at(("phase", "a")))
