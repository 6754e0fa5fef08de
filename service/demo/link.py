"""Messages between the supervisor and the processes it starts: JSON objects over a socket pair.

A peer that died closes its end, so nobody waits for the dead: reading then raises EOFError.
"""

from __future__ import annotations

import json
import socket
from multiprocessing.connection import Connection
from typing import Any


def pair() -> tuple[Connection, Connection]:
    """Two connected ends; the second one's descriptor is for the process to be started."""
    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())


def send(end: Connection, word: str, **fields: Any) -> None:
    """Send one message; raises OSError if the other end is gone."""
    end.send_bytes(json.dumps({"word": word, **fields}).encode())


def receive(end: Connection) -> dict[str, Any]:
    """The next message, waiting for it; raises EOFError if the other end is gone."""
    try:
        message: dict[str, Any] = json.loads(end.recv_bytes())
    except ConnectionResetError:
        raise EOFError from None
    return message


def receive_within(end: Connection, timeout_s: float) -> dict[str, Any] | None:
    """The next message, or None if none came within the time."""
    return receive(end) if end.poll(timeout_s) else None
