"""Who goes first where events come in faster than they can be learned from: taking them in, which somebody waits for."""

from __future__ import annotations

import threading
import time
from types import TracebackType

QUIET_S = 0.03
"""So long after a request the next one may be on its way from the same sender, who waits for each answer."""


class Intake:
    """Counts requests that bring events, from the thread that takes them in; a context manager around each of them."""

    def __init__(self) -> None:
        self._under_way = 0
        self._last_s = -QUIET_S

    def __enter__(self) -> None:
        self._under_way += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._under_way -= 1
        self._last_s = time.monotonic()

    def give_way(self, most_s: float, stopping: threading.Event) -> None:
        """Wait until there was no such request for a moment; `most_s` at most, and not when stopping."""
        until_s = time.monotonic() + most_s
        while not stopping.is_set():
            now_s = time.monotonic()
            quiet_in_s = QUIET_S if self._under_way else self._last_s + QUIET_S - now_s
            if quiet_in_s <= 0 or now_s >= until_s:
                return
            stopping.wait(min(quiet_in_s, until_s - now_s))
