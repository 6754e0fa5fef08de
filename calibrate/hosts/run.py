"""Run the probes of a grant, each in a fresh process within its ceilings, and say when not to trust a result."""

from __future__ import annotations

import json
import statistics
import subprocess
from dataclasses import dataclass
from pathlib import Path

from calibrate.hosts.grants import MIB, THREAD_MIB, Request
from calibrate.hosts.guard import start
from calibrate.hosts.loops import Samples
from telemetry.errors import BadField
from telemetry.samples import runnable_tasks
from telemetry.tables import Grant

PROCESS_START_S = 10.0
SPREAD_LIMIT = 0.10
FEW_SAMPLES = 3


@dataclass(frozen=True)
class Probe:
    """One measurement: `name` becomes part of the rate's name, `granted_as` is what a grant must name."""

    name: str
    granted_as: str
    module: str
    threads: int = 1
    arguments: tuple[str, ...] = ()
    memory_bytes: int = 768 * MIB
    disk_bytes: int = 0


@dataclass(frozen=True)
class ProbeRun:
    """What one probe's process measured; `runnable` counts tasks that wanted a processor just before it started."""

    probe: Probe
    unit: str
    samples: Samples
    runnable: int | None

    @property
    def rate_name(self) -> str:
        """Name with unit, such as memory_copy_bytes_per_s."""
        return f"{self.probe.name}_{self.unit}"

    @property
    def median(self) -> float:
        """Median rate per second."""
        return statistics.median(self.samples.rates)

    @property
    def spread(self) -> float:
        """Standard deviation over median; 0 for a single sample."""
        rates = self.samples.rates
        return statistics.stdev(rates) / self.median if len(rates) > 1 else 0.0


def probes(all_threads: int, folder: Path) -> tuple[Probe, ...]:
    """The three first probes: matmul on one and on all threads, memory copy, file read cold and cached in `folder`."""
    threads = sorted({1, all_threads})
    file_read = [
        Probe(f"file_read_{state}", "file_read", "calibrate.hosts.probes.storage", 1, (state, str(folder)), disk_bytes=128 * MIB)
        for state in ("cold", "cached")
    ]
    return (
        *(
            Probe(f"matmul_threads_{n}", "matmul", "calibrate.hosts.probes.cpu", n, memory_bytes=(512 + THREAD_MIB * n) * MIB)
            for n in threads
        ),
        Probe("memory_copy", "memory_copy", "calibrate.hosts.probes.dram"),
        *file_read,
    )


def measure(grant: Grant, probe: Probe, seconds: float) -> ProbeRun | None:
    """Run one probe for about so many seconds; None if it ended without a result or ran out of its time.

    Raises NotGranted, before anything is started, if the grant does not cover it.
    """
    if seconds <= 0:
        raise BadField("seconds", seconds, "give each probe some time, such as 1.0")
    request = Request(probe.granted_as, probe.threads, probe.memory_bytes, probe.disk_bytes, seconds + PROCESS_START_S)
    runnable = runnable_tasks()
    running = start(grant, request, probe.module, (str(seconds), *probe.arguments), stdout=subprocess.PIPE)
    try:
        printed, _ = running.process.communicate(timeout=running.left_s())
    except subprocess.TimeoutExpired:
        return None
    finally:
        running.stop()
        if running.process.stdout is not None:
            running.process.stdout.close()
    return None if running.process.returncode else read_run(probe, printed, runnable)


def read_run(probe: Probe, printed: str, runnable: int | None) -> ProbeRun | None:
    """The run told by a probe's output; None if it has no proved sample."""
    told = json.loads(printed)
    samples = Samples(tuple(told["rates"]), tuple(told["warmups"]), told["loops"], told["unproved"])
    return ProbeRun(probe, told["unit"], samples, runnable) if samples.rates else None


def complaints(run: ProbeRun, effective_cpus: float) -> list[str]:
    """Why not to trust a run, each with the figure and what to do; empty if nothing speaks against it."""
    found = []
    if len(run.samples.rates) < FEW_SAMPLES:
        found.append(f"{len(run.samples.rates)} samples: give it more seconds")
    if run.spread > SPREAD_LIMIT:
        found.append(f"spread {run.spread:.0%} of the median: idle the host and measure again")
    if run.samples.unproved:
        found.append(f"{run.samples.unproved} samples left out: the state of the page cache could not be proved")
    if run.runnable is not None and run.runnable - 1 > effective_cpus - run.probe.threads:
        found.append(f"contended: {run.runnable - 1} other tasks wanted {effective_cpus:g} processors; measure when idle")
    return found
