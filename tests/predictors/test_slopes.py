"""Slopes in log units: recovered, pooled, and silent where nothing varied."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from predictors import slopes
from predictors.contexts import Context


def fitted(contexts: list[Context], log_time: np.ndarray, passes: int = 20, weight: float = 1e4) -> slopes.Slopes:
    x = slopes.features(contexts)
    found, codes = slopes.start(contexts, x)
    for _ in range(passes):
        found = slopes.sweep(found, x, codes, log_time, np.full(len(contexts), weight))
    return found


def test_features_are_logs_and_the_unknown_stays_unknown() -> None:
    x = slopes.features([Context(batch=4.0, size_in=0.0), Context(corunners=8.0)])
    np.testing.assert_allclose(x[:, 0], [np.log(4.0), 0.0, np.nan, np.nan])
    np.testing.assert_allclose(x[:, 1], [np.nan, np.nan, np.log(9.0), np.log(2.0)])


def test_a_number_that_can_be_of_nothing_is_unknown() -> None:
    assert np.isnan(slopes.features([Context(batch=0.0, size_in=-1.0, corunners=-5.0)])).all()


def test_a_rate_has_slope_one() -> None:
    contexts = [Context(size_in=float(2**i) - 1.0) for i in range(10)]
    found = fitted(contexts, np.log(2.0) * np.arange(10))
    np.testing.assert_allclose(found.levels[0].slope[0], [0.0, 1.0, 0.0, 0.0], atol=0.01)


def test_families_keep_slopes_of_their_own_about_a_common_one() -> None:
    contexts = [Context(family=f"f{f}", size_in=float(2**i) - 1.0) for f in range(4) for i in range(8)]
    true = np.repeat([0.2, 0.4, 0.8, 1.0], 8)
    found = fitted(contexts, true * np.log1p([c.size_in for c in contexts]))
    effect, _ = found.effect(slopes.features(contexts), found.codes(contexts))
    step = (effect[7::8] - effect[::8]) / (7 * np.log(2.0))
    np.testing.assert_allclose(step, [0.2, 0.4, 0.8, 1.0], atol=0.05)


def test_numbers_that_never_varied_say_nothing() -> None:
    contexts = [Context(size_in=100.0), Context(size_in=100.0)]
    found = fitted(contexts, np.array([0.0, 1.0]), passes=1)
    assert () == found.levels
    effect, variance = found.effect(slopes.features([Context(size_in=1e6)]), found.codes([Context(size_in=1e6)]))
    assert ([0.0], [0.0]) == (effect.tolist(), variance.tolist())


def test_variance_grows_with_the_distance_from_what_was_seen() -> None:
    contexts = [Context(size_in=float(2**i) - 1.0) for i in range(4)]
    found = fitted(contexts, np.zeros(4))
    asked = [Context(size_in=float(2**i) - 1.0) for i in (2, 10, 30)]
    _, variance = found.effect(slopes.features(asked), found.codes(asked))
    assert np.all(np.diff(variance) > 0.0)


def test_numbers_that_move_together_and_are_known_very_precisely_share_the_slope() -> None:
    contexts = [Context(size_in=float(2**i) - 1.0, batch=float(2**i)) for i in range(3)]
    found = fitted(contexts, np.log(2.0) * np.arange(3), weight=1e10)
    np.testing.assert_allclose(found.levels[0].slope[0], [0.5, 0.5, 0.0, 0.0], atol=0.01)


@pytest.mark.parametrize("many", [1.0, 8.0])
def test_how_much_co_runners_slow_work_is_learned_where_a_busy_host_is_asked_about_idle(many: float) -> None:
    contexts = [Context(corunners=float(c)) for c in range(4, 11)]
    found = fitted(contexts, np.log1p(np.arange(4.0, 11.0) / many))
    asked = [Context(corunners=0.0), Context(corunners=7.0)]
    idle, busy = found.effect(slopes.features(asked), found.codes(asked))[0]
    assert np.log1p(7.0 / many) == pytest.approx(busy - idle, rel=0.15)


def test_levels_of_earlier_files_answer_as_they_did() -> None:
    contexts = [Context(size_in=float(2**i) - 1.0, batch=float(2 ** (i % 3))) for i in range(8)]
    now = fitted(contexts, np.log(2.0) * np.arange(8))
    (level,) = now.levels
    cut = (level.centre[:, :3], level.slope[:, :3], level.covariance[:, :3, :3], level.variance[:3])
    before = slopes.Slopes((replace(level, **dict(zip(("centre", "slope", "covariance", "variance"), cut, strict=True))),))
    asked = [Context(size_in=1e6, batch=2.0, corunners=3.0)]
    for told, old in zip(*(s.effect(slopes.features(asked), s.codes(asked)) for s in (now, before)), strict=True):
        np.testing.assert_array_equal(told, old)
