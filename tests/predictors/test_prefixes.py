"""Prefix survival: hand-worked numbers for start, update, ageing, cap and optimism."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.prefixes import Prefixes, unseen
from telemetry.errors import BadField


def test_a_start_believes_in_a_half_for_every_further_token() -> None:
    start = unseen(4)
    np.testing.assert_array_equal([0.5, 0.25, 0.125, 0.0625], start.mean)
    np.testing.assert_array_equal([2.0] * 4, start.weight)
    # 1 + 1/2 + 1/4 + 1/8, and the pending token alone.
    assert (1.875, 1.0) == (start.expected_tokens(4), start.expected_tokens(1))


def test_optimism_is_the_root_of_ln_20_over_twice_the_weight() -> None:
    # sqrt(ln 20 / 4) = 0.8654...; sqrt(ln 20 / 64) = 0.21635...
    assert 0.8654 == pytest.approx(unseen(6).optimistic[5] - 0.5**6, abs=1e-4)
    np.testing.assert_array_equal(1.0, unseen(2).optimistic)
    assert 0.3 + 0.21635 == pytest.approx(Prefixes(np.array([0.3]), np.array([32.0])).optimistic[0], abs=1e-5)


def test_accepted_prefixes_survived_and_longer_offered_ones_did_not() -> None:
    found = unseen(4).after(3, 1, 0.0)
    np.testing.assert_allclose([(2 * 0.5 + 1) / 3, 2 * 0.25 / 3, 2 * 0.125 / 3, 0.0625], found.mean)
    np.testing.assert_array_equal([3.0, 3.0, 3.0, 2.0], found.weight)


def test_an_output_that_ends_says_nothing_of_longer_prefixes() -> None:
    found = unseen(4).after(3, 1, 0.0, ended=True)
    np.testing.assert_allclose([2 / 3, 0.25, 0.125, 0.0625], found.mean)
    np.testing.assert_array_equal([3.0, 2.0, 2.0, 2.0], found.weight)


def test_a_half_life_of_tokens_halves_the_weight_and_keeps_the_mean() -> None:
    found = Prefixes(np.array([0.8, 0.6]), np.array([16.0, 8.0])).aged(128.0)
    np.testing.assert_array_equal([8.0, 4.0], found.weight)
    np.testing.assert_array_equal([0.8, 0.6], found.mean)


def test_evidence_fades_before_the_new_is_added() -> None:
    # 2 fades to 1 in 128 tokens: mean (1 * 0.5 + 1) / 2, weight 2; the depth not offered fades alone.
    found = unseen(2).after(1, 1, 128.0)
    np.testing.assert_allclose([0.75, 0.25], found.mean)
    np.testing.assert_allclose([2.0, 1.0], found.weight)


def test_weight_never_passes_the_cap_and_the_mean_goes_on_moving() -> None:
    full = Prefixes(np.array([0.5]), np.array([128.0])).after(1, 1, 0.0)
    assert (128.0, (128 * 0.5 + 1) / 129) == (full.weight[0], pytest.approx(full.mean[0]))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.floats(0.0, 500.0), st.booleans()), max_size=40))
def test_any_history_leaves_probabilities_and_bounded_weights(rounds: list[tuple[int, int, float, bool]]) -> None:
    found = unseen(5)
    for one, other, tokens, ended in rounds:
        found = found.after(max(one, other), min(one, other), tokens, ended=ended)
        assert np.all((found.mean >= 0.0) & (found.mean <= 1.0))
        assert np.all((found.weight > 0.0) & (found.weight <= 128.0))
        assert np.all((found.optimistic >= found.mean) & (found.optimistic <= 1.0))
        assert 1.0 <= found.expected_tokens(6) <= 6.0


def test_survival_is_learned() -> None:
    rng = np.random.default_rng(1)
    found = unseen(3)
    for _ in range(400):
        lucky = rng.random(3) < 0.8
        accepted = int(np.argmin(np.append(lucky, False)))
        found = found.after(3, accepted, 1.0 + accepted)
    np.testing.assert_allclose([0.8, 0.64, 0.512], found.mean, atol=0.15)


@pytest.mark.parametrize(("offered", "accepted"), [(2, 3), (9, 1), (1, -1)])
def test_what_can_not_have_happened_is_refused(offered: int, accepted: int) -> None:
    with pytest.raises(BadField, match="accepted"):
        unseen(4).after(offered, accepted, 1.0)


@pytest.mark.parametrize("tokens", [-1.0, math.inf, math.nan])
def test_tokens_are_a_finite_count(tokens: float) -> None:
    with pytest.raises(BadField, match="tokens"):
        unseen(4).aged(tokens)


def test_width_and_depth_have_bounds() -> None:
    with pytest.raises(BadField, match="width"):
        unseen(3).expected_tokens(5)
    with pytest.raises(BadField, match="max_depth"):
        unseen(0)
