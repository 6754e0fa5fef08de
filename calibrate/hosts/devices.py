"""Which GPU may be measured: one that is awake and on which nobody else computes. Devices are known by UUID."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from telemetry.nvml import Nvml, Readings

IDLE_UTILIZATION = 0.1


@dataclass(frozen=True)
class Chosen:
    """The UUID of the device to measure, or None and why there is none."""

    uuid: str | None
    why: str = ""


def free_device(readings: Readings) -> Chosen:
    """The first device that answers and on which nobody computes; a sleeping one is left asleep."""
    reasons = []
    for one in readings.devices:
        corunners, utilization = one.values.get("corunners"), one.values.get("gpu_utilization")
        if not one.values:
            reasons.append(f"{one.device}: {next(iter(one.absent.values()), 'nothing told')}")
        elif corunners is None:
            reasons.append(f"{one.device}: it is not told whether others compute on it")
        elif corunners > 0:
            reasons.append(f"{one.device}: {corunners} process(es) compute on it")
        elif utilization is not None and utilization > IDLE_UTILIZATION:
            reasons.append(f"{one.device}: {utilization:.0%} busy")
        else:
            return Chosen(one.device)
    return Chosen(None, "; ".join(reasons) or readings.trouble or "no GPU")


def nvml() -> Nvml:
    """A session with the installed driver's library; without one its readings say so."""
    return Nvml(_library())


def driver_version(readings: Readings) -> str | None:
    """Version of the NVIDIA driver; None where no device is awake to ask, or it does not tell."""
    library = _library()
    if library is None or not any(one.values for one in readings.devices):
        return None
    try:
        library.nvmlInit()
        told = library.nvmlSystemGetDriverVersion()
        library.nvmlShutdown()
    except library.NVMLError:
        return None
    return told.decode() if isinstance(told, bytes) else str(told)


def _library() -> Any:
    try:
        import pynvml
    except ImportError:
        return None
    return pynvml
