"""Versions of a host's profile: which may be compared, what changed between two in words, and which rates are its baseline."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from calibrate.hosts.condition import PASSING, version_of
from telemetry.tables import HostProfile
from telemetry.words import IMPORTED_GRANT

_TOLD = {
    "driver": "GPU driver",
    "quota": "processor quota",
    "affinity": "processors of the affinity mask",
    "effective_processors": "usable processors",
    "memory_bytes": "usable memory in bytes",
    "devices": "GPUs",
    "on_battery": "running on battery",
    "blas": "matrix library",
}


def numbered(profiles: Iterable[HostProfile]) -> dict[str, int]:
    """Number of the version of each profile of one host, by profile_id: 1 is the first condition it was measured under.

    A condition that comes back has its former number.
    """
    numbers: dict[str, int] = {}
    found = {}
    for row in sorted(profiles, key=lambda row: (row.measured_ns, row.profile_id)):
        found[row.profile_id] = numbers.setdefault(version_of(json.loads(row.condition)), len(numbers) + 1)
    return found


def changes(before: HostProfile, after: HostProfile) -> list[str]:
    """What is different in two profiles, in words: first their condition, then rates whose intervals don't meet."""
    old, new = json.loads(before.condition), json.loads(after.condition)
    names = sorted((old.keys() | new.keys()) - PASSING)
    told = [_changed(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]
    return told + _moved(json.loads(before.rates), json.loads(after.rates))


def _changed(name: str, old: Any, new: Any) -> str:
    words = _TOLD.get(name, name.replace("_", " "))
    if old is None:
        return f"{words}: now {new}, none told before"
    return f"{words}: {old} before, {'none told' if new is None else new} now"


def _moved(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    told = []
    for name in sorted(old.keys() | new.keys()):
        if name not in new:
            told.append(f"{name}: not measured any more")
        elif name not in old:
            told.append(f"{name}: measured for the first time")
        elif _apart(old[name], new[name]):
            ratio = new[name]["median"] / old[name]["median"]
            told.append(f"{name}: {'contended, ' if _contended(old[name], new[name]) else ''}{ratio:.2f} times what it was")
    return told


def _apart(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Whether the intervals of two medians don't meet; a rate without an interval is its median alone."""
    (old_low, old_high), (new_low, new_high) = (
        (one.get("low", one["median"]), one.get("high", one["median"])) for one in (old, new)
    )
    return bool(old["median"] > 0 and (new_low > old_high or new_high < old_low))


def _contended(*told: Mapping[str, Any]) -> bool:
    return any(one.get("contended", False) for one in told)


def baseline(profiles: Sequence[HostProfile]) -> dict[str, float]:
    """The newest uncontended median of each rate, by name, under the newest condition of one host.

    What was measured beside other work, or by a run that was stopped, is never among them; a host that was only ever measured so
    has no baseline.
    """
    ordered = sorted((row for row in profiles if not row.partial), key=lambda row: (row.measured_ns, row.profile_id))
    if not ordered:
        return {}
    version = version_of(json.loads(ordered[-1].condition))
    found: dict[str, float] = {}
    for row in ordered:
        if version_of(json.loads(row.condition)) == version:
            told = json.loads(row.rates)
            found |= {name: rate["median"] for name, rate in told.items() if not _contended(rate) and not _speaks_against(rate)}
    return found


def rates_of_hosts(profiles: Sequence[HostProfile]) -> dict[str, dict[str, float]]:
    """The baseline of every host that has one, by host, of profiles measured here: others' files have other conditions."""
    measured: dict[str, list[HostProfile]] = {}
    for row in profiles:
        if row.grant_id != IMPORTED_GRANT:
            measured.setdefault(row.host, []).append(row)
    found = {host: baseline(mine) for host, mine in sorted(measured.items())}
    return {host: rates for host, rates in found.items() if rates}


def _speaks_against(rate: Mapping[str, Any]) -> bool:
    """Whether an older row, which has no mark of its own, complains of other work."""
    return any(one.startswith("contended") for one in rate.get("complaints", ()))
