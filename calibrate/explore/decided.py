"""Logged decisions with what became of them, as the arrays from which other policies are evaluated.

The outcome of a decision is min(T, within_s), T the length of a phase of the first attempt that names it. One that failed counts
as within_s: it was not done by then. One that still runs, or was lost before within_s, is not seen, and those like it that were
stand for it, by the Kaplan-Meier curve of the alternative that was taken. What was expected of an alternative is the mean of
min(T, within_s) in the answer that the decision names, made before any outcome; without one, what the decision says it expected.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrate.explore.offpolicy import Log
from predictors.distribution import GRID, Array
from predictors.scores import uncensored_before
from telemetry.errors import BadField
from telemetry.words import Ended

LEAST = 30
"""Decisions for an alternative from which on its own curve says how likely an outcome was seen; below, all together do."""
CELLS: Array = np.diff(np.concatenate([[0.0], (GRID[:-1] + GRID[1:]) / 2.0, [1.0]]))
"""Probability that stands around each level of GRID, for means."""


@dataclass(frozen=True)
class Decided:
    """One logged decision. `alternatives` as in its row; `answers` are quantiles in s on GRID by prediction_id.

    `duration_s` and `ended` are None where no attempt of it is known yet.
    """

    decision_id: str
    run: str
    choice: str
    alternatives: Sequence[Mapping[str, Any]]
    duration_s: float | None
    ended: Ended | None
    answers: Mapping[str, Array]


Expected = Mapping[str, float | None]
Policy = Callable[[Decided, Expected], Mapping[str, float]]
"""Probability by name of what a policy would choose, given a decision and what is expected of each alternative, s or None."""


def always(name: str) -> Policy:
    """Take this alternative wherever it may be taken; elsewhere do as the logged policy did."""

    def choose(one: Decided, _expected_s: Expected) -> Mapping[str, float]:
        return {name: 1.0} if name in _open_to(one) else _logged(one)

    return choose


def least_expected(one: Decided, expected_s: Expected) -> Mapping[str, float]:
    """Take what is expected to be done first; what nothing is expected of comes last."""
    told_s = {name: math.inf if (value := expected_s[name]) is None else value for name in sorted(_open_to(one))}
    return {min(told_s, key=lambda name: told_s[name]): 1.0}


def log_of(decided: Sequence[Decided], policy: Policy, within_s: float) -> Log:
    """The log for `offpolicy.evaluate` of a policy, outcomes in s.

    Raises BadField where nothing is logged, or the policy chooses what it may not.
    """
    if not decided:
        raise BadField("decisions", 0, "nothing is logged; POST /v1/decisions first")
    columns = {name: k for k, name in enumerate(sorted({str(a["name"]) for one in decided for a in one.alternatives}))}
    logged, target, expected = (np.zeros((len(decided), len(columns))) for _ in range(3))
    complete = True
    for row, one in enumerate(decided):
        expected_s = {str(a["name"]): _expected_s(one, a, within_s) for a in one.alternatives}
        told_s = {name: value for name, value in expected_s.items() if value is not None}
        complete &= len(told_s) == len(expected_s)
        for table, values in ((logged, _logged(one)), (target, _allowed(one, policy(one, expected_s))), (expected, told_s)):
            for name, value in values.items():
                table[row, columns[name]] = value
    known_s = np.array([min(one.duration_s or 0.0, within_s) for one in decided])
    seen = np.array([_seen(one, within_s) for one in decided], dtype=bool)
    failed = np.array([one.ended is Ended.FAILED for one in decided], dtype=bool)
    return Log(
        run=[one.run for one in decided],
        taken=np.array([columns[one.choice] for one in decided], dtype=np.intp),
        logged=logged / logged.sum(axis=1, keepdims=True),
        target=target,
        outcome=np.where(failed, within_s, known_s),
        seen=seen,
        kept=_kept([one.choice for one in decided], known_s, seen),
        expected=expected if complete else None,
    )


def _logged(one: Decided) -> dict[str, float]:
    return {str(a["name"]): float(a["propensity"]) for a in one.alternatives}


def _open_to(one: Decided) -> set[str]:
    """Alternatives that any policy may take: those that were taken sometimes, and those marked safe and permitted."""
    return {
        str(a["name"])
        for a in one.alternatives
        if a["propensity"] > 0.0 or (a.get("resource_safe") is True and a.get("permitted"))
    }


def _allowed(one: Decided, chosen: Mapping[str, float]) -> Mapping[str, float]:
    """The policy's choice, if it is one that it had."""
    if barred := {name for name, p in chosen.items() if p > 0.0} - _open_to(one):
        fix = "a policy chooses among the logged alternatives that are marked resource_safe and permitted, or were taken"
        raise BadField(f"target.{one.decision_id}", min(barred), fix)
    return chosen


def _expected_s(one: Decided, alternative: Mapping[str, Any], within_s: float) -> float | None:
    """Mean of min(T, within_s) in the answer used for an alternative, or what the decision says; None where neither is there."""
    quantiles_s = one.answers.get(str(alternative.get("prediction_id")))
    if quantiles_s is not None:
        return float(CELLS @ np.minimum(quantiles_s, within_s))
    told = alternative.get("expected")
    return None if told is None else min(float(told), within_s)


def _seen(one: Decided, within_s: float) -> bool:
    """Whether min(T, within_s) is known: the phase ended, or outlasted within_s."""
    if one.ended in {Ended.COMPLETED, Ended.FAILED}:
        return True
    return one.duration_s is not None and one.duration_s >= within_s


def _kept(choices: Sequence[str], known_s: Array, seen: NDArray[np.bool_]) -> Array:
    """G: chance that an outcome known at this length was seen, among those of the same alternative."""
    kept, by_choice = uncensored_before(known_s, ~seen, known_s), defaultdict(list)
    for row, choice in enumerate(choices):
        by_choice[choice].append(row)
    for rows in by_choice.values():
        if len(rows) >= LEAST:
            kept[rows] = uncensored_before(known_s[rows], ~seen[rows], known_s[rows])
    return np.where(seen, np.maximum(kept, 1e-6), 1.0)
