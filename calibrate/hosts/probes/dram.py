"""Memory copy rate in bytes copied per second, one thread, far larger than any cache.

Each byte copied is one read and one written; it counts once. `python -m calibrate.hosts.probes.dram SECONDS`.
"""

from __future__ import annotations

import sys

import numpy as np

from calibrate.hosts.loops import sampled
from calibrate.hosts.series import tell_done, telling

SIZE_BYTES = 256 << 20


def main() -> None:
    """Measure, telling each sample."""
    source = np.ones(SIZE_BYTES, dtype=np.uint8)
    target = np.zeros_like(source)

    def once() -> None:
        np.copyto(target, source)

    sampled(once, work=float(SIZE_BYTES), budget_s=float(sys.argv[1]), tell=telling("memory_copy", "bytes_per_s"))
    tell_done()


if __name__ == "__main__":
    main()
