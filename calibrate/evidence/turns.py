"""Outcomes in order of start: who is waited for, and for how long.

In order of completion the short ones come first, which looks like a speed-up and is none. So an attempt is looked at only after
those that started before it. Where nothing was told of an attempt before it ended, nobody could wait for it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictors.contexts import Context, judged_path
from predictors.model import Change
from telemetry.words import Ended

PATIENCE = 64
"""Later starts that may end before an attempt still running is counted at the length it has."""
SHORTEST_S = 1e-9
WAITS = frozenset({"eligibility_wait", "queue", "owner_wait", "completion"})
"""Phases that are not watched: how long one waits changes with the load of the moment, from which nothing is exchangeable."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A phase of an attempt whose turn has not come.

    `log_time` is that of its length in s, or of its length so far where it was not seen to end (`ended` False); `over` says that
    nothing more will come. It was met at commit `met`; `missed` tells whether it passed the 0.9 quantile answered for it, None
    while that is open, and `speaks` whether it counts for all that were asked at its instant.
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
    speaks: bool = True


Queues = Mapping[str, Mapping[str, Waiting]]
"""Rows that wait, by family, then by row."""


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


def told(
    queues: Queues,
    passed: frozenset[str],
    changes: Sequence[Change],
    commit: int,
    missed: Mapping[str, bool],
    silent: Collection[str] = (),
) -> tuple[dict[str, dict[str, Waiting]], frozenset[str], Collection[Waiting]]:
    """Queues of the families that changes concern, with them; rows that were counted while running and run still; new ones.

    `missed` tells of rows that ended whether they passed the 0.9 quantile, `silent` are those of them that another speaks for.
    """
    corrected = {one.key for one in changes if one.sign < 0 and one.ended != Ended.RUNNING}
    found: dict[str, dict[str, Waiting]] = {}
    begun: dict[str, Waiting] = {}
    over: set[str] = set()
    for change in changes:
        if not _tells(change) or change.key in corrected:
            continue
        if change.key in passed:
            if change.sign > 0 and change.ended != Ended.RUNNING:
                over.add(change.key)
            continue
        family = family_of(change.context, change.phase)
        queue = found.get(family)
        if queue is None:
            queue = found[family] = dict(queues.get(family, {}))
        if change.sign < 0:
            queue.pop(change.key, None)
        else:
            before = queues.get(family, {}).get(change.key)
            one = _waiting(change, before.met if before else commit)
            queue[change.key] = replace(one, missed=missed.get(change.key), speaks=change.key not in silent)
            if before is None:
                begun[change.key] = queue[change.key]
    return found, passed - over if over else passed, begun.values()


def _tells(change: Change) -> bool:
    """Whether a row has a place in order of start, and was watched from its start on."""
    return bool(change.key) and change.started_ns is not None and change.entry_s <= 0.0 and change.phase not in WAITS


def _waiting(change: Change, met: int) -> Waiting:
    over, completed = change.ended != Ended.RUNNING, change.ended == Ended.COMPLETED
    log_time = float(np.log(max(change.duration_s, SHORTEST_S)))
    assert change.started_ns is not None
    return Waiting(change.started_ns, change.key, change.phase, change.context, log_time, completed, over, met)


def family_of(context: Context, phase: str) -> str:
    """The family of work in whose queue a row waits, named as recalibration names it."""
    return judged_path(context, phase, 1)[2]
