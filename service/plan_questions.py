"""Composite questions as they are computed: contexts resolved, ages known, and enough of them kept to be asked again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import orjson
from pydantic import TypeAdapter

from predictors.contexts import REMEMBERED, Context
from predictors.plans.forecast_need import Forecast
from predictors.plans.graph import StageKind
from predictors.plans.turn import AS_SAID, Turn
from telemetry.ledger import PlanAnswer


class PlannedStage(NamedTuple):
    """A stage as asked: a wait of known length, or a phase of a context with what was observed of it.

    It is tried again up to `retries` times after failures, each time retry_wait_s later. Stages of one `channel` share its state.
    """

    name: str
    kind: StageKind
    after: tuple[str, ...] = ()
    planned_s: float | None = None
    context: Context | None = None
    phase: str = ""
    attempt: str = ""
    elapsed_s: float | None = None
    took_s: float | None = None
    retries: int = 0
    retry_wait_s: float = 0.0
    channel: str = ""


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

    `calibration_se` counts from below, where they said too much, `above_se` from above; None: the same. `turn` is what chances
    are turned by first.
    """

    request_id: str
    answer_ids: tuple[str, ...]
    made_ns: int
    seed: int
    calibration_se: float
    cvar_level: float | None = None
    above_se: float | None = None
    turn: Turn = AS_SAID


CompositeQuestion = ChanceQuestion | LatestStartQuestion
NOT_GIVEN = (None, "", ())
_READ: dict[str, TypeAdapter[CompositeQuestion]] = {
    "chance": TypeAdapter(ChanceQuestion),
    "latest_start": TypeAdapter(LatestStartQuestion),
}


def kept(question: CompositeQuestion, occasion: Occasion) -> str:
    """The question as JSON for the ledger; running attempts stand there with the context and age they were found with."""
    asked = _given(question)
    for name in ("stages", "predecessors"):
        if name in asked:
            asked[name] = [_stage_given(stage) for stage in asked[name]]
    if "load" in asked:
        asked["load"] = _stage_given(asked["load"])
    asked |= {"seed": occasion.seed, "cvar_level": occasion.cvar_level, "above_se": occasion.above_se}
    asked |= {} if occasion.turn == AS_SAID else {"turn": [*occasion.turn]}
    return orjson.dumps(asked, default=_given, option=orjson.OPT_PASSTHROUGH_DATACLASS).decode()


def _given(item: Any) -> dict[str, Any]:
    """Fields of a dataclass that were given."""
    return {name: value for name in type(item).__slots__ if (value := getattr(item, name)) not in NOT_GIVEN}


def _stage_given(stage: PlannedStage) -> dict[str, Any]:
    """Fields of a stage that may have been given; its context is JSON already."""
    if stage.context is None:
        return {"name": stage.name, "kind": stage.kind, "after": stage.after, "planned_s": stage.planned_s}
    given: dict[str, Any] = {
        "name": stage.name,
        "kind": stage.kind,
        "after": stage.after,
        "context": _context_json(stage.context),
    }
    given |= {"phase": stage.phase, "attempt": stage.attempt}
    if stage.elapsed_s is not None:
        given["elapsed_s"] = stage.elapsed_s
    if stage.took_s is not None:
        given["took_s"] = stage.took_s
    if stage.retries:
        given |= {"retries": stage.retries, "retry_wait_s": stage.retry_wait_s}
    if stage.channel:
        given["channel"] = stage.channel
    return given


@lru_cache(maxsize=REMEMBERED)
def _context_json(context: Context) -> orjson.Fragment:
    return orjson.Fragment(orjson.dumps(context.known()))


def asked_again(row: PlanAnswer) -> tuple[CompositeQuestion, Occasion]:
    """The question and occasion of a ledger row: with the same model they give the same answer, to the byte."""
    told, turn = orjson.loads(row.asked), turn_of(row)
    ids, cvar_level, above_se = (row.answer_id,), told["cvar_level"], told.get("above_se")
    occasion = Occasion(row.request_id, ids, row.made_ns, told["seed"], row.calibration_se, cvar_level, above_se, turn)
    return _READ[row.question].validate_json(row.asked), occasion


def turn_of(row: PlanAnswer) -> Turn:
    """What the chance of a ledger row was turned by."""
    return Turn(*orjson.loads(row.asked).get("turn", AS_SAID))
