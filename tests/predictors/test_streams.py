"""Keyed uniforms: uniform, independent across keys, and deaf to what else is drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import chisquare, kstest

from predictors.joint.streams import REPLICATES, key_of, keys_of, lattice, stream, uniforms

ROWS = keys_of(f"attempt-{i}" for i in range(200))
COUNTS = np.arange(200, dtype=np.uint64)  # ids that differ in few bits are the hard case


def test_a_key_is_the_same_on_every_machine() -> None:
    assert key_of("a") == np.uint64(0x2F42665B399EF840)
    assert_array_equal([key_of("a"), key_of("b"), key_of("a")], keys_of(["a", "b", "a"]))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**64 - 1), st.permutations(range(6)), st.integers(1, 70))
def test_permutations_subsets_and_lengths_change_no_bit(seed: int, order: list[int], n: int) -> None:
    whole = uniforms(stream(seed, "setup", ROWS[:6]), 70)
    assert_array_equal(whole[order], uniforms(stream(seed, "setup", ROWS[:6][order]), 70))
    assert_array_equal(whole[order[:2], :n], uniforms(stream(seed, "setup", ROWS[order[:2]]), n))


def test_each_part_of_the_key_matters_and_so_does_its_place() -> None:
    a, b = keys_of(["a"]), keys_of(["b"])
    streams = [stream(1, "x", a, b), stream(2, "x", a, b), stream(1, "y", a, b), stream(1, "x", b, a), stream(1, "x", a)]
    draws = [uniforms(state, 8) for state in streams]
    assert len({draw.tobytes() for draw in draws}) == len(draws)


@pytest.mark.parametrize("ids", [ROWS, COUNTS], ids=["hashed", "counted"])
def test_draws_are_uniform_along_scenarios_and_across_keys(ids: np.ndarray) -> None:
    draws = uniforms(stream(7, "u", ids), 500)
    assert draws.min() > 0.0
    assert draws.max() < 1.0
    assert kstest(draws.ravel(), "uniform").pvalue > 0.001
    per_row = [kstest(row, "uniform").pvalue for row in draws]
    per_scenario = [kstest(column, "uniform").pvalue for column in draws.T]
    assert kstest(per_row, "uniform").pvalue > 0.001
    assert kstest(per_scenario, "uniform").pvalue > 0.001


@pytest.mark.parametrize("ids", [ROWS, COUNTS], ids=["hashed", "counted"])
def test_neighbours_are_independent(ids: np.ndarray) -> None:
    draws = uniforms(stream(8, "u", ids), 1000) - 0.5
    n = draws.size
    limit = 4.0 / np.sqrt(n) / 12.0  # four standard errors of a product of two independent centred uniforms
    assert abs(np.mean(draws[:, 1:] * draws[:, :-1])) < limit
    assert abs(np.mean(draws[1:] * draws[:-1])) < limit
    pairs = np.histogram2d(draws[:, 0::2].ravel(), draws[:, 1::2].ravel(), bins=16)[0]
    assert chisquare(pairs.ravel()).pvalue > 0.001
    across = np.histogram2d(draws[0::2].ravel(), draws[1::2].ravel(), bins=16)[0]
    assert chisquare(across.ravel()).pvalue > 0.001


def test_correlations_between_keys_are_those_of_independent_rows() -> None:
    draws = uniforms(stream(9, "u", COUNTS), 2000)
    off = np.corrcoef(draws)[np.triu_indices(len(draws), 1)]
    assert off.std() == pytest.approx(1 / np.sqrt(2000), rel=0.03)
    assert np.abs(off).max() < 5.5 / np.sqrt(2000)


def test_one_bit_of_an_id_moves_half_of_the_bits_drawn() -> None:
    bits = np.left_shift(np.uint64(1), np.arange(64, dtype=np.uint64))
    base = uniforms(stream(3, "u", np.zeros(1, dtype=np.uint64)), 64)
    moved = uniforms(stream(3, "u", bits), 64)
    words = (base * 2.0**52).astype(np.uint64) ^ (moved * 2.0**52).astype(np.uint64)
    flipped = np.unpackbits(np.ascontiguousarray(words).view(np.uint8)).mean() * 64 / 52
    assert flipped == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("n_dimensions", [1, 2, 3, 5])
def test_a_lattice_is_uniform_in_each_dimension_and_its_blocks_are_independent(n_dimensions: int) -> None:
    dimension = np.arange(n_dimensions)
    draws = np.stack([lattice(stream(seed, "l", ROWS[:n_dimensions]), dimension, n_dimensions, 256) for seed in range(200)])
    assert draws.min() > 0.0
    assert draws.max() < 1.0
    means = draws.reshape(200, n_dimensions, REPLICATES, -1).mean(axis=3)
    assert_allclose(0.5, means.mean(axis=(0, 2)), atol=0.005)
    between = means.mean(axis=2).std(axis=0) / (means.std(axis=2, ddof=1).mean(axis=0) / np.sqrt(REPLICATES))
    assert_allclose(1.0, between, atol=0.2)  # the spread between blocks tells the error of their mean


def test_a_lattice_integrates_a_smooth_function_far_better_than_plain_draws() -> None:
    def error(draws: np.ndarray) -> float:
        return float(np.abs((draws[:, 0] * draws[:, 1]).mean(axis=-1) - 0.25).mean())

    keys = [stream(seed, "l", ROWS[:2]) for seed in range(100)]
    even = np.stack([lattice(key, np.arange(2), 2, 256) for key in keys])
    plain = np.stack([uniforms(key, 256) for key in keys])
    assert error(even) < error(plain) / 10


def test_a_lattice_row_depends_on_its_own_key_only() -> None:
    keys, dimension = stream(1, "l", ROWS[:6]), np.array([0, 1, 2, 0, 1, 2])
    assert_array_equal(lattice(keys, dimension, 3, 64)[[4, 0]], lattice(keys[[4, 0]], dimension[[4, 0]], 3, 64))
