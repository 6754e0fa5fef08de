"""What the probes of a host measure, beside plain loops and dd that measure the same, alternating in one run: ratios."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from benchmarks.measured import Figure, figure, seconds
from calibrate.hosts.catalogue import catalogue
from calibrate.hosts.grants import MIB, Terms, give
from calibrate.hosts.pagecache import evict, fill
from calibrate.hosts.profile import UNASKED
from calibrate.hosts.run import measure
from telemetry.tables import Grant

ROUNDS, SECONDS = 3, 1.0
VECTOR = 16 << 20
SIDE = 512
FILE_BYTES, BLOCK_BYTES = 64 << 20, 1 << 20
DD_RUNS = 9
NAMES = {
    "dense rate": "matmul_threads_1",
    "memory bandwidth": "memory_bound_threads_1",
    "cold read": "file_read_cold",
    "cached read": "file_read_cached",
}


def run() -> list[Figure]:
    """Ratio of each probe to its reference; each round measures one after the other, and `waited` says how contended it was."""
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        references = _references(Path(folder))
        return [
            one for what, probe in NAMES.items() if what in references for one in _ratio(what, probe, references[what], folder)
        ]


def _ratio(what: str, name: str, reference: Callable[[], float], folder: str) -> list[Figure]:
    (probe,) = [one for one in catalogue(1, Path(folder)) if one.name == name]
    ratios, waited = [], []
    for _ in range(ROUNDS):
        plain = reference()
        made = measure(_grant(), probe, SECONDS, UNASKED)
        waited.append(made.attended.waited or 0.0)
        ratios += [one.median / plain for one in made.series if one.name == name]
    if not ratios:
        return []
    return [
        figure(f"{what}: probe over plain loop", ratios, "x", "0.9 to 1.1"),
        figure(f"{what}: time the probe waited", waited, "share"),
    ]


def _references(folder: Path) -> dict[str, Callable[[], float]]:
    """What measures the same without the probe's code, by name; per second."""
    found: dict[str, Callable[[], float]] = {"dense rate": _dense, "memory bandwidth": _triad}
    path = folder / "read"
    path.write_bytes(os.urandom(FILE_BYTES))
    if shutil.which("dd") is not None:
        found |= {"cached read": lambda: _dd_cached(path)}
        if evict(path):
            found |= {"cold read": lambda: FILE_BYTES / _dd_s(path, evict)}
    return found


def _best(work: Callable[[], object], units: float, times: int) -> float:
    """Median rate over some calls, the first left out."""
    work()
    return units / float(np.median([seconds(work) for _ in range(times)]))


def _dense() -> float:
    try:
        import torch
    except ImportError:
        left = np.random.default_rng(0).standard_normal((SIDE, SIDE), dtype=np.float32)
        return _best(lambda: left @ left, 2.0 * SIDE**3, 100)
    torch.set_num_threads(1)
    square = torch.randn(SIDE, SIDE)
    return _best(lambda: square @ square, 2.0 * SIDE**3, 100)


def _triad() -> float:
    """STREAM's triad, three vectors of 64 MiB, counting what it moves."""
    try:
        import torch
    except ImportError:
        a, b, c = (np.ones(VECTOR, np.float32) for _ in range(3))
        return _best(lambda: np.add(b, np.multiply(c, 3.0, out=a), out=a), 20.0 * VECTOR, 20)
    torch.set_num_threads(1)
    out, added, scaled = (torch.ones(VECTOR) for _ in range(3))
    return _best(lambda: torch.add(added, scaled, alpha=3.0, out=out), 12.0 * VECTOR, 20)


def _dd_cached(path: Path) -> float:
    """Bytes/s of dd past its first block, in which it begins and its buffer is touched: 15 % of what a cached file takes it.

    The file is read into the page cache, as the probe's is; pages that writing left there are read faster.
    """
    evict(path)
    return (FILE_BYTES - BLOCK_BYTES) / (_dd_s(path, fill) - _dd_s(path, fill, blocks=1))


def _dd_s(path: Path, prepare: Callable[[Path], bool], blocks: int = FILE_BYTES // BLOCK_BYTES) -> float:
    """Median time in s that dd tells for the first blocks of a file whose state `prepare` has established."""
    times_s, plain = [], {"LC_ALL": "C", "PATH": os.environ["PATH"]}
    command = ["dd", f"if={path}", "of=/dev/null", f"bs={BLOCK_BYTES}", f"count={blocks}"]
    for _ in range(DD_RUNS):
        prepare(path)
        said = subprocess.run(command, capture_output=True, text=True, check=True, env=plain)  # noqa: S603  our own command
        times_s.append(float(said.stderr.rsplit("copied, ", 1)[1].split(" s,")[0]))
    return float(np.median(times_s))


def _grant() -> Grant:
    terms = Terms(("matmul", "memory_bound", "file_read"), 600.0, 300.0, 1, 2048 * MIB, 128 * MIB)
    return give(terms, user="benchmark", host=socket.gethostname(), now_ns=time.time_ns())
