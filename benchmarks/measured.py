"""What a benchmark found, and how repeated values become one figure."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Figure:
    """One line of a benchmark: `n` is how many values the figure is the median of, `low` and `high` their range."""

    what: str
    value: float
    unit: str
    n: int
    low: float
    high: float
    reach: str = ""


def figure(what: str, values: Sequence[float], unit: str, reach: str = "") -> Figure:
    """The median of values with their range; `reach` says what is wanted."""
    return Figure(what, median(values), unit, len(values), min(values), max(values), reach)


def seconds(work: Callable[[], object]) -> float:
    """Wall time of one call, s."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def quantile(values: Sequence[float], level: float) -> float:
    """The value of rank ceil(level n)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(level * len(ordered)))]
