"""Who a request is: its id, and the trace it belongs to (W3C Trace Context, version 00)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass

from telemetry.recorder.ids import uuid7

_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_TRACE = re.compile(rb"(?!ff)(?!00.{53}-)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-[0-9a-f]{2}(?:-.*)?")
"""Ids of nothing but zeros are none; a later version may add fields at the end, version 00 may not."""


@dataclass(frozen=True, slots=True)
class Named:
    """A request's own id, the caller's where it gave one, and the trace and span it was sent in."""

    request_id: str
    trace_id: str | None = None
    parent_id: str | None = None


NOW: ContextVar[Named | None] = ContextVar("request", default=None)
"""The request that is being answered, also on threads that work for it."""


def named(headers: Iterable[tuple[bytes, bytes]]) -> Named:
    """Id and trace as the headers tell; ids that can't stand in a log line, and traces that are none, are passed over."""
    request_id = trace_id = parent_id = None
    for name, value in headers:
        if name == b"x-request-id" and _ID.fullmatch(value):
            request_id = value.decode("ascii")
        elif name == b"traceparent" and (found := _TRACE.fullmatch(value)):
            trace_id, parent_id = found[1].decode("ascii"), found[2].decode("ascii")
    return Named(request_id or uuid7(), trace_id, parent_id)


def request_id() -> str:
    """Id of the request that is being answered; a new one where there is none."""
    now = NOW.get()
    return now.request_id if now is not None else uuid7()
