"""Matrix multiplication rate in floating-point operations per second, on the number of threads given by the environment.

One product of two n x n float32 matrices counts 2 n^3 operations. `python -m calibrate.hosts.probes.cpu SECONDS`.
"""

from __future__ import annotations

import sys

import numpy as np

from calibrate.hosts.loops import report, sampled

SIDE = 512


def main() -> None:
    """Measure and print the samples."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((SIDE, SIDE), dtype=np.float32) for _ in range(2))
    product = np.empty_like(left)

    def once() -> None:
        np.matmul(left, right, out=product)

    report("flop_per_s", sampled(once, work=2.0 * SIDE**3, budget_s=float(sys.argv[1])))


if __name__ == "__main__":
    main()
