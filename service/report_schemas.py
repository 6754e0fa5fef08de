"""Wire models of the reports: whether answers came true, how sharp they were, what they rested on, what changed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from service.host_schemas import ChangesOut
from service.shadow_schemas import ShadowOut

MOST_ANSWERS = 1_000_000


class ReportQuery(BaseModel):
    """Which answers a report is made from."""

    model_config = ConfigDict(extra="forbid")

    newest: Annotated[
        int, Field(ge=1, le=MOST_ANSWERS, description="Look at so many answers, those whose phases began last.")
    ] = 20_000


class QueriesOut(BaseModel):
    """What the figures were computed by: run `setup`, then any of `figures`, in any DuckDB client on a snapshot."""

    setup: list[str]
    figures: dict[str, str]


class PlaceOut(BaseModel):
    """What the answers of a stratum have in common; null means any, an empty text that it was not known."""

    asked: Literal["at_start", "while_running"]
    phase: str | None = None
    host: str | None = None
    device: str | None = None
    family: str | None = None
    mode: str | None = None
    state: str | None = None
    size_class: Annotated[str | None, Field(description="Powers of two between which the input size lies.")] = None
    batch_class: Annotated[str | None, Field(description="Powers of two between which the batch size lies.")] = None
    concurrency: Annotated[str | None, Field(description="Co-runners at the start, in classes.")] = None


class ExceededOut(BaseModel):
    """How often the quantile at `level` was passed, over resolved answers, with the exact 95 % interval."""

    level: float
    nominal: Annotated[float, Field(description="Share promised: 1 - level.")]
    misses: int
    n: Annotated[int, Field(description="Answers (count) of which it is known whether they were passed.")]
    unresolved: Annotated[int, Field(description="Answers (count) whose phase was cut off below the quantile, or runs below it.")]
    share: float
    low: float
    high: float
    always_low: Annotated[float, Field(description="Lower end of the 95 % interval that holds at every look, for ever.")]
    always_high: Annotated[float, Field(description="Its upper end.")]
    weighted: Annotated[float | None, Field(description="Share corrected for the unresolved by weights 1/G.")]
    if_kept: Annotated[float, Field(description="Share if every unresolved answer had kept its quantile.")]
    if_missed: Annotated[float, Field(description="Share if every unresolved answer had missed it.")]
    sure_low: Annotated[float, Field(description="Lower end of the exact interval of if_kept.")]
    sure_high: Annotated[float, Field(description="Upper end of the exact interval of if_missed.")]
    outside: Annotated[bool, Field(description="Whether the promised share lies outside those two, whatever the unresolved did.")]


class CountedOut(BaseModel):
    """Counts of a group of answers: n = completed + censored + failed."""

    n: int
    completed: int
    censored: int
    failed: int
    exceeded: list[ExceededOut]


class StratumOut(PlaceOut, CountedOut):
    """Coverage and score of one stratum."""

    crps_log: Annotated[float | None, Field(description="Mean proper score in log time, nats; lower is better.")]


class PitOut(BaseModel):
    """Where in their distributions completed phases ended: weights of the twentieths of (0, 1), even if answers are true."""

    asked: Literal["at_start", "while_running"]
    phase: str
    n: int
    weights: list[float]


class PartOut(CountedOut):
    """Answers of one stretch of time; a phase's answers are cut into parts of equal counts in order of start."""

    asked: Literal["at_start", "while_running"]
    phase: str
    part: int
    from_ns: Annotated[int, Field(description="Start of the first phase, UTC ns.")]
    to_ns: Annotated[int, Field(description="Start of the last one.")]


class ElapsedOut(CountedOut):
    """Answers given while running, by the share of the usual time that had passed."""

    phase: str
    elapsed_from: Annotated[float, Field(description="Least share of the usual time; the next class begins the next group.")]


class PlansOut(BaseModel):
    """Answers about plans whose probability lay in one class, and what happened."""

    question: str
    answered_from: Annotated[float, Field(description="Least probability of the class, 0 to 1.")]
    n: int
    met: Annotated[int, Field(description="Deadlines or needs (count) that were met.")]
    share: float
    low: Annotated[float, Field(description="Lower end of the exact 95 % interval of the share met.")]
    high: float
    answered: Annotated[float, Field(description="Mean of the probabilities answered.")]
    brier: Annotated[float, Field(description="Mean squared difference of probability and event; lower is better.")]
    held: Annotated[int, Field(description="Answers (count) with the verdict holds or safe.")]
    held_and_met: int


