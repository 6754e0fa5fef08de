"""Plans in a world whose laws are known: attempts of a setup and a service that hang together, and graphs made of them.

Setup and service of an attempt are scale * X with X of the family's shape and their scores of a t copula: extremes come together,
as in no joint law that the models here assume. Attempts are independent. Each deadline is the quantile, in DRAWS draws from the
truth given what was seen by then, of a level spread from 0.5 to 0.999: that level is the plan's true chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtr

from benchmarks.truth_shapes import Shape
from benchmarks.truth_worlds import AT_ONCE, FAMILIES, HOSTS, KINDS, SIZES, scale_of
from predictors.contexts import Context
from predictors.distribution import Array
from predictors.plans.graph import StageKind
from service.plan_questions import PlannedStage
from service.recorded import Recorded
from telemetry.words import Ended

DRAWS = 2**16
RHO, FREEDOM = 0.5, 4.0
"""Correlation of the copula and its degrees of freedom."""
SETUP = 0.5
"""Scale of a setup in scales of its service."""
HELD_S = 0.2
AGE = 0.8
"""Age at which a running setup is asked about, in medians of its context."""
GRAPHS = ("serial", "held", "chain", "fork", "running")
"""An attempt; one that waits between setup and service; one and then the service of another; two at once; one that runs."""
LEAST_RISK, MOST_RISK = 0.001, 0.5
FAILING_HOST, FAILS, FAILS_AT = "elm", 0.6, 0.05
"""Where services fail fast, the share that do, and when, in parts of what they would have taken."""
TYPICAL_S = 0.7 * scale_of(Context(host="ash", family="decode", size_in=float(np.mean(SIZES))))
Pairs = tuple[Array, Array]
"""Setups and services of attempts, free of scale."""


@dataclass(frozen=True)
class PlanWorld:
    """`history` attempts, then `plans` of the graphs named; where `failing`, services on FAILING_HOST often fail."""

    history: int
    plans: int
    graphs: tuple[str, ...] = GRAPHS
    failing: bool = False


@dataclass(frozen=True)
class Attempt:
    """What becomes of an attempt: `ready_s` is its setup's length, 0 for none, `spent_s` that of its service."""

    name: int
    context: Context
    begun_s: float
    ready_s: float
    start_s: float
    spent_s: float
    ended: Ended

    @property
    def over_s(self) -> float:
        """When it ended."""
        return self.start_s + self.spent_s


@dataclass(frozen=True)
class Planned:
    """A plan: asked when the setup of its first attempt begins, or has lasted `age_s`; its true chance, and what became of it.

    `median_s` is the true median of its completion given that it completes; `took_s` is None where it did not complete.
    """

    first: Attempt
    age_s: float | None
    stages: tuple[PlannedStage, ...]
    deadline_s: float
    chance: float
    median_s: float
    over_s: float
    took_s: float | None

    @property
    def asked_s(self) -> float:
        """When it is asked."""
        return self.first.begun_s + (self.age_s or 0.0)

    @property
    def met(self) -> bool:
        """Whether it completed in time."""
        return self.took_s is not None and self.took_s <= self.deadline_s


def pairs(shape: Shape, n: int, rng: np.random.Generator) -> Pairs:
    """Draws of n attempts."""
    first, second = rng.standard_normal((2, n))
    second = RHO * first + np.sqrt(1.0 - RHO**2) * second
    heavier = np.sqrt(FREEDOM / rng.chisquare(FREEDOM, n))
    level = np.clip(stdtr(FREEDOM, np.stack([first, second]) * heavier), 1e-12, 1.0 - 1e-12)
    return shape.quantile(level[0]), shape.quantile(level[1])


def plan_world(family: str, asked: PlanWorld, seed: int) -> tuple[Recorded, list[Planned]]:
    """Rows, and plans in the order of being asked, of a family, a world and a seed: the same give the same."""
    rng = np.random.default_rng([seed, list(FAMILIES).index(family), 7])
    shape = FAMILIES[family]()
    truth = pairs(shape, DRAWS, rng), pairs(shape, DRAWS, rng)
    attempts: list[Attempt] = []
    plans: list[Planned] = []
    now_s = 0.0
    for i in range(asked.history + asked.plans):
        now_s += float(rng.exponential(2.0 * TYPICAL_S / AT_ONCE))
        graph = str(rng.choice(asked.graphs)) if i >= asked.history else "serial"
        made = _attempts(graph, len(attempts), now_s, shape, rng, failing=asked.failing)
        attempts += made
        if i >= asked.history:
            plans.append(_planned(graph, made, shape, truth, rng, failing=asked.failing))
    return _recorded(attempts), sorted(plans, key=lambda plan: plan.asked_s)


def _attempts(
    graph: str, name: int, now_s: float, shape: Shape, rng: np.random.Generator, *, failing: bool
) -> tuple[Attempt, ...]:
    """The attempts of a graph that begins now, as they turn out."""
    one = _attempt(name, now_s, shape, rng, held_s=HELD_S if graph == "held" else 0.0, failing=failing)
    if graph == "chain":
        return one, _attempt(name + 1, one.over_s, shape, rng, setup=False)
    return (one, _attempt(name + 1, now_s, shape, rng)) if graph == "fork" else (one,)


