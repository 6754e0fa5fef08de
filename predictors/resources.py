"""Measured rates of a host as speeds of its resources, and which of them explain a phase.

A rate ends in `_per_s`; warm-up is measured in seconds, whose inverse is its speed. Rates of one and of all threads are told
apart, however many all are; what a host needs for a first or a single request is no rate.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

Rates = Mapping[str, Mapping[str, float]]
"""Measured rates by host, then by name with unit, as `host_profiles` has them."""
NONE: Rates = MappingProxyType({})

FILES, LINKS, STARTS = ("file_read", "checkpoint_decode"), ("device_copy", "network"), ("warmup",)
OF_PHASE = {
    "open": FILES,
    "read": FILES,
    "load": FILES,
    "setup": FILES,
    "transfer": LINKS,
    "warmup": STARTS,
}
"""What a phase waits for, by the beginning of a rate's name; every other phase computes, and waits for none of these."""
_THREADS = re.compile(r"_threads_(\d+)(?=_|$)")


def speeds(rates: Mapping[str, float]) -> dict[str, float]:
    """Log speed of each resource of one host; rates that are not positive and finite say nothing."""
    usable = {name: value for name, value in rates.items() if math.isfinite(value) and value > 0.0}
    most = max((int(found[1]) for name in usable if (found := _THREADS.search(name))), default=1)
    made: dict[str, float] = {}
    for name, value in usable.items():
        resource, threads = _THREADS.sub("", name), _THREADS.search(name)
        if threads is not None and int(threads[1]) == 1:
            made[f"{resource} of one thread"] = math.log(value)
        if threads is not None and int(threads[1]) == most:
            made[f"{resource} of all threads"] = math.log(value)
        elif threads is None and name.startswith(STARTS):
            made[name] = -math.log(value)
        elif threads is None:
            made[name] = math.log(value)
    return {name: speed for name, speed in made.items() if "_per_s" in name or name.startswith(STARTS)}


def explaining(phase: str, resources: Iterable[str]) -> tuple[str, ...]:
    """Those of the resources that a phase waits for; all of them where none is of a kind that is known."""
    named = tuple(resources)
    waits_for = OF_PHASE.get(phase)
    if waits_for is not None:
        found = tuple(name for name in named if name.startswith(waits_for))
    else:
        found = tuple(name for name in named if not name.startswith((*FILES, *LINKS, *STARTS)))
    return found or named
