"""GET /v1/hosts and /v1/hosts/{host}/profile: what is known of the machines work runs on."""

from __future__ import annotations

import time
from collections import Counter

import orjson
from fastapi import APIRouter, Request

from service.http.running import running
from service.readings import GrantOut, HostOut, HostsOut, ProfileOut, RateOut
from telemetry import asof
from telemetry.errors import UnknownId
from telemetry.tables import Grant

router = APIRouter(prefix="/v1/hosts", tags=["hosts"])


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
    """Give the newest profile of a host: rates with spread and complaints, condition, and the grant it was measured under."""
    at = running(request)
    commit = at.store.last_commit
    with at.store.reader() as reader:
        mine = [row for row in asof.profiles(reader, commit) if row.host == host]
        grants = asof.grants(reader, commit)
    if not mine:
        raise UnknownId("host", host, "it was never measured here; GET /v1/hosts lists hosts, those with a profile_id were")
    newest, now_ns = mine[0], time.time_ns()
    return ProfileOut(
        profile_id=newest.profile_id,
        host=newest.host,
        measured_ns=newest.measured_ns,
        age_s=max(0.0, (now_ns - newest.measured_ns) / 1e9),
        partial=newest.partial,
        versions=len(mine),
        condition=orjson.loads(newest.condition),
        rates=[
            RateOut(name=name, **{key: told[key] for key in ("median", "spread", "samples", "complaints")})
            for name, told in orjson.loads(newest.rates).items()
        ],
        grant=_grant(grants.get(newest.grant_id), now_ns),
    )


def _grant(grant: Grant | None, now_ns: int) -> GrantOut | None:
    """The grant, and whether it still permits anything."""
    if grant is None:
        return None
    revoked = grant.revoked_ns is not None and grant.revoked_ns <= now_ns
    in_force = grant.not_before_ns <= now_ns < grant.expires_ns and not revoked
    told = grant.model_dump(include=set(GrantOut.model_fields))
    return GrantOut(**told, in_force=in_force)