def _attempt(
    name: int,
    begun_s: float,
    shape: Shape,
    rng: np.random.Generator,
    *,
    setup: bool = True,
    held_s: float = 0.0,
    failing: bool = False,
) -> Attempt:
    host, kind, size = str(rng.choice(HOSTS)), str(rng.choice(list(KINDS))), float(rng.choice(SIZES))
    context = Context(host, "cpu", kind, "v1", size_in=size)
    ready_s, served_s = (float(x[0]) * scale for x, scale in zip(pairs(shape, 1, rng), scales(context), strict=True))
    ready_s = ready_s if setup else 0.0
    fails = failing and host == FAILING_HOST and rng.random() < FAILS
    spent_s, ended = (FAILS_AT * served_s, Ended.FAILED) if fails else (served_s, Ended.COMPLETED)
    return Attempt(name, context, begun_s, ready_s, begun_s + ready_s + held_s, spent_s, ended)


def scales(context: Context) -> tuple[float, float]:
    """Scales of setup and service in s."""
    return SETUP * scale_of(context), scale_of(context)


def _planned(
    graph: str,
    made: tuple[Attempt, ...],
    shape: Shape,
    truth: tuple[Pairs, Pairs],
    rng: np.random.Generator,
    *,
    failing: bool,
) -> Planned:
    """The plan with its deadline: one whose setup has ended before its age is asked when it begins, like any other."""
    one = made[0]
    old_s = AGE * scales(one.context)[0] * float(shape.quantile(np.array(0.5)))
    age_s = old_s if graph == "running" and old_s < one.ready_s else None
    true_s = _completions(graph, made, truth, age_s)
    risk = float(np.exp(rng.uniform(np.log(LEAST_RISK), np.log(MOST_RISK))))
    met, half = int(np.ceil((1.0 - risk) * len(true_s))), len(true_s) // 2
    true_s = np.partition(true_s, (met - 1, half))
    completes = 1.0 - FAILS if failing and one.context.host == FAILING_HOST else 1.0
    over_s = max(attempt.over_s for attempt in made)
    return Planned(
        first=one,
        age_s=age_s,
        stages=_stages(graph, made, age_s),
        deadline_s=float(true_s[met - 1]),
        chance=completes * met / len(true_s),
        median_s=float(true_s[half]),
        over_s=over_s,
        took_s=over_s - one.begun_s - (age_s or 0.0) if all(a.ended is Ended.COMPLETED for a in made) else None,
    )


def _completions(graph: str, made: tuple[Attempt, ...], truth: tuple[Pairs, Pairs], age_s: float | None) -> Array:
    """Draws of the plan's completion in s from when it is asked, given that nothing fails."""
    (setup, service), (begins, serves) = scales(made[0].context), scales(made[-1].context)
    ready, served = setup * truth[0][0], service * truth[0][1]
    if graph == "held":
        return ready + HELD_S + served
    if graph == "chain":
        return ready + served + serves * truth[1][1]
    if graph == "fork":
        return np.maximum(ready + served, begins * truth[1][0] + serves * truth[1][1])
    return ready + served if age_s is None else (ready + served - age_s)[ready > age_s]


def _stages(graph: str, made: tuple[Attempt, ...], age_s: float | None) -> tuple[PlannedStage, ...]:
    """The plan as it is put to the engine."""
    one, two = made[0], made[-1]
    setup = _stage(one, StageKind.SETUP, age_s=age_s)
    if graph == "held":
        held = PlannedStage("held", StageKind.WAIT, (setup.name,), HELD_S)
        return setup, held, _stage(one, StageKind.SERVICE, after=(held.name,))
    service = _stage(one, StageKind.SERVICE, after=(setup.name,))
    if graph == "chain":
        return setup, service, _stage(two, StageKind.SERVICE, after=(service.name,))
    if graph == "fork":
        second = _stage(two, StageKind.SETUP)
        return setup, service, second, _stage(two, StageKind.SERVICE, after=(second.name,))
    return setup, service


def _stage(attempt: Attempt, kind: StageKind, *, after: tuple[str, ...] = (), age_s: float | None = None) -> PlannedStage:
    name = f"{kind.value} {attempt.name}"
    return PlannedStage(name, kind, after, None, attempt.context, kind.value, str(attempt.name), age_s)


def key(attempt: Attempt, phase: str) -> str:
    """Name of an attempt's row of a phase."""
    return f"a{attempt.name:05d}/{phase}/0"


def _recorded(attempts: Sequence[Attempt]) -> Recorded:
    """Rows in the order in which they begin."""
    rows = [(a.begun_s, "setup", a, a.ready_s, Ended.COMPLETED) for a in attempts if a.ready_s > 0.0]
    rows += [(a.start_s, "service", a, a.spent_s, a.ended) for a in attempts]
    rows.sort(key=lambda row: row[0])
    begun, duration = np.array([row[0] for row in rows]), np.array([row[3] for row in rows])
    return Recorded(
        observation_id=[f"a{row[2].name:05d}" for row in rows],
        attempt=np.zeros(len(rows), dtype=np.int64),
        phase=[row[1] for row in rows],
        contexts=[row[2].context for row in rows],
        run=np.array([row[2].name for row in rows], dtype=np.int64),
        duration_s=duration,
        ended=[row[4] for row in rows],
        begun_s=begun,
        known_s=begun + duration,
        timed=True,
        left_out=0,
    )
