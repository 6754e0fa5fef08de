"""Wire models: what the API takes and gives. Pydantic only, shared with the client."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from telemetry.tables import Attempt, Event

Name = Annotated[str, Field(min_length=1, max_length=200)]
Level = Annotated[float, Field(gt=0, lt=1)]
Levels = Annotated[list[Level], Field(min_length=1, max_length=200)]
DEFAULT_LEVELS = [0.5, 0.9, 0.95, 0.99]


class Wire(BaseModel):
    """Base of requests: unknown fields and non-finite numbers are refused."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True)


class ContextIn(Wire):
    """What is known about an attempt before a phase starts; leave out what is unknown."""

    host: Name | None = None
    device: Name | None = None
    family: Name | None = None
    model: Name | None = None
    runtime: Name | None = None
    precision: Name | None = None
    mode: Name | None = None
    state: Name | None = None
    batch: Annotated[float, Field(gt=0)] | None = None
    size_in: Annotated[float, Field(ge=0)] | None = None
    corunners: Annotated[float, Field(ge=0)] | None = None


class PredictRequest(Wire):
    """Ask how long each phase of each context will take; answers come context by context, phase by phase."""

    contexts: Annotated[list[ContextIn], Field(min_length=1, max_length=10_000)]
    phases: Annotated[list[Name], Field(min_length=1, max_length=50)]
    levels: Levels = DEFAULT_LEVELS
    horizon_s: Annotated[
        float | None, Field(gt=0, le=1e12, description="Time in s by which the chance of each cause of ending is wanted.")
    ] = None
    attempt_ids: Annotated[
        list[Name] | None,
        Field(description="One per context, if these attempts will run: their outcomes are then joined to the answers."),
    ] = None

    @field_validator("attempt_ids")
    @classmethod
    def _one_id_each(cls, ids: list[str] | None, info: ValidationInfo) -> list[str] | None:
        contexts = info.data.get("contexts")  # absent where they are wrong themselves
        if ids is not None and contexts is not None and len(ids) != len(contexts):
            raise ValueError(f"{len(ids)} ids for {len(contexts)} contexts; give one per context")
        return ids


class ChangeIn(Wire):
    """What is different from `at_elapsed_s` after the phase's start on; what is left out stays as it was."""

    at_elapsed_s: Annotated[float, Field(ge=0, le=1e12, description="Age of the phase at the change, s.")]
    host: Name | None = None
    device: Name | None = None
    runtime: Name | None = None
    precision: Name | None = None
    mode: Name | None = None
    batch: Annotated[float, Field(gt=0)] | None = None
    corunners: Annotated[float, Field(ge=0)] | None = None

    @model_validator(mode="after")
    def _something_changes(self) -> ChangeIn:
        if not self.model_dump(exclude={"at_elapsed_s"}, exclude_none=True):
            raise ValueError("say what changed: host, device, runtime, precision, mode, batch or corunners")
        return self


class RunningIn(Wire):
    """One running attempt: named by id, or by its context and elapsed time."""

    attempt_id: Name | None = None
    context: ContextIn | None = None
    phase: Name
    elapsed_s: (
        Annotated[float, Field(ge=0, le=1e12, description="Age of the phase in s; found from its events if left out.")] | None
    ) = None
    changes: Annotated[
        list[ChangeIn], Field(max_length=100, description="How the context changed since the phase's start, in order of time.")
    ] = []

    @model_validator(mode="after")
    def _named_or_described(self) -> RunningIn:
        if self.attempt_id is None and (self.context is None or self.elapsed_s is None):
            raise ValueError("give attempt_id, or both context and elapsed_s")
        return self

    @model_validator(mode="after")
    def _changes_in_order(self) -> RunningIn:
        times_s = [change.at_elapsed_s for change in self.changes]
        if times_s != sorted(times_s) or (times_s and self.elapsed_s is not None and times_s[-1] > self.elapsed_s):
            raise ValueError("give changes in order of at_elapsed_s, none later than elapsed_s")
        return self


class ResidualRequest(Wire):
    """Ask how much longer each running phase will take."""

    running: Annotated[list[RunningIn], Field(min_length=1, max_length=10_000)]
    levels: Levels = DEFAULT_LEVELS


class IngestRequest(Wire):
    """Attempts and phase boundaries, in any order; what was sent before changes nothing."""

    attempts: list[Attempt] = []
    events: list[Event] = []


class Problem(BaseModel):
    """An error as a problem document (RFC 9457): `field` names what was wrong, `fix` what to do."""

    type: str
    title: str
    status: int
    detail: str
    field: str
    got: str
    fix: str


class CheckedOut(BaseModel):
    """Outcomes of earlier answers like this one, by which it has been corrected."""

    level: Annotated[
        Literal["phase", "novelty", "family", "host", "model", "configuration"],
        Field(description="The narrowest group of answers with enough of them, else with any; `novelty` is how known it was."),
    ]
    n: Annotated[float, Field(description="Their number, older ones counting less.")]
    enough: Annotated[bool, Field(description="Whether they are enough for status `calibrated`.")]


