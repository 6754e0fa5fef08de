"""Outcomes in order of start: who is waited for, and for how long.

In order of completion the short ones come first, which looks like a speed-up and is none. So an attempt is looked at only after
those that started before it. Where nothing was told of an attempt before it ended, nobody could wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from predictors.contexts import Context

PATIENCE = 64
"""Later starts that may end before an attempt still running is counted at the length it has."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A phase of an attempt whose turn has not come.

    `log_time` is that of its length in s, or of its length so far where it was not seen to end (`ended` False); `over` says that
    nothing more will come. It was met at commit `met`; `missed` tells whether it passed the 0.9 quantile answered for it, None
    while that is open.
    """

    start_ns: int
    key: str
    phase: str
    context: Context
    log_time: float
    ended: bool
    over: bool
    met: int
    missed: bool | None = None


def in_start_order(waiting: Iterable[Waiting], patience: int = PATIENCE) -> tuple[list[Waiting], list[Waiting]]:
    """(those whose turn has come, those that wait), both in order of start.

    An attempt waits for those that started before it. One that still runs holds up the others until `patience` later ones are
    over; then it counts at the length it has, and what becomes of it afterwards is passed over.
    """
    queue = sorted(waiting, key=lambda one: (one.start_ns, one.key))
    later = sum(one.over for one in queue)
    for place, one in enumerate(queue):
        later -= one.over
        if not one.over and later < patience:
            return queue[:place], queue[place:]
    return queue, []
