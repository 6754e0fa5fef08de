"""What a probe's process tells while it measures, as lines of JSON, and how they are read back.

A line is written as soon as a sample is taken, outside the timed part, so that a run which is stopped keeps what it measured:

    {"series": "matmul_threads_2", "unit": "flop_per_s", "kind": "sample", "value": 9e10, "loops": 8, "at_ns": 5, "took_s": 0.02}
    {"facts": {"backend": "torch 2.13.0"}}    {"absent": "device_copy", "why": "no device"}    {"done": true}
    {"failed": "OSError: no room"}
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

LONGEST_REASON = 500
"""Characters (count) of an error that are told."""
Kind = Literal["sample", "warmup", "unproved"]
Tell = Callable[[Kind, float, float, int], None]
"""Told of one sample: its kind, its value, how many seconds it took, and the repetitions in it."""
Pause = tuple[int, int]
"""Monotonic ns from and to which a process was held."""


@dataclass(frozen=True)
class Series:
    """Samples of one quantity in order of measurement; `unit` is what they are in, warm-ups are kept apart.

    `loops` repetitions make one sample. `unproved` counts samples left out since their condition could not be proved,
    `interrupted` those during which the process was held.
    """

    name: str
    unit: str
    values: tuple[float, ...]
    warmups: tuple[float, ...] = ()
    loops: int = 1
    unproved: int = 0
    interrupted: int = 0

    @property
    def rate_name(self) -> str:
        """Name with unit, such as memory_copy_bytes_per_s."""
        return f"{self.name}_{self.unit}"

    @property
    def median(self) -> float:
        """Median of the samples, in `unit`."""
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """Standard deviation over median; 0 for a single sample."""
        return statistics.stdev(self.values) / self.median if len(self.values) > 1 and self.median else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        """Interval of the median, at least 95 %, by order statistics; all samples where there are fewer than six."""
        ordered, rank = sorted(self.values), _rank(len(self.values))
        return ordered[rank], ordered[-1 - rank]


def _rank(n: int) -> int:
    """Largest r with 2 P(Binomial(n, 1/2) <= r) <= 0.05; 0 where there is none."""
    found, chance, below = 0, 0.5**n, 0.0
    for r in range(n // 2):
        below += chance
        if 2.0 * below > 0.05:
            break
        found = r
        chance *= (n - r) / (r + 1)
    return found


@dataclass(frozen=True)
class Told:
    """All that one process told: its series, facts such as the backend, what it could not measure and why, and how it ended.

    `failed` is the error that ended it, None where none did.
    """

    series: tuple[Series, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    done: bool = False
    failed: str | None = None


def telling(name: str, unit: str) -> Tell:
    """A function that tells the samples of one series to whoever started this process."""

    def tell(kind: Kind, value: float, took_s: float, loops: int) -> None:
        line = {"series": name, "unit": unit, "kind": kind, "value": value, "loops": loops}
        _say(line | {"at_ns": time.monotonic_ns(), "took_s": took_s})

    return tell


def tell_begun() -> None:
    """Tell that this process is bound to its parent and may be held."""
    _say({"begun": True})


def tell_facts(**facts: object) -> None:
    """Tell under what circumstances is measured, such as backend=..."""
    _say({"facts": facts})


def tell_absent(name: str, why: str) -> None:
    """Tell that something can't be measured here, and why."""
    _say({"absent": name, "why": why})


def tell_done() -> None:
    """Tell that nothing more will come: the run is whole."""
    _say({"done": True})


def tell_failed(error: Exception) -> None:
    """Tell the error that ends this process before its work is over."""
    _say({"failed": f"{type(error).__name__}: {error}"[:LONGEST_REASON]})


def _say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def collected(lines: Iterable[str], pauses: Sequence[Pause] = ()) -> Told:
    """What the lines say; a sample that a pause fell into is counted as interrupted, and a line cut short is passed over."""
    samples: dict[tuple[str, str], list[dict[str, Any]]] = {}
    facts: dict[str, Any] = {}
    absent: dict[str, str] = {}
    done, failed = False, None
    for line in lines:
        try:
            said = json.loads(line)
        except json.JSONDecodeError:
            continue
        if "series" in said:
            samples.setdefault((said["series"], said["unit"]), []).append(said)
        elif "absent" in said:
            absent[said["absent"]] = said["why"]
        facts |= said.get("facts", {})
        done = done or "done" in said
        failed = said.get("failed", failed)
    return Told(tuple(_series(*key, found, pauses) for key, found in samples.items()), facts, absent, done, failed)


def _series(name: str, unit: str, found: Sequence[dict[str, Any]], pauses: Sequence[Pause]) -> Series:
    """One series of what was said about it."""
    held = [any(_overlaps(one, pause) for pause in pauses) for one in found]
    free = [one for one, was_held in zip(found, held, strict=True) if not was_held]
    values = tuple(one["value"] for one in free if one["kind"] == "sample")
    warmups = tuple(one["value"] for one in free if one["kind"] == "warmup")
    unproved = sum(one["kind"] == "unproved" for one in free)
    return Series(name, unit, values, warmups, found[-1]["loops"], unproved, sum(held))


def _overlaps(sample: dict[str, Any], pause: Pause) -> bool:
    began_ns = sample["at_ns"] - round(1e9 * sample["took_s"])
    return bool(began_ns < pause[1] and sample["at_ns"] > pause[0])
