"""The tables by which models, hosts and outside predictors earn trust: forecasts made before outcomes, and what followed."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from telemetry.rows import Id, Ns, Row


class ShadowForecast(Row):
    """A forecast of somebody who does not answer: a challenger of ours, or the scheduler's own predictor."""

    table: ClassVar[str] = "shadow_forecasts"
    title: ClassVar[str] = (
        "Forecasts that were not served, scored beside the answers that were. Received when the commit of known_from was made."
    )
    key: ClassVar[tuple[str, ...]] = ("predictor", "attempt_id", "phase")

    predictor: Annotated[Id, Field(description="Who forecast, with the version.")]
    attempt_id: Annotated[Id, Field(description="Attempt the forecast is about.")]
    phase: Annotated[Id, Field(description="Phase whose whole length was forecast.")]
    form: Annotated[str, Field(description="What was sent: point, quantiles or samples.")]
    levels: Annotated[list[float], Field(description="Levels of `sent_s`, 0 to 1; empty where none were sent.")]
    sent_s: Annotated[list[float], Field(description="What was sent, s; empty for a challenger of ours.")]
    quantiles_s: Annotated[list[float], Field(description="The same in s at 0.01 ... 0.99, 0.995, 0.999.")]
    prediction_id: Annotated[
        str | None,
        Field(description="Served answer beside which the API made it from the same commit; null for one from outside."),
    ] = None


class Change(Row):
    """Something that changed what is answered or who answers, and why."""

    table: ClassVar[str] = "changes"
    title: ClassVar[str] = "Drift found, what followed, promotions and demotions: each with its evidence, and undone by rule."
    key: ClassVar[tuple[str, ...]] = ("change_id",)
    versioned: ClassVar[bool] = True

    change_id: Annotated[Id, Field(description="Identity (UUIDv7).")]
    kind: Annotated[str, Field(description="drift, reaction or promotion.")]
    subject: Annotated[str, Field(description="What it concerns: a node of the hierarchy, or a predictor.")]
    action: Annotated[str, Field(description="What was done, such as widen, promote, demote or hold.")]
    decided_by: Annotated[str, Field(description="rule, or the operator who overrode it.")]
    made_ns: Annotated[Ns, Field(description="UTC wall time, ns.")]
    reason: Annotated[str, Field(description="Why, in words.")]
    evidence: Annotated[str, Field(description="The numbers behind it, as JSON.")]
    undone_ns: Annotated[Ns | None, Field(description="When it was undone, UTC ns; null while it stands.")] = None
    undone_reason: Annotated[str | None, Field(description="Why it was undone.")] = None


class Forecast(Row):
    """A manifest frozen before its outcomes exist."""

    table: ClassVar[str] = "forecasts"
    title: ClassVar[str] = "Manifests frozen before outcomes exist: forecasts of a cohort, or a population with its parts."
    key: ClassVar[tuple[str, ...]] = ("forecast_id",)

    forecast_id: Annotated[Id, Field(description="First 16 hex digits of `sha256`.")]
    kind: Annotated[str, Field(description="forecast or population.")]
    name: Annotated[Id, Field(description="Name its author gave it.")]
    sha256: Annotated[str, Field(description="SHA-256 of `manifest`, hex.")]
    manifest: Annotated[str, Field(description="The manifest as JSON, to the byte.")]
    frozen_ns: Annotated[Ns, Field(description="UTC wall time of the freeze, ns.")]


class Opening(Row):
    """One look at outcomes a manifest was frozen for."""

    table: ClassVar[str] = "openings"
    title: ClassVar[str] = "Outcomes that were looked at: which part of which manifest, with what model and code, and the scores."
    key: ClassVar[tuple[str, ...]] = ("opening_id",)

    opening_id: Annotated[Id, Field(description="First 16 hex digits of the SHA-256 of the ids and hashes below.")]
    forecast_id: Annotated[Id, Field(description="The manifest (forecasts.forecast_id); a locked part is opened once.")]
    part: Annotated[Id, Field(description="Part of the population: development, validation, locked_test; all for a cohort.")]
    opened_ns: Annotated[Ns, Field(description="UTC wall time, ns.")]
    scored_id: Annotated[Id, Field(description="The forecasts that were scored (forecasts.forecast_id).")]
    outcomes_sha256: Annotated[str, Field(description="SHA-256 of the outcomes, hex.")]
    model_sha256: Annotated[str, Field(description="SHA-256 of the model, hex; empty where none of ours was used.")]
    code_sha256: Annotated[str, Field(description="SHA-256 of the code, hex.")]
    report: Annotated[str, Field(description="The scores as JSON.")]