class CoverageOut(BaseModel):
    """Whether answers came true: marginal coverage per stratum over the answers looked at, never per request."""

    as_of_commit: int
    answers: Annotated[
        int, Field(description="Answers (count) looked at: the first of each attempt, phase and kind of question.")
    ]
    levels: list[float]
    worst: Annotated[str | None, Field(description="The stratum whose promise lies farthest outside its interval, in words.")]
    strata: Annotated[list[StratumOut], Field(description="Phase by state and host, worst first.")]
    margins: Annotated[list[StratumOut], Field(description="Phase alone, and by one value at a time, worst first.")]
    pooled: list[StratumOut]
    pit: list[PitOut]
    over_time: list[PartOut]
    elapsed: list[ElapsedOut]
    plans: list[PlansOut]
    queries: QueriesOut


class SharpOut(PlaceOut):
    """Scores, widths and biases of the completed phases of one stratum; scores in log time, nats, lower is better."""

    completed: int
    crps_log: float
    crps_unconditional: Annotated[
        float, Field(description="What the distribution of all such phases would have scored, known only in hindsight.")
    ]
    skill: Annotated[float | None, Field(description="1 - crps_log / crps_unconditional; null where that is 0.")]
    crps_of_nine: Annotated[float | None, Field(description="What the median of the last nine would have scored, where known.")]
    crps_beside_nine: Annotated[float | None, Field(description="crps_log on those same phases.")]
    pinball: Annotated[list[float], Field(description="Mean pinball loss at each of the levels.")]
    width_log: Annotated[float, Field(description="Mean of ln(p90 / p10).")]
    relative_width: Annotated[float | None, Field(description="Over that of all such phases; null where that is 0.")]
    mean_bias: Annotated[float | None, Field(description="Sum of times over sum of means answered, less 1; above 0: too short.")]
    median_bias: Annotated[float, Field(description="Median of time over p50 answered, less 1; above 0: too short.")]


class SharpnessOut(BaseModel):
    """How narrow answers were and how well they scored, beside simple forecasts."""

    as_of_commit: int
    levels: list[float]
    strata: Annotated[list[SharpOut], Field(description="Phase by state and host, least skill first.")]
    margins: list[SharpOut]
    pooled: list[SharpOut]
    queries: QueriesOut


class SupportedOut(PlaceOut):
    """What the answers of one stratum rested on."""

    answers: int
    shadow: int
    extrapolated: int
    thin: int
    calibrated: int
    median_n: Annotated[float, Field(description="Median of the outcomes (count) behind an answer.")]
    median_n_eff: Annotated[float, Field(description="The same, effective after decay.")]
    least_n_eff: float
    median_claimed_to: float


class ReasonOut(BaseModel):
    """How often a reason was given with a status."""

    phase: str
    status: str
    reason: str
    answers: int


class ChangeOut(BaseModel):
    """Drift that was found, or what followed."""

    change_id: str
    kind: str
    subject: str
    action: str
    decided_by: str
    made_ns: int
    reason: str
    evidence: Annotated[str, Field(description="The numbers behind it, as JSON.")]
    undone_ns: int | None
    undone_reason: str | None


class SupportReportOut(BaseModel):
    """What the newest answers rested on, with or without an outcome."""

    as_of_commit: int
    strata: Annotated[list[SupportedOut], Field(description="Phase by state and host, least evidence first.")]
    margins: list[SupportedOut]
    pooled: list[SupportedOut]
    reasons: list[ReasonOut]
    drift: Annotated[
        list[ChangeOut], Field(description="Values never seen and shapes out of range that came more often, and what followed.")
    ]
    queries: QueriesOut


class DriftOut(BaseModel):
    """What changed: drift and reactions, the oldest first, and how the newest profile of a host differs from the one before."""

    as_of_commit: int
    changes: list[ChangeOut]
    profiles: list[ChangesOut]
    queries: QueriesOut


class ReportOut(BaseModel):
    """All reports of one commit."""

    as_of_commit: int
    committed_ns: Annotated[int | None, Field(description="UTC wall time of that commit, ns; null in an empty store.")]
    newest: int
    coverage: CoverageOut
    sharpness: SharpnessOut
    support: SupportReportOut
    drift: DriftOut
    shadow: ShadowOut
