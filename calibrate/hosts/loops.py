"""The timed loops inside a probe's process: how often to repeat, what to set aside, when one call is enough.

Sustained throughput repeats without a pause; the latency of a single request is that of one call after a rest; the first call of
a shape is neither. The three are different numbers and are kept apart.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from calibrate.hosts.series import Tell

LEAST_SAMPLE_S = 0.02
"""A sample lasts at least so long, that the clock and a scheduler tick do not matter."""
MOST_SAMPLES = 25
WARMUP_SHARE = 0.25
REST_S = 0.01


@dataclass(frozen=True)
class Samples:
    """Rates per second in order of measurement; warm-ups are kept apart. `loops` repetitions make one sample."""

    rates: tuple[float, ...]
    warmups: tuple[float, ...]
    loops: int


def _silent(_kind: str, _value: float, _took_s: float, _loops: int) -> None:
    """Tell nobody."""


def sampled(once: Callable[[], None], *, work: float, budget_s: float, tell: Tell = _silent) -> Samples:
    """Rates of `work` units per call: loops doubled until a sample lasts long enough, then sampled within the budget.

    Everything in the first quarter of the budget is warm-up, the search for the number of loops included. `tell` hears of each.
    """
    began_s = time.perf_counter()
    loops, warmups = 1, []
    while True:
        elapsed_s = timed(once, loops)
        warmups.append(loops * work / elapsed_s)
        tell("warmup", warmups[-1], elapsed_s, loops)
        if elapsed_s < LEAST_SAMPLE_S:
            loops *= 2
        elif time.perf_counter() - began_s > WARMUP_SHARE * budget_s:
            break
    rates: list[float] = []
    while len(rates) < MOST_SAMPLES and (len(rates) < 2 or time.perf_counter() - began_s < budget_s):
        elapsed_s = timed(once, loops)
        rates.append(loops * work / elapsed_s)
        tell("sample", rates[-1], elapsed_s, loops)
    return Samples(tuple(rates), tuple(warmups), loops)


def singly(once: Callable[[], None], *, budget_s: float, tell: Tell, rest: Callable[[float], None] = time.sleep) -> None:
    """Tell how long one call takes that comes after a rest, as a request does that finds nobody at work; seconds."""
    ends_s = time.perf_counter() + budget_s
    for n in range(MOST_SAMPLES):
        rest(REST_S)
        took_s = timed(once, 1)
        tell("sample" if n else "warmup", took_s, took_s, 1)
        if n > 1 and time.perf_counter() > ends_s:
            return


def timed(once: Callable[[], None], loops: int) -> float:
    """Seconds that so many calls take."""
    began_s = time.perf_counter()
    for _ in range(loops):
        once()
    return time.perf_counter() - began_s
