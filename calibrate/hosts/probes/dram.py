"""Memory copy rate in bytes copied per second, one thread, far larger than any cache.

Each byte copied is one read and one written; it counts once. `python -m calibrate.hosts.probes.dram SECONDS`.
"""

from __future__ import annotations

import sys

import numpy as np

from calibrate.hosts.loops import report, sampled

SIZE_BYTES = 256 << 20


def main() -> None:
    """Measure and print the samples."""
    source = np.ones(SIZE_BYTES, dtype=np.uint8)
    target = np.zeros_like(source)

    def once() -> None:
        np.copyto(target, source)

    report("bytes_per_s", sampled(once, work=float(SIZE_BYTES), budget_s=float(sys.argv[1])))


if __name__ == "__main__":
    main()
