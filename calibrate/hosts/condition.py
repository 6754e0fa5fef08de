"""The condition a host is measured under, and which part of it makes a profile another version."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from calibrate.hosts.devices import driver_version, nvml
from calibrate.hosts.vitals import hottest_c, on_battery
from telemetry import samples

CPUINFO = Path("/proc/cpuinfo")
PASSING = frozenset({"frequency_hz", "temperature_c", "not_measured"})
"""What changes from run to run; everything else in a condition makes a version."""


def condition() -> dict[str, Any]:
    """What a rate depends on besides the hardware; unknown values are None: a frequency of 0 or none at all says the same.

    A sleeping GPU is not asked, so that its UUID and driver are None.
    """
    group = samples.read_cgroup()
    usable = samples.processors(group)
    readings = nvml().read()
    return {
        "processor": samples.processor_name(),
        "microcode": microcode(),
        "processors": os.cpu_count(),
        "affinity": usable.affinity,
        "quota": usable.quota,
        "effective_processors": usable.effective,
        "memory_bytes": samples.memory_bytes(group),
        "cgroup": group.version,
        "governor": samples.governor(),
        "frequency_hz": samples.frequency_hz(),
        "temperature_c": hottest_c(),
        "on_battery": on_battery(),
        "devices": ", ".join(sorted(one.device for one in readings.devices)) or None,
        "driver": driver_version(readings),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": _blas(),
        "torch": _installed("torch"),
        "precision": "float32 on processors, float16 on GPUs",
    }


def microcode(cpuinfo: Path = CPUINFO) -> str | None:
    """Microcode revision of the first processor; None where it is not told."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        return None
    told = (line.partition(":") for line in lines)
    return next((value.strip() for name, _, value in told if name.strip() == "microcode" and value.strip()), None)


def version_of(found: Mapping[str, Any]) -> str:
    """Identity of a condition: equal for two profiles that may be compared, whatever passed meanwhile."""
    lasting = {name: value for name, value in found.items() if name not in PASSING and value is not None}
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()[:12]


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _blas() -> str | None:
    """Library behind NumPy's matrix product with its version, where the build tells."""
    told: Any = np.show_config(mode="dicts")
    blas = (told or {}).get("Build Dependencies", {}).get("blas", {})
    return f"{blas['name']} {blas.get('version', '')}".strip() if "name" in blas else None
