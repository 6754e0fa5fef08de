"""What can be measured, with the most that each takes: the list behind grants, plans and runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from calibrate.hosts.grants import FIRST_PROBES, MIB, THREAD_MIB, Request

PROCESS_START_S = 20.0
"""Allowance for a process to begin: a backend of hundreds of MiB is read, perhaps from a cold disk beside other work."""
BACKEND_MIB = 1280
PLACE = "calibrate.hosts.probes"


@dataclass(frozen=True)
class Probe:
    """One process that measures: `name` for people, `granted_as` what a grant must name, the most it takes, what it touches."""

    name: str
    granted_as: str
    module: str
    threads: int = 1
    arguments: tuple[str, ...] = ()
    memory_bytes: int = 768 * MIB
    disk_bytes: int = 0
    gpu_fraction: float = 0.0
    touches: str = "processors and memory"

    def request(self, seconds: float) -> Request:
        """What it asks of a grant where it is to measure for so many seconds."""
        run_s = seconds + PROCESS_START_S
        ceilings = (self.threads, self.memory_bytes, self.disk_bytes, run_s, self.gpu_fraction)
        return Request(self.granted_as, *ceilings, begin_s=PROCESS_START_S)


def catalogue(all_threads: int, folder: Path, peer: str | None = None) -> tuple[Probe, ...]:
    """Every probe, operators on one and on all threads, files in `folder`.

    peer: HOST:PORT of a process that answers the network probe elsewhere; by default it starts one here.
    """
    return (
        *(
            _operator(name, threads)
            for name in ("matmul", "memory_bound", "image_like", "decode_like")
            for threads in sorted({1, all_threads})
        ),
        Probe("memory_copy", "memory_copy", f"{PLACE}.dram"),
        *_files("file_read", f"{PLACE}.storage", folder, 128 * MIB),
        *_files("checkpoint_decode", f"{PLACE}.checkpoint", folder, 128 * MIB),
        Probe("warmup", "warmup", f"{PLACE}.warmup", memory_bytes=BACKEND_MIB * MIB, touches="a few short processes"),
        Probe(
            "network",
            "network",
            f"{PLACE}.network",
            arguments=(peer,) if peer else (),
            touches=f"the network to {peer}" if peer else "the loopback network",
        ),
        _gpu("device_copy", "copies"),
        _gpu("gpu_operators", "operators"),
    )


def first_probes(all_threads: int, folder: Path) -> tuple[Probe, ...]:
    """Those that the demo runs: matmul on one and on all threads, memory copy, file read cold and cached in `folder`."""
    return named(catalogue(all_threads, folder), FIRST_PROBES)


def named(probes: Collection[Probe], names: Collection[str]) -> tuple[Probe, ...]:
    """Those that are granted under one of these names, in their order."""
    return tuple(probe for probe in probes if probe.granted_as in names)


def _operator(name: str, threads: int) -> Probe:
    memory_bytes = (BACKEND_MIB + THREAD_MIB * threads) * MIB
    return Probe(f"{name}_threads_{threads}", name, f"{PLACE}.cpu", threads, (name, str(threads)), memory_bytes)


def _files(name: str, module: str, folder: Path, disk_bytes: int) -> list[Probe]:
    touches = f"a nameless file in {folder}"
    return [
        Probe(f"{name}_{state}", name, module, 1, (state, str(folder)), disk_bytes=disk_bytes, touches=touches)
        for state in ("cold", "cached")
    ]


def _gpu(name: str, what: str) -> Probe:
    return Probe(
        name,
        name,
        f"{PLACE}.gpu",
        1,
        (what,),
        8192 * MIB,
        gpu_fraction=1.0,
        touches="one GPU that is awake and idle",
    )
