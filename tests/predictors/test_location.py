"""The pooled location: known components, slopes and scales come back, and the unseen is as wide as groups differ."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm

from predictors import location
from predictors.contexts import Context
from predictors.location import Location, Rows

RNG_SEED = 5


def rows_of(log_time: NDArray[np.float64], context: NDArray[np.int64], **other: NDArray[np.generic]) -> Rows:
    n = len(log_time)
    ended = {"completed": np.ones(n, dtype=bool), "running": np.zeros(n, dtype=bool)}
    plain = {"log_entry": np.full(n, -np.inf), **ended, "weight": np.ones(n)} | other
    return Rows(log_time=log_time, context=context, **plain)


def fitted(contexts: list[Context], rows: Rows) -> Location:
    return location.fit(contexts, "service", rows, novel_sd=0.5, pooling=5.0)


@pytest.fixture(scope="module")
def crossed() -> tuple[list[Context], NDArray[np.float64], Location]:
    """40 hosts x 30 models, ten rows each: sd 0.5 between hosts, 0.8 between models, slope 0.7, residuals 0.2."""
    rng = np.random.default_rng(RNG_SEED)
    contexts = [
        Context(host=f"h{h}", model=f"m{m}", size_in=float(2**s)) for h, m, s in itertools.product(range(40), range(30), (3, 9))
    ]
    host, model = rng.normal(0, 0.5, 40), rng.normal(0, 0.8, 30)
    truth = np.array([host[int(c.host[1:])] + model[int(c.model[1:])] + 0.7 * np.log1p(c.size_in) for c in contexts])  # type: ignore[index,arg-type]
    context = np.repeat(np.arange(len(contexts)), 5)
    return contexts, truth, fitted(contexts, rows_of(truth[context] + rng.normal(0, 0.2, len(context)), context))


def component(found: Location, key: tuple[str, ...]) -> float:
    return float(np.sqrt(found.effects.variance[found.effects.keys.index(key), -1]))


def test_variance_components_are_recovered(crossed: tuple[list[Context], NDArray[np.float64], Location]) -> None:
    found = crossed[2]
    np.testing.assert_allclose(component(found, ("host",)), 0.5, rtol=0.25)
    np.testing.assert_allclose(component(found, ("model",)), 0.8, rtol=0.3)
    assert component(found, ("host", "model")) < 0.05
    np.testing.assert_allclose(found.scale["service"], 0.2, rtol=0.05)


def test_centres_are_recovered_within_their_stated_variance(crossed: tuple[list[Context], NDArray[np.float64], Location]) -> None:
    contexts, truth, found = crossed
    centre, left = found.centre(contexts)
    z = (centre - truth) / np.sqrt(left)
    assert 0.5 < np.sqrt(np.mean(z**2)) < 1.5


def test_a_new_host_is_as_wide_as_hosts_differ(crossed: tuple[list[Context], NDArray[np.float64], Location]) -> None:
    contexts, _, found = crossed
    known, new = contexts[0], Context(host="new", model="m0", size_in=8.0)
    (_, left_known), (_, left_new) = found.centre([known]), found.centre([new])
    assert left_known[0] < 0.2**2
    np.testing.assert_allclose(np.sqrt(left_new[0]), 0.5, rtol=0.3)


def test_a_new_size_follows_the_slope(crossed: tuple[list[Context], NDArray[np.float64], Location]) -> None:
    (near, far), _ = crossed[2].centre(
        [Context(host="h0", model="m0", size_in=8.0), Context(host="h0", model="m0", size_in=80000.0)]
    )
    np.testing.assert_allclose(far - near, 0.7 * np.log(80001 / 9), rtol=0.05)


def test_a_feature_that_hardly_varies_moves_nothing() -> None:
    rng = np.random.default_rng(RNG_SEED)
    contexts = [Context(size_in=20000.0 + d) for d in range(10)]
    context = np.repeat(np.arange(10), 20)
    found = fitted(contexts, rows_of(rng.normal(0, 0.1, 200), context))
    centre, left = found.centre([contexts[0], Context(size_in=10.0)])
    assert abs(centre[1] - centre[0]) < 0.5
    assert left[1] > left[0]


def test_a_few_stalls_neither_move_nor_widen_their_sibling() -> None:
    rng = np.random.default_rng(RNG_SEED)
    contexts = [Context(host=f"gpu{i}", model="m") for i in range(8)]
    context = np.repeat(np.arange(8), 50)
    log_time = np.log(190e-6) + rng.normal(0, 0.05, 400)
    log_time[:3] = np.log(80e-3)  # three stalled samples among fifty of one device
    centre, _ = fitted(contexts, rows_of(log_time, context)).centre(contexts)
    assert abs(centre[0] - np.median(centre[1:])) < np.log(1.3)


def test_half_censored_still_finds_the_centre() -> None:
    rng = np.random.default_rng(RNG_SEED)
    time, bound = rng.normal(1.0, 0.5, 4000), rng.normal(1.0, 0.5, 4000)
    rows = rows_of(np.minimum(time, bound), np.zeros(4000, dtype=np.int64), completed=time <= bound)
    found = fitted([Context()], rows)
    np.testing.assert_allclose(found.centre([Context()])[0], 1.0, atol=0.1)


def test_delayed_entry_lengthens_much_less_than_it_would() -> None:
    rng = np.random.default_rng(RNG_SEED)
    time, entry = rng.normal(1.0, 0.5, 8000), rng.normal(1.0, 0.5, 8000)
    seen = time > entry
    rows = rows_of(time[seen], np.zeros(int(seen.sum()), dtype=np.int64), log_entry=entry[seen])
    naive = np.mean(time[seen])
    assert abs(fitted([Context()], rows).centre([Context()])[0][0] - 1.0) < 0.65 * abs(naive - 1.0)


def test_expectation_beyond_a_bound_is_that_of_a_normal() -> None:
    a = np.array([-40.0, -1.0, 0.0, 2.0, 30.0])
    expected = [0.0, norm.pdf(-1) / norm.sf(-1), norm.pdf(0) / 0.5, norm.pdf(2) / norm.sf(2), 30.0 + 1 / 30.0]
    np.testing.assert_allclose(location._beyond(a), expected, atol=1e-4)


def test_durations_over_six_orders_of_magnitude_are_placed() -> None:
    contexts = [Context(model=f"m{i}") for i in range(4)]
    log_time = np.repeat(np.log([0.003, 0.04, 5.0, 2000.0]), 30) + np.tile(np.linspace(-0.1, 0.1, 30), 4)
    centre, _ = fitted(contexts, rows_of(log_time, np.repeat(np.arange(4), 30))).centre(contexts)
    np.testing.assert_allclose(np.exp(centre), [0.003, 0.04, 5.0, 2000.0], rtol=0.05)


def test_components_differ_between_regimes() -> None:
    rng = np.random.default_rng(RNG_SEED)
    contexts = [Context(host=f"h{h}", state=s) for h in range(60) for s in ("cold", "cached")]
    own = np.array([rng.normal(0, 0.6 if c.state == "cold" else 0.02) for c in contexts])
    context = np.repeat(np.arange(len(contexts)), 10)
    found = fitted(contexts, rows_of(own[context] + rng.normal(0, 0.05, len(context)), context))
    _, (cold, cached) = found.centre([Context(host="new", state="cold"), Context(host="new", state="cached")])
    assert cold > 10 * cached


def test_scales_are_not_shortened_by_rows_that_place_their_own_centre() -> None:
    rng = np.random.default_rng(RNG_SEED)
    contexts = [Context(model=f"m{i}") for i in range(400)]
    context = np.repeat(np.arange(400), 2)
    found = fitted(contexts, rows_of(rng.normal(0.0, 1.0, 400)[context] + rng.normal(0.0, 0.2, 800), context))
    np.testing.assert_allclose(found.scale["service"], 0.2, rtol=0.15)


def test_the_first_of_a_crowd_to_end_do_not_make_it_look_alike() -> None:
    """Three in ten take eight times as long, on every host. Of fifty that begin on another, half have ended: the short ones."""
    rng = np.random.default_rng(RNG_SEED)
    contexts = [Context(host=f"h{h}", family="a", model="m") for h in range(4)] + [Context(host="new", family="a", model="m")]
    before = rng.normal(0.0, 0.2, 800) + np.log(8.0) * (rng.random(800) < 0.3)
    short = np.sort(rng.normal(0.0, 0.2, 35))
    log_time = np.concatenate([before, short[:25], np.full(25, short[25])])
    context = np.append(np.repeat(np.arange(4), 200), np.full(50, 4))
    ended = np.arange(len(log_time)) < len(before) + 25
    scale = []
    for running in (~ended, np.zeros(len(ended), dtype=bool)):
        rows = rows_of(log_time, context, completed=ended, running=running)
        scale.append(fitted(contexts, rows).scale_of(contexts[-1], "service"))
    family = fitted(contexts[:-1], rows_of(before, context[:800])).scale_of(Context(family="a"), "service")
    assert scale[0] > 0.7 * family
    assert scale[1] < 0.5 * family  # what was given up is judged by its own node, for it will not end later


@pytest.mark.parametrize(("together", "near"), [(True, True), (False, False)])
def test_running_rows_are_judged_by_what_varies_at_one_time(together: bool, near: bool) -> None:
    """Hosts turn 2.7 times slower by spells of forty rows. Of fifty that begin on a new one, the first ten have ended."""
    rng = np.random.default_rng(RNG_SEED)
    contexts = [Context(host=f"h{h}", family="a", model="m") for h in range(4)] + [Context(host="new", family="a", model="m")]
    spells = np.repeat(rng.random(40) < 0.5, 40)
    before = rng.normal(0.0, 0.2, 1600) + 1.0 * spells
    crowd = np.sort(rng.normal(0.0, 0.2, 50))
    log_time = np.concatenate([before, crowd[:10], np.full(40, crowd[10])])
    ended = np.arange(len(log_time)) < len(before) + 10
    starts = np.append(np.arange(1600), np.full(50, 1600)) if together else np.full(1650, -1)
    context = np.append(np.repeat(np.arange(4), 400), np.full(50, 4))
    rows = rows_of(log_time, context, completed=ended, running=~ended, started_ns=starts)
    centre = fitted(contexts, rows).centre(contexts[-1:])[0][0]
    assert near == (abs(centre) < 0.15)
