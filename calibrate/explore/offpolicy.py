"""What another policy would have met, from decisions that were logged with their propensities.

With mu the policy that was logged, pi the target, A the action taken, r its outcome, Delta whether that was seen, G the chance of
seeing it, m(x, a) what was expected beforehand, and the weight w = pi(A|x) / mu(A|x) Delta / G:

    IPS              mean of w r                                             (Horvitz, Thompson 1952)
    self-normalised  sum of w r / sum of w                                   (Hajek 1971; biased by O(1/n), never off the scale)
    doubly robust    mean of sum_a pi(a|x) m(x, a) + w (r - m(x, A))         (Robins, Rotnitzky, Zhao 1994)

The last holds where either m or mu and G are right. Intervals are t intervals over runs, whose decisions move together.
What such a log can't tell is in NOT_COVERED, and goes out with every number.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from predictors.distribution import Array
from predictors.scores import Interval
from telemetry.errors import BadField

NOT_COVERED = (
    "each decision is judged alone: how a choice changes the waiting of others, "
    "or what later decisions meet because of it, is not covered"
)


@dataclass(frozen=True)
class Limits:
    """When a log is refused, and where weights are cut.

    `largest_weight` caps pi / mu Delta / G; what is cut is told. Refused: a share of the target's probability above `unlogged` on
    actions the log never takes there; an effective sample size below `effective`; fewer than `runs` runs.
    """

    largest_weight: float = 50.0
    unlogged: float = 0.01
    effective: float = 30.0
    runs: int = 10


@dataclass(frozen=True)
class Log:
    """n logged decisions among the same n_actions columns; an action that was not feasible has probability 0 in both policies.

    `run` (n,) names the runs; `taken` (n,) the columns taken; `logged` and `target` (n, n_actions) the propensities mu and pi;
    `outcome` (n,) the outcomes r, of any value where not `seen` (n,); `kept` (n,) the chance G in (0, 1] of seeing an outcome
    that became known when this one did; `expected` (n, n_actions) m(x, a) in the unit of the outcomes, made before they were, or
    None where that was not logged for all: then there is no doubly robust estimate.
    """

    run: Sequence[Hashable]
    taken: NDArray[np.intp]
    logged: Array
    target: Array
    outcome: Array
    seen: NDArray[np.bool_]
    kept: Array
    expected: Array | None

    def __post_init__(self) -> None:
        rows = np.arange(len(self.run))
        _need(len(rows) > 0, "run", 0, "give at least one decision")
        for name in ("logged", "target"):
            table: Array = getattr(self, name)
            off = float(np.abs(table.sum(axis=1) - 1.0).max())
            _need(off <= 1e-6 and bool((table >= 0.0).all()), name, off, "give probabilities that sum to 1 in every row")
        least = float(self.logged[rows, self.taken].min())
        _need(least > 0.0, "logged", least, "the action taken has a propensity above 0")
        kept = self.kept[self.seen]
        _need(bool(((kept > 0.0) & (kept <= 1.0)).all()), "kept", "0 or less, or above 1", "give chances in (0, 1] of being seen")
        finite = bool(np.isfinite(self.outcome[self.seen]).all() and (self.expected is None or np.isfinite(self.expected).all()))
        _need(
            finite, "outcome, expected", "a value that is no number", "give finite outcomes, and an expectation for every action"
        )


@dataclass(frozen=True)
class Evaluation:
    """The target policy's mean outcome by three estimators, with 95 % intervals by run; None where `refused` says why.

    `effective` is (sum w)^2 / sum w^2; `largest_weight` the largest w before it was cut, `cut` the share of decisions at which it
    was and `cut_mass` the share of the weight lost; `unlogged` the share of the target's probability on actions never taken.
    """

    ips: Interval | None
    self_normalised: Interval | None
    doubly_robust: Interval | None
    refused: tuple[str, ...]
    decisions: int
    seen: int
    runs: int
    effective: float
    largest_weight: float
    cut: float
    cut_mass: float
    unlogged: float
    limits: Limits
    not_covered: str = NOT_COVERED


def evaluate(log: Log, limits: Limits = Limits()) -> Evaluation:
    """Estimate what the target policy would have met, or say why this log can't tell."""
    rows = np.arange(len(log.run))
    ratio = log.target[rows, log.taken] / log.logged[rows, log.taken]
    whole = np.where(log.seen, ratio / np.where(log.seen, log.kept, 1.0), 0.0)
    weight = np.minimum(whole, limits.largest_weight)
    place = _places(log.run)
    effective = float(weight.sum() ** 2 / (weight @ weight)) if weight.any() else 0.0
    unlogged, runs = _unlogged(log), int(place.max()) + 1
    refused = _refusals(limits, unlogged, effective, runs)
    ips, normalised, robust = (None, None, None) if refused else _estimates(log, weight, place)
    if log.expected is None:
        refused = (*refused, "no doubly robust estimate: nothing was expected of some alternatives")
    return Evaluation(
        ips,
        normalised,
        robust,
        refused,
        decisions=len(rows),
        seen=int(log.seen.sum()),
        runs=runs,
        effective=effective,
        largest_weight=float(whole.max()),
        cut=float((whole > limits.largest_weight).mean()),
        cut_mass=float(1.0 - weight.sum() / whole.sum()) if whole.any() else 0.0,
        unlogged=unlogged,
        limits=limits,
    )


