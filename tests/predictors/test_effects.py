"""Keys, groups and what is left unknown, on designs small enough to see through."""

from __future__ import annotations

import itertools

import numpy as np

from predictors.contexts import Context
from predictors.effects import LEAF, Pool, crossing


def contexts(hosts: int, models: int) -> list[Context]:
    """Hosts crossed with models; each host has a device of its own; all of one family."""
    pairs = itertools.product(range(hosts), range(models))
    return [Context(host=f"h{h}", device=f"d{h}", model=f"m{m}", family="encoder") for h, m in pairs]


def test_keys_that_group_alike_are_one_and_what_never_varies_comes_first() -> None:
    cross = crossing(contexts(3, 2))
    never_varied = ("family", "runtime", "precision", "mode", "state", "shape")
    assert (never_varied, ("model",), ("host", "device"), LEAF) == cross.keys
    assert [1, 2, 3, 6] == cross.size.tolist()


def test_refinement_is_read_from_the_data() -> None:
    cross = crossing([Context(model=f"m{i}", family=f"f{i // 2}") for i in range(4)])
    family, leaf = cross.keys.index(("family",)), len(cross.keys) - 1
    assert cross.refines[leaf, family]
    assert not cross.refines[family, leaf]


def test_one_way_effects_by_hand() -> None:
    # Means 1 and 3 about 2, each with sampling variance 1/4: sigma^2 = 1 - 1/4, shrunk by 0.75 / (0.75 + 0.25).
    cross = crossing([Context(host="a"), Context(host="b")])
    pool = Pool.start(cross)
    for _ in range(30):
        assert 0.0 == pool.sweep(np.array([-1.0, 1.0]), np.full(2, 0.25))
    np.testing.assert_allclose(pool.variance[-1, -1], 0.75, rtol=1e-6)
    np.testing.assert_allclose(pool.value[-1], [-0.75, 0.75], rtol=1e-6)


def test_what_is_left_of_a_seen_configuration_is_its_posterior_variance() -> None:
    cross = crossing([Context(host="a"), Context(host="b")])
    pool = Pool.start(cross)
    for _ in range(30):
        pool.sweep(np.array([-1.0, 1.0]), np.full(2, 0.25))
    effects = pool.finished(novel_sd=0.5, residual_variance=1.0)
    seen = [Context(host="a")]
    np.testing.assert_allclose(effects.left(effects.codes(seen), effects.regime(seen)), 1 / (1 / 0.75 + 1 / 0.25), rtol=1e-6)


def test_every_new_value_leaves_more_unknown() -> None:
    cross = crossing(contexts(6, 5))
    pool = Pool.start(cross)
    rng = np.random.default_rng(4)
    mean = np.add.outer(rng.normal(0, 0.5, 6), rng.normal(0, 0.8, 5)).ravel()
    for _ in range(20):
        pool.sweep(mean - mean.mean(), np.full(30, 0.01))
    effects = pool.finished(novel_sd=0.5, residual_variance=0.01)
    asked = [
        Context(host="h0", device="d0", model="m0", family="encoder"),
        Context(host="new", device="d0", model="m0", family="encoder"),
        Context(host="new", device="new", model="new", family="encoder"),
        Context(host="new", device="new", model="new", family="new"),
    ]
    left = effects.left(effects.codes(asked), effects.regime(asked))
    assert np.all(np.diff(left) > 0.0)


def test_effects_are_centred_over_the_configurations() -> None:
    pool = Pool.start(crossing(contexts(4, 3)))
    gained = pool.sweep(np.arange(12.0), np.full(12, 0.1))
    np.testing.assert_allclose(pool.contributions().mean(axis=1), 0.0, atol=1e-12)
    assert gained > 1.0
