"""Composite questions as they are computed: contexts resolved, ages known, and enough of them kept to be asked again."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import orjson
from pydantic import TypeAdapter

from predictors.contexts import Context
from predictors.plans.forecast_need import Forecast
from predictors.plans.graph import StageKind
from telemetry.ledger import PlanAnswer


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage as asked: a wait of known length, or a phase of a context with what was observed of it."""

    name: str
    kind: StageKind
    after: tuple[str, ...] = ()
    planned_s: float | None = None
    context: Context | None = None
    phase: str = ""
    attempt: str = ""
    elapsed_s: float | None = None
    took_s: float | None = None


@dataclass(frozen=True, slots=True)
class ChanceQuestion:
    """A plan and its deadline in s from now; `key` keys its draws."""

    stages: tuple[PlannedStage, ...]
    deadline_s: float
    level: float
    key: str
    plan_id: str | None = None
    attempt_id: str | None = None


@dataclass(frozen=True, slots=True)
class LatestStartQuestion:
    """A load and when it is needed: draws, quantiles, predecessors (their last end) or forecasts; `key` keys its draws."""

    load: PlannedStage
    delta: float
    key: str
    question_id: str | None = None
    attempt_id: str | None = None
    predecessors: tuple[PlannedStage, ...] = ()
    samples_s: tuple[float, ...] = ()
    levels: tuple[float, ...] = ()
    values_s: tuple[float, ...] = ()
    needed_by: tuple[str, ...] = ()
    forecasts: tuple[Forecast, ...] = ()


@dataclass(frozen=True, slots=True)
class Occasion:
    """What a request adds: identities, time, seed, and how far earlier answers of the kind were off.

    `calibration_se` counts from below, where they said too much, `above_se` from above; None: the same.
    """

    request_id: str
    answer_ids: tuple[str, ...]
    made_ns: int
    seed: int
    calibration_se: float
    cvar_level: float | None = None
    above_se: float | None = None


CompositeQuestion = ChanceQuestion | LatestStartQuestion
_READ: dict[str, TypeAdapter[CompositeQuestion]] = {
    "chance": TypeAdapter(ChanceQuestion),
    "latest_start": TypeAdapter(LatestStartQuestion),
}


def kept(question: CompositeQuestion, occasion: Occasion) -> str:
    """The question as JSON for the ledger; running attempts stand there with the context and age they were found with."""
    asked = _given(question) | {"seed": occasion.seed, "cvar_level": occasion.cvar_level, "above_se": occasion.above_se}
    return orjson.dumps(asked, default=_given, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()


def _given(item: Any) -> dict[str, Any]:
    """Fields of a dataclass that were given."""
    return {f.name: value for f in fields(item) if (value := getattr(item, f.name)) not in (None, "", ())}


def asked_again(row: PlanAnswer) -> tuple[CompositeQuestion, Occasion]:
    """The question and occasion of a ledger row: with the same model they give the same answer, to the byte."""
    told = orjson.loads(row.asked)
    ids, cvar_level, above_se = (row.answer_id,), told["cvar_level"], told.get("above_se")
    occasion = Occasion(row.request_id, ids, row.made_ns, told["seed"], row.calibration_se, cvar_level, above_se)
    return _READ[row.question].validate_json(row.asked), occasion
