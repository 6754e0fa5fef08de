"""What is told of a measured host, by the API and on the command line alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from calibrate.hosts.versions import baseline, changes, numbered
from service.granting import grant_out
from service.host_schemas import ChangesOut, ProfileVersionOut
from service.readings import ProfileOut, RateOut
from telemetry.errors import UnknownId
from telemetry.tables import Grant, HostProfile

_OLDER: dict[str, Any] = {"backend": None, "device": None, "contended": False}
"""What rows of before these were told lack."""


def profiles_of(known: Sequence[HostProfile], host: str) -> list[HostProfile]:
    """Profiles of one host, the newest first; UnknownId where it was never measured."""
    mine = [row for row in known if row.host == host]
    if not mine:
        raise UnknownId("host", host, "it was never measured here; GET /v1/hosts lists hosts, those with a profile_id were")
    return mine


def profile_out(mine: Sequence[HostProfile], grants: Mapping[str, Grant], now_ns: int) -> ProfileOut:
    """The newest profile of a host, given all of them, the newest first."""
    newest = mine[0]
    grant, usual = grants.get(newest.grant_id), baseline(mine)
    return ProfileOut(
        profile_id=newest.profile_id,
        host=newest.host,
        measured_ns=newest.measured_ns,
        age_s=max(0.0, (now_ns - newest.measured_ns) / 1e9),
        partial=newest.partial,
        versions=len(mine),
        version=numbered(mine)[newest.profile_id],
        changes=changes(mine[1], newest) if len(mine) > 1 else [],
        condition=orjson.loads(newest.condition),
        rates=[_rate_out(name, told, usual.get(name)) for name, told in orjson.loads(newest.rates).items()],
        grant=grant_out(grant, now_ns) if grant is not None else None,
    )


def changes_out(mine: Sequence[HostProfile], before: str | None, after: str | None) -> ChangesOut:
    """What differs between two profiles of a host by id.

    By default from the newest one under another condition, else the one before, to the newest. UnknownId for an id that is none.
    """
    numbers = numbered(mine)
    newest = _one(mine, after) if after is not None else mine[0]
    older = [row for row in mine if row.measured_ns < newest.measured_ns]
    other = [row for row in older if numbers[row.profile_id] != numbers[newest.profile_id]]
    former = _one(mine, before) if before is not None else next(iter([*other, *older]), newest)
    told = changes(former, newest)
    return ChangesOut(host=newest.host, before=_version_out(former, numbers), after=_version_out(newest, numbers), changes=told)


def _one(mine: Sequence[HostProfile], profile_id: str) -> HostProfile:
    found = next((row for row in mine if row.profile_id == profile_id), None)
    if found is None:
        raise UnknownId("profile_id", profile_id, f"{mine[0].host} has {', '.join(row.profile_id for row in mine[:5])}")
    return found


def _version_out(row: HostProfile, numbers: Mapping[str, int]) -> ProfileVersionOut:
    told = row.model_dump(include={"profile_id", "measured_ns", "partial"})
    return ProfileVersionOut(**told, version=numbers[row.profile_id])


def _rate_out(name: str, told: Mapping[str, Any], usual: float | None) -> RateOut:
    known = _OLDER | {"low": told["median"], "high": told["median"]} | dict(told)
    fields = {field: known[field] for field in RateOut.model_fields.keys() - {"name", "baseline"}}
    return RateOut(name=name, baseline=usual, **fields)
