"""A broken line over log time, worked by hand."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.distribution import Support
from predictors.grids import Curve, GridHazard

SUPPORT = Support("phase", 3, 3.0, 8.0)
HALF = np.log(2.0)


def halves(atom: float = 0.0) -> GridHazard:
    """Half is over by 1 s, a quarter more by 4 s, then a power law of slope 2."""
    return GridHazard((Curve(np.log([1.0, 4.0]), np.array([HALF, 2 * HALF]), atom, 2.0, SUPPORT),))


def test_survival_between_and_past_knots() -> None:
    expected = [1.0, 0.5**0.5, 0.5, 0.5**1.5, 0.25, 0.25 / 100.0]
    np.testing.assert_allclose(halves().sf([0.0, 0.5, 1.0, 2.0, 4.0, 40.0])[0], expected, rtol=1e-12)


def test_quantiles_between_and_past_knots() -> None:
    np.testing.assert_allclose(halves().quantile([0.0, 0.5, 0.75, 0.9975])[0], [0.0, 1.0, 4.0, 40.0], rtol=1e-12)


def test_an_atom_at_zero_answers_zero() -> None:
    dist = halves(atom=-np.log(0.7))
    np.testing.assert_allclose(dist.cdf(0.0), [[0.3]], rtol=1e-12)
    assert [0.0, 0.0] == dist.quantile([0.1, 0.29])[0].tolist()
    assert dist.quantile(0.31)[0, 0] > 0.0


def test_waiting_far_past_the_last_knot_is_lindy() -> None:
    waited = halves().residual(4000.0)
    np.testing.assert_allclose(waited.quantile(0.75)[0, 0], 4000.0, rtol=1e-9)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.floats(0.01, 5.0), min_size=2, max_size=20), st.floats(1e-6, 1e6), st.floats(0.0, 100.0), st.floats(0.0, 100.0)
)
def test_waiting_is_conditional_on_any_line(steps: list[float], start_s: float, elapsed: float, more: float) -> None:
    line = np.cumsum(steps)
    dist = GridHazard((Curve(np.log(start_s) + line, line, 0.0, 2.0, SUPPORT),))
    elapsed_s, more_s = elapsed * start_s, more * start_s
    expected = np.exp(
        -(dist.cumulative_hazard(np.array([[elapsed_s + more_s]])) - dist.cumulative_hazard(np.array([[elapsed_s]])))
    )
    np.testing.assert_allclose(dist.residual(elapsed_s).sf(more_s), expected, atol=1e-9)
