"""GET /v1/hosts, /v1/hosts/{host}/profile and /changes: what is known of the machines work runs on."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Query, Request

from service.host_schemas import ChangesOut
from service.hosting import changes_out, profile_out, profiles_of
from service.http.running import running
from service.readings import HostOut, HostsOut, ProfileOut
from telemetry import asof

router = APIRouter(prefix="/v1/hosts", tags=["hosts"])
ProfileId = Annotated[str | None, Query(max_length=200)]


@router.get("", response_model=HostsOut)
def get_hosts(request: Request) -> HostsOut:
    """List the hosts that work ran on, or that were measured, by name."""
    at = running(request)
    commit = at.store.last_commit
    with at.store.reader() as reader:
        worked = {row["host"]: row for row in asof.hosts(reader, commit).to_pylist()}
        newest = {row.host: row for row in reversed(asof.profiles(reader, commit))}
    active = Counter(attempt.context.host for attempt in at.lineup.running.values())
    names = sorted({*worked, *newest, *(name for name in active if name)})
    return HostsOut(
        hosts=[
            HostOut(
                host=name,
                attempts=worked[name]["attempts"] if name in worked else 0,
                newest_attempt_ns=worked[name]["newest_ns"] if name in worked else None,
                running=active[name],
                profile_id=newest[name].profile_id if name in newest else None,
                measured_ns=newest[name].measured_ns if name in newest else None,
            )
            for name in names
        ]
    )


@router.get("/{host:path}/profile", response_model=ProfileOut)
def get_profile(host: str, request: Request) -> ProfileOut:
    """Give the newest profile of a host: rates with interval and complaints, condition, and the grant it was measured under."""
    at = running(request)
    commit = at.store.last_commit
    with at.store.reader() as reader:
        mine = profiles_of(asof.profiles(reader, commit), host)
        grants = asof.grants(reader, commit)
    return profile_out(mine, grants, time.time_ns())


@router.get("/{host:path}/changes", response_model=ChangesOut)
def get_changes(host: str, request: Request, before: ProfileId = None, after: ProfileId = None) -> ChangesOut:
    """Tell in words what differs between two profiles of a host; by default since the condition before the present one."""
    at = running(request)
    with at.store.reader() as reader:
        mine = profiles_of(asof.profiles(reader, at.store.last_commit), host)
    return changes_out(mine, before, after)
