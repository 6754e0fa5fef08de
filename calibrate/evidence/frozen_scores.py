"""The scores of frozen forecasts: kind by kind, misses first, with wins and losses against a reference and intervals by run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from calibrate.evidence.compare import Comparison, compare
from calibrate.evidence.forecasts import Call, Contrast, ErrorName, Gain, Manifest, Number, Outcomes, Unit, Window, error_of
from calibrate.evidence.window_judge import Run, Verdict, judge
from predictors.scores import Interval, binomial_interval
from telemetry.errors import BadField


@dataclass(frozen=True, slots=True)
class Scored:
    """One forecast and what became of it; `hit` None while its outcome is missing."""

    id: str
    predicted: float | bool
    actual: float | bool | None
    error: float | None
    hit: bool | None
    note: str


@dataclass(frozen=True, slots=True)
class Passed:
    """How many numbers passed the quantile forecast for them at a level; 1 - level were promised to."""

    level: float
    share: Interval


@dataclass(frozen=True)
class Report:
    """Scores by kind, each in the order: misses (the worst first), missing, hits.

    `against` compares absolute errors with those of the reference, by run (None without one); `worst` is the number farthest off,
    `information` how many numbers were forecast at each level of information.
    """

    numbers: tuple[Scored, ...]
    contrasts: tuple[Scored, ...]
    calls: tuple[Scored, ...]
    gains: tuple[Scored, ...]
    passed: tuple[Passed, ...]
    against: Comparison | None
    worst: str | None
    information: dict[str, int]

    def counts(self) -> dict[str, dict[str, int]]:
        """Misses, missing and hits of each kind."""
        return {
            name: {
                "misses": sum(one.hit is False for one in kind),
                "missing": sum(one.hit is None for one in kind),
                "hits": sum(one.hit is True for one in kind),
            }
            for name, kind in (
                ("numbers", self.numbers),
                ("contrasts", self.contrasts),
                ("calls", self.calls),
                ("gains", self.gains),
            )
        }


def score(manifest: Manifest, outcomes: Outcomes) -> Report:
    """Score a manifest. Raises BadField for outcomes of what was never forecast: they would pass for forecasts."""
    for kind, known in (("numbers", manifest.numbers), ("contrasts", manifest.contrasts), ("calls", manifest.calls)):
        given: dict[str, Any] = getattr(outcomes, kind)
        if unknown := given.keys() - {one.id for one in known}:
            raise BadField(f"outcomes.{kind}", min(unknown), "it is not among the frozen forecasts; leave it out")
    numbers = [_number(one, outcomes.numbers.get(one.id)) for one in manifest.numbers]
    calls = {one.id: _call(one, outcomes.calls.get(one.id)) for one in manifest.calls}
    information: dict[str, int] = {}
    for one in manifest.numbers:
        information[one.information or "unstated"] = information.get(one.information or "unstated", 0) + 1
    off = [one for one in numbers if one.error is not None]
    return Report(
        numbers=_misses_first(numbers),
        contrasts=_misses_first([_contrast(one, outcomes.contrasts.get(one.id)) for one in manifest.contrasts]),
        calls=_misses_first(list(calls.values())),
        gains=_misses_first([_gain(one, calls) for one in manifest.gains]),
        passed=_passed(manifest, outcomes),
        against=_against(manifest, outcomes),
        worst=max(off, key=lambda one: abs(one.error or 0.0)).id if off else None,
        information=information,
    )


def _number(one: Number, actual: float | None) -> Scored:
    """A number within its tolerance or not, by the error it declared."""
    if actual is None:
        return Scored(one.id, one.predicted, None, None, None, "no outcome")
    error = error_of(one.error, one.predicted, actual)
    if error is None:
        return Scored(one.id, one.predicted, actual, None, False, f"{one.error} is undefined at 0")
    hit = abs(error) <= one.tolerance * (1.0 + 1e-12)
    return Scored(one.id, one.predicted, actual, error, hit, f"{one.error} {error:+.2%}, tolerance {one.tolerance:.2%}")


def _contrast(one: Contrast, actual: float | None) -> Scored:
    """Whether a change had the sign that was forecast; its size is told, not judged."""
    if actual is None:
        return Scored(one.id, one.predicted, None, None, None, "no outcome")
    hit = bool(np.sign(one.predicted) == np.sign(actual))
    told = f"predicted {one.predicted:+.2%}, measured {actual:+.2%}"
    return Scored(one.id, one.predicted, actual, actual - one.predicted, hit, told if hit else f"sign reversed: {told}")


def _call(one: Call, measured: Any) -> Scored:
    """Whether a verdict was foretold."""
    if measured is None:
        return Scored(one.id, one.predicted, None, None, None, "no outcome")
    came, why = _came(one, measured)
    if came is None:
        return Scored(one.id, one.predicted, None, None, None, why)
    words = {True: "pass", False: "fail"}
    told = f"called {words[one.predicted]}, it was {words[came]}{why and ': ' + why}"
    return Scored(one.id, one.predicted, came, None, came == one.predicted, told)


def _came(one: Call, measured: Any) -> tuple[bool | None, str]:
    """Whether the test of a call was passed (None: inconclusive), and what is to be said of it."""
    if one.window is not None and isinstance(measured, list):
        found = judge(_run(one.id, one.window, measured))
        came = {Verdict.PASS: True, Verdict.FAIL: False, Verdict.INCONCLUSIVE: None}[found.verdict]
        return came, "; ".join(found.reasons)
    if one.bound is not None and isinstance(measured, float | tuple) and not isinstance(measured, bool):
        value = _divided(one.id, measured) if isinstance(measured, tuple) else measured
        return value <= one.bound, f"{value:.4g}, bound {one.bound:.4g}"
    if one.test is not None and isinstance(measured, bool):
        return measured, ""
    wanted = "units of the run" if one.window else "a value or a pair" if one.bound is not None else "true or false"
    raise BadField(f"outcomes.calls.{one.id}", measured, f"give {wanted}, as its test was declared")


def _divided(name: str, pair: tuple[float, float]) -> float:
    if pair[1] == 0.0:
        raise BadField(f"outcomes.calls.{name}", pair, "give a pair whose second value is not 0")
    return pair[0] / pair[1]


def _run(name: str, window: Window, units: list[Unit]) -> Run:
    """Units as the judge takes them."""
    if unknown := {unit.kind for unit in units} - window.objectives_s.keys():
        raise BadField(f"outcomes.calls.{name}", min(unknown), "no objective was declared for this class")
    return Run(
        kinds=[unit.kind for unit in units],
        released_s=np.array([unit.released_s for unit in units]),
        finished_s=np.array([np.nan if unit.finished_s is None else unit.finished_s for unit in units]),
        failed=np.array([unit.failed for unit in units]),
        objective_s=np.array([window.objectives_s[unit.kind] for unit in units]),
        window_s=window.window_s,
        cycle_s=window.cycle_s,
    )


def _gain(one: Gain, calls: dict[str, Scored]) -> Scored:
    """A gain that every run confirms, or that is not established."""
    low, high = ([calls[name].actual for name in names] for names in (one.low_calls, one.high_calls))
    if None in low or None in high:
        return Scored(one.id, one.gain, None, None, None, "no outcome")
    if all(low) and not any(high):
        return Scored(one.id, one.gain, one.gain, None, True, f"at least {one.gain:.1%}")
    why = "the lower end did not pass on every run" if not all(low) else "the upper end did not fail on every run"
    return Scored(one.id, one.gain, None, None, False, f"not established: {why}")


def _passed(manifest: Manifest, outcomes: Outcomes) -> tuple[Passed, ...]:
    """Exceedance of every level that was forecast, over the numbers that forecast it."""
    found: dict[float, list[bool]] = {}
    for one in manifest.numbers:
        if (actual := outcomes.numbers.get(one.id)) is not None:
            for level, quantile in zip(one.levels, one.quantiles, strict=True):
                found.setdefault(level, []).append(actual > quantile)
    return tuple(Passed(level, binomial_interval(sum(past), len(past))) for level, past in sorted(found.items()))


def _against(manifest: Manifest, outcomes: Outcomes) -> Comparison | None:
    """Absolute errors beside those of the reference, by the same definition; intervals by run, where runs are named."""
    run, reference, own = [], [], []
    for one in manifest.numbers:
        actual = outcomes.numbers.get(one.id)
        if one.reference is None or actual is None:
            continue
        pair = [_size(one.error, value, actual) for value in (one.reference, one.predicted)]
        if None not in pair:
            run.append(one.run or one.id)
            reference.append(pair[0])
            own.append(pair[1])
    if not run:
        return None
    return compare(run, np.array(reference, dtype=np.float64), np.array(own, dtype=np.float64), np.ones(len(run)))


def _size(name: ErrorName, predicted: float, actual: float) -> float | None:
    error = error_of(name, predicted, actual)
    return None if error is None else abs(error)


def _misses_first(scored: list[Scored]) -> tuple[Scored, ...]:
    """The worst miss first, then what is missing, then hits."""
    order = {False: 0, None: 1, True: 2}
    return tuple(sorted(scored, key=lambda one: (order[one.hit], -abs(one.error or 0.0), one.id)))
