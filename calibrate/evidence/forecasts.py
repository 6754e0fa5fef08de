"""Forecasts frozen before their outcomes exist, and scored against them: numbers, directions and pass/fail calls apart.

A manifest is JSON written in one way only, so that its SHA-256 vouches for every byte. It declares the error by which each number
is judged, since the two definitions in use disagree:

    relative_to_actual       (predicted - actual) / actual          signed
    relative_to_predicted    |actual - predicted| / predicted

A contrast is judged by its sign alone, a call by whether it came true, and a gain is claimed only where every run at the lower
load passes and every one at the higher load fails. Nothing is averaged over the kinds, and what went wrong comes first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, model_validator

from telemetry.errors import Conflict

FORMAT: Literal["phasecast-forecast-1"] = "phasecast-forecast-1"
Name = Annotated[str, Field(min_length=1, max_length=200)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


M = TypeVar("M", bound=BaseModel)


class ErrorName(StrEnum):
    """How far off a number is."""

    TO_ACTUAL = "relative_to_actual"
    TO_PREDICTED = "relative_to_predicted"


class Part(BaseModel):
    """Base of what a manifest declares: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Number(Part):
    """One predicted number with its tolerance; `reference` is what the method it is compared with predicts.

    `quantiles` at `levels` may say more than the number does. `information` names what the predictor was allowed to know.
    """

    id: Name
    predicted: Finite
    unit: Name
    error: ErrorName
    tolerance: Annotated[float, Field(gt=0)]
    run: Name | None = None
    information: Name | None = None
    reference: Finite | None = None
    levels: list[Annotated[float, Field(gt=0, lt=1)]] = []
    quantiles: list[Finite] = []

    @model_validator(mode="after")
    def _can_be_judged(self) -> Number:
        if self.error is ErrorName.TO_PREDICTED and self.predicted <= 0.0:
            raise ValueError(f"{self.error} divides by what is predicted: predict more than 0, or name {ErrorName.TO_ACTUAL}")
        if len(self.levels) != len(self.quantiles) or self.levels != sorted(self.levels):
            raise ValueError("give one quantile per level, levels ascending")
        return self


class Contrast(Part):
    """A predicted change of one number against another, as a share: -0.036 is 3.6 % less."""

    id: Name
    predicted: Finite


class Window(Part):
    """A finite run to be judged by `window_judge`: its length, burst cycle, and the objective of each class, s."""

    window_s: Annotated[float, Field(gt=0)]
    cycle_s: Annotated[float, Field(gt=0)] | None = None
    objectives_s: Annotated[dict[Name, Annotated[float, Field(gt=0)]], Field(min_length=1)]


class Call(Part):
    """A predicted verdict.

    With `bound`, whether a measured value is at most that; with `window`, whether a finite run passes; with neither, whatever the
    declared test `test` says.
    """

    id: Name
    predicted: bool
    bound: Finite | None = None
    window: Window | None = None
    test: Name | None = None

    @model_validator(mode="after")
    def _one_test(self) -> Call:
        if sum(one is not None for one in (self.bound, self.window, self.test)) != 1:
            raise ValueError("give one of bound, window, or the name of another test that was declared")
        return self


class Gain(Part):
    """A gain in load: the lower end of the better one over the upper end of the other, each with the calls that stand for it."""

    id: Name
    low: Annotated[float, Field(gt=0)]
    low_calls: Annotated[list[Name], Field(min_length=1)]
    high: Annotated[float, Field(gt=0)]
    high_calls: Annotated[list[Name], Field(min_length=1)]

    @property
    def gain(self) -> float:
        """What is claimed, as a share."""
        return self.low / self.high - 1.0


class MadeFrom(Part):
    """Hashes of what the forecasts were made from; empty where there was none. A part of a population is named by its id."""

    code_sha256: str = ""
    model_sha256: str = ""
    data_sha256: str = ""
    model_id: str | None = None
    as_of_commit: int | None = None
    population: str | None = None
    part: str | None = None


