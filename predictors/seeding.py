"""Where a host's measured rates put it before it has a history: the prior of its effect on log time.

With x_hr the log speed of resource r on host h, less its mean over the profiled hosts of the fit, and m_h the mean log time of
host h less what its work takes elsewhere, known with variance n_h,

    m_h = c + sum_r b_r x_hr + e_h,    e_h ~ N(0, between + n_h),    c ~ N(0, unprofiled),    b_r ~ N(prior_r, sd_r^2).

The prior is the physics: time is work over rate, so speeds of the k resources that explain the phase have -1 / k each, and the
others 0. `between` comes from residuals of hosts left out, r_h^2 / (1 - leverage_h) - n_h, widened by (t_{0.9, n-1} / z_{0.9})^2,
since few hosts tell little about how hosts differ. Of fewer than LEAST_HOSTS no variance is learned: the physics moves the mean,
and all stays unknown that is unknown of a host without a profile. Where hosts left out are told no better than by nothing, there
is no seed. Profiles say nothing of hosts that have none: those are answered as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array
from predictors.resources import Rates, explaining, speeds

LEAST_HOSTS = 3
SLOPE_SD, OTHER_SD = 0.2, 0.1
"""How far the slopes of all explaining resources together, and those of all others, may lie from -1 and 0: overheads flatten."""
ROUNDS = 4
FINEST = 1e-4
"""No variance of log time is taken to be smaller."""


@dataclass(frozen=True, slots=True)
class Start:
    """Where a host lies in log time relative to all hosts, by its rates alone, and the variance of that."""

    log_time: float
    variance: float


@dataclass(frozen=True)
class Seed:
    """Starts of all profiled hosts, those without history too; `key` numbers the group key of hosts in `Effects.keys`.

    `slope` tells of each resource by how much log time moves with its log speed, as learned from `n_hosts` hosts.
    """

    key: int
    starts: Mapping[str, Start]
    slope: Mapping[str, float]
    n_hosts: int

    def moved(self, by: float) -> Seed:
        """The same seed relative to another middle of all hosts."""
        return replace(self, starts={host: Start(one.log_time + by, one.variance) for host, one in self.starts.items()})


@dataclass(frozen=True)
class Design:
    """Profiled hosts as a regression sees them, for groups of which some are hosts with a profile.

    `x` (n_hosts, 1 + n_resources) begins with ones; `prior` and `variance` (1 + n_resources,) are of c and the b_r, the
    variance of c to be put in. `row` (n_groups,) is the group's host, -1 without a profile.
    """

    key: int
    hosts: tuple[str, ...]
    resources: tuple[str, ...]
    x: Array
    prior: Array
    variance: Array
    row: NDArray[np.int64]


def design(phase: str, rates: Rates, key: int, hosts: Sequence[str | None]) -> Design | None:
    """The design of a phase, given the host of each group of the key; None where no host of them has a usable profile."""
    told = {host: speeds(one) for host, one in sorted(rates.items())}
    met = [host for host in dict.fromkeys(hosts) if host is not None and told.get(host)]
    resources = tuple(sorted({name for host in met for name in told[host]}))
    main = explaining(phase, resources)
    profiled = tuple(host for host, one in told.items() if any(name in one for name in main))
    if not any(host in profiled for host in met):
        return None
    middle = {name: _mean([told[host][name] for host in met if name in told[host]]) for name in resources}
    x = np.ones((len(profiled), 1 + len(resources)))
    for i, host in enumerate(profiled):
        usual = _mean([told[host][name] - middle[name] for name in main if name in told[host]])
        for j, name in enumerate(resources):
            missing = usual if name in main else 0.0
            x[i, 1 + j] = told[host][name] - middle[name] if name in told[host] else missing
    explains = np.array([name in main for name in resources])
    n_main, n_other = len(main), max(len(resources) - len(main), 1)
    prior = np.append(0.0, np.where(explains, -1.0 / n_main, 0.0))
    variance = np.append(0.0, np.where(explains, SLOPE_SD**2 / n_main, OTHER_SD**2 / n_other))
    row = np.array([profiled.index(host) if host in profiled else -1 for host in hosts], dtype=np.int64)
    return Design(key, profiled, resources, x, prior, variance, row)


def learned(design: Design, mean: Array, noise: Array, unprofiled: float) -> Seed | None:
    """The seed from means m_h (n_groups,) and their sampling variances; `unprofiled` is how hosts differ without a profile.

    None where profiles tell hosts that are left out no better than nothing does.
    """
    known = np.flatnonzero(design.row >= 0)
    x, m, n_h = design.x[design.row[known]], mean[known], noise[known]
    prior_variance = np.append(unprofiled, design.variance[1:])
    enough = len(known) >= LEAST_HOSTS
    off = m - _dot(x, design.prior)
    between = unprofiled
    for _ in range(ROUNDS if enough else 1):
        weight = 1.0 / (between + n_h)
        covariance = _covariance(x, weight, prior_variance)
        found = _dot(covariance, (weight[:, None] * x * off[:, None]).sum(axis=0))
        residual = off - _dot(x, found)
        leverage = np.minimum(weight * _spread(x, covariance), 1.0 - 1e-9)
        if enough:
            told = residual**2 / (1.0 - leverage) - n_h
            between = max(FINEST, float((weight**2 * told).sum() / (weight**2).sum()))
    if enough and float((weight * (residual / (1.0 - leverage)) ** 2).sum()) >= float((weight * m**2).sum()):
        return None
    slope = design.prior + found
    own = between * _widened(len(known)) if enough else between
    log_time, variance = _dot(design.x, slope), own + _spread(design.x, covariance)
    return Seed(
        design.key,
        {host: Start(float(log_time[i]), float(variance[i])) for i, host in enumerate(design.hosts)},
        dict(zip(design.resources, slope[1:].tolist(), strict=True)),
        len(known),
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _dot(rows: Array, vector: Array) -> Array:
    """Rows times a vector by NumPy's own sums: the bits of a linear algebra library depend on its threads."""
    total: Array = (rows * vector).sum(axis=1)
    return total


def _covariance(x: Array, weight: Array, prior_variance: Array) -> Array:
    """(X'W X + diag(1 / v))^-1 as R (R X'W X R + I)^-1 R with R = diag(sqrt v): nothing of it is singular."""
    scale = np.sqrt(prior_variance)
    scaled = x * scale
    inner = (weight[:, None, None] * scaled[:, :, None] * scaled[:, None, :]).sum(axis=0) + np.eye(len(scale))
    return np.asarray(scale[:, None] * np.linalg.inv(inner) * scale)


def _spread(x: Array, covariance: Array) -> Array:
    """Variance of each row's value, x' C x."""
    total: Array = (x[:, :, None] * covariance * x[:, None, :]).sum(axis=(1, 2))
    return total


def _widened(n: int) -> float:
    """(t_{0.9, n-1} / z_{0.9})^2."""
    from scipy.special import ndtri, stdtrit

    return float(stdtrit(n - 1, 0.9) / ndtri(0.9)) ** 2
