"""May this be run on this host? Pure checks of a request against a grant; nothing here starts anything.

Nothing is permitted by default: without a grant that is in force, for this host, and names the probe, nothing runs.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from telemetry.errors import BadField, CeilingTooSmall, NoGrant, NotInForce, OtherHost, ProbeNotNamed
from telemetry.tables import Grant

PROBES = (
    *("matmul", "memory_bound", "image_like", "decode_like", "memory_copy", "file_read", "checkpoint_decode"),
    *("network", "warmup", "device_copy", "gpu_operators"),
)
"""Everything that may be named in a grant for measuring."""
FIRST_PROBES = ("matmul", "memory_copy", "file_read")
DEMO_WORK = ("demo_encoder", "demo_corunner")
DEMO_WINDOW_S = 15 * 60
MIB = 1 << 20
THREAD_MIB = 64
"""Memory in MiB that a thread of a numeric library takes for its stack and buffers."""
LONGEST_WINDOW_S = 366 * 86_400.0


@dataclass(frozen=True)
class Request:
    """What one process asks for: a probe or workload by name, and the most it will use.

    `begin_s` of `run_s` are an allowance for it to begin.
    """

    probe: str
    threads: int
    memory_bytes: int
    disk_bytes: int
    run_s: float
    gpu_fraction: float = 0.0
    begin_s: float = 0.0


@dataclass(frozen=True)
class Terms:
    """What a grant is to permit: `probes` by name, for `valid_s` seconds, each run within the ceilings."""

    probes: tuple[str, ...]
    valid_s: float
    max_run_s: float
    max_threads: int
    max_memory_bytes: int
    max_disk_bytes: int
    max_gpu_fraction: float = 0.0


def give(terms: Terms, *, user: str, host: str, now_ns: int) -> Grant:
    """A grant of `user` for `host`, in force from `now_ns` (UTC); BadField for a name that is no probe, or no window."""
    if unknown := sorted(set(terms.probes) - {*PROBES, *DEMO_WORK}):
        raise BadField("probes", unknown[0], f"probes are {', '.join(PROBES)}")
    if not terms.probes:
        raise BadField("probes", "none", f"name at least one of {', '.join(PROBES)}")
    if not 0 < terms.valid_s <= LONGEST_WINDOW_S:
        raise BadField("valid_s", terms.valid_s, f"give a window of up to {LONGEST_WINDOW_S:.0f} s")
    return Grant(
        grant_id=str(uuid.uuid4()),
        granted_by=user,
        host=host,
        probes=list(dict.fromkeys(terms.probes)),
        not_before_ns=now_ns,
        expires_ns=now_ns + round(terms.valid_s * 1e9),
        max_run_s=terms.max_run_s,
        max_threads=terms.max_threads,
        max_memory_bytes=terms.max_memory_bytes,
        max_disk_bytes=terms.max_disk_bytes,
        max_gpu_fraction=terms.max_gpu_fraction,
    )


def in_force(grant: Grant, now_ns: int) -> bool:
    """Whether it has begun, is not over and was not withdrawn, at that UTC time."""
    withdrawn = grant.revoked_ns is not None and grant.revoked_ns <= now_ns
    return grant.not_before_ns <= now_ns < grant.expires_ns and not withdrawn


def chosen(grants: Iterable[Grant], grant_id: str | None, *, host: str, now_ns: int) -> Grant:
    """The grant of that id, else the one in force for `host` that lasts longest.

    Raises NoGrant where there is none; where all of the host have ended, the error of the newest one says so.
    """
    known = sorted(grants, key=lambda grant: (grant.expires_ns, grant.grant_id))
    if grant_id is not None:
        found = next((grant for grant in known if grant.grant_id == grant_id), None)
        if found is None:
            raise NoGrant("grant", grant_id, "no such grant; `phasecast grant list` shows those there are")
        return found
    here = [grant for grant in known if grant.host == host]
    if not here:
        raise NoGrant("grant", f"none for {host}", "nothing may be measured; `phasecast grant add` permits it")
    return next((grant for grant in reversed(here) if in_force(grant, now_ns)), here[-1])


def permits(grant: Grant, request: Request, *, host: str, now_ns: int) -> None:
    """Return if the grant covers the request on that host at that UTC time.

    Raises OtherHost, NotInForce, ProbeNotNamed or CeilingTooSmall, each a NotGranted that says why not.
    """
    holds(grant, host=host, now_ns=now_ns)
    if request.probe not in grant.probes:
        raise ProbeNotNamed(
            "probes", request.probe, f"grant {grant.grant_id} names {', '.join(grant.probes)}; add it to a new grant"
        )
    asked = {
        "max_threads": (request.threads, grant.max_threads),
        "max_memory_bytes": (request.memory_bytes, grant.max_memory_bytes),
        "max_disk_bytes": (request.disk_bytes, grant.max_disk_bytes),
        "max_run_s": (request.run_s, grant.max_run_s),
        "max_gpu_fraction": (request.gpu_fraction, grant.max_gpu_fraction),
    }
    for field, (wanted, ceiling) in asked.items():
        if wanted > ceiling:
            raise CeilingTooSmall(field, wanted, _way_out(field, ceiling, request))


def _way_out(field: str, ceiling: float, request: Request) -> str:
    """What to do about a ceiling that is too small; of run time, how what was asked is made up."""
    way = f"stay within {ceiling} or ask for a grant with more"
    if field != "max_run_s" or not request.begin_s:
        return way
    return f"it is {request.run_s - request.begin_s:g} s of measuring and {request.begin_s:g} s for the process to begin; {way}"


def holds(grant: Grant, *, host: str, now_ns: int) -> None:
    """Return if the grant is for this host, not withdrawn, and within its window [not_before_ns, expires_ns)."""
    if grant.host != host:
        raise OtherHost("host", host, f"grant {grant.grant_id} is for {grant.host}; have one given for {host}")
    if grant.revoked_ns is not None and grant.revoked_ns <= now_ns:
        raise NotInForce("revoked_ns", grant.revoked_ns, "it was withdrawn; have a new grant given")
    if now_ns < grant.not_before_ns:
        raise NotInForce("not_before_ns", now_ns, f"wait until {grant.not_before_ns} ns UTC or have an earlier grant given")
    if now_ns >= grant.expires_ns:
        raise NotInForce("expires_ns", now_ns, f"it ended at {grant.expires_ns} ns UTC; have a new grant given")


def demo_grant(
    *,
    user: str,
    host: str,
    now_ns: int,
    threads: int,
    probes: Sequence[str] = (*FIRST_PROBES, *DEMO_WORK),
    run_s: float = 10 * 60,
) -> Grant:
    """The grant that running the demo gives: 15 minutes from now, for the first probes and the demo's own work.

    Memory counts per process and covers private writable pages, not program text or file mappings.
    """
    terms = Terms(tuple(probes), DEMO_WINDOW_S, run_s, threads, (1920 + THREAD_MIB * threads) * MIB, 512 * MIB)
    return give(terms, user=user, host=host, now_ns=now_ns)


def describe(grant: Grant, now_ns: int) -> str:
    """One readable paragraph of what is permitted, to be shown before anything is started."""
    left_s = max(0, (grant.expires_ns - now_ns) // 1_000_000_000)
    gpu = f", {grant.max_gpu_fraction:.0%} of a GPU" if grant.max_gpu_fraction else ""
    return (
        f"grant {grant.grant_id}: {grant.granted_by} lets {', '.join(grant.probes)} run on {grant.host} "
        f"for at most {grant.max_run_s:.0f} s, {grant.max_threads} threads, {grant.max_memory_bytes // MIB} MiB of memory "
        f"per process{gpu} and {grant.max_disk_bytes // MIB} MiB of disk; ends in {left_s // 60} min {left_s % 60} s"
    )
