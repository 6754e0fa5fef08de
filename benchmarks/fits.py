"""Time and memory of a fit at 10^4, 10^5 and 10^6 observations of up to 10^4 configurations, each in a process of its own.

`python -m benchmarks.fits N_ROWS` prints the seconds and the peak memory in bytes of one.
"""

from __future__ import annotations

import math
import resource
import subprocess
import sys

import numpy as np
import orjson
import pyarrow as pa

from benchmarks.measured import Figure, figure, seconds
from predictors import hazards
from predictors.contexts import CATEGORIES, NUMBERS
from predictors.frames import Frame, frame_of

SIZES, MOST_CONFIGURATIONS = (10_000, 100_000, 1_000_000), 10_000


def run() -> list[Figure]:
    """Seconds, peak bytes, and the exponent b of time ~ n^b between sizes."""
    told = [_in_a_process(n) for n in SIZES]
    found = []
    for n, one in zip(SIZES, told, strict=True):
        last = n == SIZES[-1]
        found += [
            figure(f"fit: {n:,} observations", [one["fit_s"]], "s", "20" if last else ""),
            figure(f"fit: {n:,} observations, frame", [one["frame_s"]], "s"),
            figure(f"fit: {n:,} observations, peak memory", [one["peak_bytes"] / 2**30], "GiB", "1.86" if last else ""),
        ]
    for i in range(1, len(SIZES)):
        times = [one["fit_s"] + one["frame_s"] for one in (told[i - 1], told[i])]
        exponent = math.log(times[1] / times[0]) / math.log(SIZES[i] / SIZES[i - 1])
        found.append(figure(f"fit: growth exponent to {SIZES[i]:,}", [exponent], "", "n log n"))
    return found


def _in_a_process(n: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.fits", str(n)]
    done = subprocess.run(command, capture_output=True, check=True)  # noqa: S603  our own command
    found: dict[str, float] = orjson.loads(done.stdout)
    return found


def observations(n: int, seed: int = 1) -> pa.Table:
    """Rows as `asof.observations` gives them: log-normal around the configuration's median, a tenth of them censored."""
    rng = np.random.default_rng(seed)
    configuration = rng.integers(min(MOST_CONFIGURATIONS, n // 10), size=n)
    host, family, batch = configuration % 50, configuration // 50 % 20, 2.0 ** (configuration // 1000)
    duration_s = np.exp(0.1 * host / 50 + family / 5 + 0.3 * np.log(batch) + 0.3 * rng.normal(size=n))
    columns: dict[str, object] = {name: pa.nulls(n, pa.string()) for name in CATEGORIES}
    columns |= {name: pa.nulls(n, pa.float64()) for name in NUMBERS}
    columns |= {
        "host": pa.array([f"host-{i}" for i in range(50)]).take(pa.array(host)),
        "family": pa.array([f"family-{i}" for i in range(20)]).take(pa.array(family)),
        "batch": batch,
        "size_in": 2.0 ** (configuration // 7 % 10),
        "attempt_id": pa.array(np.arange(n) // 2).cast(pa.string()),
        "phase": pa.array(["setup", "service"]).take(pa.array(np.arange(n) % 2)),
        "entry_s": np.zeros(n),
        "duration_s": duration_s,
        "ended": pa.array(["completed", "cancelled"]).take(pa.array((rng.random(n) < 0.1).astype(np.int64))),
        "clock": pa.array(["monotonic"] * n),
        "known_from": np.arange(n) // 1000 + 1,
        "started_ns": np.arange(n) * 1_000_000,
    }
    return pa.table(columns)


def main(n: int) -> None:
    """Fit once; peak memory is the process's, with everything it imported and the rows themselves."""
    table = observations(n)
    frames: list[Frame] = []
    frame_s = seconds(lambda: frames.append(frame_of(table)))
    fit_s = seconds(lambda: hazards.fit(frames[0], n, hazards.FitSettings()))
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(orjson.dumps({"frame_s": frame_s, "fit_s": fit_s, "peak_bytes": peak_bytes}).decode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
