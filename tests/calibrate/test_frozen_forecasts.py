"""Frozen forecasts: not a byte may change, and each kind is scored for itself, by the error it declared, misses first.

Measured figures below are those printed in a study of a serving stack whose predictions were frozen before its runs.
"""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from calibrate.evidence.forecasts import (
    Call,
    Contrast,
    ErrorName,
    Gain,
    MadeFrom,
    Manifest,
    Number,
    Outcomes,
    as_frozen,
    digest,
    error_of,
    opened,
    same_outcomes,
    sealed,
    written,
)
from calibrate.evidence.frozen_scores import Report, score
from telemetry.errors import BadField, Conflict

ACTUAL, PREDICTED = ErrorName.TO_ACTUAL, ErrorName.TO_PREDICTED


def number(name: str, predicted: float, **values: Any) -> Number:
    return Number.model_validate({"id": name, "predicted": predicted, "unit": "s", "error": ACTUAL, "tolerance": 0.15, **values})


def manifest(**kinds: Any) -> Manifest:
    return Manifest.model_validate({"name": "cohort-1", "frozen_ns": 7, **kinds})


def scored(outcomes: dict[str, Any], **kinds: Any) -> Report:
    return score(manifest(**kinds), Outcomes.model_validate(outcomes))


# The seal.


def test_a_sealed_manifest_opens_as_it_was() -> None:
    frozen = manifest(numbers=[number("p99", 9.66)], contrasts=[Contrast(id="c", predicted=-0.0358)])
    assert (frozen, digest(written(frozen))) == opened(sealed(frozen), Manifest)


SEALED = sealed(manifest(numbers=[number("p99", 9.66)]))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, len(SEALED) - 1), st.integers(0, 255))
def test_no_byte_of_a_sealed_manifest_may_change(place: int, value: int) -> None:
    changed = SEALED[:place] + bytes([value]) + SEALED[place + 1 :]
    if changed != SEALED:
        with pytest.raises(Conflict, match="manifest"):
            opened(changed, Manifest)


@pytest.mark.parametrize("changed", [SEALED.strip(), SEALED.replace(b",", b", "), SEALED + b" ", b"", b"[]", b"{}"])
def test_a_manifest_written_in_another_way_is_refused(changed: bytes) -> None:
    with pytest.raises(Conflict, match="score the file as `freeze` wrote it"):
        opened(changed, Manifest)


def test_a_swapped_model_and_changed_data_and_code_are_refused_each_with_its_own_message() -> None:
    frozen = MadeFrom(model_sha256="m" * 64, data_sha256="d" * 64, code_sha256="c" * 64)
    as_frozen(frozen, frozen)
    told = []
    for field in ("model_sha256", "data_sha256", "code_sha256"):
        with pytest.raises(Conflict, match=field) as refused:
            as_frozen(frozen, frozen.model_copy(update={field: "x" * 64}))
        told.append(refused.value.fix)
    assert 3 == len(set(told))


def test_what_was_not_frozen_is_not_asked_for() -> None:
    as_frozen(MadeFrom(), MadeFrom(model_sha256="m" * 64))


def test_outcomes_other_than_those_scored_before_are_refused() -> None:
    same_outcomes([], "a")
    same_outcomes(["a", "a"], "a")
    with pytest.raises(Conflict, match="scored against other outcomes"):
        same_outcomes(["a"], "b")


# What may be frozen.


@pytest.mark.parametrize(
    ("kinds", "told"),
    [
        ({}, "nothing is forecast"),
        ({"numbers": [number("a", 1.0), number("a", 2.0)]}, "'a' is given twice"),
        ({"numbers": [number("a", 1.0)], "contrasts": [Contrast(id="a", predicted=0.1)]}, "'a' is given twice"),
        ({"gains": [Gain(id="g", low=2, low_calls=["x"], high=1, high_calls=["x"])]}, "call 'x', which is not forecast"),
        ({"numbers": [number("a", 1.0)], "attempts": {"b": ("t", "service")}}, "no number"),
    ],
)
def test_a_manifest_that_makes_no_sense_is_refused(kinds: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        manifest(**kinds)


def test_an_error_that_would_divide_by_a_prediction_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="predict more than 0"):
        number("a", 0.0, error=PREDICTED)


def test_a_call_declares_exactly_one_test() -> None:
    for values in ({}, {"bound": 1.0, "test": "x"}):
        with pytest.raises(ValidationError, match="one of bound, window"):
            Call.model_validate({"id": "c", "predicted": True, **values})


# Numbers, under both definitions.


