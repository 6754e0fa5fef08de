"""Run one probe under a grant, in a fresh process that is attended to, and say when not to trust what it measured."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from calibrate.hosts.catalogue import Probe
from calibrate.hosts.devices import free_device, nvml
from calibrate.hosts.grants import holds, permits
from calibrate.hosts.guard import Attended, attended, start
from calibrate.hosts.series import Series, Told, collected
from calibrate.hosts.vitals import Rules, Vitals, Watch
from telemetry.errors import BadField, NotGranted
from telemetry.samples import runnable_tasks
from telemetry.tables import Grant

BEGIN = "calibrate.hosts.begin"
SPREAD_LIMIT = 0.10
WAITED_LIMIT = 0.05
"""A probe that waits for more of its processor time than this measures its neighbours, not the host."""
FEW_SAMPLES = 3


@dataclass(frozen=True)
class Care:
    """How a run is attended to: when it gives way, who is at work besides, and whether its permission still stands.

    `look` stands in for the real host in tests.
    """

    rules: Rules = field(default_factory=Rules)
    foreground: Callable[[], str | None] = lambda: None
    withdrawn: Callable[[], str | None] = lambda: None
    look: Callable[[], Vitals] | None = None


@dataclass(frozen=True)
class ProbeRun:
    """What became of one probe's process: what it told, and under what circumstances.

    `runnable` counts tasks that wanted a processor just before it started; `began_ns` and `ended_ns` are on the monotonic clock,
    `wall_ns` is UTC at the beginning. `device` is the UUID of the GPU it used, `throttled` why its clocks were
    held down meanwhile.
    """

    probe: Probe
    told: Told
    attended: Attended = field(default_factory=Attended)
    runnable: int | None = None
    wall_ns: int = 0
    began_ns: int = 0
    ended_ns: int = 0
    device: str | None = None
    throttled: tuple[str, ...] = ()

    @property
    def series(self) -> tuple[Series, ...]:
        """The series that have samples."""
        return tuple(one for one in self.told.series if one.values)

    @property
    def whole(self) -> bool:
        """Whether it ended itself after all that there is to measure here; what can't be measured is absent, with its reason."""
        return self.told.done or (not self.ended_ns and bool(self.told.absent))

    @property
    def failed(self) -> str | None:
        """Why it ended without having measured all; None where it is whole, or was ended from outside."""
        if self.whole or self.attended.ended_by is not None:
            return None
        return self.told.failed or "its process ended without a result"

    def contended(self, effective_cpus: float) -> str | None:
        """Why it measured its neighbours rather than the host; None if it did not."""
        waited = self.attended.waited
        if waited is not None:
            return f"waited for {waited:.0%} of its processor time" if waited > WAITED_LIMIT else None
        if self.runnable is not None and self.runnable - 1 > effective_cpus - self.probe.threads:
            return f"{self.runnable - 1} other tasks wanted {effective_cpus:g} processors"
        return None


def measure(grant: Grant, probe: Probe, seconds: float, care: Care = Care()) -> ProbeRun:
    """Run one probe for about so many seconds. What it told before it was ended is kept.

    Raises NotGranted, before anything is started, if the grant does not cover it. A GPU probe without a free GPU is not started.
    """
    if seconds <= 0:
        raise BadField("seconds", seconds, "give each probe some time, such as 1.0")
    host = socket.gethostname()
    permits(grant, probe.request(seconds), host=host, now_ns=time.time_ns())
    session = nvml() if probe.gpu_fraction > 0 else None
    chosen = free_device(session.read()) if session is not None else None
    if chosen is not None and chosen.uuid is None:
        return ProbeRun(probe, Told(absent={probe.name: chosen.why}))
    device = chosen.uuid if chosen is not None else None
    run = ProbeRun(probe, Told(), runnable=runnable_tasks(), wall_ns=time.time_ns(), began_ns=time.monotonic_ns(), device=device)
    environment = {"CUDA_VISIBLE_DEVICES": device or ""}
    arguments = (probe.module, str(seconds), *probe.arguments)
    running = start(grant, probe.request(seconds), BEGIN, arguments, stdout=subprocess.PIPE, environment=environment)
    try:
        watch = Watch(running.process.pid, care.rules.yield_to, device, nvml=session, foreground=care.foreground)
        found = attended(
            running,
            care.look or watch.look,
            care.rules,
            threads=probe.threads,
            processors=os.cpu_count() or 1,
            withdrawn=lambda: care.withdrawn() or _ended(grant, host),
        )
    finally:
        running.stop()
    told, throttled = collected(found.lines, found.held), tuple(sorted(watch.throttled))
    return replace(run, told=told, attended=found, throttled=throttled, ended_ns=time.monotonic_ns())


def _ended(grant: Grant, host: str) -> str | None:
    """Why a grant covers nothing any more."""
    try:
        holds(grant, host=host, now_ns=time.time_ns())
    except NotGranted as error:
        return f"grant: {error.fix}"
    return None


def complaints(run: ProbeRun, series: Series, effective_cpus: float) -> list[str]:
    """Why not to trust one of its series, each with the figure and what to do; empty if nothing speaks against it."""
    found = []
    if len(series.values) < FEW_SAMPLES and not series.name.endswith("_first"):
        found.append(f"{len(series.values)} samples: give it more seconds")
    if series.spread > SPREAD_LIMIT:
        found.append(f"spread {series.spread:.0%} of the median: idle the host and measure again")
    if series.unproved:
        found.append(f"{series.unproved} samples left out: the state of the page cache could not be proved")
    if series.name.endswith("_cache_unknown"):
        found.append("cache_unknown: no cold read could be proved here; choose another folder")
    if series.interrupted:
        found.append(f"{series.interrupted} samples left out: the probe was held meanwhile")
    if run.throttled:
        found.append(f"throttled: {', '.join(run.throttled)}; the rate is what heat or power allowed")
    if run.attended.ended_by is not None:
        found.append(f"partial: stopped ({run.attended.ended_by})")
    if (why := run.contended(effective_cpus)) is not None:
        found.append(f"contended: {why}; measure when idle")
    return found
