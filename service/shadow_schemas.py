"""Wire models of decisions, of forecasts that others make, and of the scoreboard. Pydantic only, shared with the client."""

from __future__ import annotations

from typing import Annotated, Literal

import orjson
from pydantic import BaseModel, Field, model_validator

from service.schemas import ContextIn, ItemOut, Level, Name, Wire
from telemetry.decisions import Decision

Time = Annotated[float, Field(ge=0, le=1e12)]
Probability = Annotated[float, Field(ge=0, le=1)]


class AlternativeIn(Wire):
    """One feasible alternative of a decision."""

    name: Name
    propensity: Annotated[Probability, Field(description="Probability with which the policy takes it here; they sum to 1.")]
    resource_safe: Annotated[bool | None, Field(description="Whether its memory is known to be safe; null is unmarked.")] = None
    permitted: Annotated[bool, Field(description="Whether the operator permits it.")] = False
    supported: Annotated[bool, Field(description="Whether the mode is supported there.")] = False
    context: ContextIn | None = None
    prediction_id: Annotated[Name | None, Field(description="Answer that was used for it.")] = None
    expected: Annotated[float | None, Field(description="Outcome expected of it, in the unit of the outcomes.")] = None


class DecisionIn(Wire):
    """One choice, with all it could have been."""

    decision_id: Name
    decided_ns: Annotated[int, Field(ge=0, lt=2**63, description="UTC wall time of the choice, ns.")]
    run_id: Annotated[Name | None, Field(description="Run whose decisions move together.")] = None
    policy: Annotated[Name, Field(description="Policy that chose, with its version.")]
    protected: Annotated[bool, Field(description="Work with a protected deadline: never explored with.")] = False
    choice: Annotated[Name, Field(description="Name of the alternative taken.")]
    alternatives: Annotated[list[AlternativeIn], Field(min_length=1, max_length=500)]

    def row(self) -> Decision:
        """The row; its validation holds the choice against the alternatives."""
        likely = {one.name: one.propensity for one in self.alternatives}
        told = [one.model_dump(exclude_none=True) for one in self.alternatives]
        own = self.model_dump(exclude={"alternatives"})
        return Decision(**own, propensity=likely.get(self.choice, 1.0), alternatives=orjson.dumps(told).decode())


class DecisionsRequest(Wire):
    """Decisions to log, in any order; what was sent before changes nothing."""

    decisions: Annotated[list[DecisionIn], Field(min_length=1, max_length=10_000)]


class ShadowForecastIn(Wire):
    """A forecast of the whole length of a phase that has not begun: a point, quantiles at levels, or samples."""

    predictor: Annotated[Name, Field(description="Who forecasts, with the version.")]
    attempt_id: Name
    phase: Name
    point_s: Annotated[Time | None, Field(description="One time, s.")] = None
    levels: Annotated[
        list[Level] | None, Field(min_length=1, max_length=200, description="Levels of quantiles_s, ascending.")
    ] = None
    quantiles_s: Annotated[list[Time] | None, Field(min_length=1, max_length=200, description="Quantiles, s.")] = None
    samples_s: Annotated[list[Time] | None, Field(min_length=1, max_length=1000, description="Draws, s.")] = None

    @model_validator(mode="after")
    def _one_form(self) -> ShadowForecastIn:
        if sum(one is not None for one in (self.point_s, self.quantiles_s, self.samples_s)) != 1:
            raise ValueError("give one of point_s, quantiles_s with levels, or samples_s")
        if (self.levels is None) != (self.quantiles_s is None):
            raise ValueError("levels and quantiles_s come together")
        return self

    def sent(self) -> tuple[Literal["point", "quantiles", "samples"], list[float]]:
        """The form, and its times in s."""
        if self.point_s is not None:
            return "point", [self.point_s]
        return ("quantiles", self.quantiles_s) if self.quantiles_s is not None else ("samples", self.samples_s or [])


class ShadowRequest(Wire):
    """Forecasts of somebody else, to be scored beside the answers. They must come before the answer they are compared with."""

    forecasts: Annotated[list[ShadowForecastIn], Field(min_length=1, max_length=10_000)]


class LoggedOut(BaseModel):
    """Results in the order sent. Everything `new` or `repeat` is on disk."""

    commit: int
    items: list[ItemOut]


class IntervalOut(BaseModel):
    """An estimate with its 95 % interval, from `n` independent units."""

    estimate: float
    low: float
    high: float
    n: int


class PassedOut(BaseModel):
    """How often a predictor's own quantile was passed; 1 - level was promised."""

    level: float
    share: IntervalOut


class StandingOut(BaseModel):
    """One predictor beside the champion, over all phases or on one. Scores are CRPS in log time, nats; lower is better."""

    predictor: str
    phase: str | None
    source: Literal["challenger", "outside"]
    counts: Annotated[dict[str, int], Field(description="Forecasts by what became of them; only `scored` ones are compared.")]
    runs: Annotated[int, Field(description="Independent runs (count) behind the intervals.")]
    champion_crps_log: float
    predictor_crps_log: float
    ratio: Annotated[
        IntervalOut | None, Field(description="Predictor over champion; null below five runs. Above 1 the champion is better.")
    ]
    difference: Annotated[IntervalOut | None, Field(description="Champion less predictor; intervals resample whole runs.")]
    at_any_look_low: Annotated[
        float | None, Field(description="Bound of the difference that holds however often it is looked at.")
    ]
    at_any_look_high: Annotated[float | None, Field(description="The same from above; null while too little is known.")]
    wins: int
    ties: int
    losses: int
    worst_attempt: Annotated[str | None, Field(description="Attempt on which it lost most to the champion.")]
    passed: list[PassedOut]
    action: Annotated[str, Field(description="What the rule of promotion says: promote, hold or retire.")]
    reason: str


