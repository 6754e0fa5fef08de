"""Who goes first where events come in faster than they can be learned from: taking them in, which somebody waits for."""

from __future__ import annotations

import threading
import time
from types import TracebackType

LOOK_S = 0.005
"""A request of a thousand events takes a few times as long."""


class Intake:
    """Counts requests that bring events, from the thread that takes them in; a context manager around each of them."""

    def __init__(self) -> None:
        self._under_way = 0

    def __enter__(self) -> None:
        self._under_way += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._under_way -= 1

    def give_way(self, most_s: float, stopping: threading.Event) -> None:
        """Wait until no such request is under way; `most_s` at most, and not when stopping."""
        until_s = time.monotonic() + most_s
        while self._under_way and time.monotonic() < until_s and not stopping.wait(LOOK_S):
            pass
