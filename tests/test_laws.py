"""Every Distribution and every Model in the house, found by inspection, against every law."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator

import numpy as np
import pytest

import predictors
from predictors import discrete, families, hazards, laws
from predictors.changing import Paced
from predictors.contexts import Context
from predictors.discrete import WholeNumbers
from predictors.distribution import Distribution, HazardForm, Residual
from predictors.frames import Frame
from predictors.grids import GridHazard

PAIRS = (
    [
        Context(host="north", family="encoder", state="cold", size_in=64.0, batch=4.0),
        Context(host="south", family="encoder", state="cached", size_in=16.0, batch=1.0),
        Context(host="north", family="encoder", state="cached", size_in=64.0),
        Context(host="never seen", family="decoder"),
        Context(host="north", family="encoder", state="cold", size_in=64.0, batch=4.0),
    ],
    ["setup", "setup", "setup", "setup", "queue"],
)


def recorded(n: int = 240) -> Frame:
    """Setups that complete, fail, are cancelled, time out, run, and enter late; queues most of which take no time at all."""
    rng = np.random.default_rng(7)
    contexts = tuple(PAIRS[0][:3])
    context = rng.integers(0, 3, n)
    phase = rng.integers(0, 2, n)
    time_s = np.exp(np.array([1.0, -2.0, -1.0])[context] + 0.3 * rng.normal(size=n))
    time_s = np.where(rng.random(n) < 0.05, time_s * 8.0, time_s)
    time_s = np.where((phase == 1) & (rng.random(n) < 0.7), 0.0, time_s)
    fate = rng.random(n)
    return Frame(
        contexts=contexts,
        phases=("setup", "queue"),
        context=context,
        phase=phase,
        entry_s=np.where(rng.random(n) < 0.1, 0.3 * time_s, 0.0),
        duration_s=time_s,
        completed=(fate < 0.7) | (time_s == 0.0),
        failed=(fate >= 0.7) & (fate < 0.8) & (time_s > 0.0),
        running=(fate >= 0.9) & (time_s > 0.0),
        weight=np.where(rng.random(n) < 0.2, 0.5, 1.0),
        known_from=np.arange(1, n + 1),
        cancelled=(fate >= 0.8) & (fate < 0.87) & (time_s > 0.0),
    )


def fit(frame: Frame) -> hazards.HierarchicalHazards:
    return hazards.fit(frame, 240, hazards.FitSettings())


def counted() -> WholeNumbers:
    lengths = np.array([0.0, 0.0, 1.0, 7.0, 7.0, 90.0, 3e5])
    context = [PAIRS[0][i % 3] for i in range(len(lengths))]
    return discrete.fit("output_tokens", context, lengths, lengths != 90.0).whole(PAIRS[0])


def grid() -> GridHazard:
    return fit(recorded()).predict(*PAIRS)


EXAMPLES: dict[type[Distribution], Callable[[], Distribution]] = {
    GridHazard: grid,
    Paced: lambda: Paced(grid(), [0.5, 2.0, 1.0, 3.0, 0.1]),
    WholeNumbers: counted,
    Residual: lambda: Residual(grid(), np.array([0.5, 0.01, 0.2, 3.0, 0.1])),
    families.Exponential: lambda: families.Exponential([0.003, 2.0, 2000.0]),
    families.Weibull: lambda: families.Weibull([0.003, 2.0], [0.7, 3.0]),
    families.LogNormal: lambda: families.LogNormal([0.003, 2000.0], [0.2, 1.5]),
    families.Steps: lambda: families.Steps([[0.0, 0.0, 1.0, 3.0], [0.5, 0.5, 0.75, 4.0]], [1.0, 2.0, 1.0, 1.0]),
    families.Mixture: lambda: families.Mixture(
        [families.LogNormal([0.1, 1.0], 0.2), families.LogNormal([2.0, 8.0], 0.3)], [0.3, 0.7]
    ),
}
IGNORED: dict[str, str] = {}
MODELS: tuple[laws.Fit, ...] = (fit,)


def implementations(base: type[Distribution] = Distribution) -> Iterator[type[Distribution]]:
    """Every concrete Distribution that any module of the predictors defines."""
    for module in pkgutil.walk_packages(predictors.__path__, "predictors."):
        importlib.import_module(module.name)
    for kind in base.__subclasses__():
        if not inspect.isabstract(kind) and kind.__module__.startswith("predictors"):
            yield kind
        yield from implementations(kind)


def test_every_distribution_is_held_to_the_laws() -> None:
    found = set(implementations()) - {HazardForm}
    assert {kind.__name__ for kind in EXAMPLES} == {kind.__name__ for kind in found} - set(IGNORED)


@pytest.mark.parametrize("law", laws.DISTRIBUTION_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("kind", EXAMPLES, ids=lambda kind: kind.__name__)
def test_distribution_obeys(kind: type[Distribution], law: Callable[[Distribution], None]) -> None:
    law(EXAMPLES[kind]())


@pytest.mark.parametrize("law", laws.MODEL_LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("model", MODELS, ids=["hierarchical_hazards"])
def test_model_obeys(model: laws.Fit, law: Callable[[laws.Fit, Frame, laws.Pairs], None]) -> None:
    law(model, recorded(), PAIRS)


class Shrinking(families.Exponential):
    """Breaks the law of residuals: the mean minus what elapsed, clipped at zero."""

    def residual(self, elapsed_s: object) -> Distribution:
        return families.Exponential(np.maximum(self._mean[:, 0] - np.asarray(elapsed_s), 1e-9))


class Crossing(families.Exponential):
    """Breaks the order of quantiles."""

    def quantile(self, p: object) -> np.ndarray:
        return super().quantile(p)[:, ::-1]


@pytest.mark.parametrize(
    ("broken", "law"),
    [
        (Shrinking([1.0]), laws.residual_is_the_conditional),
        (Crossing([1.0]), laws.quantiles_never_cross),
        (Crossing([1.0]), laws.quantile_inverts_cdf),
    ],
)
def test_a_law_is_felt_when_broken(broken: Distribution, law: Callable[[Distribution], None]) -> None:
    with pytest.raises(AssertionError):
        law(broken)
