"""A host's profile: what its probes measured, and the condition it was measured under."""

from __future__ import annotations

import json
import os
import platform
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.hosts.run import ProbeRun, complaints, measure, probes
from telemetry import samples
from telemetry.tables import Grant, HostProfile


def profile(grant: Grant, folder: Path, *, seconds: float = 1.0, on_probe: Callable[[str], None] = lambda _: None) -> HostProfile:
    """Run the first probes under the grant, about `seconds` each; files are written to `folder` and removed.

    `on_probe` is told each probe's name before it starts. A probe without a result leaves the profile partial.
    Raises NotGranted if the grant does not cover one of them.
    """
    usable = samples.processors(samples.read_cgroup())
    planned = probes(min(grant.max_threads, max(1, int(usable.effective))), folder)
    runs = []
    for probe in planned:
        on_probe(probe.name)
        runs.append(measure(grant, probe, seconds))
    measured = [run for run in runs if run is not None]
    return HostProfile(
        profile_id=str(uuid.uuid4()),
        host=socket.gethostname(),
        grant_id=grant.grant_id,
        measured_ns=time.time_ns(),
        condition=json.dumps(condition(), sort_keys=True),
        rates=json.dumps(rates(measured, usable.effective), sort_keys=True),
        partial=len(measured) < len(planned),
    )


def rates(runs: Sequence[ProbeRun], effective_cpus: float) -> dict[str, Any]:
    """Each rate by name with unit: median, spread, counts, warm-ups apart, and what speaks against it."""
    return {
        run.rate_name: {
            "median": run.median,
            "spread": run.spread,
            "samples": len(run.samples.rates),
            "loops": run.samples.loops,
            "warmups": list(run.samples.warmups),
            "complaints": complaints(run, effective_cpus),
        }
        for run in runs
    }


def condition() -> dict[str, Any]:
    """What a rate depends on besides the hardware; a different condition is a different version of the profile.

    Unknown values are null: a frequency of 0 or none at all says the same.
    """
    group = samples.read_cgroup()
    usable = samples.processors(group)
    return {
        "processor": samples.processor_name(),
        "processors": os.cpu_count(),
        "affinity": usable.affinity,
        "quota": usable.quota,
        "effective_processors": usable.effective,
        "memory_bytes": samples.memory_bytes(group),
        "cgroup": group.version,
        "governor": samples.governor(),
        "frequency_hz": samples.frequency_hz(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": _blas(),
    }


def _blas() -> str | None:
    """Library behind NumPy's matrix product with its version, where the build tells."""
    told: Any = np.show_config(mode="dicts")
    blas = (told or {}).get("Build Dependencies", {}).get("blas", {})
    return f"{blas['name']} {blas.get('version', '')}".strip() if "name" in blas else None
