"""A host's profile: what its probes measured, and the condition it was measured under."""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calibrate.hosts.catalogue import Probe, catalogue, first_probes, named
from calibrate.hosts.condition import condition
from calibrate.hosts.copyfit import fitted_copies
from calibrate.hosts.grants import PROBES, holds, permits
from calibrate.hosts.guard import Attended
from calibrate.hosts.run import Care, ProbeRun, complaints, measure
from calibrate.hosts.series import Told
from calibrate.hosts.vitals import Rules
from telemetry import samples
from telemetry.errors import BadField, CeilingTooSmall
from telemetry.tables import Grant, HostProfile

UNASKED = Care(Rules(busy="measure"))
"""Measures beside other work, marked contended, as the demo does: nobody waits for the host to fall idle."""


@dataclass(frozen=True)
class Plan:
    """What would run under a grant: probes in order, so many seconds each."""

    grant: Grant
    probes: tuple[Probe, ...]
    seconds: float

    @property
    def run_s(self) -> float:
        """Seconds of measuring in all; beginning processes comes on top."""
        return self.seconds * len(self.probes)


def planned(
    grant: Grant,
    folder: Path,
    *,
    seconds: float,
    names: Sequence[str] | None = None,
    threads: int | None = None,
    peer: str | None = None,
) -> Plan:
    """The probes `names`, or all that the grant names, on up to `threads` threads; raises NotGranted if it doesn't cover them.

    By default as many threads as this process may use, within the grant. Nothing is started.
    """
    if unknown := sorted(set(names or ()) - set(PROBES)):
        raise BadField("probes", unknown[0], f"probes are {', '.join(PROBES)}")
    if seconds <= 0:
        raise BadField("seconds", seconds, "give each probe some time, such as 1.0")
    holds(grant, host=socket.gethostname(), now_ns=time.time_ns())
    usable = max(1, int(samples.processors(samples.read_cgroup()).effective))
    wanted = threads if threads is not None else min(grant.max_threads, usable)
    plan = Plan(grant, named(catalogue(wanted, folder, peer), names or grant.probes), seconds)
    for probe in plan.probes:
        permits(grant, probe.request(seconds), host=socket.gethostname(), now_ns=time.time_ns())
    if not plan.probes:
        raise BadField("probes", "none", f"grant {grant.grant_id} names none of {', '.join(PROBES)}")
    if plan.run_s > grant.max_run_s:
        raise CeilingTooSmall("max_run_s", plan.run_s, f"stay within {grant.max_run_s:g} s: fewer probes, or less time for each")
    return plan


def carried_out(
    plan: Plan,
    care: Care,
    *,
    on_probe: Callable[[str], None] = lambda _: None,
    on_run: Callable[[ProbeRun], None] = lambda _: None,
) -> list[ProbeRun]:
    """Run the probes of a plan one after the other; what ends one of them from outside ends the rest.

    `on_probe` is told each probe's name before it starts, `on_run` what became of it.
    """
    runs: list[ProbeRun] = []
    ends_s = time.monotonic() + plan.grant.max_run_s
    over = replace(care, withdrawn=lambda: care.withdrawn() or ("the run's time is over" if time.monotonic() > ends_s else None))
    for probe in plan.probes:
        if (why := over.withdrawn()) is not None:  # nothing begins any more
            runs.append(ProbeRun(probe, Told(), Attended(ended_by=why)))
            break
        on_probe(probe.name)
        runs.append(measure(plan.grant, probe, plan.seconds, over))
        on_run(runs[-1])
        if runs[-1].attended.ended_by is not None:
            break
    return runs


def profiled(plan: Plan, runs: Sequence[ProbeRun]) -> HostProfile:
    """The profile that runs of a plan make; partial where a probe was stopped or failed, or never began."""
    usable = samples.processors(samples.read_cgroup())
    return HostProfile(
        profile_id=str(uuid.uuid4()),
        host=socket.gethostname(),
        grant_id=plan.grant.grant_id,
        measured_ns=time.time_ns(),
        condition=json.dumps(condition() | {"not_measured": absences(runs)}, sort_keys=True),
        rates=json.dumps(rates(runs, usable.effective), sort_keys=True),
        partial=len(runs) < len(plan.probes) or not all(run.whole for run in runs),
    )


def profile(grant: Grant, folder: Path, *, seconds: float = 1.0, on_probe: Callable[[str], None] = lambda _: None) -> HostProfile:
    """Run the first probes under the grant, about `seconds` each, beside whatever else runs; no file stays in `folder`.

    `on_probe` is told each probe's name before it starts. A probe without a result leaves the profile partial.
    Raises NotGranted if the grant does not cover one of them.
    """
    usable = samples.processors(samples.read_cgroup())
    threads = min(grant.max_threads, max(1, int(usable.effective)), os.cpu_count() or 1)
    plan = Plan(grant, first_probes(threads, folder), seconds)
    return profiled(plan, carried_out(plan, UNASKED, on_probe=on_probe))


def rates(runs: Sequence[ProbeRun], effective_cpus: float) -> dict[str, Any]:
    """Each rate by name with unit: median and its interval, spread, counts, warm-ups apart, and what speaks against it."""
    return {
        series.rate_name: {
            "median": series.median,
            "low": series.interval[0],
            "high": series.interval[1],
            "spread": series.spread,
            "samples": len(series.values),
            "loops": series.loops,
            "warmups": list(series.warmups),
            "backend": run.told.facts.get("backend"),
            "device": run.device,
            "contended": run.contended(effective_cpus) is not None,
            "complaints": complaints(run, series, effective_cpus),
        }
        for run in runs
        for series in (*run.series, *fitted_copies(run.series))
    }


def absences(runs: Sequence[ProbeRun]) -> str | None:
    """What could not be measured here, or failed, each with its reason; None if nothing."""
    told = [(name, why) for run in runs for name, why in run.told.absent.items()]
    told += [(run.probe.name, f"failed, {run.failed}") for run in runs if run.failed is not None]
    return "; ".join(f"{name}: {why}" for name, why in told) or None
