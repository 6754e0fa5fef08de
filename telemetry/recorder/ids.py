"""Time-ordered event ids and the identity of this host's monotonic clock."""

from __future__ import annotations

import os
import secrets
import socket
import time
from itertools import count
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_NS_PER_MS = 1_000_000


class _Sequence:
    """State behind `uuid7` of one process.

    Time moves with the monotonic clock from the wall time of creation, so that a stepped wall never turns ids back, and
    `count` is atomic in CPython, so that threads need no lock.
    """

    def __init__(self) -> None:
        self.offset_ns = time.time_ns() - time.monotonic_ns()
        self.counter = count(secrets.randbits(31))
        self.process_digits = f"{0x8000 | secrets.randbits(14):04x}-{secrets.randbits(16):04x}"


_sequence = _Sequence()


def _restart() -> None:
    """A forked child must not go on with its parent's random bits and counter."""
    global _sequence  # noqa: PLW0603 - one sequence per process is the point
    _sequence = _Sequence()


os.register_at_fork(after_in_child=_restart)


def uuid7() -> str:
    """A UUIDv7 (RFC 9562): 48 bits of ms, 12 bits of its fraction, 30 random bits of the process, a 32-bit counter.

    Greater than every id that this process got before, compared as text.
    """
    sequence = _sequence
    ms, rest_ns = divmod(time.monotonic_ns() + sequence.offset_ns, _NS_PER_MS)
    digits = f"{ms:012x}"
    counted = next(sequence.counter) & 0xFFFF_FFFF
    return f"{digits[:8]}-{digits[8:]}-7{rest_ns >> 8:03x}-{sequence.process_digits}{counted:08x}"


def clock_id() -> str:
    """Host and boot of the monotonic clock: two readings may be subtracted only if theirs are equal.

    Where the system tells no boot id, the process stands in for it: fewer durations, and none that is wrong.
    """
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        boot = f"process-{os.getpid()}-{time.time_ns()}"
    return f"{socket.gethostname()}/{boot}"