def _estimates(log: Log, weight: Array, place: NDArray[np.intp]) -> tuple[Interval, Interval, Interval | None]:
    """IPS, self-normalised and doubly robust, from weights that were cut."""
    outcome, each = np.where(log.seen, log.outcome, 0.0), np.ones(len(weight))
    ips, normalised = _by_run(weight * outcome, each, place), _by_run(weight * outcome, weight, place)
    if log.expected is None:
        return ips, normalised, None
    off = np.where(log.seen, outcome - log.expected[np.arange(len(weight)), log.taken], 0.0)
    direct = (log.target * log.expected).sum(axis=1)
    return ips, normalised, _by_run(direct + weight * off, each, place)


def _by_run(value: Array, of: Array, place: NDArray[np.intp], confidence: float = 0.95) -> Interval:
    """Sum of `value` over sum of `of`: with d_b what is left in run b, var = B/(B-1) sum d_b^2 / (sum of)^2."""
    estimate = float(value.sum() / of.sum())
    off = np.bincount(place, value - estimate * of)
    n_runs = len(off)
    spread = float(np.sqrt(n_runs / (n_runs - 1) * (off @ off)) / of.sum())
    half = float(stdtrit(n_runs - 1, (1.0 + confidence) / 2.0)) * spread
    return Interval(estimate, estimate - half, estimate + half, n_runs)


def _unlogged(log: Log) -> float:
    """Share of the target's probability on actions that the logged policy never takes: in that decision, or in any."""
    taken = np.zeros(log.logged.shape[1], dtype=bool)
    taken[log.taken] = True
    return float(np.where((log.logged > 0.0) & taken, 0.0, log.target).sum(axis=1).mean())


def _refusals(limits: Limits, unlogged: float, effective: float, runs: int) -> tuple[str, ...]:
    """Every reason why there is no estimate."""
    found = []
    if unlogged > limits.unlogged:
        found.append(
            f"no support: {unlogged:.1%} of the target's choices were never logged (at most {limits.unlogged:.1%}); "
            "a mode that was never tried has no known value"
        )
    if effective < limits.effective:
        found.append(f"too few: the weights leave {effective:.1f} effective decisions of the {limits.effective:g} needed")
    if runs < limits.runs:
        found.append(f"too few runs: {runs} of the {limits.runs} that an interval by run needs")
    return tuple(found)


def _places(run: Sequence[Hashable]) -> NDArray[np.intp]:
    """Runs numbered in order of first appearance."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(one, len(seen)) for one in run], dtype=np.intp)


def _need(holds: bool, field: str, got: object, fix: str) -> None:
    if not holds:
        raise BadField(field, got, fix)
