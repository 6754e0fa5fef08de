"""All NVIDIA devices of this host through NVML: identified by UUID, with a driver that may go away and come back.

Devices are known by UUID: their numbers differ between NVML and CUDA and change with masks. A sleeping device is not
asked at all, since that would wake it. A driver that falls silent is begun again after pauses that double, and its devices
are told as lost meanwhile.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from telemetry.nvml_fields import Reading, reading, silent

PCI_DEVICES = Path("/sys/bus/pci/devices")
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 300.0
_NVIDIA, _DISPLAY = "0x10de", "0x03"
_ASLEEP = frozenset({"suspended", "suspending"})


@dataclass(frozen=True)
class Readings:
    """All devices known; `trouble` says what kept some or all from being read, None if nothing did."""

    devices: tuple[Reading, ...]
    trouble: str | None = None


class Nvml:
    """A session with the driver. It is begun at the first reading, and nothing reads but who calls `read`.

    library: pynvml, or None where it is not installed. clock_s: a monotonic time in s. pci_devices: where the kernel tells
    which devices sleep.
    """

    def __init__(self, library: Any, clock_s: Callable[[], float] = time.monotonic, pci_devices: Path = PCI_DEVICES) -> None:
        self.lost_since_ns: int | None = None
        """UTC wall time, ns, at which a driver that had answered fell silent; None while it answers, or if it never did."""
        self._nvml, self._clock_s, self._pci_devices = library, clock_s, pci_devices
        self._open = self._answered = False
        self._trouble = ""
        self._retry_s, self._retry_at_s = FIRST_RETRY_S, 0.0
        self._addresses: dict[str, str | None] = {}
        """PCI address of every card seen so far, by UUID; None where it was not told."""

    def read(self) -> Readings:
        """All devices, one after the other; never raises for what they answer."""
        if self._nvml is None:
            return Readings((), "nvidia-ml-py is not installed")
        cards = sleeping(self._pci_devices)
        awake = [address for address, sleeps in cards.items() if not sleeps]
        faults: list[str] = []
        found: list[Reading] = []
        if (awake or not cards) and (self._open or self._begin()):
            with self._as(faults, "the number of devices"):
                handles = self._handles(awake if len(awake) < len(cards) else None, faults)
                found = [one for handle in handles for one in self._card(handle, faults)]
            if any(one.values for one in found) or not (found or faults):
                self._answers()
            else:
                self._lose(faults[0] if faults else next(iter(found[0].absent.values())))
                found, faults = [], []
        return self._with_silent(found, faults, cards.keys() - set(awake))

    def _begin(self) -> bool:
        """Begin a session unless the last failure was too recent; whether there is one now."""
        if self._clock_s() < self._retry_at_s:
            return False
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self._put_off(str(error))
            return False
        self._open = True
        return True

    def _answers(self) -> None:
        """Forget all trouble."""
        self._answered = True
        self._trouble, self._retry_s, self.lost_since_ns = "", FIRST_RETRY_S, None

    def _lose(self, why: str) -> None:
        """End a session in which nothing answers."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()
        self._open = False
        if self._answered and self.lost_since_ns is None:
            self.lost_since_ns = time.time_ns()
        self._put_off(why)

    def _put_off(self, why: str) -> None:
        """Note what is wrong, and when to try again."""
        self._trouble = f"telemetry_lost: {why}" if self._answered else f"NVML: {why}"
        self._retry_at_s = self._clock_s() + self._retry_s
        self._retry_s = min(2 * self._retry_s, LONGEST_RETRY_S)

    @contextlib.contextmanager
    def _as(self, faults: list[str], name: str) -> Iterator[None]:
        """Keep a refusal of the driver as a fault of what was asked."""
        try:
            yield
        except self._nvml.NVMLError as error:
            faults.append(f"{name}: {error}")

    def _handles(self, addresses: list[str] | None, faults: list[str]) -> list[Any]:
        """Handles of all cards, or of those at these PCI addresses only: asking for the others would wake them."""
        handles = []
        for key in range(self._nvml.nvmlDeviceGetCount()) if addresses is None else addresses:
            with self._as(faults, f"device {key}"):
                ask = self._nvml.nvmlDeviceGetHandleByIndex if addresses is None else self._nvml.nvmlDeviceGetHandleByPciBusId
                handles.append(ask(key))
        return handles

    def _card(self, handle: Any, faults: list[str]) -> list[Reading]:
        """One card, and the slices it is cut into."""
        found: list[Reading] = []
        with self._as(faults, "a device that tells no UUID"):
            uuid = _text(self._nvml.nvmlDeviceGetUUID(handle))
            self._addresses[uuid] = self._address(handle)
            sliced = self._is_sliced(handle)
            found.append(reading(self._nvml, handle, uuid, sliced=sliced))
            parts = [(part, _text(self._nvml.nvmlDeviceGetUUID(part))) for part in self._slices(handle)] if sliced else []
            found += [reading(self._nvml, part, name, uuid, sliced=True) for part, name in parts]
        return found

    def _is_sliced(self, handle: Any) -> bool:
        """Whether MIG is on; most cards do not know it."""
        try:
            return bool(self._nvml.nvmlDeviceGetMigMode(handle)[0] == 1)
        except (self._nvml.NVMLError, AttributeError):
            return False

    def _slices(self, handle: Any) -> list[Any]:
        """Handles of the slices; places that hold none refuse."""
        found = []
        for place in range(self._nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with contextlib.suppress(self._nvml.NVMLError_NotFound, self._nvml.NVMLError_InvalidArgument):
                found.append(self._nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, place))
        return found

    def _address(self, handle: Any) -> str | None:
        """PCI address as the kernel writes it."""
        try:
            told = _text(self._nvml.nvmlDeviceGetPciInfo(handle).busId)
        except (self._nvml.NVMLError, AttributeError):
            return None
        domain, _, rest = told.lower().partition(":")
        return f"{domain[-4:]}:{rest}"

    def _with_silent(self, found: list[Reading], faults: list[str], asleep: set[str]) -> Readings:
        """The readings with those of cards known from before that did not answer, and all that is wrong."""
        why = self._trouble or "; ".join(faults) or "not listed any more"
        told = {one.device for one in found}
        quiet = [
            silent(uuid, "asleep" if address in asleep else why) for uuid, address in self._addresses.items() if uuid not in told
        ]
        unknown = sorted(asleep - {address for address in self._addresses.values() if address})
        trouble = [self._trouble, *faults, *(f"{address}: asleep" for address in unknown)]
        return Readings((*found, *quiet), "; ".join(filter(None, trouble)) or None)


def sleeping(pci_devices: Path = PCI_DEVICES) -> dict[str, bool]:
    """NVIDIA's display devices by PCI address, and whether each sleeps; empty where the kernel does not tell."""
    found = {}
    for device in sorted(pci_devices.glob("*")) if pci_devices.is_dir() else ():
        if _line(device / "vendor") == _NVIDIA and _line(device / "class").startswith(_DISPLAY):
            found[device.name] = _line(device / "power" / "runtime_status") in _ASLEEP
    return found


def _line(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _text(told: str | bytes) -> str:
    """Text of a name, which older pynvml gives as bytes."""
    return told.decode() if isinstance(told, bytes) else told
