"""Joint draws of setup and service for attempts that may share hosts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from predictors.distribution import Array
from predictors.joint.bend import Bend
from predictors.joint.linked import MOST, Links, draw_scores, feasible_shares, remaining
from predictors.joint.quantile_table import QuantileTable, Timings
from predictors.joint.streams import keys_of, stream, uniforms
from telemetry.errors import BadField


@dataclass(frozen=True)
class Attempts:
    """Ids of n attempts: with the seed, the stage and the scenario they decide every draw."""

    hosts: tuple[str, ...]
    requests: tuple[str, ...]
    attempts: tuple[str, ...]


@dataclass(frozen=True)
class Joint:
    """Dependence of n attempts: correlation of setup with service, and the host state's share in each; scalars or (n,).

    `bend`: how setup and service of an attempt hang together beyond their correlation.

    An attempt without setup (resident) takes rho 0 and setup_share 0 beside a finished setup of 0 s. Where shares and rho can't
    both hold, rho stands and the shares give way (`feasible_shares`).
    """

    rho: ArrayLike = 0.0
    setup_share: ArrayLike = 0.0
    service_share: ArrayLike = 0.0
    bend: Bend | None = None

    def bounded(self, n: int) -> tuple[Array, Array, Array]:
        """(rho, setup_share, service_share), each (n,)."""
        rho, setup, service = (
            np.array(np.broadcast_to(np.asarray(x, dtype=np.float64), (n,)))
            for x in (self.rho, self.setup_share, self.service_share)
        )
        if not np.all(np.abs(rho) <= 1.0):
            raise BadField("rho", self.rho, "give correlations between -1 and 1")
        if not np.all((setup >= 0.0) & (setup <= 1.0) & (service >= 0.0) & (service <= 1.0)):
            raise BadField("setup_share, service_share", (self.setup_share, self.service_share), "give shares between 0 and 1")
        rho, setup, service = np.clip(rho, -MOST, MOST), np.minimum(setup, MOST), np.minimum(service, MOST)
        return rho, *feasible_shares(rho, setup, service)


def stacked(first: Timings, second: Timings) -> Timings:
    """The stages of both, first before second."""
    table = QuantileTable(
        np.concatenate([first.table.nodes, second.table.nodes]), np.concatenate([first.table.knee, second.table.knee])
    )
    return Timings(
        table,
        np.append(first.row, second.row + len(first.table.nodes)),
        np.append(first.passed, second.passed),
        np.append(first.known, second.known),
        np.append(first.p_complete, second.p_complete),
    )


def draw(setup: Timings, service: Timings, joint: Joint, ids: Attempts, n_scenarios: int, seed: int) -> Array:
    """Remaining times in s given completion, shape (n_attempts, 2, n_scenarios): setup, then service.

    Attempts on one host share its state. An attempt not yet started changes nobody's draws; one that runs or has finished its
    setup changes those on its host, by what it proves.
    """
    n = setup.n
    if not n == service.n == len(ids.hosts) == len(ids.requests) == len(ids.attempts):
        raise BadField(
            "ids", len(ids.attempts), f"give one host, request and attempt for each of {n} setups and {service.n} services"
        )
    rho, setup_share, service_share = joint.bounded(n)
    hosts = list(dict.fromkeys(ids.hosts))
    place = {host: index for index, host in enumerate(hosts)}
    group = np.array([place[host] for host in ids.hosts], dtype=np.intp)
    links = Links(
        group=np.tile(group, 2),
        share=np.concatenate([setup_share, service_share]),
        partner=np.concatenate([np.full(n, -1), np.arange(n)]),
        rho=np.concatenate([np.zeros(n), rho]),
        bend=joint.bend,
    )
    keys = [keys_of(names) for names in (ids.hosts, ids.requests, ids.attempts)]
    own_keys = np.concatenate([stream(seed, "stage", *keys, keys_of([stage])) for stage in ("setup", "service")])
    both = stacked(setup, service)
    scores = draw_scores(both, links, uniforms(own_keys, n_scenarios), own_keys, stream(seed, "host", keys_of(hosts)))
    times = remaining(both, scores.eps)
    return np.stack([times[:n], times[n:]], axis=1)
