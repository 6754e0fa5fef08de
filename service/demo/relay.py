"""Relay rounds: a load on one worker is to be ready when the service running on another ends, started as late as is safe.

Predecessor and load run beside each other, so each says one co-runner. The planned wait lies between the load's enqueue,
when the question is asked, and its eligible: neither its queue nor its setup contains it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from service.demo.encoder import checkpoint
from service.demo.schedule import Planned
from service.demo.supervisor import (
    PATIENCE_S,
    Bench,
    Finished,
    OnBefore,
    Underway,
    Upcoming,
    announced,
    hand_over,
    input_ids,
    listen,
    opened,
    reserve,
    typical_s,
    underway,
)
from telemetry.errors import BadField
from telemetry.tables import Grant
from telemetry.words import State

PREDECESSOR_POST, LOAD_POST = 0, 1
PREDECESSOR_SHAPE, LOAD_SHAPE = (24, 128), (4, 32)
"""Batch and length: a service several times as long as a load's setup, and a load that hardly disturbs it."""
ASKED_AT = 0.25
"""Share of the predecessor's typical service after which the question is asked."""


@dataclass(frozen=True)
class Round:
    """One load and the predecessor it was to follow.

    `asked_ns` and `handed_over_ns` are on this host's monotonic clock; `asked_ns` is None where the predecessor had
    ended before there was anything to ask. `answer_s` is the wait that was answered, counted from the asking.
    """

    predecessor: Finished
    load: Finished
    asked_ns: int | None
    answer_s: float | None
    handed_over_ns: int

    @property
    def waited_s(self) -> float:
        """From the asking to the handing over in s; 0 where nothing was asked."""
        return 0.0 if self.asked_ns is None else (self.handed_over_ns - self.asked_ns) / 1e9

    @property
    def late_s(self) -> float | None:
        """From the predecessor's end to the load's readiness in s, negative where it was ready before; None if either is missing.

        A worker computes as soon as it is ready, so that its compute_start stands for both.
        """
        ready_ns, began_ns, service_s = self.load.compute_start_ns, self.predecessor.compute_start_ns, self.predecessor.service_s
        if ready_ns is None or began_ns is None or service_s is None:
            return None
        return (ready_ns - began_ns) / 1e9 - service_s


OnNeed = Callable[[Upcoming, Upcoming], float | None]
OnRound = Callable[[Round], None]


def relay(
    n_rounds: int,
    *,
    grant: Grant,
    folder: Path,
    spool_dir: Path,
    backend_name: str,
    run_id: str,
    on_before: OnBefore,
    on_need: OnNeed,
    on_finished: OnRound,
) -> list[Round]:
    """Make the rounds one after the other; those made before the grant's time was over, in order.

    The checkpoint lies in `folder`, events go to `spool_dir`. `on_before` sees both attempts before either computes (the
    ages it gives are not used). `on_need(load, predecessor)` is called while the predecessor computes and gives the s
    from then until the load is to start: 0 or less is at once, as is None, no answer. `on_finished` follows each round.
    Callbacks run in this thread. Raises NotGranted before anything is started, BadField on a wait past all patience.
    """
    path = checkpoint(folder)
    made: list[Round] = []
    with opened(grant, backend_name, spool_dir, run_id, on_before) as bench:
        for index in range(n_rounds):
            if bench.crew.left_s() <= 0.0:
                break
            made.append(_round(bench, index, path, on_need))
            on_finished(made[-1])
    return made


def _round(bench: Bench, index: int, path: Path, on_need: OnNeed) -> Round:
    """From a resident predecessor at rest to the end of both attempts."""
    bench.crew.worker(LOAD_POST)  # a worker lost in the last round is replaced before time counts
    ahead, _ = announced(bench, _planned(2 * index, State.RESIDENT, PREDECESSOR_SHAPE), path)
    with underway(bench, ahead, PREDECESSOR_POST) as predecessor:
        tokens = input_ids(bench, ahead.planned)
        predecessor.attempt.mark("eligible")
        reserve(bench, predecessor, path)
        # Only now, since making the model resident has read the file.
        load, _ = announced(bench, _planned(2 * index + 1, (State.COLD, State.CACHED)[index % 2], LOAD_SHAPE), path)
        hand_over(bench, predecessor, path, tokens)
        _until_asked(bench, predecessor)
        return _followed(bench, predecessor, load, path, on_need)


def _planned(index: int, state: State, shape: tuple[int, int]) -> Planned:
    """Both attempts of a round are one block: they share what slows the host down."""
    return Planned(index, index // 2, state, *shape, corunners=1)


def _until_asked(bench: Bench, predecessor: Underway) -> None:
    """Let the predecessor compute for its share of the typical time; in the first round nothing is known of that yet."""
    age_s = ASKED_AT * typical_s(bench, predecessor.upcoming.planned)
    while predecessor.finished is None and time.monotonic() < predecessor.at_age_s(age_s):
        listen(bench, [predecessor], predecessor.at_age_s(age_s))


def _followed(bench: Bench, predecessor: Underway, load: Upcoming, path: Path, on_need: OnNeed) -> Round:
    """Ask, wait as answered whatever becomes of the predecessor, start the load, and follow both to their ends."""
    asked_ns, answer_s = None, None
    with underway(bench, load, LOAD_POST) as follower:
        tokens = input_ids(bench, load.planned)
        if predecessor.finished is None:
            asked_ns = time.monotonic_ns()
            answer_s = on_need(load, predecessor.upcoming)
            _wait(bench, predecessor, asked_ns / 1e9 + _bearable_s(answer_s))
        follower.attempt.mark("eligible")
        reserve(bench, follower, path)
        handed_over_ns = time.monotonic_ns()
        hand_over(bench, follower, path, tokens)
        while predecessor.finished is None or follower.finished is None:
            listen(bench, [predecessor, follower], math.inf)
        return Round(predecessor.finished, follower.finished, asked_ns, answer_s, handed_over_ns)


def _bearable_s(answer_s: float | None) -> float:
    """The wait in s that an answer asks for; raises BadField on one that nobody would sit through, or NaN."""
    if answer_s is None or answer_s <= 0.0:
        return 0.0
    if not answer_s <= PATIENCE_S:
        raise BadField("wait_s", answer_s, f"answer at most {PATIENCE_S:g} s, or None to start at once")
    return answer_s


def _wait(bench: Bench, predecessor: Underway, until_s: float) -> None:
    """The planned wait, to a monotonic time in s; what the predecessor says meanwhile is heard."""
    while time.monotonic() < until_s:
        listen(bench, [predecessor], until_s)
