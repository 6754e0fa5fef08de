"""The tables of the store, one class each: the only place where a column is defined.

`python -m telemetry.tables` prints data/README.md.
"""

from __future__ import annotations

import sys
from typing import Annotated, ClassVar

from pydantic import Field

from telemetry.rows import Row
from telemetry.words import Absence, Clock, Ended, EventKind, Purpose

Id = Annotated[str, Field(min_length=1, max_length=200)]
Ns = Annotated[int, Field(ge=0, lt=2**63)]
Seconds = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0, lt=2**63)]


class Event(Row):
    """One phase boundary, as its source reported it."""

    table: ClassVar[str] = "events"
    title: ClassVar[str] = "One phase boundary of an attempt, as reported by its source; never changed afterwards."
    key: ClassVar[tuple[str, ...]] = ("event_id",)

    event_id: Annotated[Id, Field(description="Idempotency key made by the sender; UUIDv7 from our recorder.")]
    attempt_id: Annotated[Id, Field(description="The attempt whose boundary this is.")]
    kind: Annotated[EventKind, Field(description="Which boundary; closed vocabulary (telemetry/words.py).")]
    wall_ns: Annotated[Ns, Field(description="UTC wall time at the source, ns since 1970; places the event.")]
    monotonic_ns: Annotated[Ns | None, Field(description="Source's monotonic clock, ns; comparable within a clock_id.")] = None
    clock_id: Annotated[Id | None, Field(description="Host and boot of the monotonic clock; absent when there is none.")] = None
    device_elapsed_s: Annotated[
        Seconds | None, Field(description="Length in s on the device's own clock of the span this event ends; absent is not 0.")
    ] = None
    source: Annotated[Id, Field(description="Who reported it: recorder, supervisor or importer, with host and process.")]
    stage_index: Annotated[Count | None, Field(description="Tells repeated transfers of one attempt apart; number from 0.")] = (
        None
    )
    transferred_bytes: Annotated[Count | None, Field(description="Bytes moved by the transfer this event ends.")] = None
    link: Annotated[Id | None, Field(description="Name of the link or channel of a transfer.")] = None
    direction: Annotated[Id | None, Field(description="Direction of a transfer, such as host_to_device.")] = None
    source_place: Annotated[Id | None, Field(description="Where a transfer reads from.")] = None
    target_place: Annotated[Id | None, Field(description="Where a transfer writes to.")] = None
    tokens: Annotated[Count | None, Field(description="Tokens (count) produced so far, at iteration_finish.")] = None
    reason: Annotated[
        Annotated[str, Field(max_length=2000)] | None,
        Field(description="Cause of a failure, or why it was cancelled: user, policy, shutdown, unknown."),
    ] = None
    attributes: Annotated[
        Annotated[str, Field(max_length=20_000)] | None, Field(description="Further attributes of the source, as JSON text.")
    ] = None


class Attempt(Row):
    """One try to execute one node on one host, with what was known before it started."""

    table: ClassVar[str] = "attempts"
    title: ClassVar[str] = "One try to execute one node on one host, with the context known before it started."
    key: ClassVar[tuple[str, ...]] = ("attempt_id",)

    attempt_id: Annotated[Id, Field(description="Identity of this try.")]
    workflow_id: Annotated[Id | None, Field(description="Workflow the node belongs to.")] = None
    run_id: Annotated[Id | None, Field(description="Run of the workflow; attempts of one run move together.")] = None
    node_id: Annotated[Id | None, Field(description="Node or operation executed.")] = None
    generation: Annotated[Count | None, Field(description="Generation (count) of the workflow graph.")] = None
    retry_of: Annotated[Id | None, Field(description="attempt_id this one repeats.")] = None
    decision_id: Annotated[Id | None, Field(description="Decision that placed it.")] = None
    prediction_id: Annotated[Id | None, Field(description="Answer that decision used.")] = None
    purpose: Annotated[Purpose, Field(description="work, or calibration for a granted probe.")] = Purpose.WORK
    host: Annotated[Id | None, Field(description="Host it runs on.")] = None
    device: Annotated[Id | None, Field(description="Device by UUID, or the CPU's name.")] = None
    family: Annotated[Id | None, Field(description="Family of work, such as encoder.")] = None
    model: Annotated[Id | None, Field(description="Model with its revision.")] = None
    runtime: Annotated[Id | None, Field(description="Backend with its version, such as torch-2.13.0.")] = None
    precision: Annotated[Id | None, Field(description="Number format, such as float32.")] = None
    mode: Annotated[Id | None, Field(description="Split or execution mode.")] = None
    state: Annotated[Id | None, Field(description="cold, cached, cache_unknown, resident, or a name of an imported table.")] = (
        None
    )
    batch: Annotated[Annotated[float, Field(gt=0)] | None, Field(description="Batch size (count).")] = None
    size_in: Annotated[Seconds | None, Field(description="Input size in the family's own unit: tokens, bytes, samples.")] = None
    corunners: Annotated[Seconds | None, Field(description="Other work (count) active on the device at the start.")] = None


