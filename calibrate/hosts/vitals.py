"""How a host does while it is measured, and what follows: go on, hold the probe, or end it.

`judged` is pure; `Watch` reads the real host. What can't be read is None and never speaks against a run; nothing is changed, and
a sleeping GPU is not asked.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import psutil

from calibrate.hosts.grants import MIB
from telemetry.nvml import Readings

Action = Literal["go", "hold", "end"]
AT_REST = frozenset({"gpu_idle", "applications_clocks_setting"})
"""Reasons of a lower clock that say nothing against a measurement."""
FOREGROUND_SHARE = 0.05
"""A process to be left alone that uses more of a processor than this is at work."""
RESOLVE_S = 1.0
"""How often processes that began meanwhile are looked through for those to be left alone, s."""


@dataclass(frozen=True)
class Device:
    """The GPU that is measured: temperature, and processes computing on it beside ours (count)."""

    temperature_c: float | None = None
    others: int | None = None


@dataclass(frozen=True)
class Vitals:
    """One look at the host. `others` are processors that everybody else used since the look before."""

    others: float | None = None
    available_bytes: int | None = None
    temperature_c: float | None = None
    on_battery: bool | None = None
    foreground: str | None = None
    device: Device = Device()


@dataclass(frozen=True)
class Rules:
    """When a run gives way.

    `busy`: what to do where others want the processors: `hold` the probe, or `measure` nevertheless, marked contended. A probe
    may be held for `patience_s` in all. `yield_to` names processes, by name or id, whose work is never disturbed.
    """

    busy: Literal["hold", "measure"] = "hold"
    patience_s: float = 30.0
    slack: float = 0.5
    least_available_bytes: int = 256 * MIB
    hottest_c: float = 90.0
    hottest_gpu_c: float = 83.0
    yield_to: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What to do, and why."""

    action: Action
    why: str = ""


def judged(vitals: Vitals, rules: Rules, *, threads: int, processors: int) -> Verdict:
    """What a look at the host asks of a probe of so many threads on a host of so many processors."""
    if vitals.available_bytes is not None and vitals.available_bytes < rules.least_available_bytes:
        return Verdict("end", f"memory: {vitals.available_bytes // MIB} MiB are left")
    if vitals.on_battery:
        return Verdict("end", "battery: the host runs on it")
    if vitals.device.others:
        return Verdict("end", f"gpu: {vitals.device.others} other process(es) compute on it")
    why = _too_hot(vitals, rules) or _at_work(vitals, rules, threads, processors)
    return Verdict("hold", why) if why is not None else Verdict("go")


def _too_hot(vitals: Vitals, rules: Rules) -> str | None:
    for name, read_c, limit_c in (
        ("temperature", vitals.temperature_c, rules.hottest_c),
        ("gpu temperature", vitals.device.temperature_c, rules.hottest_gpu_c),
    ):
        if read_c is not None and read_c >= limit_c:
            return f"{name}: {read_c:.0f} degrees C, held from {limit_c:.0f}"
    return None


def _at_work(vitals: Vitals, rules: Rules, threads: int, processors: int) -> str | None:
    if vitals.foreground is not None:
        return f"foreground: {vitals.foreground} is at work"
    if rules.busy == "hold" and vitals.others is not None and vitals.others + threads > processors + rules.slack:
        return f"load: others use {vitals.others:.1f} of {processors} processors, the probe wants {threads}"
    return None


class Driver(Protocol):
    """What tells the state of GPUs."""

    def read(self) -> Readings:
        """All devices now."""


