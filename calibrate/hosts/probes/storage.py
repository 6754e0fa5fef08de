"""File read rate in bytes per second, `cold` (page cache dropped and proved) or `cached` (proved to be in it).

A sample whose state could not be proved is left out of them and counted; where no cold one could be proved, what was read is told
as `file_read_cache_unknown`. The file is our own and has no name.
`python -m calibrate.hosts.probes.storage SECONDS cold|cached FOLDER`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from calibrate.hosts.pagecache import evict, fill
from calibrate.hosts.scratch import scratch_file
from calibrate.hosts.series import Tell, tell_done, telling

SIZE_BYTES = 64 << 20
MOST_UNPROVED = 3
_CHUNK_BYTES = 1 << 20
_N_WARMUPS, _MOST_SAMPLES = 1, 9


def main() -> None:
    """Measure, telling each sample."""
    budget_s, state, folder = float(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    with scratch_file(folder, np.random.default_rng(0).bytes(SIZE_BYTES)) as path:
        proved = told_rates(
            path,
            _read,
            evict if state == "cold" else fill,
            budget_s,
            telling(f"file_read_{state}", "bytes_per_s"),
        )
        if not proved:
            told_rates(path, _read, lambda _: True, budget_s / 2, telling("file_read_cache_unknown", "bytes_per_s"))
    tell_done()


def told_rates(path: Path, read: Callable[[Path], None], prepare: Callable[[Path], bool], budget_s: float, tell: Tell) -> bool:
    """Tell rates in bytes/s of reading the whole file, each after `prepare` has proved its state; whether any could be told.

    The file is dropped first: what writing left in the cache lies there in larger pieces and is read a sixth faster than what
    reading brings in, and checkpoints come there by being read.
    """
    evict(path)
    ends_s = time.monotonic() + budget_s
    size_bytes = path.stat().st_size
    n_read = n_unproved = 0
    while n_read + n_unproved < _N_WARMUPS + _MOST_SAMPLES and (n_read <= _N_WARMUPS or time.monotonic() < ends_s):
        if not prepare(path):
            n_unproved += 1
            tell("unproved", 0.0, 0.0, 1)
            if n_unproved >= MOST_UNPROVED and not n_read:
                break
            continue
        began_s = time.perf_counter()
        read(path)
        took_s = time.perf_counter() - began_s
        n_read += 1
        tell("sample" if n_read > _N_WARMUPS else "warmup", size_bytes / took_s, took_s, 1)
    return n_read > _N_WARMUPS


def _read(path: Path) -> None:
    buffer = bytearray(_CHUNK_BYTES)
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass


if __name__ == "__main__":
    main()
