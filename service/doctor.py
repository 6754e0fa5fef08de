"""What this machine can and cannot measure. Looks, reports, and never fails because something is absent."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import psutil

from calibrate.hosts.pagecache import evict, fill
from telemetry import samples
from telemetry.store.lock import holder

State = Literal["ok", "limited", "absent"]
_TRIAL_BYTES = 1 << 20
_LITTLE_DISK_BYTES = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One thing looked at: whether it is there, what was found, and what follows from that."""

    name: str
    state: State
    value: str
    note: str


def examine(store: Path | None) -> list[Finding]:
    """Everything that bears on what can be measured here, in a fixed order. `store` is where the store is or would be."""
    folder = _existing_folder(store)
    group = samples.read_cgroup()
    devices = samples.gpus()
    return [
        Finding("python", "ok", platform.python_version(), f"{platform.system()} {platform.release()}"),
        _torch(),
        _cuda(devices),
        _nvml(devices),
        _cgroup(group),
        _processors(group),
        _memory(group),
        _frequency(),
        _monotonic_clock(),
        _boot(),
        _page_cache(folder),
        _disk(folder),
        _duckdb(),
        _store(store),
    ]


def _existing_folder(store: Path | None) -> Path:
    """The folder of the store or the nearest one above it that exists; the folder for temporary files if there is no store."""
    if store is None:
        return Path(tempfile.gettempdir())
    return next((folder for folder in store.absolute().parents if _is_folder(folder)), Path(tempfile.gettempdir()))


def _is_folder(path: Path) -> bool:
    """Whether it is a folder; a name no file system takes is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _installed(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _torch() -> Finding:
    version = _installed("torch")
    if version is None:
        return Finding("torch", "absent", "not installed", "the demo works with NumPy instead; `make torch` installs it")
    return Finding("torch", "ok", version, "the demo's encoder runs on it")


def _cuda(devices: samples.Gpus) -> Finding:
    """Imports torch, which takes a second, only where there is a device to ask about."""
    if not devices.uuids:
        return Finding("cuda", "absent", "no device", "services are timed on the host's clock")
    if _installed("torch") is None:
        return Finding("cuda", "limited", f"{len(devices.uuids)} device(s)", "torch is not installed, so none can be used")
    import torch

    if not torch.cuda.is_available():
        return Finding("cuda", "limited", f"{len(devices.uuids)} device(s)", f"torch {torch.__version__} cannot use them")
    return Finding("cuda", "ok", f"{torch.cuda.device_count()} device(s)", f"CUDA {torch.version.cuda}")


def _nvml(devices: samples.Gpus) -> Finding:
    if not devices.uuids:
        return Finding("nvml", "absent", devices.status, "no samples of GPU clocks, load or temperature")
    return Finding("nvml", "ok", devices.status, ", ".join(devices.uuids))


def _cgroup(group: samples.Cgroup) -> Finding:
    if group.version == "neither":
        return Finding("cgroup", "absent", "neither v1 nor v2", "limits of a container, if there are any, cannot be read")
    quota = "no processor quota" if group.cpu_quota is None else f"quota of {group.cpu_quota:g} processors"
    memory = "no memory limit" if group.memory_limit_bytes is None else f"memory limit {_gib(group.memory_limit_bytes)}"
    return Finding("cgroup", "ok", group.version, f"{quota}, {memory}")


def _processors(group: samples.Cgroup) -> Finding:
    usable = samples.processors(group)
    note = f"{usable.affinity} in the affinity mask, {os.cpu_count()} in the machine: {samples.processor_name()}"
    return Finding("processors", "ok", f"{usable.effective:g} usable", note)


def _memory(group: samples.Cgroup) -> Finding:
    available = psutil.virtual_memory().available
    return Finding("memory", "ok", _gib(samples.memory_bytes(group)), f"{_gib(available)} available in the machine now")


def _frequency() -> Finding:
    hz, governor = samples.frequency_hz(), samples.governor()
    note = f"governor {governor}" if governor else "no governor to read; profiles do without it"
    if hz is None:
        return Finding("processor_frequency", "absent", "unknown", note)
    return Finding("processor_frequency", "ok" if governor else "limited", f"{hz / 1e9:.2f} GHz", note)


def _monotonic_clock() -> Finding:
    resolution_s = samples.monotonic_resolution_s()
    fine = resolution_s <= 1e-6
    note = "durations come from it" if fine else "too coarse for spans of microseconds"
    return Finding("monotonic_clock", "ok" if fine else "limited", f"{resolution_s * 1e9:g} ns", note)


def _boot() -> Finding:
    boot = samples.boot_id()
    if boot is None:
        return Finding("boot_id", "absent", "unknown", "each process counts as a clock of its own: no durations across processes")
    return Finding("boot_id", "ok", boot, "tells monotonic clocks of different boots apart")


def _page_cache(folder: Path) -> Finding:
    """Really drops and fills the cache of a small file in the folder."""
    kind = _file_system(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix="doctor-") as file:
            file.write(b"\0" * _TRIAL_BYTES)
            file.flush()
            dropped, filled = evict(Path(file.name)), fill(Path(file.name))
    except OSError as problem:
        return Finding("page_cache", "limited", f"not tried in {folder}", f"{problem}; loads there may be called cache_unknown")
    if dropped and filled:
        return Finding("page_cache", "ok", f"proved on {kind}", "cold and cached loads can be told apart")
    note = "tmpfs keeps every page: nothing there is ever cold" if kind == "tmpfs" else "cold loads will be called cache_unknown"
    return Finding("page_cache", "limited", f"no proof on {kind}", note)


def _file_system(folder: Path) -> str:
    """Type of the file system that holds the folder: the one with the longest mount point above it."""
    place = folder.resolve()
    mounts = [m for m in psutil.disk_partitions(all=True) if place.is_relative_to(m.mountpoint)]
    return max(mounts, key=lambda m: len(m.mountpoint)).fstype if mounts else "unknown file system"


def _disk(folder: Path) -> Finding:
    free_bytes = psutil.disk_usage(str(folder)).free
    enough = free_bytes >= _LITTLE_DISK_BYTES
    note = str(folder) if enough else f"{folder}: the store refuses events when the disk is full"
    return Finding("disk", "ok" if enough else "limited", f"{_gib(free_bytes)} free", note)


def _duckdb() -> Finding:
    version = _installed("duckdb")
    if version is None:
        return Finding("duckdb", "absent", "not installed", "there is no store without it")
    return Finding("duckdb", "ok", version, "format of the store")


def _store(store: Path | None) -> Finding:
    try:
        return _found_store(store)
    except OSError as error:
        return Finding("store", "limited", str(store), f"{error.strerror}; give --store or set PHASECAST_STORE")


def _found_store(store: Path | None) -> Finding:
    if store is not None and store.exists() and not store.is_file():
        return Finding("store", "limited", str(store), "that is no file: name one, such as work.duckdb")
    if store is None or not store.exists():
        return Finding("store", "absent", str(store or "none named"), "made by the first command that writes")
    owner = holder(store)
    if owner is None:
        return Finding("store", "ok", f"{store}, {_gib(store.stat().st_size)}", "nobody holds it")
    since = datetime.fromtimestamp(owner.since_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    served = f", serving {owner.url}" if owner.url else ""
    return Finding(
        "store", "limited", str(store), f"held by process {owner.pid} since {since}{served}: ask it, or take a snapshot"
    )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"