class Manifest(Part):
    """What is frozen. Ids are given once over all kinds."""

    format: Literal["phasecast-forecast-1"] = FORMAT
    name: Name
    frozen_ns: Annotated[int, Field(ge=0)]
    made_from: MadeFrom = MadeFrom()
    numbers: list[Number] = []
    contrasts: list[Contrast] = []
    calls: list[Call] = []
    gains: list[Gain] = []
    attempts: dict[Name, tuple[Name, Name]] = {}
    """Attempt and phase of a number, by its id, where outcomes are found in the store."""

    @model_validator(mode="after")
    def _ids_make_sense(self) -> Manifest:
        ids = [one.id for kind in (self.numbers, self.contrasts, self.calls, self.gains) for one in kind]
        if not ids:
            raise ValueError("nothing is forecast; give numbers, contrasts, calls or gains")
        if twice := {name for name in ids if ids.count(name) > 1} if len(ids) != len(set(ids)) else set():
            raise ValueError(f"id {min(twice)!r} is given twice")
        calls = {call.id for call in self.calls}
        for gain in self.gains:
            if unknown := {*gain.low_calls, *gain.high_calls} - calls:
                raise ValueError(f"gain {gain.id!r} rests on call {min(unknown)!r}, which is not forecast")
        if unknown := self.attempts.keys() - {number.id for number in self.numbers}:
            raise ValueError(f"attempt of {min(unknown)!r}, which is no number that is forecast")
        return self


class Unit(Part):
    """One unit of work of a finite run; times in s from the start of the window, `finished_s` null where it never finished."""

    kind: Name
    released_s: Annotated[float, Field(ge=0)]
    finished_s: Finite | None = None
    failed: bool = False


class Outcomes(Part):
    """What was measured, by id. For a call: a verdict, a value to hold against its bound, a pair to divide, or a run's units."""

    numbers: dict[Name, Finite] = {}
    contrasts: dict[Name, Finite] = {}
    calls: dict[Name, bool | Finite | tuple[Finite, Finite] | list[Unit]] = {}


def digest(content: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(content).hexdigest()


def written(manifest: BaseModel) -> bytes:
    """The one way in which a manifest is written as bytes."""
    return orjson.dumps(manifest.model_dump(mode="json"), option=orjson.OPT_SORT_KEYS)


def sealed(manifest: BaseModel) -> bytes:
    """The file of a manifest: it, and its SHA-256, in the one way in which they are written."""
    body = written(manifest)
    return b'{"manifest":' + body + b',"sha256":"' + digest(body).encode() + b'"}\n'


def opened(content: bytes, kind: type[M]) -> tuple[M, str]:
    """The manifest of this kind in a file, and its SHA-256. Raises Conflict where a single byte is not as it was sealed."""
    fix = "it was edited after it was frozen; score the file as `freeze` wrote it"
    try:
        found = orjson.loads(content)
        body, told = found["manifest"], str(found["sha256"])
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise Conflict("manifest", "no sealed manifest", fix) from error
    is_sha256 = digest(orjson.dumps(body, option=orjson.OPT_SORT_KEYS))
    if is_sha256 != told:
        raise Conflict("manifest", f"SHA-256 {is_sha256[:16]}..., where the file says {told[:16]}...", fix)
    manifest = kind.model_validate(body)
    if sealed(manifest) != content:
        raise Conflict("manifest", "bytes that are not as they were written", fix)
    return manifest, told


def as_frozen(made_from: MadeFrom, now: MadeFrom) -> None:
    """Refuse to score with a model, data or code that are not those frozen. Raises Conflict, each with its own message."""
    for field, fix in (
        ("model_sha256", "the model is not the one that forecast; restore it, or freeze anew for outcomes that nobody knows yet"),
        ("data_sha256", "the data are not those the forecasts were made from; restore them, or freeze anew"),
        ("code_sha256", "the program is not the one that forecast; score with that version, or freeze anew"),
    ):
        was, is_now = getattr(made_from, field), getattr(now, field)
        if was and is_now != was:
            raise Conflict(field, f"{is_now[:16] or 'nothing'}, frozen was {was[:16]}", fix)


def same_outcomes(before: Sequence[str], sha256: str) -> None:
    """Refuse outcomes other than those scored before. Raises Conflict."""
    if other := [was for was in before if was != sha256]:
        fix = "these forecasts were scored against other outcomes; the first file stands, a new one needs new forecasts"
        raise Conflict("outcomes", f"SHA-256 {sha256[:16]}..., scored was {other[0][:16]}...", fix)


def error_of(name: ErrorName, predicted: float, actual: float) -> float | None:
    """How far off a number is; None where that would be divided by nothing."""
    if name is ErrorName.TO_ACTUAL:
        return (predicted - actual) / actual if actual != 0.0 else None
    return abs(actual - predicted) / predicted if predicted > 0.0 else None