class SupportOut(BaseModel):
    """Evidence behind an answer."""

    level: Annotated[str, Field(description="Deepest level of the hierarchy with outcomes of its own.")]
    n: Annotated[int, Field(description="Outcomes there.")]
    n_eff: Annotated[float, Field(description="Their effective number after decay and clock weights.")]
    largest_s: Annotated[float, Field(description="Longest duration of this phase known, s.")]
    last_commit: Annotated[int, Field(description="Commit at which the newest of them became known.")]
    checked: Annotated[
        CheckedOut | None, Field(description="How earlier answers like this one were checked; absent where none were.")
    ] = None
    provenance: Annotated[
        Literal["own_host", "profile_prior", "sibling", "device_class", "family", "other_work"] | None,
        Field(
            description="Where the nearest outcomes come from: this family of work on this host; the same model on another host; "
            "the family on such a device; the family anywhere; other work of the phase; or, where the host has ended nothing of "
            "the phase, its measured profile, beside outcomes of other hosts. Absent where the model does not say."
        ),
    ] = None
    age_s: Annotated[
        float | None, Field(description="Time since the newest outcome at `level` ended, s; null where it is not known when.")
    ] = None


class BeyondOut(BaseModel):
    """A level asked for that the evidence does not reach; its quantile comes from the declared tail."""

    level: float
    at_least_s: Annotated[float, Field(description="The duration is at least this at that level, as far as evidence goes, s.")]
    needs_n: Annotated[int, Field(description="Further outcomes needed before the level can be claimed.")]
    reason: Literal["too_few_outcomes"] = "too_few_outcomes"


class CancellationOut(BaseModel):
    """A quantile of attempts that don't fail by the horizon, under two extreme beliefs on those cancelled."""

    level: float
    if_ended_then_s: Annotated[float, Field(description="The quantile if every cancelled attempt had ended just then, s.")]
    if_never_s: Annotated[float, Field(description="The quantile if none ever had by the horizon, s.")]
    reached: Annotated[bool, Field(description="False where `if_never_s` is the horizon, and only a lower bound.")]


class CausesOut(BaseModel):
    """How the phase ends by the horizon; the four chances sum to 1. A cancellation counts as an end of its own here."""

    horizon_s: float
    supported: Annotated[bool, Field(description="Whether the horizon lies within the longest duration known.")]
    completed: float
    failed: float
    cancelled: float
    running: Annotated[float, Field(description="Chance of still running at the horizon.")]
    completed_quantiles_s: Annotated[list[float], Field(description="Duration of those completed by then, at `levels`, s.")]
    ever_completed: Annotated[
        list[float], Field(description="Bounds of the chance of ever completing: data say no more than up to the longest known.")
    ]
    cancellation: Annotated[list[CancellationOut], Field(description="How far informative cancellation could move quantiles.")]


class Answer(BaseModel):
    """One answer. Where nothing is known, `quantiles_s` is null and `needs` says what to ingest."""

    prediction_id: str | None
    attempt_id: str | None
    phase: str
    elapsed_s: Annotated[float | None, Field(description="Age of the phase at which the remaining time was asked, s.")]
    elapsed_source: Literal["given", "monotonic", "last_event"] | None
    form: Literal["conditional", "recalibrated"]
    status: Literal["shadow", "extrapolated", "thin", "calibrated"]
    reasons: list[str]
    levels: list[float]
    quantiles_s: Annotated[list[float] | None, Field(description="Duration, or remaining time, at each of `levels`, s.")]
    mean_s: Annotated[float | None, Field(description="Mean of min(duration, horizon_s), s.")]
    horizon_s: float | None
    p_complete: Annotated[float | None, Field(description="Probability that the phase completes rather than fails.")]
    operational_age_s: Annotated[
        float | None, Field(description="With `changes`: the work done so far, in s of the context at the start.")
    ] = None
    pace: Annotated[float | None, Field(description="With `changes`: pace of the work now; at the start it was 1.")] = None
    causes: Annotated[
        CausesOut | None, Field(description="With `horizon_s`: ends by cause; null where the fit in use didn't count them.")
    ] = None
    claimed_to: Annotated[
        float,
        Field(
            description="Highest of 0.8, 0.9, 0.95, 0.99 up to which outcomes of this very configuration prove the answered "
            "bounds (split conformal: an outcome exchangeable with them lies below with that probability); 0 where they prove "
            "none, as for phases that run already. Of a model that isn't recalibrated, what the number of outcomes could back."
        ),
    ]
    controlled_at: Annotated[
        float | None,
        Field(
            description="Level whose long-run share of misses among answers given as phases of this host begin is proven, "
            "whatever the sequence of outcomes, to lie within `controlled_within` of nominal. Never for a single request."
        ),
    ] = None
    controlled_within: Annotated[float | None, Field(description="How near; both null where nothing is proven yet.")] = None
    beyond: list[BeyondOut]
    support: SupportOut | None
    model_id: str | None
    as_of_commit: Annotated[int, Field(description="Nothing that became known after this commit was used.")]
    made_ns: int
    needs: str | None
    problem: Annotated[
        Problem | None, Field(description="Why this question has no answer, where others of its request have one.")
    ] = None


class AnswersOut(BaseModel):
    """Answers in the order asked."""

    answers: list[Answer]


class ItemOut(BaseModel):
    """What became of one item of a batch."""

    id: str
    result: Literal["new", "repeat", "conflict", "refused"]
    problem: str | None = None


class IngestOut(BaseModel):
    """Results in the order sent. Everything `new` or `repeat` is on disk."""

    commit: int
    attempts: list[ItemOut]
    events: list[ItemOut]


class ReadyOut(BaseModel):
    """Whether answers can be had, and how far upkeep has come."""

    ready: bool
    model_id: str | None
    phases: list[str]
    last_commit: int
    learned_to: Annotated[int, Field(description="Whatever became known up to this commit is in the answers.")]
    ledger_pending: int
    trouble: Annotated[str | None, Field(description="What stopped the last round of upkeep; null while all is well.")]
    share_calibrated: Annotated[float, Field(description="Share of the newest 1,000 answers that had status `calibrated`.")]
    opened: dict[str, str | int | bool | None]
