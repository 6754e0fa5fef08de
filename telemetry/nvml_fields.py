"""What NVML tells of one device: each field on its own, absent with the reason where it is not told, never 0.

Cards cut into slices (MIG) know no utilisation, virtual machines leave out what they like, and old drivers know less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

_NOT_TOLD = 1 << 62
"""NVML writes all ones where a number is not available."""
_THROTTLE_REASONS = (
    *("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown"),
    *("hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clocks_setting"),
)
"""By bit from the lowest, named as nvidia-smi names them."""


class _NotToldError(Exception):
    """A field without a usable value; the text is the reason."""


@dataclass(frozen=True)
class Reading:
    """A device or a slice at an instant: fields as the columns of resource_samples, and why the others are absent.

    device: UUID. parent: UUID of the card that a slice is cut from, None for a card.
    """

    device: str
    parent: str | None = None
    values: dict[str, Any] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)


def reading(nvml: Any, handle: Any, device: str, parent: str | None = None, *, sliced: bool = False) -> Reading:
    """Read every field of a device.

    nvml: pynvml. sliced: whether this is a slice or a card cut into slices, whose utilisation NVML may show as 0 instead of
    refusing it.
    """
    found = Reading(device, parent)
    for names, read in _READERS:
        if sliced and read is _utilization:
            why = "unsupported: not known where MIG is on"
        else:
            try:
                found.values.update(zip(names, read(nvml, handle), strict=True))
                continue
            except (nvml.NVMLError, _NotToldError) as error:
                why = str(error)
            except AttributeError as error:
                why = f"this pynvml does not know it: {error}"
        found.absent.update(dict.fromkeys(names, why))
    return found


def silent(device: str, why: str) -> Reading:
    """A known device of which nothing can be read now."""
    return Reading(device, absent=dict.fromkeys(FIELDS, why))


def _utilization(nvml: Any, handle: Any) -> tuple[float]:
    percent = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
    if not 0 <= percent <= 100:
        raise _NotToldError(f"reads {percent} %")
    return (percent / 100,)


def _memory(nvml: Any, handle: Any) -> tuple[int, int]:
    """Total and used. Version 2 keeps what the driver reserves apart from what is used, as nvidia-smi does."""
    try:
        found = nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2)
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported, nvml.NVMLError_ArgumentVersionMismatch):
        found = nvml.nvmlDeviceGetMemoryInfo(handle)
    if not 0 < found.total < _NOT_TOLD:
        raise _NotToldError(f"total reads {found.total} bytes")
    return int(found.total), int(found.used)


def _clock(nvml: Any, handle: Any) -> tuple[float]:
    return (nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1e6,)


def _temperature(nvml: Any, handle: Any) -> tuple[float]:
    return (float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),)


def _power(nvml: Any, handle: Any) -> tuple[float]:
    return (nvml.nvmlDeviceGetPowerUsage(handle) / 1e3,)


def _throttle(nvml: Any, handle: Any) -> tuple[list[str]]:
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except nvml.NVMLError_FunctionNotFound:  # drivers before 535 know it by its former name
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return ([name for bit, name in enumerate(_THROTTLE_REASONS) if bits >> bit & 1],)


def _corunners(nvml: Any, handle: Any) -> tuple[int]:
    return (len(nvml.nvmlDeviceGetComputeRunningProcesses(handle)),)


_READERS: tuple[tuple[tuple[str, ...], Callable[[Any, Any], tuple[Any, ...]]], ...] = (
    (("gpu_utilization",), _utilization),
    (("gpu_memory_total_bytes", "gpu_memory_used_bytes"), _memory),
    (("sm_clock_hz",), _clock),
    (("temperature_c",), _temperature),
    (("power_w",), _power),
    (("throttle_reasons",), _throttle),
    (("corunners",), _corunners),
)
FIELDS = tuple(name for names, _ in _READERS for name in names)
"""Columns of resource_samples that are read here."""
