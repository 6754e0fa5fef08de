"""Forecast records of a load's need: their wire models, and whether they still stand. Pydantic only, shared with the client.

A record is refused, with the reason, that has expired, was cancelled, is of another generation or version of its workflow's
graph, or is of another model or mode than the load. How workflows stand now is told beside the records: nothing is looked up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from pydantic import Field, model_validator

from service.schemas import Level, Name, Wire
from telemetry.errors import BadField

Finite = Annotated[float, Field(ge=-1e12, le=1e12)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
WEIGHT_TIE = 1e-9


class ForecastIn(Wire):
    """What the owner of a workflow foresees of its need of the load, and until when that may be believed.

    Exactly one of `release_s`, `samples_s`, and `levels` with `values_s` tells when. A release that was submitted is known: it
    has neither weight nor doubt.
    """

    workflow_id: Name
    owner: Name
    graph_version: Name
    generation: Count
    invalidation_id: Annotated[Name, Field(description="Under which the owner cancels it; keys its draws.")]
    model: Annotated[Name | None, Field(description="Model that is needed: the load must be of it.")] = None
    modes: Annotated[tuple[Name, ...], Field(max_length=64, description="Modes permitted; any if none is named.")] = ()
    expires_ns: Annotated[Count, Field(description="When it stops being good, UTC in ns.")]
    confidence: Annotated[
        float, Field(gt=0, le=1, description="Probability that the record is right; if it is not, the load counts as late.")
    ] = 1.0
    weight: Annotated[
        float | None,
        Field(
            gt=0,
            le=1,
            description="Probability of this branch of its workflow, one of which is taken at most; else it is sure.",
        ),
    ] = None
    count: Annotated[int, Field(ge=1, le=1_000_000, description="Arrivals (count); the load is needed by the first.")] = 1
    release_s: Annotated[Finite | None, Field(description="A release known to come, s from now.")] = None
    samples_s: Annotated[tuple[Finite, ...], Field(max_length=10_000, description="Draws of the need, s from now.")] = ()
    levels: Annotated[tuple[Level, ...], Field(max_length=200)] = ()
    values_s: Annotated[tuple[Finite, ...], Field(max_length=200, description="Quantiles at `levels`, s from now.")] = ()

    @model_validator(mode="after")
    def _one_time(self) -> ForecastIn:
        if len(self.levels) != len(self.values_s):
            raise ValueError("levels and values_s go together, one value per level")
        if sum([self.release_s is not None, bool(self.samples_s), bool(self.levels)]) != 1:
            raise ValueError("give exactly one of release_s, samples_s, and levels with values_s")
        if self.release_s is not None and (self.weight is not None or self.confidence < 1.0):
            raise ValueError("a submitted release is known: leave out weight and confidence, or give samples_s or levels")
        return self


class WorkflowNowIn(Wire):
    """How a workflow stands at the moment of asking; records cancelled by their `invalidation_id`."""

    workflow_id: Name
    graph_version: Name
    generation: Count
    cancelled: Annotated[tuple[Name, ...], Field(max_length=10_000)] = ()


def ill_matched(records: Sequence[ForecastIn], workflows: Sequence[WorkflowNowIn]) -> str | None:
    """What is wrong with records and workflows together, None where nothing is."""
    known = [workflow.workflow_id for workflow in workflows]
    if len(set(known)) < len(known):
        return "workflows: tell once how each stands"
    weights = dict.fromkeys(known, 0.0)
    for record in records:
        if record.workflow_id not in weights:
            return f"workflows: tell how {record.workflow_id!r} stands now, since its forecasts are only as good as that"
        weights[record.workflow_id] += record.weight or 0.0
    if over := [name for name, weight in weights.items() if weight > 1.0 + WEIGHT_TIE]:
        return f"weights of the branches of {over[0]!r} add up to more than 1"
    if len({(record.workflow_id, record.invalidation_id) for record in records}) < len(records):
        return "give each record of a workflow an invalidation_id of its own"
    return None


def must_stand(
    records: Sequence[ForecastIn], workflows: Mapping[str, WorkflowNowIn], model: str | None, mode: str | None, now_ns: int
) -> None:
    """BadField names the first record that no longer stands, or is of another model or mode than the load, and why."""
    for i, record in enumerate(records):
        for field, fix in _faults(record, workflows[record.workflow_id], model, mode, now_ns):
            raise BadField(f"need.forecasts.{i}.{field}", str(getattr(record, field)), fix)


def _faults(
    record: ForecastIn, now: WorkflowNowIn, model: str | None, mode: str | None, now_ns: int
) -> Iterator[tuple[str, str]]:
    """Fields of a record that speak against it, and what to do."""
    if record.invalidation_id in now.cancelled:
        yield "invalidation_id", "it was cancelled; leave it out"
    if record.expires_ns <= now_ns:
        yield "expires_ns", f"it has expired, now is {now_ns}; ask its owner for a new one"
    if record.generation != now.generation:
        yield "generation", f"the workflow is in generation {now.generation}; ask its owner for a record of that"
    if record.graph_version != now.graph_version:
        yield "graph_version", f"the workflow's graph is {now.graph_version!r} now; ask its owner for a record of that"
    if record.model not in (None, model):
        yield "model", f"the load is of model {model!r}"
    if record.modes and mode not in record.modes:
        yield "modes", f"the load's mode {mode!r} is not among them"
