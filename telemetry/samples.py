"""What this process may use and measure: processors, memory, clocks, GPUs. Absent is None with a reason, never 0.

A container reports its host's processors; what counts is the smaller of the affinity mask and the control group's quota.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

CGROUP_ROOT = Path("/sys/fs/cgroup")
_NO_LIMIT_BYTES = 1 << 60
"""Version 1 writes about 2^63 where there is no limit."""


@dataclass(frozen=True)
class Cgroup:
    """Limits of the control group: version `v1`, `v2` or `neither`; None where there is no limit."""

    version: str
    cpu_quota: float | None
    memory_limit_bytes: int | None


@dataclass(frozen=True)
class Processors:
    """Processors (count) of the affinity mask, of the quota if there is one, and what can be used of them."""

    affinity: int
    quota: float | None

    @property
    def effective(self) -> float:
        """min(affinity, quota), a fraction where the quota is one."""
        return float(self.affinity) if self.quota is None else min(float(self.affinity), self.quota)


@dataclass(frozen=True)
class Gpus:
    """NVIDIA devices by UUID, or why none is known; no driver is a status, not an error."""

    uuids: tuple[str, ...]
    status: str


def processors(cgroup: Cgroup) -> Processors:
    """The affinity mask of this process and the quota of its group."""
    mask = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    return Processors(len(mask), cgroup.cpu_quota)


def memory_bytes(cgroup: Cgroup) -> int:
    """Memory this process can hope for: the machine's, or the group's limit where that is lower."""
    total = psutil.virtual_memory().total
    return total if cgroup.memory_limit_bytes is None else min(total, cgroup.memory_limit_bytes)


def read_cgroup(root: Path = CGROUP_ROOT, membership: Path = Path("/proc/self/cgroup")) -> Cgroup:
    """Limits that bind this process, read from version 1 or 2, whichever has the processor controller.

    Every group from our own up to the root binds, so the smallest limit counts. A path that a container does not see
    is passed over.
    """
    try:
        lines = [line.split(":", 2) for line in membership.read_text().splitlines() if line.count(":") >= 2]
    except OSError:
        lines = []
    v1 = {name: path for _, names, path in lines for name in names.split(",") if name}
    unified = next((path for number, names, path in lines if number == "0" and not names), None)
    if "cpu" in v1 or "memory" in v1:
        cpu = _upwards(_v1_root(root, "cpu"), v1.get("cpu", "/"), _v1_quota)
        memory = _upwards(_v1_root(root, "memory"), v1.get("memory", "/"), _v1_memory)
        return Cgroup("v1", cpu, None if memory is None else int(memory))
    if unified is not None and (root / "cgroup.controllers").exists():
        memory = _upwards(root, unified, _v2_memory)
        return Cgroup("v2", _upwards(root, unified, _v2_quota), None if memory is None else int(memory))
    return Cgroup("neither", None, None)


def _v1_root(root: Path, controller: str) -> Path:
    """Mount of a version 1 controller, which may be mounted together with others."""
    mounts = [root / controller, *(p for p in root.glob("*,*") if controller in p.name.split(","))]
    return next((mount for mount in mounts if mount.is_dir()), root / controller)


def _upwards(root: Path, path: str, read: Callable[[Path], float | None]) -> float | None:
    """Smallest limit among the group at `path` and its parents up to `root`."""
    group = root / path.lstrip("/")
    groups = [g for g in (group, *group.parents) if g == root or root in g.parents]
    found = [value for value in map(read, groups) if value is not None]
    return min(found, default=None)


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _v1_quota(group: Path) -> float | None:
    quota, period = _words(group / "cpu.cfs_quota_us"), _words(group / "cpu.cfs_period_us")
    return int(quota[0]) / int(period[0]) if quota and period and int(quota[0]) > 0 else None


def _v2_quota(group: Path) -> float | None:
    words = _words(group / "cpu.max")
    return int(words[0]) / int(words[1]) if len(words) == 2 and words[0] != "max" else None


def _v1_memory(group: Path) -> float | None:
    words = _words(group / "memory.limit_in_bytes")
    return int(words[0]) if words and int(words[0]) < _NO_LIMIT_BYTES else None


def _v2_memory(group: Path) -> float | None:
    words = _words(group / "memory.max")
    return int(words[0]) if words and words[0] != "max" else None


def processor_name() -> str:
    """The processor's model name, or what the platform calls it."""
    for line in _lines(Path("/proc/cpuinfo")):
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "unknown"


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def frequency_hz() -> float | None:
    """Current processor frequency in Hz; None where the system says nothing, or 0."""
    try:
        known = psutil.cpu_freq()
    except (OSError, NotImplementedError):
        return None
    return known.current * 1e6 if known is not None and known.current > 0 else None


def governor() -> str | None:
    """Frequency governor of the first processor; None where there is none to read."""
    words = _words(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
    return words[0] if words else None


def boot_id() -> str | None:
    """Identity of this boot, which tells monotonic clocks apart; None where the system gives none."""
    words = _words(Path("/proc/sys/kernel/random/boot_id"))
    return words[0] if words else None


def monotonic_resolution_s() -> float:
    """Resolution of the monotonic clock in s, as the system states it."""
    return time.get_clock_info("monotonic").resolution


def runnable_tasks() -> int | None:
    """Tasks (count) running or waiting for a processor at this instant, ourselves included; None if not told."""
    words = _words(Path("/proc/loadavg"))
    return int(words[3].split("/")[0]) if len(words) > 3 else None


def gpus() -> Gpus:
    """NVIDIA devices through NVML, each field on its own; never raises."""
    try:
        import pynvml
    except ImportError:
        return Gpus((), "nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        return Gpus((), f"NVML: {problem}")
    try:
        uuids = [_uuid(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError as problem:
        return Gpus((), f"NVML: {problem}")
    finally:
        pynvml.nvmlShutdown()
    return Gpus(tuple(u for u in uuids if u is not None), f"{len(uuids)} device(s)")


def _uuid(nvml: Any, index: int) -> str | None:
    """UUID of one device, or None if this one does not answer."""
    try:
        return str(nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(index)))
    except nvml.NVMLError:
        return None