@pytest.mark.parametrize(
    ("predicted", "actual", "to_actual", "to_predicted"),
    [
        (0.5808, 0.5880, -0.01224, 0.01240),  # completion rate without the tier, workflows/s
        (9.66, 9.66, 0.0, 0.0),
        (84.0, 100.0, -0.16, 0.19048),  # the in-sample P99 that stayed 16.0 % too low
        (1.0, 2.0, -0.5, 1.0),
        (2.0, 1.0, 1.0, 0.5),
    ],
)
def test_both_errors_are_known_by_name(predicted: float, actual: float, to_actual: float, to_predicted: float) -> None:
    assert to_actual == pytest.approx(error_of(ErrorName("relative_to_actual"), predicted, actual), abs=1e-5)
    assert to_predicted == pytest.approx(error_of(ErrorName("relative_to_predicted"), predicted, actual), abs=1e-5)


def test_an_error_that_would_divide_by_nothing_is_none_and_counts_as_a_miss() -> None:
    assert None is error_of(ACTUAL, 1.0, 0.0)
    [only] = scored({"numbers": {"a": 0.0}}, numbers=[number("a", 1.0)]).numbers
    assert (False, "relative_to_actual is undefined at 0") == (only.hit, only.note)


@pytest.mark.parametrize(
    ("predicted", "actual", "verdicts"),
    [
        (111.0, 100.0, (True, True)),  # 11.0 %, the largest P99 error at common load
        (103.1, 100.0, (True, True)),  # 3.1 %, the largest P50 error
        (84.0, 100.0, (False, False)),  # completion underpredicted by 16 %
        (83.0, 100.0, (False, False)),  # and by 17 %
        (86.0, 100.0, (True, False)),  # -14.0 % of the actual value is 16.3 % of the predicted one
        (116.0, 100.0, (False, True)),  # +16.0 % of the actual value is 13.8 % of the predicted one
        (115.0, 100.0, (True, True)),  # at the edge
    ],
)
def test_the_15_percent_verdict_depends_on_the_error_that_was_declared(
    predicted: float, actual: float, verdicts: tuple[bool, bool]
) -> None:
    report = scored(
        {"numbers": {"by actual": actual, "by predicted": actual}},
        numbers=[number("by actual", predicted), number("by predicted", predicted, error=PREDICTED)],
    )
    hits = {one.id: one.hit for one in report.numbers}
    assert verdicts == (hits["by actual"], hits["by predicted"])


# Contrasts, gains, gates.


def test_three_contrasts_had_the_wrong_sign_though_each_number_was_near() -> None:
    told = {"chain P99 703": (-0.0358, 0.1096), "mixed P50 702": (-0.0012, 0.0167), "mixed P99 703": (-0.0097, 0.0232)}
    right = {"fork P99 702": (0.17, 0.175), "burst P99 703": (-0.38, -0.405)}
    report = scored(
        {"contrasts": {name: actual for name, (_, actual) in {**told, **right}.items()}},
        contrasts=[Contrast(id=name, predicted=predicted) for name, (predicted, _) in {**right, **told}.items()],
    )
    assert ["chain P99 703", "mixed P99 703", "mixed P50 702"] == [one.id for one in report.contrasts if one.hit is False]
    assert report.contrasts[0].note == "sign reversed: predicted -3.58%, measured +10.96%"
    assert {"hits": 2, "misses": 3, "missing": 0} == report.counts()["contrasts"]


LOADS = {"chain": (1.258, 1.125), "fork": (0.629, 0.532), "mixed": (0.769, 0.582), "burst": (0.727, 0.492)}


def gains(low: tuple[bool, bool], high: tuple[bool, bool], workload: str) -> Report:
    """A gain whose ends ran on two seeds each; calls were frozen as pass below and fail above."""
    names = [f"{end} {seed}" for end in ("low", "high") for seed in (712, 713)]
    better, other = LOADS[workload]
    return scored(
        {"calls": dict(zip(names, [*low, *high], strict=True))},
        calls=[Call(id=name, predicted=name.startswith("low"), test="finite window") for name in names],
        gains=[Gain(id=workload, low=better, low_calls=names[:2], high=other, high_calls=names[2:])],
    )


@pytest.mark.parametrize(("workload", "told"), [("chain", "at least 11.8%"), ("fork", "at least 18.2%")])
def test_a_gain_is_the_lower_end_over_the_other_upper_end(workload: str, told: str) -> None:
    [gain] = gains((True, True), (False, False), workload).gains
    assert (told, True) == (gain.note, gain.hit)


@pytest.mark.parametrize(
    ("low", "high", "why"),
    [
        ((True, False), (False, False), "the lower end did not pass on every run"),
        ((True, True), (True, False), "the upper end did not fail on every run"),
    ],
)
@pytest.mark.parametrize("workload", ["mixed", "burst"])
def test_a_gain_that_one_seed_does_not_confirm_is_not_established(
    workload: str, low: tuple[bool, bool], high: tuple[bool, bool], why: str
) -> None:
    [gain] = gains(low, high, workload).gains
    assert (None, False, f"not established: {why}") == (gain.actual, gain.hit, gain.note)


