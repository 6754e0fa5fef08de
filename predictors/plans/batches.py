"""Plans of one shape as arrays: one row for each drawn stage of each plan, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array
from predictors.joint.bend import Bend
from predictors.joint.linked import MOST, Links, feasible_shares
from predictors.joint.quantile_table import Index, Timings
from predictors.joint.streams import Keys, keys_of, stream
from predictors.plans.graph import Plan, Shape, Stage
from telemetry.errors import BadField

MOST_S = float(np.finfo(np.float64).max)
"""A length of time that is still finite."""


@dataclass(frozen=True)
class Batch:
    """Plans at `places` of a request.

    `planned_s` (n_stages, n_plans): lengths of planned waits, 0 elsewhere. The rest has one entry per row, all plans of the first
    drawn position first; `host_keys` likewise by host and plan.
    """

    shape: Shape
    places: Index
    planned_s: Array
    timings: Timings
    share: Array
    rho: Array
    own_keys: Keys
    host_keys: Keys
    bend: Bend | None = None

    @property
    def n(self) -> int:
        """Number of plans."""
        return len(self.places)

    def rows(self, position: int) -> Index:
        """Rows of a drawn position, one per plan."""
        return self.shape.drawn.index(position) * self.n + np.arange(self.n)

    @property
    def p_complete(self) -> Array:
        """Probability that every stage completes, shape (n_plans,)."""
        return np.asarray(self.timings.p_complete.reshape(-1, self.n).prod(axis=0))

    @property
    def dimension(self) -> Index:
        """Dimension of the lattice each row is drawn in: stages that must be drawn come first."""
        order = [*self.shape.sampled, *self.shape.integrated]
        return np.repeat([order.index(position) for position in self.shape.drawn], self.n).astype(np.intp)

    @cached_property
    def links(self) -> Links:
        """Dependence between rows. A host's or channel's state counts only where attempts share it.

        A service whose setup has part in another state than its own has part in none: it follows its setup.
        """
        shape, plan = self.shape, np.arange(self.n)
        group = np.array([shape.group[i] * self.n + plan for i in shape.drawn], dtype=np.intp).ravel()
        partner, share = np.full(len(group), -1), self.share * np.repeat([shape.crowded[i] for i in shape.drawn], self.n)
        for position in shape.drawn:
            if shape.partner[position] >= 0:
                mine, setup = self.rows(position), self.rows(shape.partner[position])
                partner[mine] = setup
                if shape.group[position] != shape.group[shape.partner[position]]:
                    group[mine], share[mine] = group[setup], 0.0
                share[setup], share[mine] = feasible_shares(self.rho[mine], share[setup], share[mine])
        return Links(group=group, share=share, partner=partner, rho=self.rho, bend=self.bend)

    def walk(self, times_s: Array) -> tuple[list[Array], list[Array]]:
        """Start and end in s of each stage, arrays (n_plans, n_scenarios or 1): a stage starts at the latest end before it."""
        start: list[Array] = []
        end: list[Array] = []
        for position, before in enumerate(self.shape.after):
            begins = last_of([end[i] for i in before]) if before else np.zeros((self.n, 1))
            drawn = position in self.shape.drawn
            start.append(begins)
            end.append(begins + (times_s[self.rows(position)] if drawn else self.planned_s[position][:, None]))
        return start, end


def last_of(ends_s: Sequence[Array]) -> Array:
    """The latest of several ends, each (n_plans, n_scenarios), or (n_plans, 1) where only planned waits lead to it."""
    return np.asarray(reduce(np.maximum, ends_s))


def batch_of(shape: Shape, plans: Sequence[Plan], places: Index, timings: Timings, seed: int, bend: Bend | None = None) -> Batch:
    """Gather the plans of one shape at `places`."""
    here = [plans[place] for place in places.tolist()]
    stages = [plan.stages[position] for position in shape.drawn for plan in here]
    names, _, _, _, timing, on, of, shared, linked, _ = zip(*stages, strict=True) if stages else ((),) * len(Stage._fields)
    rows, share, rho = np.array(timing, dtype=np.intp), np.array(shared), np.array(linked)
    waits = [plan.stages[i] for i in range(len(shape.after)) if i not in shape.drawn for plan in here]
    _refuse(
        waits, "planned_s", np.array([stage.planned_s for stage in waits]), 0.0, MOST_S, "give a finite length of 0 s or more"
    )
    _refuse(stages, "timing", rows, 0, timings.n - 1, f"give a row of the {timings.n} distributions, from 0")
    _refuse(stages, "share", share, 0.0, 1.0, "give a share between 0 and 1")
    _refuse(stages, "rho", rho, -1.0, 1.0, "give a correlation between -1 and 1")
    requests = np.tile(keys_of(plan.request for plan in here), len(shape.drawn))
    attempts = keys_of(attempt or name for attempt, name in zip(of, names, strict=True))
    of_group = [shape.group.index(group) for group in range(shape.n_groups)]
    group_hosts = keys_of(plan.stages[position].state for position in of_group for plan in here)
    return Batch(
        shape=shape,
        places=places,
        planned_s=np.array([[plan.stages[i].planned_s or 0.0 for plan in here] for i in range(len(shape.after))]),
        timings=timings.take(rows),
        share=np.minimum(share, MOST),
        rho=np.clip(rho, -MOST, MOST),
        own_keys=stream(seed, "stage", keys_of(on), requests, attempts, keys_of(names)),
        host_keys=stream(seed, "host", group_hosts),
        bend=bend,
    )


def _refuse(stages: Sequence[Stage], field: str, values: NDArray[Any], least: float, most: float, fix: str) -> None:
    """BadField of the first stage whose value, one each, is not within least and most."""
    bad = np.flatnonzero(~((values >= least) & (values <= most)))
    if len(bad):
        raise BadField(f"{stages[bad[0]].name}.{field}", values[bad[0]].item(), fix)