class LateOut(BaseModel):
    """A forecast that came too late to be scored."""

    predictor: str
    attempt_id: str
    phase: str
    received_ns: int
    answered_ns: int | None
    why: Literal["late_after_answer", "late_after_event"]


class PromotionOut(BaseModel):
    """A decision on who answers."""

    change_id: str
    subject: str
    action: str
    decided_by: str
    made_ns: int
    reason: str
    undone_ns: int | None
    undone_reason: str | None


class ShadowOut(BaseModel):
    """The scoreboard: every predictor over all phases, then phase by phase; and who was put where."""

    as_of_commit: int
    in_office: Annotated[
        str, Field(description="Who answers, by the decisions that stand: `default`, or who was promoted over it.")
    ]
    in_office_since_ns: Annotated[
        int | None, Field(description="Since when, UTC ns; only forecasts since then are scored. Null where it always was.")
    ]
    standings: list[StandingOut]
    late: Annotated[list[LateOut], Field(description="The newest 100 that came too late.")]
    late_count: int
    promotions: list[PromotionOut]


class ShadowQuery(Wire):
    """How much to score."""

    newest: Annotated[int, Field(ge=1, le=100_000, description="Newest forecasts to score.")] = 20_000


class PromotionIn(Wire):
    """What an operator decides about a predictor, against or with the rule."""

    predictor: Name
    action: Literal["promote", "demote", "hold", "retire"]
    operator: Annotated[Name, Field(description="Who decides.")]
    reason: Annotated[str, Field(min_length=1, max_length=2000, description="Why.")]


class WithdrawalIn(Wire):
    """Why a decision ends."""

    reason: Annotated[str, Field(min_length=1, max_length=2000)]


class OptionIn(Wire):
    """One feasible alternative of a decision on which advice is asked."""

    name: Name
    resource_safe: Annotated[bool | None, Field(description="Whether its memory is known to be safe; null is unmarked.")] = None
    permitted: Annotated[bool, Field(description="Whether the operator permits it.")] = False
    supported: Annotated[bool, Field(description="Whether the mode is supported there.")] = False
    misses: Annotated[
        Probability | None, Field(description="Chance of missing what was promised, from its upper end; null if unknown.")
    ] = None


class AdviceIn(Wire):
    """Ask whether to try another alternative than the ordinary choice, within a budget of missed promises."""

    decision_id: Annotated[Name, Field(description="The decision; it alone decides the draw.")]
    account: Annotated[Name, Field(description="Whose budget is spent, such as planner-1.")]
    share: Annotated[float, Field(gt=0, le=0.1, description="Expected extra misses it may cost, per decision.")] = 0.001
    cap: Annotated[float, Field(gt=0, le=10, description="Most extra misses saved up.")] = 0.05
    most: Annotated[float, Field(gt=0, le=0.5, description="Largest probability of exploring in one decision.")] = 0.05
    protected: Annotated[bool, Field(description="Work with a protected deadline: never explored with.")] = False
    ordinary: Annotated[Name, Field(description="What would be chosen without exploring.")]
    alternatives: Annotated[list[OptionIn], Field(min_length=1, max_length=500)]


class AdviceOut(BaseModel):
    """What to choose, with the propensities to log."""

    choice: str
    propensities: dict[str, float]
    excluded: Annotated[dict[str, str], Field(description="Alternatives that may not be explored, each with the reason.")]
    extra_misses: Annotated[float, Field(description="Expected extra misses that this decision costs.")]
    balance: Annotated[float, Field(description="Extra misses that the account may still cost.")]
    reasons: list[str]


class PolicyQuery(Wire):
    """Another policy to judge by the decisions that were logged: `always` one alternative, or else the one expected first."""

    always: Annotated[
        Name | None, Field(description="Alternative it takes wherever it may; least expected time if left out.")
    ] = None
    phase: Annotated[Name, Field(description="Phase whose length is the outcome.")] = "completion"
    within_s: Annotated[float, Field(gt=0, le=1e12, description="Longer outcomes, and failures, count as this, s.")]
    newest: Annotated[int, Field(ge=1, le=100_000, description="Newest decisions to look at.")] = 20_000


class PolicyOut(BaseModel):
    """Mean outcome in s that a policy would have met, by three estimators with 95 % intervals by run; null where refused."""

    as_of_commit: int
    doubly_robust: IntervalOut | None
    self_normalised: IntervalOut | None
    ips: IntervalOut | None
    logged_mean_s: Annotated[float | None, Field(description="Mean of the outcomes that were seen, as they were logged, s.")]
    refused: Annotated[list[str], Field(description="Why there is no estimate, or no doubly robust one.")]
    decisions: int
    seen: Annotated[int, Field(description="Of those, outcomes (count) that are known; weights stand for the others.")]
    runs: int
    effective: Annotated[float, Field(description="Effective number of decisions, (sum w)^2 / sum w^2.")]
    largest_weight: Annotated[float, Field(description="Largest weight before it was cut.")]
    cut_at: float
    cut: Annotated[float, Field(description="Share of decisions at which the weight was cut.")]
    cut_mass: Annotated[float, Field(description="Share of the weight that was lost by that.")]
    unlogged: Annotated[float, Field(description="Share of the policy's choices that the log never takes.")]
    not_covered: str