def test_calls_are_counted_apart_from_gains() -> None:
    report = gains((True, False), (False, False), "mixed")
    assert {"hits": 3, "misses": 1, "missing": 0} == report.counts()["calls"]
    assert "called pass, it was fail" == report.calls[0].note


def test_the_isolated_store_gate_passes_at_the_ratio_of_its_times() -> None:
    [gate] = scored({"calls": {"op gate": (74.1, 119.7)}}, calls=[Call(id="op gate", predicted=True, bound=0.95)]).calls
    assert (True, True, "called pass, it was pass: 0.619, bound 0.95") == (gate.hit, gate.actual, gate.note)


def test_the_overpredicted_benefit_of_the_cheaper_store_has_the_right_sign_and_the_wrong_size() -> None:
    report = scored(
        {"contrasts": {"store": -0.031}, "numbers": {"gain": 0.031}},
        contrasts=[Contrast(id="store", predicted=-0.11)],
        numbers=[number("gain", 0.11, error=PREDICTED)],
    )
    assert (True, False) == (report.contrasts[0].hit, report.numbers[0].hit)


@pytest.mark.parametrize(
    ("call", "outcome", "told"),
    [
        ({"bound": 0.95}, True, "give a value or a pair"),
        ({"test": "x"}, 0.5, "give true or false"),
        ({"bound": 0.95}, (1.0, 0.0), "second value is not 0"),
        ({"window": {"window_s": 100.0, "objectives_s": {"chain": 30.0}}}, 0.5, "give units of the run"),
        (
            {"window": {"window_s": 100.0, "objectives_s": {"chain": 30.0}}},
            [{"kind": "fork", "released_s": 1.0}],
            "no objective was declared",
        ),
    ],
)
def test_an_outcome_of_another_kind_than_its_test_is_refused(call: dict[str, Any], outcome: Any, told: str) -> None:
    with pytest.raises(BadField, match=told):
        scored({"calls": {"c": outcome}}, calls=[{"id": "c", "predicted": True, **call}])


def test_a_finite_run_is_judged_by_the_window_that_was_declared() -> None:
    window = {"window_s": 1800.0, "objectives_s": {"chain": 30.0}}
    units = [{"kind": "chain", "released_s": 3.0 * k, "finished_s": 3.0 * k + 8.0} for k in range(600)]
    slow = [{**unit, "finished_s": unit["released_s"] + 31.0} for unit in units]
    calls = [{"id": name, "predicted": True, "window": window} for name in ("kept up", "too slow", "too short")]
    report = scored({"calls": {"kept up": units, "too slow": slow}}, calls=calls)
    assert {"kept up": True, "too slow": False, "too short": None} == {one.id: one.hit for one in report.calls}
    assert "called pass, it was fail: chain: 0.0% met their objective" == report.calls[0].note


# The report.


def test_misses_come_first_the_worst_of_them_before_all_then_what_is_missing() -> None:
    report = scored(
        {"numbers": {"near": 1.0, "off": 2.0, "far": 5.0}},
        numbers=[number("near", 1.01), number("off", 1.0), number("far", 1.0), number("gone", 1.0)],
    )
    assert ["far", "off", "gone", "near"] == [one.id for one in report.numbers]
    assert ("far", {"hits": 1, "misses": 2, "missing": 1}) == (report.worst, report.counts()["numbers"])


def test_wins_ties_and_losses_are_counted_against_the_reference_and_intervals_made_by_run() -> None:
    numbers = [number(f"n{k}", 10.0, reference=12.0, run=f"r{k // 5}", information="graph known") for k in range(30)]
    report = scored({"numbers": {f"n{k}": 10.5 if k < 24 else 11.5 for k in range(30)}}, numbers=numbers)
    assert report.against is not None
    assert (24, 0, 6, 6) == (report.against.wins, report.against.ties, report.against.losses, report.against.runs)
    assert report.against.difference is not None
    assert report.against.difference.low < report.against.difference.estimate < report.against.difference.high
    assert {"graph known": 30} == report.information


def test_quantiles_that_were_frozen_with_a_number_are_counted_by_level() -> None:
    numbers = [number(f"n{k}", 10.0, levels=[0.5, 0.9], quantiles=[10.0, 13.0]) for k in range(10)]
    report = scored({"numbers": {f"n{k}": 5.0 + k for k in range(10)}}, numbers=numbers)
    assert [(0.5, 0.4), (0.9, 0.1)] == [(one.level, one.share.estimate) for one in report.passed]


def test_an_outcome_of_what_was_never_forecast_is_refused() -> None:
    with pytest.raises(BadField, match="not among the frozen forecasts"):
        scored({"numbers": {"b": 1.0}}, numbers=[number("a", 1.0)])


def test_outcomes_hold_no_infinite_value() -> None:
    with pytest.raises(ValidationError):
        Outcomes.model_validate_json(orjson.dumps({"numbers": {"a": "Infinity"}}))
