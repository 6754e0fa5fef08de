"""What every Distribution and every Model must obey, as plain functions that fail with AssertionError.

Tests cross every implementation with every law; a new family is held to them by being imported.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from predictors.contexts import Context
from predictors.distribution import GRID, Array, Distribution
from predictors.frames import Frame
from predictors.model import Model

LEVELS: Array = np.concatenate([[0.0, 1e-6], GRID, [1.0 - 1e-6, 1.0 - 1e-12]])
SHARES: Array = np.array([0.0, 0.1, 0.25, 0.5, 0.9, 0.999])
Fit = Callable[[Frame], Model]
Pairs = tuple[Sequence[Context], Sequence[str]]


def times_of(dist: Distribution) -> Array:
    """Times in s that matter to a distribution, ascending, shape (n_contexts, n_times): its quantiles, 0, and far past them."""
    q = dist.quantile(LEVELS)
    far = np.maximum(q[:, -1:], 1e-9) * np.array([2.0, 1e3, 1e9])
    return np.sort(np.concatenate([np.zeros((len(q), 1)), q, q * (1.0 + 1e-6), far], axis=1), axis=1)


def survival_starts_at_one_and_falls(dist: Distribution) -> None:
    """S is 1 before zero, never rises, and stays within [0, 1]."""
    assert_array_equal(dist.sf(-1.0), 1.0)
    s = dist.sf(times_of(dist))
    assert np.all((s >= 0.0) & (s <= 1.0))
    assert np.all(np.diff(s, axis=1) <= 0.0)
    assert_allclose(dist.cdf(times_of(dist)), 1.0 - s, atol=1e-12)


def quantile_inverts_cdf(dist: Distribution) -> None:
    """The quantile at p is the least t with P(T <= t) >= p, also at atoms."""
    levels = np.broadcast_to(GRID, (dist.n_contexts, len(GRID)))
    q = dist.quantile(GRID)
    assert np.all(dist.cdf(q * (1.0 + 1e-9)) >= levels - 1e-9)
    earlier = np.where(q > 0.0, q * (1.0 - 1e-6), -1.0)
    assert np.all(dist.cdf(earlier) <= levels + 1e-9)


def answers_are_finite(dist: Distribution) -> None:
    """No NaN or infinity, however far out one asks; times are 0 or more."""
    for answer in (dist.quantile(LEVELS), dist.mean(), dist.horizon_s, dist.sf([0.0, 1e-300, 1e12, 1e30])):
        assert np.all(np.isfinite(answer))
        assert np.all(answer >= 0.0)


def quantiles_never_cross(dist: Distribution) -> None:
    """A higher level is never answered by a shorter time."""
    assert np.all(np.diff(dist.quantile(LEVELS), axis=1) >= 0.0)


def residual_is_the_conditional(dist: Distribution) -> None:
    """Waiting and then asking equals S(e + x) / S(e), wherever the attempt could still be running and the answer says so."""
    times = times_of(dist)
    for elapsed_s in dist.quantile(SHARES).T:
        alive = dist.sf(elapsed_s[:, None])
        left = dist.residual(elapsed_s)
        bound = (alive > 1e-12) & (np.array(left.forms) == "conditional")[:, None]
        expected = np.divide(dist.sf(elapsed_s[:, None] + times), alive, out=np.zeros_like(times), where=bound)
        assert_allclose(np.where(bound, left.sf(times), 0.0), expected, atol=1e-9)


def residual_at_zero_is_itself(dist: Distribution) -> None:
    """Having waited no time says only that it has not ended in the instant it began."""
    times = times_of(dist)
    alive = dist.sf(0.0)
    expected = np.divide(dist.sf(times), alive, out=np.zeros_like(times), where=alive > 1e-12)
    assert_allclose(np.where(alive > 1e-12, dist.residual(0.0).sf(times), 0.0), expected, atol=1e-12)


def waits_add_up(dist: Distribution) -> None:
    """The residual of a residual is the residual of the sum."""
    first, more = dist.quantile(0.3)[:, 0], dist.quantile(0.2)[:, 0]
    twice, once = dist.residual(first).residual(more), dist.residual(first + more)
    possible = dist.sf((first + more)[:, None])[:, 0] > 1e-12
    assert_allclose(twice.quantile(GRID)[possible], once.quantile(GRID)[possible], rtol=1e-6, atol=1e-12)


def residual_answers_obey_too(dist: Distribution) -> None:
    """A residual never promises an end in the past, never crosses, and is finite, far past everything seen as well."""
    longest = dist.quantile(0.999)[:, 0]
    for elapsed_s in (0.0 * longest, dist.quantile(0.5)[:, 0], longest, 10.0 * longest, 1e6 * longest):
        answer = dist.residual(elapsed_s).quantile(GRID)
        assert np.all(np.isfinite(answer))
        assert np.all(answer >= 0.0)
        assert np.all(np.diff(answer, axis=1) >= 0.0)


def members_do_not_touch_each_other(dist: Distribution) -> None:
    """Taking contexts, in any order, alone or repeated, gives their answers bit for bit."""
    whole, mean = dist.quantile(GRID), dist.mean()
    order = np.append(np.arange(dist.n_contexts)[::-1], 0)
    assert_array_equal(dist.take(order).quantile(GRID), whole[order])
    assert dist.take(order).support == tuple(dist.support[i] for i in order)
    for i in range(dist.n_contexts):
        alone = dist.take(np.array([i]))
        assert_array_equal(alone.quantile(GRID)[0], whole[i])
        assert_array_equal(alone.mean()[0], mean[i])


def one_support_per_context(dist: Distribution) -> None:
    """Every answer says what stands behind it."""
    assert len(dist.support) == dist.n_contexts
    assert all(0.0 <= support.claimed_to < 1.0 for support in dist.support)


DISTRIBUTION_LAWS: tuple[Callable[[Distribution], None], ...] = (
    survival_starts_at_one_and_falls,
    quantile_inverts_cdf,
    answers_are_finite,
    quantiles_never_cross,
    residual_is_the_conditional,
    residual_at_zero_is_itself,
    waits_add_up,
    residual_answers_obey_too,
    members_do_not_touch_each_other,
    one_support_per_context,
)


def asking_changes_nothing(fit: Fit, frame: Frame, pairs: Pairs) -> None:
    """Predict never mutates: an answer is the same after any number of other questions."""
    model = fit(frame)
    before = model.predict(pairs[0][:1], pairs[1][:1]).quantile(GRID)
    model.predict(*pairs).residual(1.0).quantile(GRID)
    assert_array_equal(model.predict(pairs[0][:1], pairs[1][:1]).quantile(GRID), before)


def a_batch_answers_as_its_members(fit: Fit, frame: Frame, pairs: Pairs) -> None:
    """Asked together or alone, in one model value or a fresh one, answers agree bit for bit."""
    together = fit(frame).predict(*pairs).quantile(GRID)
    model = fit(frame)
    for i, (context, phase) in enumerate(zip(*pairs, strict=True)):
        assert_array_equal(model.predict([context], [phase]).quantile(GRID)[0], together[i])


def fits_agree(fit: Fit, frame: Frame, pairs: Pairs) -> None:
    """Two fits of the same rows answer the same bits."""
    assert_array_equal(fit(frame).predict(*pairs).quantile(GRID), fit(frame).predict(*pairs).quantile(GRID))
    elapsed_s = np.linspace(0.0, 3.0, len(pairs[0]))
    assert_array_equal(fit(frame).p_complete(*pairs, elapsed_s), fit(frame).p_complete(*pairs, elapsed_s))


def units_do_not_matter(fit: Fit, frame: Frame, pairs: Pairs) -> None:
    """Durations a thousand times longer are answered a thousand times longer, to 1e-6."""
    longer = replace(frame, duration_s=frame.duration_s * 1e3, entry_s=frame.entry_s * 1e3)
    assert_allclose(fit(longer).predict(*pairs).quantile(GRID) / 1e3, fit(frame).predict(*pairs).quantile(GRID), rtol=1e-6)


def learning_makes_a_new_value(fit: Fit, frame: Frame, pairs: Pairs) -> None:
    """`after` leaves the model it was asked of as it was, and moves only the commit when nothing changed."""
    model = fit(frame)
    before = model.predict(*pairs).quantile(GRID)
    later = model.after([], model.commit + 1)
    assert (later.commit, later.fit_commit) == (model.commit + 1, model.fit_commit)
    assert_array_equal(later.predict(*pairs).quantile(GRID), before)
    assert_array_equal(model.predict(*pairs).quantile(GRID), before)


def ends_sum_to_one(fit: Fit, frame: Frame, pairs: Pairs) -> None:
    """At every time an attempt still runs or has ended by one cause, to 1e-9, and no chance of having ended ever falls."""
    model = fit(frame)
    times = times_of(model.predict(*pairs))
    for context, phase, t_s in zip(*pairs, times, strict=True):
        ends = model.incidence(context, phase)
        if ends is not None:
            by = ends.by(t_s)
            assert_allclose(by.sum(axis=0) + ends.survival(t_s), 1.0, rtol=0.0, atol=1e-9)
            assert np.all(np.diff(by, axis=1) >= -1e-12)


MODEL_LAWS: tuple[Callable[[Fit, Frame, Pairs], None], ...] = (
    asking_changes_nothing,
    a_batch_answers_as_its_members,
    fits_agree,
    units_do_not_matter,
    learning_makes_a_new_value,
    ends_sum_to_one,
)
