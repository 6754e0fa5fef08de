"""The timed loop inside a probe's process: how often to repeat, what to set aside, how to hand over the samples."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

LEAST_SAMPLE_S = 0.02
"""A sample lasts at least so long, that the clock and a scheduler tick do not matter."""
MOST_SAMPLES = 25
WARMUP_SHARE = 0.25


@dataclass(frozen=True)
class Samples:
    """Rates per second in order of measurement; warm-ups are kept apart.

    `loops` repetitions make one sample; `unproved` counts those whose condition could not be proved.
    """

    rates: tuple[float, ...]
    warmups: tuple[float, ...]
    loops: int
    unproved: int = 0


def sampled(once: Callable[[], None], *, work: float, budget_s: float) -> Samples:
    """Rates of `work` units per call: loops doubled until a sample lasts long enough, then sampled within the budget.

    Everything in the first quarter of the budget is warm-up, the search for the number of loops included.
    """
    began_s = time.perf_counter()
    loops, warmups = 1, []
    while True:
        elapsed_s = _timed(once, loops)
        warmups.append(loops * work / elapsed_s)
        if elapsed_s < LEAST_SAMPLE_S:
            loops *= 2
        elif time.perf_counter() - began_s > WARMUP_SHARE * budget_s:
            break
    rates: list[float] = []
    while len(rates) < MOST_SAMPLES and (len(rates) < 2 or time.perf_counter() - began_s < budget_s):
        rates.append(loops * work / _timed(once, loops))
    return Samples(tuple(rates), tuple(warmups), loops)


def _timed(once: Callable[[], None], loops: int) -> float:
    began_s = time.perf_counter()
    for _ in range(loops):
        once()
    return time.perf_counter() - began_s


def report(unit: str, samples: Samples) -> None:
    """Print the samples as JSON for the process that waits for them."""
    sys.stdout.write(json.dumps({"unit": unit, **asdict(samples)}) + "\n")
