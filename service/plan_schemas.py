"""Wire models of composite questions: chances, latest starts, scenarios. Pydantic only, shared with the client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import BaseModel, Field, model_validator

from service.forecast_needs import ForecastIn, WorkflowNowIn, ill_matched
from service.schemas import ContextIn, Level, Name, Problem, Wire

Seed = Annotated[
    int, Field(ge=0, lt=2**63, description="Decides every draw, together with the ids; the same seed, the same answer.")
]
Finite = Annotated[float, Field(ge=-1e12, le=1e12)]
Length = Annotated[float, Field(ge=0, le=1e12)]
StageWord = Literal["wait", "transfer", "setup", "service", "output"]


class StageIn(Wire):
    """A stage of a plan: a wait of known length, or a phase of an attempt with what was observed of it so far.

    Exactly one of `planned_s`, `context` and `running_attempt_id` is given.
    """

    name: Name
    kind: StageWord
    after: Annotated[tuple[Name, ...], Field(max_length=32, description="Stages that must have ended, earlier in the list.")] = ()
    planned_s: Annotated[Length | None, Field(description="Length of a planned wait, s.")] = None
    context: ContextIn | None = None
    running_attempt_id: Annotated[Name | None, Field(description="This phase of a running attempt, aged by its own events.")] = (
        None
    )
    phase: Annotated[Name | None, Field(description="Phase whose duration it is; the kind's own name if left out.")] = None
    attempt: Annotated[
        Name | None, Field(description="Ties setup and service of one attempt; stages of one attempt share this.")
    ] = None
    elapsed_s: Annotated[Length | None, Field(description="Age of a phase that runs, s.")] = None
    took_s: Annotated[Length | None, Field(description="Length of a phase that has finished, s.")] = None
    told_ago_s: Annotated[
        Length | None,
        Field(
            description="Age of what is told of it, s, as of an offer from elsewhere: by that its wait has shrunk, or its age "
            "grown."
        ),
    ] = None
    retries: Annotated[
        int | None,
        Field(ge=1, le=9, description="Times it is tried again after it fails: it completes more often, and later."),
    ] = None
    retry_wait_s: Annotated[Length | None, Field(description="What passes between a failure and the next try, s.")] = None
    channel: Annotated[
        Name | None,
        Field(
            description="Storage channel or link it loads through: stages that name one share its state as stages on one host "
            "share that of the host, and in its place."
        ),
    ] = None

    @model_validator(mode="after")
    def _one_source(self) -> StageIn:
        if (self.planned_s is None) + (self.context is None) + (self.running_attempt_id is None) != 2:
            given = [n for n in ("planned_s", "context", "running_attempt_id") if getattr(self, n) is not None]
            raise ValueError(
                f"stage {self.name}: give exactly one of planned_s, context and running_attempt_id, not {given or 'none'}"
            )
        if (self.kind == "wait") != (self.planned_s is not None):
            raise ValueError(f"stage {self.name}: a wait has planned_s, any other kind has a context or running_attempt_id")
        if self.context is None and (self.elapsed_s is not None or self.took_s is not None):
            raise ValueError(f"stage {self.name}: elapsed_s and took_s go with context")
        if self.elapsed_s is not None and self.took_s is not None:
            raise ValueError(f"stage {self.name}: give elapsed_s of a phase that runs or took_s of one that has finished")
        if self.told_ago_s is not None and self.planned_s is None and self.elapsed_s is None:
            raise ValueError(f"stage {self.name}: told_ago_s goes with planned_s or elapsed_s")
        if self.retries is not None and (self.planned_s is not None or self.took_s is not None):
            raise ValueError(f"stage {self.name}: a wait never fails, nor does what has finished; leave out retries")
        if self.retry_wait_s is not None and self.retries is None:
            raise ValueError(f"stage {self.name}: retry_wait_s goes with retries")
        if self.channel is not None and self.planned_s is not None:
            raise ValueError(f"stage {self.name}: a wait uses no channel")
        if (self.phase or self.kind) == "setup" and self.context is not None and self.context.state == "resident":
            raise ValueError(f"stage {self.name}: what is resident has no setup; leave the stage out")
        return self


def _in_order(stages: Sequence[StageIn]) -> None:
    """Refuse names that repeat, and predecessors that do not stand earlier; so no stage waits for itself."""
    seen: set[str] = set()
    for stage in stages:
        if missing := [name for name in stage.after if name not in seen]:
            raise ValueError(f"stage {stage.name}: after names {missing[0]!r}, which does not stand before it")
        if stage.name in seen:
            raise ValueError(f"stage {stage.name}: give each stage a name of its own")
        seen.add(stage.name)


class PlanIn(Wire):
    """A plan, complete when all its stages have ended, and its deadline."""

    plan_id: Annotated[
        Name | None,
        Field(
            description="Keys the draws: plans of one id share their world. Those without one are keyed by stages and attempt."
        ),
    ] = None
    stages: Annotated[list[StageIn], Field(min_length=1, max_length=32)]
    deadline_s: Annotated[float, Field(gt=0, le=1e12, description="Deadline, s from now; must lie ahead.")]
    level: Level = 0.95
    attempt_id: Annotated[
        Name | None,
        Field(
            description="The attempt this plan is about, if it will run: its completion is joined, counted from `eligible`, or "
            "from the question where it was eligible before."
        ),
    ] = None

    @model_validator(mode="after")
    def _sensible(self) -> PlanIn:
        _in_order(self.stages)
        if all(stage.kind == "wait" for stage in self.stages):
            raise ValueError("only waits; give at least one stage with a context or running_attempt_id")
        return self


class ChanceRequest(Wire):
    """Ask with what probability each plan completes by its deadline; failure and cancellation are not completion."""

    plans: Annotated[list[PlanIn], Field(min_length=1, max_length=10_000)]
    seed: Seed = 0
    cvar_level: Annotated[Level | None, Field(description="Adds the mean completion time of the worst 1 - level.")] = None


class NeedIn(Wire):
    """When a load is needed: joint samples, quantiles, running predecessors (needed when the last of them ends), or forecasts.

    Of forecasts the earliest need counts, and `workflows` tells how the workflows they are about stand now.
    """

    samples_s: Annotated[list[Finite], Field(min_length=1, max_length=100_000)] | None = None
    levels: Annotated[list[Level], Field(min_length=1, max_length=200)] | None = None
    values_s: Annotated[list[Finite], Field(min_length=1, max_length=200)] | None = None
    predecessors: Annotated[list[StageIn], Field(min_length=1, max_length=31)] | None = None
    forecasts: Annotated[list[ForecastIn], Field(min_length=1, max_length=100)] | None = None
    workflows: Annotated[tuple[WorkflowNowIn, ...], Field(max_length=100)] = ()

    @model_validator(mode="after")
    def _one_form(self) -> NeedIn:
        quantiles = self.levels is not None and self.values_s is not None
        if (self.levels is None) != (self.values_s is None):
            raise ValueError("levels and values_s go together")
        if sum([self.samples_s is not None, quantiles, self.predecessors is not None, self.forecasts is not None]) != 1:
            raise ValueError("give samples_s, or levels with values_s, or predecessors, or forecasts")
        if wrong := ill_matched(self.forecasts or [], self.workflows):
            raise ValueError(wrong)
        return self


class LatestStartIn(Wire):
    """A load and when it is needed."""

    load: StageIn
    need: NeedIn
    delta: Annotated[float, Field(gt=0, lt=1, description="Risk accepted of not being ready by the need.")] = 0.05
    question_id: Annotated[
        Name | None, Field(description="Keys the draws; questions without one are keyed by their stages and need.")
    ] = None
    attempt_id: Annotated[Name | None, Field(description="The load's attempt, if it will run: its readiness is joined.")] = None

    @model_validator(mode="after")
    def _sensible(self) -> LatestStartIn:
        if self.load.kind == "wait" or self.load.after:
            raise ValueError(f"load {self.load.name}: give a setup, or another phase, and nothing before it")
        _in_order([*(self.need.predecessors or ()), self.load])
        return self


class LatestStartRequest(Wire):
    """Ask when each load must start at the latest."""

    questions: Annotated[list[LatestStartIn], Field(min_length=1, max_length=1_000)]
    seed: Seed = 0


class ScenarioAttemptIn(Wire):
    """An attempt to draw: its setup may run (`setup_elapsed_s`) or have finished (`setup_took_s`), and then its service run."""

    attempt: Name
    context: ContextIn
    setup_elapsed_s: Length | None = None
    setup_took_s: Length | None = None
    service_elapsed_s: Length | None = None

    @model_validator(mode="after")
    def _one_setup(self) -> ScenarioAttemptIn:
        if self.context.state == "resident":
            if self.setup_elapsed_s is not None or self.setup_took_s is not None:
                raise ValueError("what is resident has no setup; leave out setup_elapsed_s and setup_took_s")
        elif self.setup_elapsed_s is not None and self.setup_took_s is not None:
            raise ValueError("give setup_elapsed_s of a setup that runs or setup_took_s of one that has finished")
        elif self.service_elapsed_s is not None and self.setup_took_s is None:
            raise ValueError("a service runs after its setup; give setup_took_s beside service_elapsed_s")
        return self


class ScenariosRequest(Wire):
    """Ask for joint draws of remaining setup and service; attempts on one host share its state."""

    attempts: Annotated[list[ScenarioAttemptIn], Field(min_length=1, max_length=1_000)]
    n_scenarios: Annotated[int, Field(ge=1, le=10_000)] = 256
    seed: Seed = 0

    @model_validator(mode="after")
    def _distinct_and_bounded(self) -> ScenariosRequest:
        if len({one.attempt for one in self.attempts}) < len(self.attempts):
            raise ValueError("give each attempt a name of its own: it keys the draws")
        if len(self.attempts) * self.n_scenarios > 1_000_000:
            raise ValueError(
                f"{len(self.attempts)} attempts x {self.n_scenarios} scenarios is more than 1,000,000 draws; ask for fewer"
            )
        return self


class Unanswered(BaseModel):
    """In the place of an answer that could not be given, while others of the request could."""

    problem: Problem
    id: Annotated[str | None, Field(description="The plan_id or question_id of the question.")]
    attempt_id: str | None


class ChanceOut(BaseModel):
    """P(completed by the deadline). Times are from now, given completion."""

    answer_id: str
    plan_id: str | None
    attempt_id: str | None
    deadline_s: float
    level: float
    probability: Annotated[float, Field(description="Turned by how earlier chances came out.")]
    probability_said: Annotated[float, Field(description="What scenarios say, before it is turned.")]
    mc_se: Annotated[float, Field(description="Standard error from drawing.")]
    calibration_se: Annotated[float, Field(description="Standard error from how earlier answers of this kind turned out.")]
    evidence_se: Annotated[float, Field(description="Standard error from how few outcomes the stages were learned from.")]
    lower: Annotated[
        float, Field(description="The less of probability and probability_said, - 1.64 standard errors, all together.")
    ]
    verdict: Literal["holds", "does_not_hold", "cannot_certify"]
    p_complete: float
    completion_levels: list[float]
    completion_s: list[float]
    expected_lateness_s: float
    cvar_s: float | None
    sum_of_p95_s: Annotated[float, Field(description="What adding the stages' own p95 would say; do not plan by it.")]
    n_scenarios: int
    status: Literal["shadow", "extrapolated", "thin", "calibrated"]
    reasons: list[str]
    model_id: str
    as_of_commit: int
    made_ns: int


class ChancesOut(BaseModel):
    """Answers in the order asked."""

    answers: list[ChanceOut | Unanswered]


class LatestStartOut(BaseModel):
    """When a load must start at the latest, s from now; negative has passed. Expectations are about starting then, or now."""

    answer_id: str
    question_id: str | None
    attempt_id: str | None
    delta: float
    verdict: Literal["safe", "cannot_certify", "too_late", "never", "too_few_scenarios"]
    latest_start_s: float | None
    p_on_time: float
    p_on_time_now: float
    expected_late_s: Annotated[float, Field(description="Expected time by which the load comes after the need.")]
    expected_idle_s: Annotated[float, Field(description="Expected time the load is resident before the need.")]
    assumed_independent: bool
    p_at_least: Annotated[float | None, Field(description="Frechet bound: holds under any dependence of need and load.")]
    latest_start_any_s: Annotated[float | None, Field(description="Latest start that is safe under any dependence.")]
    p_complete: float
    n_scenarios: int
    status: Literal["shadow", "extrapolated", "thin", "calibrated"]
    reasons: list[str]
    model_id: str
    as_of_commit: int
    made_ns: int
    p_needed: Annotated[
        float | None, Field(description="Of forecasts: probability that any comes true. All else here is given that one does.")
    ] = None
    p_forecast_right: Annotated[
        float | None,
        Field(description="Of forecasts: probability that those which come true are right; otherwise the load is late."),
    ] = None


class LatestStartsOut(BaseModel):
    """Answers in the order asked."""

    answers: list[LatestStartOut | Unanswered]


class ScenariosOut(BaseModel):
    """Remaining times, s, given completion: one list of n_scenarios draws per attempt, paired by scenario."""

    setup_s: list[list[float]]
    service_s: list[list[float]]
    p_complete: Annotated[list[float], Field(description="Probability that setup and service complete, per attempt.")]
    status: Literal["shadow", "extrapolated", "thin", "calibrated"]
    reasons: list[str]
    model_id: str
    as_of_commit: int