class Observation(Row):
    """One phase of one attempt: a duration or a bound on it, or why there is none."""

    table: ClassVar[str] = "observations"
    title: ClassVar[str] = (
        "One phase of one attempt: a duration or a lower bound, or why there is none. Versions replace each other."
    )
    key: ClassVar[tuple[str, ...]] = ("observation_id",)
    versioned: ClassVar[bool] = True

    observation_id: Annotated[str, Field(description="attempt_id/phase/segment.")]
    attempt_id: Annotated[str, Field(description="The attempt.")]
    phase: Annotated[str, Field(description="Phase name (telemetry/words.py, or open for imported tables).")]
    segment: Annotated[int, Field(ge=0, description="Which span of a phase that repeats; number from 0.")] = 0
    started_ns: Annotated[int | None, Field(description="UTC wall time of the phase's start, ns; null if it was not seen.")] = (
        None
    )
    entry_s: Annotated[
        float, Field(ge=0, description="Age of the phase in s when it came under observation (delayed entry).")
    ] = 0.0
    duration_s: Annotated[
        Seconds | None, Field(description="Length in s; where `ended` is a censoring, the length it is known to exceed.")
    ] = None
    ended: Annotated[
        Ended | None, Field(description="completed, failed, or the censorings cancelled, timed_out, running; null if absent.")
    ] = None
    cause: Annotated[str | None, Field(description="Cause of failure or reason of cancellation.")] = None
    absence: Annotated[Absence | None, Field(description="not_applicable or unobserved where there is no duration.")] = None
    clock: Annotated[Clock | None, Field(description="Clock of the duration: device, monotonic or wall (wall counts less).")] = (
        None
    )


class HostProfile(Row):
    """Measured rates and capacities of one host under one condition."""

    table: ClassVar[str] = "host_profiles"
    title: ClassVar[str] = (
        "Measured rates and capacities of one host under a stated condition; a change of condition is a new version."
    )
    key: ClassVar[tuple[str, ...]] = ("profile_id",)

    profile_id: Annotated[str, Field(description="Identity of this version.")]
    host: Annotated[str, Field(description="Host measured.")]
    grant_id: Annotated[str, Field(description="Permission under which it was measured.")]
    measured_ns: Annotated[int, Field(description="UTC wall time of the measurement, ns.")]
    condition: Annotated[str, Field(description="Condition as JSON: processor, threads, quota, governor, backend build.")]
    rates: Annotated[
        str,
        Field(
            description="Measurements as JSON: name with unit (_per_s, _bytes_per_s, _s), median, spread, samples, complaints."
        ),
    ]
    partial: Annotated[bool, Field(description="True if the run was stopped before all probes were done.")] = False


