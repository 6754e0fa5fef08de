"""Wire models of what can be read: hosts and profiles, work seen and running, how far the store has come."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from service.schemas import ContextIn


class GrantOut(BaseModel):
    """Permission under which a host was measured."""

    grant_id: str
    granted_by: str
    host: str
    probes: list[str]
    not_before_ns: int
    expires_ns: int
    revoked_ns: int | None
    in_force: Annotated[bool, Field(description="Whether something may be run under it now.")]
    max_run_s: float
    max_threads: int
    max_memory_bytes: int
    max_disk_bytes: int
    max_gpu_fraction: float


class RateOut(BaseModel):
    """One measured rate; its unit ends the name."""

    name: str
    median: float
    low: Annotated[float, Field(description="Lower end of the interval of the median, at least 95 % from six samples on.")]
    high: Annotated[float, Field(description="Upper end.")]
    spread: Annotated[float, Field(description="Standard deviation as a share of the median.")]
    samples: Annotated[int, Field(description="Measurements (count) behind it.")]
    backend: Annotated[str | None, Field(description="What computed it, such as torch 2.13.0.")]
    device: Annotated[str | None, Field(description="UUID of the GPU it is of; null for the host's own parts.")]
    contended: Annotated[bool, Field(description="Measured beside other work: never part of the baseline.")]
    baseline: Annotated[float | None, Field(description="Newest uncontended median under this condition; null if there is none.")]
    complaints: Annotated[list[str], Field(description="What speaks against trusting it, and what to do.")]


class ProfileOut(BaseModel):
    """The newest profile of a host."""

    profile_id: str
    host: str
    measured_ns: int
    age_s: float
    partial: Annotated[bool, Field(description="Stopped before all probes were done.")]
    versions: Annotated[int, Field(description="Profiles (count) of this host so far.")]
    version: Annotated[int, Field(description="Number of the condition it was measured under; a change opens another.")]
    changes: Annotated[list[str], Field(description="What changed since the profile before, in words.")]
    condition: dict[str, str | bool | int | float | None]
    rates: list[RateOut]
    grant: GrantOut | None


class HostOut(BaseModel):
    """A host that work ran on, or that was measured."""

    host: str
    attempts: int
    newest_attempt_ns: Annotated[int | None, Field(description="UTC ns at which its newest attempt became known.")]
    running: Annotated[int, Field(description="Attempts (count) running on it now.")]
    profile_id: Annotated[str | None, Field(description="Its newest profile; null if it was never measured.")]
    measured_ns: int | None


class HostsOut(BaseModel):
    """Hosts by name."""

    hosts: list[HostOut]


class SeenContextOut(BaseModel):
    """A context that recent attempts had."""

    context: ContextIn
    attempts: int


class ContextsOut(BaseModel):
    """Contexts of recent work, newest first."""

    contexts: list[SeenContextOut]


class OpenPhaseOut(BaseModel):
    """A phase that runs now; `remaining_s` is null where nothing is known of its kind."""

    attempt_id: str
    phase: str
    context: ContextIn
    elapsed_s: float
    elapsed_source: Literal["given", "monotonic", "last_event"]
    remaining_s: list[float] | None
    status: Literal["shadow", "extrapolated", "thin", "calibrated"]
    reasons: list[str]


class RunningOut(BaseModel):
    """What runs now, newest attempt first; a look for people: not kept in the ledger, so never scored."""

    levels: Annotated[list[float], Field(description="Levels of the quantiles in `remaining_s`.")]
    attempts: Annotated[int, Field(description="Attempts (count) running; the newest of them are listed.")]
    phases: list[OpenPhaseOut]


class OverviewOut(BaseModel):
    """How far the service has come; the commit numbers are the store's time."""

    now_ns: int
    ready: bool
    phases: Annotated[list[str], Field(description="Phases that can be answered.")]
    last_commit: int
    last_commit_ns: int | None
    learned_to: int
    as_of_commit: Annotated[int | None, Field(description="Commit that answers speak as of now; null while nothing is known.")]
    ledger_pending: Annotated[int, Field(description="Answers (count) given and not yet committed.")]
    ended: Annotated[int, Field(description="Phases (count) known to have ended.")]
    quarantined: Annotated[int, Field(description="Spans (count) set aside as unusable.")]
    model_id: str | None
    model_fitted_ns: int | None
    model_observations: int | None