class Watch:
    """Looks at this host on behalf of one probe's process, again and again.

    pid: that process. yield_to: as in Rules. device: UUID of the GPU it uses, None where it uses none. foreground: what else is
    at work that must not be disturbed, such as attempts that the caller knows of; None where there is nothing.
    """

    def __init__(
        self,
        pid: int,
        yield_to: tuple[str, ...] = (),
        device: str | None = None,
        *,
        nvml: Driver | None = None,
        foreground: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._pid, self._yield_to, self._device, self._nvml, self._foreground = pid, yield_to, device, nvml, foreground
        self._named: dict[int, psutil.Process] = {}
        self._seen: set[int] = set()
        self._settled: set[int] = set()
        self._resolve_at_s = 0.0
        self._last = self._used()
        self.throttled: set[str] = set()
        """Why the GPU's clocks were held down at any look so far."""

    def look(self) -> Vitals:
        """The host now; a share of time is that since the look before."""
        before, self._last = self._last, self._used()
        elapsed_s = self._last["at"] - before["at"]
        others, ours = (self._last[name] - before[name] for name in ("everybody", "ours"))
        return Vitals(
            others=max(0.0, others - ours) / elapsed_s if elapsed_s > 0 else None,
            available_bytes=psutil.virtual_memory().available,
            temperature_c=hottest_c(),
            on_battery=on_battery(),
            foreground=self._at_work(before, elapsed_s) or self._foreground(),
            device=self._gpu(),
        )

    def _used(self) -> dict[Any, float]:
        """Processor seconds used so far: by everybody, by us and the probe, and by each process to be left alone."""
        self._resolve()
        times = psutil.cpu_times()
        idle = ("idle", "iowait", "guest", "guest_nice", "steal")
        everybody = sum(value for name, value in times._asdict().items() if name not in idle)
        named = {pid: _processor_s(process) for pid, process in self._named.items()}
        ours = _processor_s(psutil.Process()) + _family_s(self._pid)
        return {"at": time.monotonic(), "everybody": everybody, "ours": ours, **named}

    def _resolve(self) -> None:
        """Find processes to be left alone among those not seen before, never the probe's own, and forget those that are gone.

        A process is looked at twice, since it bears its parent's name until it becomes another program.
        """
        if not self._yield_to or time.monotonic() < self._resolve_at_s:
            return
        now = set(psutil.pids())
        fresh = {pid: _found(pid, self._yield_to) for pid in now - self._settled if not self._ours(pid)}
        kept = {pid: process for pid, process in self._named.items() if pid in now & self._settled}
        self._named = kept | {pid: process for pid, process in fresh.items() if process is not None}
        self._settled, self._seen = self._seen & now, now
        self._resolve_at_s = time.monotonic() + RESOLVE_S

    def _ours(self, pid: int) -> bool:
        """Whether it is this process or belongs to the probe, which is started in a session of its own."""
        try:
            return pid == os.getpid() or os.getsid(pid) == self._pid
        except OSError:
            return False

    def _at_work(self, before: Mapping[Any, float], elapsed_s: float) -> str | None:
        """The first of the processes to be left alone that worked since the look before, which it had to be in."""
        for pid, process in self._named.items():
            if elapsed_s > 0 and (self._last[pid] - before.get(pid, self._last[pid])) / elapsed_s > FOREGROUND_SHARE:
                return _name(process)
        return None

    def _gpu(self) -> Device:
        if self._device is None or self._nvml is None:
            return Device()
        found = next((one for one in self._nvml.read().devices if one.device == self._device), None)
        if found is None:
            return Device()
        self.throttled |= set(found.values.get("throttle_reasons") or ()) - AT_REST
        corunners = found.values.get("corunners")
        return Device(found.values.get("temperature_c"), None if corunners is None else max(0, corunners - 1))


def hottest_c() -> float | None:
    """The highest temperature that the system tells, degrees C; None where it tells none."""
    read = getattr(psutil, "sensors_temperatures", None)
    if read is None:
        return None
    told = [one.current for sensors in read().values() for one in sensors if one.current]
    return max(told, default=None)


def on_battery() -> bool | None:
    """Whether the host runs on its battery; None where there is none, or it is not told."""
    read = getattr(psutil, "sensors_battery", None)
    told = read() if read is not None else None
    return None if told is None or told.power_plugged is None else not told.power_plugged


def waited_share(pid: int) -> float | None:
    """Of the processor time that a process wanted so far, the share it had to wait for; None where the kernel does not tell."""
    ran_ns = waited_ns = 0
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            ran, waited, _ = (task / "schedstat").read_text().split()
            ran_ns, waited_ns = ran_ns + int(ran), waited_ns + int(waited)
    except (OSError, ValueError):
        return None
    return waited_ns / (ran_ns + waited_ns) if ran_ns + waited_ns else None


def _family_s(pid: int) -> float:
    """Processor seconds of a process and what it started."""
    try:
        return _processor_s(psutil.Process(pid)) + sum(map(_family_s, _children(pid)))
    except psutil.Error:
        return 0.0


def _children(pid: int) -> list[int]:
    """Ids of what a process started, by the kernel's own list: looking through all processes would disturb a busy host."""
    threads = Path(f"/proc/{pid}/task")
    try:
        return [int(child) for thread in threads.iterdir() for child in (thread / "children").read_text().split()]
    except OSError:
        return [child.pid for child in psutil.Process(pid).children()]


def _processor_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)


def _found(pid: int, named: tuple[str, ...]) -> psutil.Process | None:
    """The process of that id where it is one of those named, by name or id; None where it is not, or is gone."""
    try:
        process = psutil.Process(pid)
    except psutil.Error:
        return None
    return process if str(pid) in named or _name(process) in named else None


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.Error:
        return ""
