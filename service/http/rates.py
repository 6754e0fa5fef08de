"""How many requests one caller may send: a token bucket for each, the number of buckets bounded."""

from __future__ import annotations

from collections import OrderedDict

BURST_S = 2.0
"""A caller that was quiet may send what it could have sent in so many seconds at once."""
MOST_CALLERS = 10_000


class Rates:
    """Callers and what they have left. `per_s` requests a second each; 0 lets everything pass. For one thread."""

    def __init__(self, per_s: float) -> None:
        self._per_s, self._most = per_s, max(1.0, per_s * BURST_S)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def wait_s(self, caller: str, now_s: float) -> float:
        """Let one request of a caller pass and answer 0, or tell after how many seconds it may send the next one."""
        if self._per_s <= 0.0:
            return 0.0
        left, seen_s = self._left.get(caller, (self._most, now_s))
        left = min(self._most, left + max(0.0, now_s - seen_s) * self._per_s)
        allowed = left >= 1.0
        self._left[caller] = (left - 1.0 if allowed else left, now_s)
        self._left.move_to_end(caller)
        if len(self._left) > MOST_CALLERS:
            self._left.popitem(last=False)  # the one that was quiet longest has the most left anyway
        return 0.0 if allowed else (1.0 - left) / self._per_s
