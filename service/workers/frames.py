"""Frames on the socket between the process that owns the store and one that answers: a JSON head and bytes, both length-prefixed.

The socket is a pair the owner makes and hands to its child, so nobody else can speak on it.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

_SIZES = struct.Struct("!IQ")


class Kind(StrEnum):
    """What frames carry: to a worker above, from a worker below."""

    MODEL = "model"
    CHANGES = "changes"
    RUNNING = "running"
    TOKENS = "tokens"
    RELIABILITY = "reliability"
    BEAT = "beat"
    GATHER = "gather"

    GIVEN = "given"
    GATHERED = "gathered"


@dataclass(frozen=True, slots=True)
class Frame:
    """One message; floats in `told` come out to the bit as they went in."""

    kind: Kind
    told: Any = None
    body: bytes = b""


def encoded(frame: Frame) -> bytes:
    """The frame's bytes."""
    head = orjson.dumps([frame.kind, frame.told])
    return b"".join((_SIZES.pack(len(head), len(frame.body)), head, frame.body))


def read(line: socket.socket) -> Frame | None:
    """The next frame of a blocking socket; None once the other end has closed, also amid a frame."""
    sizes = _exactly(line, _SIZES.size)
    if sizes is None:
        return None
    head_bytes, body_bytes = _SIZES.unpack(sizes)
    head, body = _exactly(line, head_bytes), _exactly(line, body_bytes)
    if head is None or body is None:
        return None
    kind, told = orjson.loads(head)
    return Frame(Kind(kind), told, body)


def _exactly(line: socket.socket, size_bytes: int) -> bytes | None:
    found = bytearray(size_bytes)
    view, have = memoryview(found), 0
    while have < size_bytes:
        try:
            got = line.recv_into(view[have:])
        except OSError:
            return None
        if got == 0:
            return None
        have += got
    return bytes(found)
