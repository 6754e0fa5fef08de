"""GET, POST and DELETE /v1/grants: who lets what be measured on which host."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

from fastapi import APIRouter, Request

from calibrate.hosts.grants import Terms, give
from service.granting import grant_out, withdrawn
from service.host_schemas import GrantIn, GrantsOut
from service.http.limits import body_of
from service.http.openapi import takes
from service.http.running import running
from service.readings import GrantOut
from telemetry import asof
from telemetry.store.batch import Batch

router = APIRouter(prefix="/v1/grants", tags=["hosts"])
EXAMPLE: dict[str, Any] = {"granted_by": "ada", "probes": ["matmul", "memory_copy"], "valid_s": 3600, "max_threads": 2}


@router.get("", response_model=GrantsOut)
def get_grants(request: Request) -> GrantsOut:
    """List grants, also those that have ended."""
    at, now_ns = running(request), time.time_ns()
    with at.store.reader() as reader:
        known = asof.grants(reader, at.store.last_commit)
    ordered = sorted(known.values(), key=lambda grant: (grant.expires_ns, grant.grant_id))
    return GrantsOut(grants=[grant_out(grant, now_ns) for grant in ordered])


@router.post("", response_model=GrantOut, openapi_extra=takes(GrantIn, EXAMPLE))
async def post_grant(request: Request) -> GrantOut:
    """Permit measuring a host, for a time and within ceilings."""
    at, now_ns = running(request), time.time_ns()
    asked = GrantIn.model_validate_json(await body_of(request, at.settings.question_limit_bytes))
    terms = Terms(tuple(asked.probes), **asked.model_dump(exclude={"granted_by", "host", "probes"}))
    grant = give(terms, user=asked.granted_by, host=asked.host or socket.gethostname(), now_ns=now_ns)
    await asyncio.wrap_future(at.store.submit(Batch((grant,))))
    return grant_out(grant, now_ns)


@router.delete("/{grant_id}", response_model=GrantOut)
async def delete_grant(grant_id: str, request: Request) -> GrantOut:
    """Withdraw a grant: from the answer on nothing begins under it, and what runs is stopped within a second."""
    at, now_ns = running(request), time.time_ns()
    with at.store.reader() as reader:
        grant = withdrawn(asof.grants(reader, at.store.last_commit), grant_id, now_ns)
    await asyncio.wrap_future(at.store.submit(Batch((grant,))))
    at.calibrations.withdraw(grant_id)
    return grant_out(grant, time.time_ns())
