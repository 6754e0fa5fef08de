"""May this be run on this host? Pure checks of a request against a grant; nothing here starts anything."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from telemetry.errors import NotGranted
from telemetry.tables import Grant

PROBES = ("matmul", "memory_copy", "file_read")
DEMO_WORK = ("demo_encoder", "demo_corunner")
DEMO_WINDOW_S = 15 * 60
MIB = 1 << 20
THREAD_MIB = 64
"""Memory in MiB that a thread of a numeric library takes for its stack and buffers."""


@dataclass(frozen=True)
class Request:
    """What one process asks for: a probe or workload by name, and the most it will use."""

    probe: str
    threads: int
    memory_bytes: int
    disk_bytes: int
    run_s: float


def permits(grant: Grant, request: Request, *, host: str, now_ns: int) -> None:
    """Return if the grant covers the request on that host at that UTC time, else raise NotGranted saying why not."""
    _in_force(grant, host, now_ns)
    if request.probe not in grant.probes:
        raise NotGranted(
            "probes", request.probe, f"grant {grant.grant_id} names {', '.join(grant.probes)}; add it to a new grant"
        )
    asked = {
        "max_threads": (request.threads, grant.max_threads),
        "max_memory_bytes": (request.memory_bytes, grant.max_memory_bytes),
        "max_disk_bytes": (request.disk_bytes, grant.max_disk_bytes),
        "max_run_s": (request.run_s, grant.max_run_s),
    }
    for field, (wanted, ceiling) in asked.items():
        if wanted > ceiling:
            raise NotGranted(field, wanted, f"stay within {ceiling} or ask for a grant with more")


def _in_force(grant: Grant, host: str, now_ns: int) -> None:
    """The grant's own state: for this host, not revoked, and within its window [not_before_ns, expires_ns)."""
    if grant.host != host:
        raise NotGranted("host", host, f"grant {grant.grant_id} is for {grant.host}; have one given for {host}")
    if grant.revoked_ns is not None and grant.revoked_ns <= now_ns:
        raise NotGranted("revoked_ns", grant.revoked_ns, "it was withdrawn; have a new grant given")
    if now_ns < grant.not_before_ns:
        raise NotGranted("not_before_ns", now_ns, f"wait until {grant.not_before_ns} ns UTC or have an earlier grant given")
    if now_ns >= grant.expires_ns:
        raise NotGranted("expires_ns", now_ns, f"it ended at {grant.expires_ns} ns UTC; have a new grant given")


def demo_grant(
    *, user: str, host: str, now_ns: int, threads: int, probes: Sequence[str] = (*PROBES, *DEMO_WORK), run_s: float = 10 * 60
) -> Grant:
    """The grant that running the demo gives: 15 minutes from now, for the three probes and the demo's own work.

    Memory counts per process and covers private writable pages, not program text or file mappings.
    """
    return Grant(
        grant_id=str(uuid.uuid4()),
        granted_by=user,
        host=host,
        probes=list(probes),
        not_before_ns=now_ns,
        expires_ns=now_ns + DEMO_WINDOW_S * 1_000_000_000,
        max_run_s=run_s,
        max_threads=threads,
        max_memory_bytes=(1920 + THREAD_MIB * threads) * MIB,
        max_disk_bytes=512 * MIB,
    )


def describe(grant: Grant, now_ns: int) -> str:
    """One readable paragraph of what is permitted, to be shown before anything is started."""
    left_s = max(0, (grant.expires_ns - now_ns) // 1_000_000_000)
    return (
        f"grant {grant.grant_id}: {grant.granted_by} lets {', '.join(grant.probes)} run on {grant.host} "
        f"for at most {grant.max_run_s:.0f} s, {grant.max_threads} threads, {grant.max_memory_bytes // MIB} MiB of memory "
        f"per process and {grant.max_disk_bytes // MIB} MiB of disk; ends in {left_s // 60} min {left_s % 60} s"
    )
