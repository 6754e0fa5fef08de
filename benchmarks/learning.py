"""From an outcome to an answer that it changed, in process, at 10^3 and 10^6 rows of history, all default experts active.

`python -m benchmarks.learning N_ROWS` prints the times of one size; each size has a process of its own.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import orjson

from benchmarks.fits import observations
from benchmarks.measured import Figure, figure, seconds
from calibrate.conformal.wrap import Calibrated
from calibrate.founding import found
from predictors.distribution import GRID
from predictors.frames import Frame, frame_of
from predictors.model import Change
from predictors.settings import FitSettings
from telemetry.words import Ended

SIZES = (1_000, 1_000_000)
OUTCOMES = 60


def run() -> list[Figure]:
    """Seconds from outcome to changed answer; those of founding the whole model, and its peak memory."""
    figures = []
    for n in SIZES:
        command = [sys.executable, "-m", "benchmarks.learning", str(n)]
        told = orjson.loads(subprocess.run(command, capture_output=True, check=True).stdout)  # noqa: S603  our own command
        figures += [
            figure(f"learning: outcome to changed answer, {n:,} rows known", told["learn_s"], "s", "1"),
            figure(f"learning: all experts and recalibration, {n:,} rows", [told["found_s"]], "s"),
            figure(f"learning: peak memory, {n:,} rows", [told["peak_bytes"] / 2**30], "GiB"),
        ]
    return figures


def learn_s(model: Calibrated, frame: Frame, commit: int) -> list[float]:
    """Seconds from each of some outcomes to the answer about its context that it has changed."""
    rng = np.random.default_rng(2)
    took = []
    for i, row in enumerate(rng.integers(len(frame), size=OUTCOMES).tolist()):
        context, phase = frame.contexts[frame.context[row]], frame.phases[frame.phase[row]]
        at = commit + 1 + 2 * i
        begun = Change(1, at, phase, context, 0.0, 0.0, Ended.RUNNING, 1.0, at, f"new {i}")
        model = model.after([begun], at)
        before = model.predict([context], [phase]).quantile(GRID)
        ended = replace(begun, duration_s=float(frame.duration_s[row] * np.exp(rng.normal())), ended=Ended.COMPLETED)
        started_s = time.perf_counter()
        model = model.after([ended], at + 1)
        after = model.predict([context], [phase]).quantile(GRID)
        took.append(time.perf_counter() - started_s)
        assert not np.array_equal(before, after)
    return took


def main(n: int) -> None:
    """Found the model on n rows, then teach it."""
    frame = frame_of(observations(n))
    founded: list[Calibrated] = []
    found_s = seconds(lambda: founded.append(found(frame, n, FitSettings())))
    told = {"learn_s": learn_s(founded[0], frame, n), "found_s": found_s}
    peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    sys.stdout.write(orjson.dumps({**told, "peak_bytes": peak_bytes}).decode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
