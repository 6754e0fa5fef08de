"""Wire models of frozen forecasts and sealed populations. Pydantic only, shared with the client and the command line."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field, model_validator

from calibrate.evidence.forecasts import Call, Contrast, ErrorName, Gain, Number
from calibrate.evidence.populations import Generator, PartName, Sha256
from service.schemas import ContextIn, Level, Name, Wire


class AskedIn(Wire):
    """A number to be forecast by the model that serves: a quantile of a phase's length."""

    id: Name
    phase: Name
    context: ContextIn
    attempt_id: Annotated[
        Name | None, Field(description="Attempt whose outcome it will be, where that is found in the store.")
    ] = None
    level: Annotated[Level, Field(description="Quantile that is the number; 0.5 is the median.")] = 0.5
    error: Annotated[ErrorName, Field(description="Error by which it will be judged.")] = ErrorName.TO_ACTUAL
    tolerance: Annotated[float, Field(gt=0, description="Largest absolute error that counts as a hit, a share.")]
    run: Annotated[Name | None, Field(description="Run it belongs to; intervals are made by run.")] = None
    information: Annotated[Name | None, Field(description="What the predictor was allowed to know.")] = None
    reference: Annotated[float | None, Field(description="What the method it is compared with predicts, s.")] = None


class HashesIn(Wire):
    """SHA-256 of what forecasts of one's own were made from; checked again when they are scored."""

    code_sha256: Sha256 | None = None
    model_sha256: Sha256 | None = None
    data_sha256: Sha256 | None = None


class CohortIn(Wire):
    """A cohort whose outcomes nobody knows yet: numbers to ask the model for, and forecasts of one's own."""

    name: Name
    asked: list[AskedIn] = Field(default_factory=list, max_length=10_000)
    numbers: list[Number] = Field(default_factory=list, max_length=10_000)
    contrasts: list[Contrast] = Field(default_factory=list, max_length=10_000)
    calls: list[Call] = Field(default_factory=list, max_length=10_000)
    gains: list[Gain] = Field(default_factory=list, max_length=1_000)
    hashes: HashesIn = HashesIn()
    population: Annotated[
        Name | None, Field(description="Sealed population (its forecast_id) that the outcomes are a part of.")
    ] = None
    part: PartName | None = None

    @model_validator(mode="after")
    def _whole(self) -> CohortIn:
        if (self.population is None) != (self.part is None):
            raise ValueError("population and part come together")
        if not (self.asked or self.numbers or self.contrasts or self.calls or self.gains):
            raise ValueError("nothing is forecast; give asked, numbers, contrasts, calls or gains")
        if self.asked and self.hashes != HashesIn():
            raise ValueError("hashes are for forecasts of your own; those of the model that is asked are known")
        return self


class PartIn(Wire):
    """A part of a population, by the hash of its data."""

    sha256: Sha256
    families: Annotated[list[Name], Field(min_length=1, max_length=10_000)]
    seeds: list[Annotated[int, Field(ge=-(2**63), lt=2**63)]] = Field(default_factory=list, max_length=10_000)


class PopulationIn(Wire):
    """A population to seal before tuning."""

    name: Name
    generator: Generator
    ranges: Annotated[dict[Name, tuple[float, float] | list[Name]], Field(description="Bounds of parameters, or values taken.")]
    parts: dict[PartName, PartIn]


class FrozenOut(BaseModel):
    """A manifest as it was frozen. `file` is to be kept to the byte."""

    forecast_id: str
    sha256: str
    frozen_ns: int
    file: Annotated[str, Field(description="The sealed manifest as text, with its SHA-256.")]


class ScoreIn(Wire):
    """What to score frozen forecasts with."""

    outcomes: Annotated[
        str | None,
        Field(description="The outcome file as text, to the byte; found in the store by attempt if left out."),
    ] = None
    file: Annotated[str | None, Field(description="The sealed manifest as kept, to be checked against what was frozen.")] = None
    hashes: HashesIn = HashesIn()


class ScoreOut(BaseModel):
    """Scores, kind by kind and misses first. `repeated` says that this very look was taken before."""

    forecast_id: str
    opening_id: str
    part: str
    opened_ns: int
    repeated: bool
    report: dict[str, Any]
