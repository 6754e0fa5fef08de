"""Populations sealed before tuning: what they hold, which part may be looked at when, and that the locked part is opened once.

Development is for correctness, validation for choosing, and the locked test for one look with code and model frozen. Whoever has
looked can't look again with anything changed: a better result would then be a result of having looked.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field, model_validator

from calibrate.evidence.forecasts import Finite, Manifest, Name, Part, digest
from telemetry.errors import BadField, Conflict
from telemetry.verdicts import Opening

FORMAT: Literal["phasecast-population-1"] = "phasecast-population-1"
ALREADY_OPENED = "already_opened"
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class PartName(StrEnum):
    """The parts of a population."""

    DEVELOPMENT = "development"
    VALIDATION = "validation"
    LOCKED_TEST = "locked_test"


class Generator(Part):
    """What made the data: a program with its version, or a source with the version that was taken."""

    name: Name
    version: Name


class PartFile(Part):
    """One part: the hash of its data, the families or configurations it holds, and the seeds it was made with."""

    sha256: Sha256
    families: Annotated[list[Name], Field(min_length=1)]
    seeds: list[int] = Field(default_factory=list)


class Population(Part):
    """What is sealed. `ranges` are the parameters varied: bounds, or the values taken."""

    format: Literal["phasecast-population-1"] = FORMAT
    name: Name
    frozen_ns: Annotated[int, Field(ge=0)]
    generator: Generator
    ranges: dict[Name, tuple[Finite, Finite] | list[Name]]
    parts: dict[PartName, PartFile]

    @model_validator(mode="after")
    def _parts_are_apart(self) -> Population:
        if missing := set(PartName) - self.parts.keys():
            raise ValueError(f"part {min(missing)} is missing: development, validation and locked_test are sealed together")
        for field, values in (
            ("sha256", [[part.sha256] for part in self.parts.values()]),
            ("seed", [part.seeds for part in self.parts.values()]),
        ):
            every = [one for found in values for one in found]
            if len(every) != len(set(every)):
                raise ValueError(f"two parts share a {field}: what was developed on is no test")
        return self


def held(population: Population, part: PartName, data: bytes) -> None:
    """Refuse data that are not those sealed. Raises Conflict."""
    is_sha256, was = digest(data), population.parts[part].sha256
    if is_sha256 != was:
        fix = "the file was changed after the population was sealed; restore it"
        raise Conflict(part.value, f"SHA-256 {is_sha256[:16]}..., sealed was {was[:16]}...", fix)


def may_open(part: PartName, manifest: Manifest, wanted: Opening, before: Iterable[Opening]) -> Opening | None:
    """The opening that stands already, if it is of this very code, model and forecasts; None where this is the first.

    Parts other than the locked test may be looked at as often as wanted. Raises BadField for forecasts without frozen code and
    model, Conflict with ALREADY_OPENED where anything changed since the part was opened.
    """
    if part is not PartName.LOCKED_TEST:
        return next((one for one in before if one.opening_id == wanted.opening_id), None)
    made_from = manifest.made_from
    for field in ("code_sha256", "model_sha256"):
        if not getattr(made_from, field):
            raise BadField(
                f"made_from.{field}", "empty", "the locked part opens for frozen code and model only: freeze with both"
            )
    for one in before:
        if (one.forecast_id, one.part) == (wanted.forecast_id, wanted.part):
            if one.opening_id == wanted.opening_id:
                return one
            fix = "its outcomes are known now: keep this result, and seal a fresh population for what was changed"
            raise Conflict("part", f"{ALREADY_OPENED}: {part} of {one.forecast_id}, by {one.scored_id}", fix)
    return None


def opening_id(forecast_id: str, part: str, scored_id: str, outcomes: str, model: str, code: str) -> str:
    """Identity of one look: the same forecasts, outcomes, model and code are the same look."""
    return digest(f"{forecast_id}\n{part}\n{scored_id}\n{outcomes}\n{model}\n{code}".encode())[:16]
