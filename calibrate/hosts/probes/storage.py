"""File read rate in bytes per second, `cold` (page cache dropped and proved) or `cached` (proved to be in it).

A sample whose state could not be proved is left out and counted. The file is our own, written in the folder given and
removed afterwards. `python -m calibrate.hosts.probes.storage SECONDS cold|cached FOLDER`.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from calibrate.hosts.loops import Samples, report
from calibrate.hosts.pagecache import evict, fill

SIZE_BYTES = 64 << 20
_CHUNK_BYTES = 1 << 20
_N_WARMUPS, _MOST_SAMPLES = 1, 9


def main() -> None:
    """Measure and print the samples."""
    budget_s, state, folder = float(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    with tempfile.NamedTemporaryFile(dir=folder, prefix="probe-") as file:
        file.write(np.random.default_rng(0).bytes(SIZE_BYTES))
        file.flush()
        os.fsync(file.fileno())
        report("bytes_per_s", read_rates(Path(file.name), evict if state == "cold" else fill, budget_s))


def read_rates(path: Path, prepare: Callable[[Path], bool], budget_s: float) -> Samples:
    """Rates in bytes/s of reading the whole file, each after `prepare` has proved its state."""
    rates: list[float] = []
    unproved = 0
    ends_s = time.monotonic() + budget_s
    size_bytes = path.stat().st_size
    while len(rates) + unproved < _N_WARMUPS + _MOST_SAMPLES and (len(rates) < 2 or time.monotonic() < ends_s):
        if not prepare(path):
            unproved += 1
            if unproved > 2 and not rates:
                break
            continue
        began_s = time.perf_counter()
        _read(path)
        rates.append(size_bytes / (time.perf_counter() - began_s))
    return Samples(tuple(rates[_N_WARMUPS:]), tuple(rates[:_N_WARMUPS]), 1, unproved)


def _read(path: Path) -> None:
    buffer = bytearray(_CHUNK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


if __name__ == "__main__":
    main()