class Grant(Row):
    """Permission to measure a host."""

    table: ClassVar[str] = "grants"
    title: ClassVar[str] = "Permission to measure a host: who gave it, which probes, until when, and the ceilings."
    key: ClassVar[tuple[str, ...]] = ("grant_id",)
    versioned: ClassVar[bool] = True

    grant_id: Annotated[str, Field(description="Identity, named by every run made under it.")]
    granted_by: Annotated[str, Field(description="User who gave it.")]
    host: Annotated[str, Field(description="Host it is for.")]
    probes: Annotated[list[str], Field(description="Probes and workloads permitted.")]
    not_before_ns: Annotated[int, Field(description="Start of the window, UTC ns.")]
    expires_ns: Annotated[int, Field(description="End of the window, UTC ns.")]
    max_run_s: Annotated[float, Field(gt=0, description="Ceiling on run time, s.")]
    max_threads: Annotated[int, Field(gt=0, description="Ceiling on threads (count).")]
    max_memory_bytes: Annotated[int, Field(gt=0, description="Ceiling on memory, bytes.")]
    max_disk_bytes: Annotated[int, Field(ge=0, description="Ceiling on disk, bytes.")]
    max_gpu_fraction: Annotated[float, Field(ge=0, le=1, description="Ceiling on the share of a GPU, 0 to 1.")] = 0.0
    revoked_ns: Annotated[int | None, Field(description="When it was revoked, UTC ns; null while it stands.")] = None


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
    model_id: Annotated[str, Field(description="Fitted model (models.model_id).")]
    context: Annotated[str, Field(description="Context asked about, as JSON.")]
    path: Annotated[list[str], Field(description="Node keys from root to leaf, for grouping scores.")]
    elapsed_s: Annotated[Seconds | None, Field(description="Age of the running attempt in s; null for a whole duration.")] = None
    elapsed_source: Annotated[str | None, Field(description="given, monotonic or last_event: where elapsed_s came from.")] = None
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
    model_id: Annotated[str, Field(description="Fitted model (models.model_id).")]
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


class StateRow(Row):
    """A named value of the service that must survive a restart."""

    table: ClassVar[str] = "state"
    title: ClassVar[str] = "Named values that survive a restart, such as up to which commit events were turned into observations."
    key: ClassVar[tuple[str, ...]] = ("name",)
    versioned: ClassVar[bool] = True

    name: Annotated[str, Field(description="Name of the value.")]
    value: Annotated[str, Field(description="The value as JSON.")]


class Quarantine(Row):
    """Something that could not be used, and why."""

    table: ClassVar[str] = "quarantine"
    title: ClassVar[str] = "Spans that could not be used, each with its reason: counted, never clipped, never dropped silently."
    key: ClassVar[tuple[str, ...]] = ("quarantine_id",)
    versioned: ClassVar[bool] = True

    quarantine_id: Annotated[str, Field(description="attempt_id/phase/segment.")]
    attempt_id: Annotated[str, Field(description="The attempt.")]
    phase: Annotated[str, Field(description="The phase.")]
    reason: Annotated[str, Field(description="Reason word, such as end_before_start or clocks_mixed.")]
    detail: Annotated[str, Field(description="The values concerned, with units.")]


class Commit(Row):
    """One group commit; its number is the store's time."""

    table: ClassVar[str] = "commits"
    title: ClassVar[str] = "One group commit: known_from is its number, the store's time."
    key: ClassVar[tuple[str, ...]] = ("known_from",)

    committed_ns: Annotated[int, Field(description="UTC wall time of the commit, ns.")]
    written_rows: Annotated[int, Field(description="Rows (count) written.")]


TABLES: tuple[type[Row], ...] = (
    Event,
    Attempt,
    Observation,
    HostProfile,
    Grant,
    Prediction,
    Outcome,
    PlanAnswer,
    PlanOutcome,
    ModelFile,
    StateRow,
    Quarantine,
    Commit,
)


def document() -> str:
    """data/README.md: every table with its columns, units and meaning."""
    head = (
        "# Tables of the store\n\nWritten from `telemetry/tables.py` by `make docs`; every comment is also in the file itself.\n"
        "A commit number is the store's time: a row is known from `known_from` on.\n\n"
    )
    return head + "\n".join(row.markdown() for row in TABLES)


if __name__ == "__main__":
    sys.stdout.write(document())
