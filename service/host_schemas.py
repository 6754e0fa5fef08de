"""Wire models of what may be measured, what is being measured, and what changed. Pydantic only, shared with the client."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

from service.readings import GrantOut
from service.schemas import Name, Wire

ProbeName = Literal[
    "matmul",
    "memory_bound",
    "image_like",
    "decode_like",
    "memory_copy",
    "file_read",
    "checkpoint_decode",
    "network",
    "warmup",
    "device_copy",
    "gpu_operators",
]
Bytes = Annotated[int, Field(ge=0, lt=2**63)]
LONGEST_WINDOW_S = 366 * 86_400.0


def _with_a_port(peer: str) -> str:
    """An address HOST:PORT whose port there can be."""
    if not 1 <= int(peer.rpartition(":")[2]) <= 65_535:
        raise ValueError("give a port of 1 to 65535, as HOST:PORT")
    return peer


Peer = Annotated[
    str,
    Field(pattern=r"^[\w.\-\[\]:]+:[0-9]{1,5}$", max_length=300, description="HOST:PORT that the network probe measures to."),
    AfterValidator(_with_a_port),
]


class GrantIn(Wire):
    """Permit measuring: who, which host, which probes, how long, and within which ceilings."""

    granted_by: Annotated[Name, Field(description="Who permits it.")]
    host: Annotated[Name | None, Field(description="Host it is for; the API's own if left out.")] = None
    probes: Annotated[list[ProbeName], Field(min_length=1, max_length=20, description="What may be measured.")]
    valid_s: Annotated[float, Field(gt=0, le=LONGEST_WINDOW_S, description="Length of the window from now on, s.")]
    max_run_s: Annotated[
        float,
        Field(gt=0, le=86_400, description="Ceiling on the time of a run, s: measuring, and 20 s for its processes to begin."),
    ] = 120.0
    max_threads: Annotated[int, Field(gt=0, le=4096, description="Ceiling on threads (count).")] = 1
    max_memory_bytes: Annotated[Bytes, Field(gt=0, description="Ceiling on memory of a process, bytes.")] = 2**31
    max_disk_bytes: Annotated[Bytes, Field(description="Ceiling on disk, bytes.")] = 2**28
    max_gpu_fraction: Annotated[float, Field(ge=0, le=1, description="Ceiling on the share of a GPU, 0 to 1.")] = 0.0


class GrantsOut(BaseModel):
    """All grants, the one that ends first in front, also those that have ended."""

    grants: list[GrantOut]


class CalibrationIn(Wire):
    """Measure the API's own host under a grant, or tell what that would be."""

    grant_id: Annotated[Name, Field(description="The grant that permits it.")]
    probes: Annotated[
        list[ProbeName] | None, Field(min_length=1, max_length=20, description="All that the grant names if left out.")
    ] = None
    seconds: Annotated[float, Field(gt=0, le=600, description="Time given to each probe, s.")] = 1.0
    threads: Annotated[int | None, Field(gt=0, le=4096, description="Most threads of an operator; all usable if left out.")] = (
        None
    )
    if_busy: Annotated[
        Literal["hold", "measure"],
        Field(description="hold: wait while others want the processors. measure: go on, the result is marked contended."),
    ] = "hold"
    patience_s: Annotated[float, Field(ge=0, le=3600, description="How long a probe may be held in all, s.")] = 30.0
    yield_to: Annotated[
        list[Name],
        Field(default_factory=list, max_length=50, description="Processes, by name or id, whose work is never disturbed."),
    ]
    peer: Peer | None = None
    dry_run: Annotated[bool, Field(description="Tell what would run; start nothing.")] = False


class PlannedProbeOut(BaseModel):
    """One probe of a run, with the most it takes and what it touches."""

    probe: str
    granted_as: str
    seconds: float
    threads: int
    memory_bytes: int
    disk_bytes: int
    gpu_fraction: float
    touches: str


class CalibrationOut(BaseModel):
    """A run of probes: planned, running, or how it ended."""

    run_id: Annotated[str | None, Field(description="Identity; null for a dry run, which leaves nothing.")]
    state: Literal["planned", "running", "done", "stopped", "failed"]
    host: str
    grant_id: str
    run_s: Annotated[float, Field(description="Time of measuring in all, s; beginning processes comes on top.")]
    probes: Annotated[list[PlannedProbeOut], Field(description="In order.")]
    finished: Annotated[list[str], Field(description="Probes that are over.")]
    current: Annotated[str | None, Field(description="Probe that runs now.")]
    why: Annotated[str | None, Field(description="Why it was stopped, or failed.")]
    profile_id: Annotated[str | None, Field(description="The profile that it made.")]
    partial: Annotated[bool | None, Field(description="Whether that profile lacks probes; null while it runs.")]
    began_ns: int | None
    ended_ns: int | None


class CalibrationsOut(BaseModel):
    """The newest runs since the API started, newest first."""

    calibrations: list[CalibrationOut]


class ProfileVersionOut(BaseModel):
    """One profile of a host, and the number of the condition it was measured under."""

    profile_id: str
    measured_ns: int
    version: int
    partial: bool


class ChangesOut(BaseModel):
    """What differs between two profiles of a host, in words."""

    host: str
    before: ProfileVersionOut
    after: ProfileVersionOut
    changes: Annotated[list[str], Field(description="The condition first, then rates whose intervals don't meet.")]
