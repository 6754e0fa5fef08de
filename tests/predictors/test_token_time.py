"""Service as pieces times time per piece: against draws, at atoms, and at the occupancy expected."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from predictors import discrete, hazards, laws
from predictors.contexts import Context
from predictors.distribution import Distribution
from predictors.families import Exponential, LogNormal, Steps
from predictors.frames import Frame
from predictors.token_time import service, service_time
from telemetry.errors import BadField, NoEvidence

HERE = Context(host="a", family="llm")
P = np.array([0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99])


def lengths() -> discrete.Lengths:
    rng = np.random.default_rng(1)
    n = 2000
    return discrete.fit("output_tokens", [HERE] * n, np.floor(np.exp(rng.normal(4.0, 1.0, n))), np.ones(n, dtype=bool))


def test_quantiles_are_those_of_many_draws() -> None:
    pieces, step = lengths().remaining([HERE, HERE], np.array([0.0, 200.0])), LogNormal([0.03, 0.1], 0.3)
    rng = np.random.default_rng(2)
    drawn = np.quantile(pieces.sample(rng, 400_000) * step.sample(rng, 400_000), P, axis=1).T
    np.testing.assert_allclose(drawn, service_time(pieces, step).quantile(P), rtol=0.02)


def test_known_pieces_of_known_time_take_their_product() -> None:
    found = service_time(Steps([[2.0, 4.0], [3.0, 3.0]]), Steps([[0.05], [0.1]])).quantile([0.25, 0.49, 0.51, 0.9])
    np.testing.assert_allclose([[0.1, 0.1, 0.2, 0.2], [0.3, 0.3, 0.3, 0.3]], found, rtol=0.01)


def test_no_piece_left_takes_no_time() -> None:
    found = service_time(Steps([[0.0, 0.0, 4.0], [0.0, 0.0, 0.0]]), Steps([[0.05], [0.05]]))
    np.testing.assert_allclose([1.0 / 3.0, 0.0], found.sf(0.0)[:, 0], atol=0.01)
    np.testing.assert_allclose([[0.0, 0.2], [0.0, 0.0]], found.quantile([0.5, 0.9]), rtol=0.01)


@pytest.mark.parametrize("law", laws.DISTRIBUTION_LAWS, ids=lambda law: law.__name__)
def test_products_obey_the_laws(law: Callable[[Distribution], None]) -> None:
    pieces = lengths().remaining([HERE] * 3, np.array([0.0, 10.0, 5000.0]))
    law(service_time(pieces, Exponential([0.01, 1.0, 100.0])))


def test_a_fuller_batch_and_more_tokens_so_far_change_what_is_left() -> None:
    rng = np.random.default_rng(3)
    n = 600
    batch = np.array([1.0, 8.0])
    contexts = tuple(Context(host="a", family="llm", batch=b) for b in batch)
    which = np.arange(n) % 2
    time_s = 0.02 * batch[which] ** 0.5 * np.exp(0.1 * rng.normal(size=n))
    flags = (np.ones(n, dtype=bool), np.zeros(n, dtype=bool), np.zeros(n, dtype=bool))
    rows = Frame(contexts, ("step",), which, np.zeros(n, np.int64), np.zeros(n), time_s, *flags, np.ones(n), np.arange(n) + 1)
    model = hazards.fit(rows, n, hazards.FitSettings())
    made, occupancy = np.array([100.0, 100.0]), np.array([1.0, 8.0])
    alone, full = service(model, "step", lengths(), [HERE, HERE], made, occupancy).quantile(0.5)[:, 0]
    left = lengths().remaining([HERE], np.array([100.0])).quantile(0.5)[0, 0]
    assert 0.02 * left == pytest.approx(alone, rel=0.1)
    assert 8.0**0.5 == pytest.approx(full / alone, rel=0.05)
    with pytest.raises(NoEvidence, match="decode"):
        service(model, "decode", lengths(), [HERE, HERE], made, occupancy)


def test_laws_of_different_contexts_do_not_multiply() -> None:
    with pytest.raises(BadField, match="step"):
        service_time(Steps([[2.0], [3.0]]), Steps([[0.05]]))


def test_the_weaker_evidence_stands_behind_the_product() -> None:
    pieces, step = lengths().whole([HERE]), LogNormal([0.03], 0.3)
    assert step.support[0] == service_time(pieces, step).support[0]
