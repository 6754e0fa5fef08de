"""The table agrees with the distribution it was made from, atoms included, and its two directions with each other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import ndtr, ndtri

from predictors.distribution import Support
from predictors.families import LogNormal, Mixture, Steps, Weibull
from predictors.grids import Curve, GridHazard
from predictors.joint.quantile_table import CELLS, END, WIDTH, table_of, timings_of
from telemetry.errors import BadField

ONE = np.zeros(1, dtype=np.intp)


@pytest.mark.parametrize("sigma", [0.1, 1.0, 2.0])
def test_log_normal_quantiles_are_within_the_stated_error(sigma: float) -> None:
    law, z = LogNormal(3.0, sigma), np.linspace(-5, 5, 9973)[None]
    relative = table_of(law).at(ONE, z) / law.quantile(ndtr(z)) - 1
    assert np.abs(relative).max() < WIDTH**2 / 8 * sigma**2 * 1.1


@settings(max_examples=40, deadline=None)
@given(st.floats(0.3, 4.0), st.lists(st.floats(-5.0, 5.0), min_size=1, max_size=20))
def test_looking_up_a_time_undoes_looking_up_a_level(shape: float, z: list[float]) -> None:
    table = table_of(Weibull(2.0, shape))
    assert_allclose([z], table.score(ONE, table.at(ONE, np.array([z]))), atol=1e-7)


def test_atoms_have_their_exact_levels() -> None:
    table = table_of(Steps([[1.0, 2.0, 2.0, 5.0]]))
    assert_allclose([[0, 0.25, 0.25, 0.75, 0.75, 1, 1]], ndtr(table.score(ONE, np.array([[0.9, 1, 1.5, 2, 3, 5, 9]]))), atol=1e-9)
    assert_array_equal([[1, 1, 2, 2, 5]], table.at(ONE, ndtri([[0.1, 0.2499, 0.2501, 0.7499, 0.7501]])))


def test_an_atom_at_zero_before_a_positive_part_keeps_its_share() -> None:
    table = table_of(Mixture([Steps([0.0]), LogNormal(2.0, 0.3)], [0.7, 0.3]))
    assert_allclose([[0.7, 0.7]], ndtr(table.score(ONE, np.array([[0.0, 0.5]]))), atol=2e-4)


def test_times_outside_the_table_have_levels_zero_and_one() -> None:
    table = table_of(LogNormal(1.0, 0.1))
    assert_array_equal([[-np.inf, -np.inf, np.inf]], table.score(ONE, np.array([[-1.0, 0.0, 10.0]])))
    assert_array_equal(table.nodes[:, [0, CELLS]], table.at(ONE, np.array([[-END - 1, END + 1]])))


def test_a_running_stage_is_tabulated_by_its_residual_and_a_finished_one_is_over() -> None:
    law = LogNormal([1.0, 1.0, 1.0], 0.5)
    timings = timings_of(law, elapsed_s=[np.nan, 2.0, np.nan], took_s=[np.nan, np.nan, 1.0])
    assert_allclose([0.0, law.cdf(2.0)[1, 0], 0.0], timings.passed)
    assert_array_equal([False, True, True], timings.observed)
    assert timings.known[2] == pytest.approx(0.0)
    residual_s = law.residual(2.0).quantile(0.5)[1, 0]
    assert_allclose([[1.0], [residual_s], [0.0]], timings.table.at(np.arange(3), np.zeros((3, 1))), rtol=1e-3)


@pytest.mark.parametrize(("field", "value"), [("elapsed_s", -1.0), ("took_s", np.inf), ("p_complete", 1.1)])
def test_impossible_observations_are_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(BadField, match=field):
        timings_of(LogNormal(1.0, 1.0), **{field: value})


def test_the_model_of_record_is_tabulated_with_its_atom_and_its_tail() -> None:
    support = Support("phase", 3, 3.0, 8.0)
    steps = np.log(np.geomspace(0.1, 10.0, 40))
    law = GridHazard((Curve(steps, 0.5 + np.linspace(0.1, 3.0, 40), 0.4, 2.0, support),))
    timings, levels = timings_of(law), np.append(np.arange(0.02, 1.0, 0.02), [0.999, 0.99999])
    away = np.abs(levels - (1 - np.exp(-0.4))) > 0.01  # beyond one cell of the atom's edge
    z = ndtri(levels[away])[None]
    assert_allclose(law.quantile(levels[away]), timings.table.at(ONE, z), rtol=2e-2)
    times_s = np.geomspace(0.12, 300.0, 50)[None]  # past the kink at the first knot
    assert_allclose(law.cdf(times_s), ndtr(timings.table.score(ONE, times_s)), atol=1e-3)
    assert ndtr(timings.table.score(ONE, np.zeros((1, 1))))[0, 0] == pytest.approx(1 - np.exp(-0.4), abs=0.01)
