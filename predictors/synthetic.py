"""Attempts whose true law is known, as events: what tests of the model, the API and plans are judged against.

Setup is a cache hit or a miss, log-normal each; service is log-normal around overhead + work / rate; both scale with the host.
Failures compete with service, cancellations interrupt whatever runs; both come at exponential times, independent of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.contexts import Context
from predictors.distribution import Array, Distribution
from predictors.families import LogNormal, Mixture
from telemetry.tables import Attempt, Event
from telemetry.words import CancelReason, EventKind, State

START_NS = 1_700_000_000_000_000_000
"""Wall time of the first arrival: an instant in November 2023."""
MISS_SHARE = {State.COLD: 1.0, State.CACHED: 0.0, State.CACHE_UNKNOWN: 0.3}
"""Probability that a setup reads from storage, by the state it was announced with."""

REASONS = {EventKind.FAILED: "synthetic", EventKind.CANCEL_REQUESTED: CancelReason.USER, EventKind.CANCELLED: CancelReason.USER}


@dataclass(frozen=True)
class World:
    """The truth: how long things take, how often they fail or are cancelled (as mean times in s; None is never)."""

    slowness: tuple[tuple[str, float], ...] = (("north", 1.0), ("south", 1.6))
    hit_median_s: float = 0.2
    miss_median_s: float = 2.0
    setup_sigma: float = 0.15
    overhead_s: float = 0.05
    per_item_s: float = 0.002
    service_sigma: float = 0.25
    failure_mean_s: float | None = 20.0
    cancel_mean_s: float | None = 30.0
    arrival_mean_s: float = 1.0

    def law(self, phase: str, contexts: Sequence[Context]) -> Distribution:
        """F_true of `setup` or `service` given completion does not cut it short, one context per row."""
        slow = np.array([dict(self.slowness)[c.host or ""] for c in contexts])
        if phase == "setup":
            miss = np.array([MISS_SHARE[State(c.state or "")] for c in contexts])
            parts = [LogNormal(median_s * slow, self.setup_sigma) for median_s in (self.hit_median_s, self.miss_median_s)]
            return Mixture(parts, np.stack([1.0 - miss, miss], axis=1))
        work = np.array([(c.size_in or 0.0) * (c.batch or 1.0) for c in contexts])
        return LogNormal((self.overhead_s + self.per_item_s * work) * slow, self.service_sigma)


@dataclass(frozen=True)
class Run:
    """One attempt with its events in order, and what setup and service would have taken uninterrupted, in s."""

    attempt: Attempt
    events: tuple[Event, ...]
    setup_s: float
    service_s: float


def runs(n: int, seed: int, world: World | None = None) -> list[Run]:
    """N attempts in order of arrival; the same seed and world give the same bytes."""
    truth = world or World()
    rng = np.random.default_rng(seed)
    hosts, states = [name for name, _ in truth.slowness], list(MISS_SHARE)
    contexts = [
        Context(
            host=hosts[rng.integers(len(hosts))],
            device="cpu",
            family="encoder",
            model="encoder@1",
            state=states[rng.integers(len(states))],
            batch=float(rng.choice([1, 4, 8])),
            size_in=float(rng.choice([16, 32, 64, 128])),
            corunners=0.0,
        )
        for _ in range(n)
    ]
    setup_s = truth.law("setup", contexts).sample(rng, 1)[:, 0] if n else np.zeros(0)
    service_s = truth.law("service", contexts).sample(rng, 1)[:, 0] if n else np.zeros(0)
    arrive_s = np.cumsum(rng.exponential(truth.arrival_mean_s, n))
    fail_s, cancel_s = _exponential(rng, truth.failure_mean_s, n), _exponential(rng, truth.cancel_mean_s, n)
    rows = zip(contexts, arrive_s, setup_s, service_s, fail_s, cancel_s, strict=True)
    return [
        _run(f"synthetic-{seed}-{place:06d}", context, *(float(s) for s in times)) for place, (context, *times) in enumerate(rows)
    ]


def _exponential(rng: np.random.Generator, mean_s: float | None, n: int) -> Array:
    """Exponential times in s; infinite where the mean is None."""
    return np.full(n, np.inf) if mean_s is None else rng.exponential(mean_s, n)


def _run(
    attempt_id: str, context: Context, arrive_s: float, setup_s: float, service_s: float, fail_s: float, cancel_s: float
) -> Run:
    """One attempt: boundaries up to its end, failure counted from compute start and cancellation from phase start."""
    ready_s = arrive_s + setup_s
    plain = [
        (EventKind.ELIGIBLE, arrive_s),
        (EventKind.RESERVATION_COMMIT, arrive_s),
        (EventKind.PHASE_START, arrive_s),
        (EventKind.READY, ready_s),
        (EventKind.COMPUTE_START, ready_s),
        (EventKind.COMPUTE_FINISH, ready_s + service_s),
        (EventKind.PRODUCER_TERMINATED, ready_s + service_s),
        (EventKind.RESOURCE_RELEASED, ready_s + service_s),
    ]
    cut_s = min(ready_s + fail_s, arrive_s + cancel_s)
    marks = plain
    if cut_s < ready_s + service_s:
        failed = ready_s + fail_s < arrive_s + cancel_s
        end = [EventKind.FAILED] if failed else [EventKind.CANCEL_REQUESTED, EventKind.CANCELLED]
        marks = [mark for mark in plain if mark[1] <= cut_s] + [(kind, cut_s) for kind in end]
    events = tuple(_event(attempt_id, context.host or "", kind, time_s) for kind, time_s in marks)
    return Run(Attempt(attempt_id=attempt_id, run_id=attempt_id, **context.known()), events, setup_s, service_s)


def _event(attempt_id: str, host: str, kind: EventKind, time_s: float) -> Event:
    """One boundary; the monotonic clock of a host runs with the wall clock."""
    since_start_ns = round(time_s * 1e9)
    return Event(
        event_id=f"{attempt_id}-{kind}",
        attempt_id=attempt_id,
        kind=kind,
        wall_ns=START_NS + since_start_ns,
        monotonic_ns=since_start_ns,
        clock_id=f"{host}/1",
        source=f"synthetic/{host}",
        reason=REASONS.get(kind),
    )
