"""Why the ensemble weighs its experts as it does: weights, outcomes and losses by stratum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from predictors.contexts import JUDGED, Context
from predictors.ensemble import EXPERTS, Ensemble


@dataclass(frozen=True)
class Stratum:
    """One node of a judged path: its outcomes (decayed number) and, by expert, the weight and the mean loss there.

    Losses are CRPS of log time, and empty where nothing is known of the node itself; weights are shrunk from wider ones.
    """

    level: str
    name: str
    n: float
    weights: dict[str, float]
    losses: dict[str, float]


def explained(model: Ensemble, asked: Iterable[tuple[Context, str]]) -> list[Stratum]:
    """Strata of these pairs of a context and a phase, widest first, each once."""
    found: dict[tuple[str, ...], Stratum] = {}
    for context, phase in asked:
        path = model.path(context, phase)
        for depth in range(1, len(path) + 1):
            if path[:depth] not in found:
                found[path[:depth]] = _stratum(model, path[:depth])
    return [found[path] for path in sorted(found, key=lambda path: (len(path), -found[path].n, path))]


def _stratum(model: Ensemble, path: tuple[str, ...]) -> Stratum:
    node = model.weights.nodes.get(path[-1])
    weights = dict(zip(EXPERTS, model.weights.at(path).tolist(), strict=True))
    if node is None or node.n <= 0.0:
        return Stratum(JUDGED[len(path) - 1], path[-1], 0.0, weights, {})
    losses = dict(zip(EXPERTS, (node.total / node.n).tolist(), strict=True))
    return Stratum(JUDGED[len(path) - 1], path[-1], node.n, weights, losses)
