"""When a load is needed as planners foresee it: the earliest need of several workflows, from their forecast records.

A record with a weight is one branch of its workflow, of which at most one is taken; a record without one is sure to come. With
a count k its need is the earliest of k independent arrivals, the quantile at 1 - (1 - u)^(1/k). Workflows are independent. Draws
are given that there is a need at all, whose probability is told apart: workflow i is the first in order to have one with
probability w_i prod_{j < i} (1 - w_j) / P(needed), and those after it take their branches freely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.distribution import Array
from predictors.joint.quantile_table import Index
from predictors.joint.streams import key_of, stream, uniforms
from predictors.plans.latest_start import SCENARIOS, checked_quantiles, quantiles_at, samples_at


@dataclass(frozen=True, slots=True)
class Forecast:
    """One record of a workflow: `release_s` (known exactly), `samples_s`, or `levels` with `values_s`, in s from now.

    `weight` is the probability of its branch, None where it is sure to come; `confidence` that the record is right. `key` keys
    its draws.
    """

    workflow: str
    key: str
    release_s: float | None = None
    samples_s: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()
    values_s: tuple[float, ...] = ()
    weight: float | None = None
    count: int = 1
    confidence: float = 1.0

    def at(self, u: Array) -> Array:
        """Need in s at uniforms u."""
        if self.release_s is not None:
            return np.full(u.shape, self.release_s)
        earliest = -np.expm1(np.log1p(-u) / self.count)
        if self.samples_s:
            return samples_at(np.sort(self.samples_s), earliest)
        return quantiles_at(*checked_quantiles(self.levels, self.values_s), earliest)


@dataclass(frozen=True)
class Foreseen:
    """Draws in s of the need, (n_scenarios,), given that there is one; P(there is one), and P(its records are right) then."""

    need_s: Array
    p_needed: float
    p_right: float


def foreseen(records: Sequence[Forecast], seed: int, request: str, n_scenarios: int = SCENARIOS) -> Foreseen:
    """The earliest need of all workflows; weights of the branches of one add up to 1 at most."""
    names = list(dict.fromkeys(record.workflow for record in records))
    grouped = [[record for record in records if record.workflow == name] for name in names]
    needs = np.array([_p_needs(mine) for mine in grouped])
    p_needed = 1.0 - float(np.prod(1.0 - needs))
    share = needs * np.cumprod(np.append(1.0, 1.0 - needs[:-1])) / p_needed
    first = _place(share, _drawn(seed, request, "first", "", n_scenarios))
    need_s = np.full(n_scenarios, np.inf)
    for i, mine in enumerate(grouped):
        taken = _taken(mine, first, i, _drawn(seed, request, "branch", names[i], n_scenarios))
        for k, record in enumerate(mine):
            comes = (taken == k) if record.weight is not None else np.ones(n_scenarios, dtype=np.bool_)
            need_s[comes] = np.minimum(need_s, record.at(_drawn(seed, request, names[i], record.key, n_scenarios)))[comes]
    return Foreseen(need_s, p_needed, 1.0 - (1.0 - math.prod(map(_p_right, grouped))) / p_needed)


def _p_needs(records: Sequence[Forecast]) -> float:
    """P(a workflow has a need)."""
    return min(1.0, sum(1.0 if record.weight is None else record.weight for record in records))


def _p_right(records: Sequence[Forecast]) -> float:
    """P(none of a workflow's records that come true is wrong)."""
    sure = math.prod(record.confidence for record in records if record.weight is None)
    return sure * (1.0 - sum(record.weight * (1.0 - record.confidence) for record in records if record.weight is not None))


def _taken(records: Sequence[Forecast], first: Index, i: int, u: Array) -> Index:
    """Place of the branch that workflow i takes in each scenario, len(records) for none.

    The first workflow to have a need takes one of its branches, those before it none.
    """
    weight = np.array([record.weight or 0.0 for record in records])
    free = np.searchsorted(np.cumsum(weight), u, side="right")
    chosen = _place(weight / weight.sum(), u) if weight.sum() > 0.0 else free
    return np.asarray(np.where(first == i, chosen, np.where(first > i, len(records), free)))


def _place(share: Array, u: Array) -> Index:
    """Place in each scenario, by shares that add up to 1 but for rounding."""
    return np.asarray(np.minimum(np.searchsorted(np.cumsum(share), u, side="right"), np.flatnonzero(share > 0.0)[-1]))


def _drawn(seed: int, request: str, what: str, key: str, n_scenarios: int) -> Array:
    """Uniforms of the scenarios, (n_scenarios,)."""
    keys = (np.array([key_of(text)]) for text in (request, what, key))
    return np.asarray(uniforms(stream(seed, "forecast", *keys), n_scenarios)[0])
