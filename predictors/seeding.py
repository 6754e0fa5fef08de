"""Where a host without history starts: its times from work and measured rates, and how far such starts are off elsewhere.

With work_r units of resource r and rate_r units/s of the host's profile, a phase takes

    serial:     t = overhead + sum_r f_r work_r / rate_r        pipelined:  t = overhead + max_r f_r work_r / rate_r

with overhead (s) and factors f (seconds taken per second of work at the measured rate) not negative, by least squares of
relative errors in which every host counts alike. The form is the one that errs less on hosts left out. With m_h the mean log
residual of host h under a fit without it, s^2 the variance of those residuals about m_h, and n_h rows,

    between = max(0, mean_h (m_h^2 - s^2 / n_h)) (t_{0.9, k-1} / z_{0.9})^2        over k hosts,

since few hosts tell little about how hosts differ. n runs of its own with mean log residual r draw a host's centre from the seed
by r between / (between + s^2 / n): at first the profile speaks, in the end its own history alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array
from telemetry.errors import BadField, NoEvidence

Form = Literal["serial", "pipelined"]
Rates = Mapping[str, Mapping[str, float]]
"""Rates by host, then by name of the resource, units/s."""
FORMS: tuple[Form, ...] = ("serial", "pipelined")
LEAST_HOSTS = 3
ROUNDS = 6
HUBER = 3.0
"""Log residuals past so many scales are drawn in: a stall says nothing about a rate."""
FINEST = 1e-4
"""No variance of log time is taken to be smaller."""


@dataclass(frozen=True)
class Rows:
    """Completed phases: host of each, `work` (n_rows, n_resources) in units of the rates, `time_s` > 0."""

    host: tuple[str, ...]
    work: Array
    time_s: Array


@dataclass(frozen=True)
class Line:
    """A fitted start: `overhead_s`, and `factor` (n_resources); `shift` takes means of time to medians, in log time."""

    form: Form
    overhead_s: float
    factor: Array
    shift: float

    def log_centre(self, ideal_s: Array) -> Array:
        """Median log time, given work / rate (n_rows, n_resources) in s."""
        taken = self.factor * ideal_s
        busy = taken.sum(axis=1) if self.form == "serial" else taken.max(axis=1)
        centre: Array = np.log(np.maximum(self.overhead_s + busy, 1e-12)) + self.shift
        return centre


@dataclass(frozen=True)
class Spread:
    """Variances of log time on a host left out of the fit: of its mean about its start, of outcomes about that mean."""

    between: float
    within: float


@dataclass(frozen=True)
class Seed:
    """A fitted seed of one phase.

    `profiled` is how far starts from a profile are off, `unprofiled` those from `typical` rates, the geometric mean of hosts.
    `left_out` tells the root mean square of m_h by form, on which the form was chosen.
    """

    resources: tuple[str, ...]
    line: Line
    typical: dict[str, float]
    profiled: Spread
    unprofiled: Spread
    left_out: dict[Form, float]
    n_hosts: int


@dataclass(frozen=True)
class Centre:
    """Median log time of contexts, the variance of what is unknown of it, and the variance of one outcome about it."""

    log_s: Array
    unsure: float
    within: float

    @property
    def spread(self) -> float:
        """Standard deviation in log time of the next outcome, all that is unknown included."""
        return math.sqrt(self.unsure + self.within)


def fit(resources: Sequence[str], rows: Rows, rates: Rates) -> Seed:
    """Seed of one phase from hosts with history and a profile of every resource; NoEvidence for fewer than LEAST_HOSTS."""
    _check(resources, rows)
    known = {host for host in rows.host if all(rates.get(host, {}).get(name, 0.0) > 0 for name in resources)}
    if len(known) < LEAST_HOSTS:
        raise NoEvidence("hosts", f"{len(known)} with history and rates", f"measure and observe at least {LEAST_HOSTS}")
    kept = np.array([host in known for host in rows.host])
    hosts = tuple(host for host in rows.host if host in known)
    names, code = np.unique(np.array(hosts), return_inverse=True)
    table = np.array([[rates[host][name] for name in resources] for host in names])
    typical = np.exp(np.log(table).mean(axis=0))
    data = _Data(np.asarray(rows.work, float)[kept], np.log(np.asarray(rows.time_s, float)[kept]), code, len(names))
    ideal_s = data.work / table[code]
    tried = {form: _left_out(form, ideal_s, data) for form in FORMS}
    errors: dict[Form, float] = {form: float(np.sqrt(np.mean(_means(residual, data) ** 2))) for form, residual in tried.items()}
    form = min(FORMS, key=errors.__getitem__)
    return Seed(
        resources=tuple(resources),
        line=_line(form, ideal_s, data),
        typical=dict(zip(resources, map(float, typical), strict=True)),
        profiled=_spread(tried[form], data),
        unprofiled=_spread(_left_out(form, data.work / typical, data), data),
        left_out=errors,
        n_hosts=data.n_hosts,
    )


def start(seed: Seed, work: Array, rates: Mapping[str, float] | None) -> Centre:
    """Where a host without history starts, for work (n, n_resources); without a profile of every resource, widely."""
    told = rates or {}
    profiled = all(told.get(name, 0.0) > 0 for name in seed.resources)
    used = np.array([(told if profiled else seed.typical)[name] for name in seed.resources])
    spread = seed.profiled if profiled else seed.unprofiled
    return Centre(seed.line.log_centre(np.atleast_2d(work) / used), spread.between, spread.within)


def handed_over(seed: Seed, work: Array, rates: Mapping[str, float] | None, own: Rows) -> Centre:
    """Where the same host stands after runs of its own, `own`; with none it is `start`."""
    first = start(seed, work, rates)
    n = len(own.time_s)
    if n == 0:
        return first
    residual = np.log(own.time_s) - start(seed, own.work, rates).log_s
    middle = float(np.median(residual))
    reach = HUBER * math.sqrt(first.within)
    mean = middle + float(np.clip(residual - middle, -reach, reach).mean())
    noise = first.within / n
    weight = first.unsure / (first.unsure + noise)
    return Centre(first.log_s + weight * mean, weight * noise, first.within)


@dataclass(frozen=True)
class _Data:
    """Rows that are used: work (n_rows, n_resources), log times, host of each as a number below `n_hosts`."""

    work: Array
    log_time: Array
    code: NDArray[np.int64]
    n_hosts: int

    def without(self, host: int) -> tuple[NDArray[np.bool_], _Data]:
        """Which rows are not of that host, and they alone."""
        kept = self.code != host
        return kept, _Data(self.work[kept], self.log_time[kept], self.code[kept], self.n_hosts)


def _check(resources: Sequence[str], rows: Rows) -> None:
    shape = (len(rows.host), len(resources))
    if np.shape(rows.work) != shape or np.shape(rows.time_s) != shape[:1]:
        raise BadField("work", np.shape(rows.work), f"give (rows, resources) = {shape}, and a time for each row")
    if not (np.all(np.isfinite(rows.work)) and np.all(np.asarray(rows.work) >= 0)):
        raise BadField("work", "negative or not finite", "give the units of work of each resource, 0 where it does none")
    if not (np.all(np.isfinite(rows.time_s)) and np.all(np.asarray(rows.time_s) > 0)):
        raise BadField("time_s", "not positive", "leave out phases that took no time")


def _line(form: Form, ideal_s: Array, data: _Data) -> Line:
    """Least squares of relative errors; weights, and the busiest resource of each row where it alone counts, settle in rounds."""
    counts = np.bincount(data.code, minlength=data.n_hosts)
    share = 1.0 / np.maximum(counts, 1)[data.code]
    time_s = np.exp(data.log_time)
    line = Line(form, 0.0, np.ones(ideal_s.shape[1]), 0.0)
    told_s = time_s
    for _ in range(ROUNDS):
        used = ideal_s if form == "serial" else _busiest(line.factor, ideal_s)
        aimed_s = told_s * np.exp(_drawn_in(data.log_time - np.log(told_s)))
        found = _non_negative(np.column_stack([np.ones_like(time_s), used]), aimed_s, share / told_s**2)
        line = Line(form, float(found[0]), np.where(found[1:] > 0, found[1:], 0.0), 0.0)
        told_s = np.exp(line.log_centre(ideal_s))
    residual = data.log_time - np.log(told_s)
    return Line(form, line.overhead_s, line.factor, float(np.median(residual)))


def _busiest(factor: Array, ideal_s: Array) -> Array:
    """Each row with the resource that takes longest, the others 0."""
    alone = np.argmax(factor * ideal_s, axis=1)[:, None] == np.arange(ideal_s.shape[1])
    return np.where(alone, ideal_s, 0.0)


def _drawn_in(residual: Array) -> Array:
    """Log residuals, those past HUBER scales drawn in."""
    scale = 1.4826 * float(np.median(np.abs(residual - np.median(residual))))
    drawn: Array = np.clip(residual, -HUBER * scale, HUBER * scale) if scale > 0 else residual
    return drawn


def _non_negative(design: Array, target: Array, weight: Array) -> Array:
    """Exact non-negative least squares for a few columns: the best of all subsets whose solution is not negative.

    Sums are NumPy's own, so that the bits don't depend on the threads of a linear algebra library.
    """
    scale = np.sqrt((weight[:, None] * design**2).sum(axis=0))
    scale[scale == 0.0] = 1.0
    columns = design / scale
    gram = (weight[:, None, None] * columns[:, :, None] * columns[:, None, :]).sum(axis=0)
    right = (weight[:, None] * columns * target[:, None]).sum(axis=0)
    best, gain = np.zeros(design.shape[1]), 0.0
    for size in range(1, design.shape[1] + 1):
        for subset in map(list, combinations(range(design.shape[1]), size)):
            part = np.linalg.solve(gram[np.ix_(subset, subset)] + 1e-12 * np.eye(size), right[subset])
            if np.all(part >= 0) and float(part @ right[subset]) > gain * (1 + 1e-12):
                best, gain = np.zeros(design.shape[1]), float(part @ right[subset])
                best[subset] = part
    found: Array = best / scale
    return found


def _left_out(form: Form, ideal_s: Array, data: _Data) -> Array:
    """Log residual of each row under the fit of all other hosts."""
    residual = np.empty(len(data.log_time))
    for host in range(data.n_hosts):
        kept, others = data.without(host)
        residual[~kept] = data.log_time[~kept] - _line(form, ideal_s[kept], others).log_centre(ideal_s[~kept])
    return residual


def _means(residual: Array, data: _Data) -> Array:
    """Mean residual of each host, stalls drawn in."""
    found = (residual[data.code == host] for host in range(data.n_hosts))
    return np.array([np.median(own) + _drawn_in(own - np.median(own)).mean() for own in found])


def _spread(residual: Array, data: _Data) -> Spread:
    """Variance between hosts, widened for how few of them tell of it, and within them."""
    from scipy.special import ndtri, stdtrit

    means = _means(residual, data)
    off = _drawn_in(residual - means[data.code])
    within = max(FINEST, float((off**2).sum()) / max(1, len(off) - data.n_hosts))
    noise = within / np.bincount(data.code, minlength=data.n_hosts)
    widened = float(stdtrit(data.n_hosts - 1, 0.9) / ndtri(0.9)) ** 2
    return Spread(max(FINEST, float(np.mean(means**2 - noise))) * widened, within)
