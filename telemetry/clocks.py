"""Lengths between two events, read from one clock or refused with the reason.

A duration is the difference of two readings of the same clock: monotonic within one `clock_id`, else wall within one
source. Across clocks, hosts or boots there is none, and one that cannot be true is refused with its values, never clipped.
"""

from __future__ import annotations

from dataclasses import dataclass

from telemetry.tables import Event
from telemetry.words import Clock

NS_PER_S = 1_000_000_000
STEP_TOLERANCE_S = 1.0
"""Disagreement of wall and monotonic time that is still jitter: a preempted pair of readings, a small correction."""
STEP_TOLERANCE_SHARE = 1e-3
"""Disagreement as a share of the length; clocks are slewed by at most 0.05 %."""
UNIT_FACTOR = 1000.0
"""Two clocks this far apart on one span mean that one of them is in another unit."""
UNIT_FLOOR_S = 1e-3
"""Shorter readings count as this long in that comparison: a kernel of microseconds may wait milliseconds for its host."""


@dataclass(frozen=True, slots=True)
class Length:
    """A usable length in s and the clock it was read from."""

    length_s: float
    clock: Clock


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why two events have no length between them: a reason word, and the values with units."""

    reason: str
    detail: str


def host_length(start: Event, end: Event) -> Length | Unusable:
    """Time from start to end on the host's clocks; refusals: clocks_mixed, end_before_start, suspended_or_stepped."""
    wall_ns = end.wall_ns - start.wall_ns
    if start.clock_id is not None and start.clock_id == end.clock_id:
        if start.monotonic_ns is not None and end.monotonic_ns is not None:
            return _monotonic_length(start.monotonic_ns, end.monotonic_ns, wall_ns)
    elif start.clock_id is not None and end.clock_id is not None:
        return _mixed(start, end)
    if start.source != end.source:
        return _mixed(start, end)
    if wall_ns < 0:
        return Unusable("end_before_start", f"wall: start={start.wall_ns} ns, end={end.wall_ns} ns")
    return Length(wall_ns / NS_PER_S, Clock.WALL)


def device_length(device_s: float, host: Length | Unusable, age_s: float) -> Length | Unusable:
    """The device's own reading of a span, unless the host contradicts it.

    host: the same span on the host, counted from an event at which the phase was already `age_s` old. Marks from two
    hosts do not contradict, since each says nothing about the other; any other refusal stands. Refuses `unit_mismatch`.
    """
    if isinstance(host, Unusable):
        return Length(device_s, Clock.DEVICE) if host.reason == "clocks_mixed" else host
    short_s, long_s = sorted((device_s, host.length_s + age_s))
    if long_s > UNIT_FACTOR * max(short_s, UNIT_FLOOR_S):
        return Unusable("unit_mismatch", f"device={device_s:.9g} s, {host.clock}={host.length_s + age_s:.9g} s")
    return Length(device_s, Clock.DEVICE)


def _monotonic_length(start_ns: int, end_ns: int, wall_ns: int) -> Length | Unusable:
    """Difference of one monotonic clock, checked against the wall: neither a suspend nor a step can be told from it alone."""
    passed_ns = end_ns - start_ns
    if passed_ns < 0:
        return Unusable("end_before_start", f"monotonic: start={start_ns} ns, end={end_ns} ns")
    if abs(wall_ns - passed_ns) > STEP_TOLERANCE_S * NS_PER_S + STEP_TOLERANCE_SHARE * passed_ns:
        return Unusable("suspended_or_stepped", f"monotonic={passed_ns} ns, wall={wall_ns} ns")
    return Length(passed_ns / NS_PER_S, Clock.MONOTONIC)


def _mixed(start: Event, end: Event) -> Unusable:
    """Refusal of a pair that shares no clock."""
    return Unusable(
        "clocks_mixed",
        f"start: clock_id={start.clock_id}, source={start.source}; end: clock_id={end.clock_id}, source={end.source}",
    )
