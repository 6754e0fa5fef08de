"""The tables of what was answered and what became of it; the facts answers are made from are in `tables`."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from telemetry.rows import Row, Seconds
from telemetry.words import Ended


class Prediction(Row):
    """One served answer, kept before its outcome exists."""

    table: ClassVar[str] = "predictions"
    title: ClassVar[str] = "The ledger: every served answer with what it was made from, on one fixed grid of levels."
    key: ClassVar[tuple[str, ...]] = ("prediction_id",)

    prediction_id: Annotated[str, Field(description="Identity (UUIDv7), given in the answer.")]
    request_id: Annotated[str, Field(description="The request it came with.")]
    attempt_id: Annotated[str | None, Field(description="Attempt asked about; null for a hypothetical one.")] = None
    phase: Annotated[str, Field(description="Phase asked about.")]
    made_ns: Annotated[int, Field(description="UTC wall time of the answer, ns.")]
    as_of_commit: Annotated[int, Field(description="Commit number: the answer used nothing known later.")]
    model_id: Annotated[str, Field(description="Fitted model (models.model_id), ID/PART for a part of it, or RULE@COMMIT.")]
    context: Annotated[str, Field(description="Context asked about, as JSON.")]
    path: Annotated[list[str], Field(description="Node keys from root to leaf, for grouping scores.")]
    elapsed_s: Annotated[Seconds | None, Field(description="Age of the running attempt in s; null for a whole duration.")] = None
    elapsed_source: Annotated[str | None, Field(description="given, monotonic or last_event: where elapsed_s came from.")] = None
    horizon_asked_s: Annotated[
        Seconds | None, Field(description="Horizon in s by which causes were asked for; null where they were not.")
    ] = None
    changes: Annotated[
        str | None, Field(description="How the context changed since the start, as JSON; null where it did not.")
    ] = None
    form: Annotated[str, Field(description="conditional, or recalibrated.")] = "conditional"
    status: Annotated[str, Field(description="shadow, extrapolated, thin or calibrated.")]
    reasons: Annotated[list[str], Field(description="Why the status is what it is.")]
    level: Annotated[str, Field(description="Level of the hierarchy the evidence came from.")]
    n: Annotated[int, Field(description="Outcomes (count) at that level.")]
    n_eff: Annotated[float, Field(description="Their effective number after decay and clock weights.")]
    claimed_to: Annotated[float, Field(description="Highest level claimed, 0 to 1.")]
    p_complete: Annotated[float | None, Field(description="Probability of completing within the support.")] = None
    mean_s: Annotated[float, Field(description="Mean in s, restricted to horizon_s.")]
    horizon_s: Annotated[float, Field(description="Horizon of the restricted mean, s.")]
    levels: Annotated[list[float], Field(description="Levels the caller asked for, 0 to 1.")]
    quantiles_s: Annotated[list[float], Field(description="Quantiles in s at 0.01 ... 0.99, 0.995, 0.999.")]
    answer_sha256: Annotated[str, Field(description="SHA-256 of the answer's JSON as it was served.")]


class Outcome(Row):
    """What became of a predicted phase."""

    table: ClassVar[str] = "outcomes"
    title: ClassVar[str] = "What happened to each prediction, joined when it was known."
    key: ClassVar[tuple[str, ...]] = ("prediction_id",)
    versioned: ClassVar[bool] = True

    prediction_id: Annotated[str, Field(description="The answer this is the truth of.")]
    observation_id: Annotated[str, Field(description="The observation it came from.")]
    actual_s: Annotated[
        float, Field(ge=0, description="Actual length (or remaining length) in s, or the length it is known to exceed.")
    ]
    ended: Annotated[Ended, Field(description="completed, failed or a censoring.")]
    started_ns: Annotated[int, Field(description="UTC wall time of the phase's start, ns; scored sets are cut by it.")]


class PlanAnswer(Row):
    """One served answer about a plan: a chance, or a latest start."""

    table: ClassVar[str] = "plan_answers"
    title: ClassVar[str] = "The ledger of composite answers: chances of meeting a deadline, and latest safe starts."
    key: ClassVar[tuple[str, ...]] = ("answer_id",)

    answer_id: Annotated[str, Field(description="Identity (UUIDv7), given in the answer.")]
    request_id: Annotated[str, Field(description="The request it came with.")]
    question: Annotated[str, Field(description="chance or latest_start.")]
    attempt_id: Annotated[str | None, Field(description="Attempt the plan (or load) is about; null for a hypothetical one.")] = (
        None
    )
    needed_by: Annotated[list[str], Field(description="Attempts after whose service the load is needed; empty for a chance.")]
    made_ns: Annotated[int, Field(description="UTC wall time of the answer, ns.")]
    as_of_commit: Annotated[int, Field(description="Commit number: the answer used nothing known later.")]
    model_id: Annotated[str, Field(description="Fitted model (models.model_id), ID/PART for a part of it, or RULE@COMMIT.")]
    asked: Annotated[str, Field(description="The question as JSON, with its seed: enough to ask it again.")]
    level: Annotated[float, Field(gt=0, lt=1, description="Probability asked for, 0 to 1.")]
    deadline_s: Annotated[
        float | None,
        Field(description="Deadline in s from the attempt's eligible mark or from made_ns, the later; null for a latest start."),
    ] = None
    start_s: Annotated[
        float | None, Field(description="Latest safe start in s from made_ns; null for a chance, or if there is none.")
    ] = None
    probability: Annotated[
        float, Field(description="P(completed by the deadline), or P(ready by the need) at the start advised.")
    ]
    mc_se: Annotated[float, Field(description="Monte Carlo standard error of the probability.")]
    calibration_se: Annotated[
        float, Field(description="Standard error of the probability from what plans answered so far turned out.")
    ]
    lower: Annotated[float, Field(description="Lower bound of the probability.")]
    verdict: Annotated[
        str, Field(description="holds, does_not_hold, cannot_certify; or safe, too_late, never, too_few_scenarios.")
    ]
    p_complete: Annotated[float, Field(description="Probability that every stage completes at all.")]
    expected_late_s: Annotated[float, Field(description="Expected lateness, s.")]
    expected_idle_s: Annotated[float | None, Field(description="Expected time the load waits, resident, for its need, s.")] = None
    completion_p95_s: Annotated[float | None, Field(description="95 % quantile of completion, s; null for a latest start.")] = (
        None
    )
    sum_of_p95_s: Annotated[
        float | None, Field(description="What adding up the stages' own p95 would say, s; for comparison.")
    ] = None
    status: Annotated[str, Field(description="shadow, extrapolated, thin or calibrated: the lowest of its stages.")]
    reasons: Annotated[list[str], Field(description="Why the status is what it is.")]
    answer_sha256: Annotated[str, Field(description="SHA-256 of the answer's JSON as it was served.")]


class PlanOutcome(Row):
    """What became of a plan that was answered about."""

    table: ClassVar[str] = "plan_outcomes"
    title: ClassVar[str] = "What happened to each plan answered about, joined when it was known."
    key: ClassVar[tuple[str, ...]] = ("answer_id",)
    versioned: ClassVar[bool] = True

    answer_id: Annotated[str, Field(description="The answer this is the truth of.")]
    actual_s: Annotated[
        float,
        Field(
            description="Chance: completion in s, counted as the deadline is (or its lower bound). "
            "Latest start: ready minus needed in s, negative if early."
        ),
    ]
    started_s: Annotated[float | None, Field(description="When the load really started, s from made_ns; null for a chance.")] = (
        None
    )
    ended: Annotated[Ended, Field(description="How the attempt, or the load, ended.")]
    met: Annotated[
        bool | None, Field(description="Whether the deadline or need was met; null where censoring leaves it open.")
    ] = None


class ModelFile(Row):
    """One fitted model, kept as arrays and JSON beside the store."""

    table: ClassVar[str] = "models"
    title: ClassVar[str] = "Fitted models: arrays and JSON in a file beside the store, checked by hash when loaded."
    key: ClassVar[tuple[str, ...]] = ("model_id",)

    model_id: Annotated[str, Field(description="First 16 hex digits of the file's SHA-256.")]
    family: Annotated[str, Field(description="Model family, such as hierarchical_hazards.")]
    fit_commit: Annotated[int, Field(description="Commit number the fit was made as of.")]
    settings: Annotated[str, Field(description="Settings of the fit, as JSON.")]
    n_observations: Annotated[int, Field(description="Rows (count) fitted on.")]
    file_name: Annotated[str, Field(description="Name of the file in the models folder beside the store.")]
    sha256: Annotated[str, Field(description="SHA-256 of the file.")]
    fitted_ns: Annotated[int, Field(description="UTC wall time of the fit, ns.")]
