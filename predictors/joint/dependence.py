"""What phases of an attempt, and attempts on a host, have in common, learned from a frame at each fit.

The correlation of setup and service of one attempt, by stratum (`ranks`), how their joint law differs from a normal one (`bend`),
and for each phase the share of the host's state in the variance of its log residual. The share is taken from successive attempts
on a host: what they have in common beyond their contexts is the host's state, so the correlation of their normal scores is the
share (of a state that outlasts one attempt; one that changes faster is underrated). It is shrunk to 0 by SHARE_PAIRS pairs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from predictors.contexts import Context
from predictors.distribution import Array
from predictors.effects import Ints
from predictors.joint import bend
from predictors.joint.bend import Bend
from predictors.joint.ranks import LEAST, Correlations, correlations, normal_scores

SHARE_PAIRS = 50.0
"""Pairs (count) that the prior belief in no shared state weighs."""
MOST_SHARE = 0.95
PAIRED = ("setup", "service")


@dataclass(frozen=True)
class Residuals:
    """Completed rows of one phase in the order in which they became known.

    `attempt` (n,) numbers attempts alike in all phases, `context` (n,) indexes `contexts`, `z` (n,) are standardised residuals.
    """

    attempt: Ints
    contexts: tuple[Context, ...]
    context: Ints
    z: Array


@dataclass(frozen=True)
class Dependence:
    """The joint law beside the marginal ones: `rho` of setup and service by node, `share` of the host's state by phase.

    `bend` is None where pairs of setup and service show a normal joint law, or are too few to show another.
    """

    rho: Correlations
    share: Mapping[str, float]
    bend: Bend | None = None

    def correlation(self, context: Context) -> float:
        """Correlation of setup and service of an attempt with this context."""
        return self.rho.at(paired_path(context))


INDEPENDENT = Dependence(correlations([], [], []), MappingProxyType({}))
"""Nothing known to hang together."""


def paired_path(context: Context) -> tuple[str, ...]:
    """Strata of pairs, root to leaf."""
    return context.path("+".join(PAIRED))


def learn(residuals: Mapping[str, Residuals]) -> Dependence:
    """The dependence of phases whose residuals are given by name; independence where there are too few."""
    shares = {phase: _host_share(rows) for phase, rows in residuals.items()}
    setup, service = (residuals.get(phase) for phase in PAIRED)
    if setup is None or service is None:
        return Dependence(INDEPENDENT.rho, shares)
    _, first, second = np.intersect1d(setup.attempt, service.attempt, return_indices=True)
    paths = [paired_path(context) for context in service.contexts]
    pairs = [paths[i] for i in service.context[second]]
    rho = correlations(setup.z[first], service.z[second], pairs)
    whole = np.array([rho.at(path) for path in pairs])
    scores = [normal_scores(rows.z[index]) if len(index) else np.empty(0) for rows, index in ((setup, first), (service, second))]
    return Dependence(rho, shares, bend.learn(scores[0], scores[1], whole))


def _host_share(rows: Residuals) -> float:
    """Correlation of successive normal scores on one host, between 0 and MOST_SHARE, shrunk to 0."""
    scores = normal_scores(rows.z) if len(rows.z) else rows.z
    hosts = [context.host for context in rows.contexts]
    before, after = _successive([hosts[i] for i in rows.context])
    if len(before) < LEAST or np.ptp(scores[before]) == 0.0 or np.ptp(scores[after]) == 0.0:
        return 0.0
    r = float(np.corrcoef(scores[before], scores[after])[0, 1])
    return float(np.clip(r * len(before) / (len(before) + SHARE_PAIRS), 0.0, MOST_SHARE))


def _successive(hosts: Sequence[str | None]) -> tuple[list[int], list[int]]:
    """Places of rows that have a row of the same host before them, and of those before; unknown hosts share no state."""
    last: dict[str, int] = {}
    before, after = [], []
    for i, host in enumerate(hosts):
        if host is not None:
            if host in last:
                before.append(last[host])
                after.append(i)
            last[host] = i
    return before, after
