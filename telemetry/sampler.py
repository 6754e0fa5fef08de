"""Samples of this host's resources: processors, memory and load from the system, devices from NVML.

Nothing here reads by itself: a sample is taken when it is asked for, and a sleeping device is left asleep.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import psutil

from telemetry.nvml import Nvml
from telemetry.recorder.ids import uuid7
from telemetry.samples import memory_bytes, processors, read_cgroup
from telemetry.tables import ResourceSample


class Sampler:
    """Reads one host. Keep it: it remembers the devices, and how long a driver has been silent.

    host: name of this host in the store. nvml: session with the driver, by default that of the installed pynvml.
    """

    def __init__(self, host: str, nvml: Nvml | None = None) -> None:
        self.host = host
        self.source = f"sampler@{host}"
        self.nvml = nvml or Nvml(_pynvml())

    def sample(self) -> list[ResourceSample]:
        """The host's state now, then that of each device and slice. What could not be read is null, its reason in `absent`.

        The host's own row tells in `absent`, under `devices`, what kept devices from being read.
        """
        now_ns = time.time_ns()
        found = self.nvml.read()
        values, absent = _host_values()
        if found.trouble is not None:
            absent["devices"] = found.trouble
        devices = [({"device": one.device, "parent_device": one.parent, **one.values}, one.absent) for one in found.devices]
        return [self._row(now_ns, *each) for each in ((values, absent), *devices)]

    def _row(self, now_ns: int, values: dict[str, Any], absent: dict[str, str]) -> ResourceSample:
        return ResourceSample(
            sample_id=uuid7(),
            source=self.source,
            host=self.host,
            sampled_ns=now_ns,
            absent=json.dumps(absent, sort_keys=True),
            **values,
        )


def _host_values() -> tuple[dict[str, Any], dict[str, str]]:
    """Fields of the host that could be read, and the reasons of the others."""
    group = read_cgroup()
    readers: dict[str, Callable[[], float]] = {
        "effective_cpus": lambda: processors(group).effective,
        "load_1min": lambda: os.getloadavg()[0],
        "memory_limit_bytes": lambda: memory_bytes(group),
        "memory_used_bytes": lambda: int(psutil.virtual_memory().used),
    }
    values, absent = {}, {}
    for name, read in readers.items():
        try:
            values[name] = read()
        except (OSError, AttributeError, NotImplementedError, psutil.Error) as error:
            absent[name] = f"{type(error).__name__}: {error}"
    return values, absent


def _pynvml() -> Any:
    """pynvml, or None where it is not installed."""
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
