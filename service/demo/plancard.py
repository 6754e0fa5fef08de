"""What the demo's composite answers were worth, from rows of a snapshot alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array
from predictors.scores import Interval, binomial_interval
from telemetry import asof
from telemetry.ledger import PlanAnswer, PlanOutcome
from telemetry.store.reader import Reader

Flags = NDArray[np.bool_]
Scored = tuple[PlanAnswer, PlanOutcome]
EDGES = (0.0, 0.25, 0.5, 0.75, 0.9, 1.0)


@dataclass(frozen=True)
class Bin:
    """Chances answered between two edges: what was said on average, and the share that did complete in time."""

    low: float
    high: float
    said: float
    met: Interval


@dataclass(frozen=True)
class Deadlines:
    """Chances of meeting a deadline against what happened.

    `held` is of plans answered `holds`; `within_p95` and `within_sum` are the shares of completed attempts within the answered
    95 % quantile of completion and within the sum of the stages' p95; `sum_over_p95` is the median ratio of the two bounds.
    `sum_says_yes` is of plans whose sum of p95 lies within the deadline.
    """

    n: int
    left_open: int
    verdicts: dict[str, int]
    bins: list[Bin]
    held: Interval
    brier: float
    within_p95: Interval
    within_sum: Interval
    sum_over_p95: float
    sum_says_yes: Interval


@dataclass(frozen=True)
class Starts:
    """Latest starts against what happened: readiness by the need, and late and idle time as expected and as they were, s."""

    n: int
    verdicts: dict[str, int]
    level: float
    safe_met: Interval
    said: float
    met: Interval
    expected_late_s: float
    actual_late_s: float
    expected_idle_s: float
    actual_idle_s: float


def scored_plans(reader: Reader, commit: int) -> list[Scored]:
    """Composite answers with their outcomes, in the order they were given."""
    outcomes = asof.plan_outcomes(reader, commit)
    return [(answer, outcomes[answer.answer_id]) for answer in asof.plan_answers(reader, commit, scored=True)]


def deadlines(scored: Sequence[Scored]) -> Deadlines | None:
    """Figures of the chances; None where none has an outcome."""
    every = [(a, o) for a, o in scored if a.question == "chance"]
    known = [(a, o) for a, o in every if o.met is not None]
    if not known:
        return None
    said, met = np.array([a.probability for a, _ in known]), np.array([bool(o.met) for _, o in known])
    done = [(a, o) for a, o in known if o.ended == "completed" and a.sum_of_p95_s is not None and a.completion_p95_s is not None]
    took = np.array([o.actual_s for _, o in done])
    p95, added = np.array([a.completion_p95_s for a, _ in done]), np.array([a.sum_of_p95_s for a, _ in done])
    yes = [bool(o.met) for a, o in known if a.sum_of_p95_s is not None and a.sum_of_p95_s <= (a.deadline_s or 0.0)]
    return Deadlines(
        n=len(known),
        left_open=len(every) - len(known),
        verdicts=_counts(known),
        bins=[_bin(said, met, low, high) for low, high in itertools.pairwise(EDGES) if _inside(said, low, high).any()],
        held=_share([bool(o.met) for a, o in known if a.verdict == "holds"]),
        brier=float(np.mean((said - met) ** 2)),
        within_p95=_share((took <= p95).tolist()),
        within_sum=_share((took <= added).tolist()),
        sum_over_p95=float(np.median(added / p95)) if done else float("nan"),
        sum_says_yes=_share(yes),
    )


def starts(scored: Sequence[Scored]) -> Starts | None:
    """Figures of the latest starts; None where none has an outcome."""
    known = [(a, o) for a, o in scored if a.question == "latest_start" and o.met is not None]
    if not known:
        return None
    late = np.array([o.actual_s for _, o in known])
    return Starts(
        n=len(known),
        verdicts=_counts(known),
        level=known[0][0].level,
        safe_met=_share([bool(o.met) for a, o in known if a.verdict == "safe"]),
        said=float(np.mean([a.probability for a, _ in known])),
        met=_share([bool(o.met) for _, o in known]),
        expected_late_s=float(np.mean([a.expected_late_s for a, _ in known])),
        actual_late_s=float(np.maximum(late, 0.0).mean()),
        expected_idle_s=float(np.mean([a.expected_idle_s or 0.0 for a, _ in known])),
        actual_idle_s=float(np.maximum(-late, 0.0).mean()),
    )


def _inside(said: Array, low: float, high: float) -> Flags:
    """Which answers lie in [low, high), the last bin closed."""
    return (said >= low) & ((said < high) | (high == EDGES[-1]))


def _bin(said: Array, met: Flags, low: float, high: float) -> Bin:
    here = _inside(said, low, high)
    return Bin(low, high, float(said[here].mean()), _share(met[here].tolist()))


def _share(met: Sequence[bool]) -> Interval:
    return binomial_interval(sum(met), len(met))


def _counts(known: Sequence[Scored]) -> dict[str, int]:
    verdicts = [a.verdict for a, _ in known]
    return {verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))}
