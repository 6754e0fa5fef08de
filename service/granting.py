"""Grants as they are told and withdrawn, by the API and on the command line alike."""

from __future__ import annotations

from collections.abc import Mapping

from calibrate.hosts.grants import in_force
from service.readings import GrantOut
from telemetry.errors import UnknownId
from telemetry.tables import Grant


def grant_out(grant: Grant, now_ns: int) -> GrantOut:
    """A grant, and whether it permits anything at that UTC time."""
    told = grant.model_dump(include=set(GrantOut.model_fields))
    return GrantOut(**told, in_force=in_force(grant, now_ns))


def withdrawn(known: Mapping[str, Grant], grant_id: str, now_ns: int) -> Grant:
    """The row that ends a grant at once; one that was withdrawn before stays as it was. Raises UnknownId."""
    row = known.get(grant_id)
    if row is None:
        raise UnknownId("grant_id", grant_id, "`phasecast grant list` shows the ids")
    return row if row.revoked_ns is not None else row.model_copy(update={"revoked_ns": now_ns})
