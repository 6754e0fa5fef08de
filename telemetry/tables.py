"""The tables of the store, one class each: with `ledger`, `decisions` and `verdicts` the only places where a column is defined.

`python -m telemetry.tables` prints data/README.md.
"""

from __future__ import annotations

import sys
from typing import Annotated, ClassVar

from pydantic import Field

from telemetry.decisions import Credit, Decision
from telemetry.ledger import ModelFile, Outcome, PlanAnswer, PlanOutcome, Prediction
from telemetry.rows import Count, Id, Ns, Row, Seconds
from telemetry.verdicts import Change, Forecast, Opening, ShadowForecast
from telemetry.words import Absence, Clock, Ended, EventKind, Purpose


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
    launch_only: Annotated[
        bool, Field(description="True where this only ends the launching of device work whose completion nobody marked.")
    ] = False
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
    absence: Annotated[
        Absence | None, Field(description="not_applicable, unobserved or launch_only where there is no duration.")
    ] = None
    clock: Annotated[Clock | None, Field(description="Clock of the duration: device, monotonic or wall (wall counts less).")] = (
        None
    )
    started_text: Annotated[
        str | None, Field(description="Start as the source wrote it, where it has no zone or no epoch; started_ns is then null.")
    ] = None
    outcomes: Annotated[
        int, Field(ge=1, description="Outcomes (count) the row stands for: more than 1 for a mean or a bucket.")
    ] = 1
    spread_s: Annotated[
        Seconds | None, Field(description="Standard deviation in s among those outcomes, where duration_s is their mean.")
    ] = None
    resolution_s: Annotated[
        Seconds | None,
        Field(
            description="Width in s of (duration_s - resolution_s, duration_s], all that is known: null where exact, "
            "0 where a histogram only tells that it was longer."
        ),
    ] = None
    assumed: Annotated[str | None, Field(description="What was assumed in reading it, such as unit=us; null if nothing.")] = None


class ResourceSample(Row):
    """State of a host or of one device at an instant; what a field could not tell is absent with its reason, never 0."""

    table: ClassVar[str] = "resource_samples"
    title: ClassVar[str] = (
        "State of a host or device at an instant; a field that could not be read is null, with its reason in `absent`."
    )
    key: ClassVar[tuple[str, ...]] = ("sample_id",)

    sample_id: Annotated[Id, Field(description="Identity.")]
    source: Annotated[Id, Field(description="Who read it: sampler or importer, with host.")]
    host: Annotated[Id | None, Field(description="Host.")] = None
    device: Annotated[Id | None, Field(description="Device by UUID; null for a sample of the host itself.")] = None
    parent_device: Annotated[Id | None, Field(description="UUID of the card a slice is cut from.")] = None
    sampled_ns: Annotated[Ns | None, Field(description="UTC wall time of the sample, ns.")] = None
    sampled_text: Annotated[str | None, Field(description="Time as the source wrote it, where it has no zone.")] = None
    effective_cpus: Annotated[Seconds | None, Field(description="Processors usable: min(affinity, quota), a fraction.")] = None
    load_1min: Annotated[Seconds | None, Field(description="Runnable tasks (count), mean over a minute.")] = None
    memory_limit_bytes: Annotated[Count | None, Field(description="Memory this process may use, bytes.")] = None
    memory_used_bytes: Annotated[Count | None, Field(description="Memory in use on the host, bytes.")] = None
    gpu_utilization: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None, Field(description="Share of time a kernel ran, 0 to 1.")
    ] = None
    gpu_memory_total_bytes: Annotated[Count | None, Field(description="Memory of the device or slice, bytes.")] = None
    gpu_memory_used_bytes: Annotated[Count | None, Field(description="Of that in use, bytes.")] = None
    sm_clock_hz: Annotated[Seconds | None, Field(description="Clock of the multiprocessors, Hz.")] = None
    temperature_c: Annotated[float | None, Field(description="Temperature of the device, degrees C.")] = None
    power_w: Annotated[Seconds | None, Field(description="Power drawn, W.")] = None
    throttle_reasons: Annotated[list[str] | None, Field(description="Why clocks are held down; empty if they are not.")] = None
    corunners: Annotated[Count | None, Field(description="Processes (count) computing on the device.")] = None
    absent: Annotated[str, Field(description="Fields that could not be read, as JSON: name to reason.")] = "{}"


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


class Token(Row):
    """Permission to call the API; the secret itself is never kept."""

    table: ClassVar[str] = "tokens"
    title: ClassVar[str] = "Tokens that the API takes: the hash of each, what it is for, until when. The secret is never kept."
    key: ClassVar[tuple[str, ...]] = ("token_id",)
    versioned: ClassVar[bool] = True

    token_id: Annotated[Id, Field(description="Identity; the part of the token between its two underscores.")]
    name: Annotated[Id, Field(description="Who or what it was made for.")]
    scopes: Annotated[list[str], Field(min_length=1, description="Calls it is good for: ingest, query; admin is good for all.")]
    sha256: Annotated[str, Field(min_length=64, max_length=64, description="SHA-256 of the whole token, hex.")]
    last_four: Annotated[str, Field(min_length=4, max_length=4, description="Its last four characters, to tell tokens apart.")]
    created_ns: Annotated[Ns, Field(description="When it was made, UTC ns.")]
    expires_ns: Annotated[Ns | None, Field(description="When it ends, UTC ns; null if it does not.")] = None
    revoked_ns: Annotated[Ns | None, Field(description="When it was revoked, UTC ns; null while it stands.")] = None


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
    ResourceSample,
    HostProfile,
    Grant,
    Prediction,
    Outcome,
    PlanAnswer,
    PlanOutcome,
    Decision,
    ShadowForecast,
    Forecast,
    Opening,
    Change,
    Credit,
    ModelFile,
    Token,
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
