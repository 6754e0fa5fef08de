"""A stand-in for pynvml that answers what an nvidia-smi XML file recorded, in NVML's own units and refusals."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pynvml

MIB = 2**20
REASON_BITS = {
    name: 1 << bit
    for bit, name in enumerate(
        (
            *("gpu_idle", "applications_clocks_setting", "sw_power_cap", "hw_slowdown", "sync_boost", "sw_thermal_slowdown"),
            *("hw_thermal_slowdown", "hw_power_brake_slowdown", "display_clocks_setting"),
        )
    )
}


def recorded(path: Path) -> SimpleNamespace:
    """Pynvml of the machine whose `nvidia-smi -q -x` this file is."""
    return from_xml(path.read_text())


def from_xml(text: str) -> SimpleNamespace:
    """Pynvml of the machine that this text describes."""
    return pynvml_of(fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", text)).findall("gpu"))


def pynvml_of(cards: Sequence[Element]) -> SimpleNamespace:
    """Pynvml with these cards. A handle is the XML element; errors and constants are those of the real one."""
    names = [name for name in vars(pynvml) if name.startswith(("NVML_", "NVMLError", "nvmlMemory"))]
    return SimpleNamespace(
        **{name: getattr(pynvml, name) for name in names},
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(cards),
        nvmlDeviceGetHandleByIndex=lambda index: cards[index],
        nvmlDeviceGetHandleByPciBusId=lambda address: next(card for card in cards if card.get("id")[4:].lower() == address),
        nvmlDeviceGetPciInfo=lambda card: SimpleNamespace(busId=card.get("id")),
        nvmlDeviceGetUUID=lambda one: _told(one, "uuid", "@name"),
        nvmlDeviceGetMigMode=lambda card: [int(_told(card, "mig_mode/current_mig") == "Enabled")] * 2,
        nvmlDeviceGetMaxMigDeviceCount=lambda _: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=_slice,
        nvmlDeviceGetUtilizationRates=lambda one: SimpleNamespace(gpu=int(_number(one, "utilization/gpu_util", "%"))),
        nvmlDeviceGetMemoryInfo=_memory,
        nvmlDeviceGetClockInfo=lambda one, _: int(_number(one, "clocks/sm_clock", "MHz")),
        nvmlDeviceGetTemperature=lambda one, _: int(_number(one, "temperature/gpu_temp", "C")),
        nvmlDeviceGetPowerUsage=lambda one: int(_watts(one) * 1000),
        nvmlDeviceGetCurrentClocksEventReasons=lambda one: _reasons(one, "event"),
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda one: _reasons(one, "throttle"),
        nvmlDeviceGetComputeRunningProcesses=lambda one: [p for p in one.iter("process_info") if "C" in p.findtext("type", "")],
    )


def falling_silent(library: SimpleNamespace, error: int) -> Callable[[bool], None]:
    """A switch: while it is on, every call of `library` but init and shutdown raises that error."""
    state = {"silent": False}

    def guarded(call: Callable[..., Any]) -> Callable[..., Any]:
        def answer(*given: Any) -> Any:
            if state["silent"]:
                raise pynvml.NVMLError(error)
            return call(*given)

        return answer

    for name in [name for name in vars(library) if name.startswith("nvmlDevice")]:
        setattr(library, name, guarded(getattr(library, name)))
    return lambda silent: state.update(silent=silent)


def _told(one: Element, *places: str) -> str:
    for place in places:
        text = one.get(place[1:]) if place.startswith("@") else one.findtext(place)
        if text is not None and text.strip() not in {"", "N/A"}:
            return text.strip()
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _number(one: Element, place: str, unit: str) -> float:
    return float(_told(one, place).removesuffix(f" {unit}"))


def _watts(one: Element) -> float:
    text = _told(one, "gpu_power_readings/power_draw", "power_readings/power_draw")
    return float(text.removesuffix(" W"))


def _memory(one: Element, version: object = None) -> SimpleNamespace:
    """Version 2 has the reserved part of its own, which the former one counts as used."""
    total, used = (int(_number(one, f"fb_memory_usage/{name}", "MiB")) * MIB for name in ("total", "used"))
    if version is None and one.find("fb_memory_usage/reserved") is not None:
        used += int(_number(one, "fb_memory_usage/reserved", "MiB")) * MIB
    return SimpleNamespace(total=total, used=used)


def _reasons(one: Element, word: str) -> int:
    block = one.find(f"clocks_{word}_reasons")
    if block is None:
        missing = one.find("clocks_throttle_reasons") is not None
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND if missing else pynvml.NVML_ERROR_NOT_SUPPORTED)
    active = [reason.tag.removeprefix(f"clocks_{word}_reason_") for reason in block if (reason.text or "").strip() == "Active"]
    return sum(REASON_BITS[name] for name in active)


def _slice(card: Element, place: int) -> Element:
    """A slice, which the file gives a number only; drivers name it by its card and instances."""
    for part in card.iter("mig_device"):
        if part.findtext("index") == str(place):
            instance = f"{part.findtext('gpu_instance_id')}/{part.findtext('compute_instance_id')}"
            part.set("name", f"MIG-{card.findtext('uuid')}/{instance}")
            return part
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
