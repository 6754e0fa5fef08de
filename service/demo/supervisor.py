"""Run a schedule of attempts: establish their state, have them predicted, run them, ask while they run, stop some.

The supervisor marks enqueue, eligible (the inputs are there) and reservation_commit (a worker is free); the worker marks
the rest. Where a worker is killed or dies, the supervisor writes the terminal event.
"""

from __future__ import annotations

import math
import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from random import Random
from typing import Any

from calibrate.hosts.pagecache import evict, fill
from service.demo.crew import Crew, crew
from service.demo.encoder import FAMILY, MODEL, VOCABULARY, checkpoint, truncated_checkpoint
from service.demo.link import receive, send
from service.demo.schedule import Cancel, Failure, Planned
from telemetry.recorder.ids import uuid7
from telemetry.recorder.marks import Recorder, RunningAttempt
from telemetry.samples import processor_name
from telemetry.tables import Grant
from telemetry.words import CancelReason, Ended, State

PATIENCE_S = 30.0
"""An attempt that takes longer is timed out and its worker replaced."""
HEADROOM_BYTES = 24 << 20
"""Room given to a load that is to meet a memory limit: less than half of the checkpoint."""


@dataclass(frozen=True)
class Upcoming:
    """An attempt about to be made: `fields` are columns of the attempts table, as they will be recorded."""

    attempt_id: str
    planned: Planned
    fields: dict[str, Any]


@dataclass(frozen=True)
class Finished:
    """How an attempt ended; `service_s` is there only where it completed, `compute_start_ns` (monotonic) if it got so far."""

    upcoming: Upcoming
    ended: Ended
    reason: str | None
    service_s: float | None
    compute_start_ns: int | None


OnBefore = Callable[[Upcoming], Sequence[float]]
OnRunning = Callable[[Upcoming, float], None]
OnFinished = Callable[[Finished], None]
Due = tuple[float, Cancel | None]
"""An age of the service phase in s, and how to cancel then; None is to ask."""


@dataclass(frozen=True)
class Bench:
    """What every attempt of a run shares."""

    crew: Crew
    recorder: Recorder
    run: str
    rng: Random
    on_before: OnBefore
    service_s: dict[tuple[int, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    """Completed service times in s by (tokens, corunners)."""


@dataclass
class Underway:
    """An attempt that has been recorded, at its worker's `post`, and what has been heard of it so far."""

    upcoming: Upcoming
    attempt: RunningAttempt
    post: int
    over_s: float = math.inf
    """Monotonic time in s at which patience ends; counted from the handing over."""
    compute_start_ns: int | None = None
    finished: Finished | None = None

    def at_age_s(self, age_s: float) -> float:
        """Monotonic time in s at which its service phase has that age; infinite as long as it has not begun."""
        return math.inf if self.compute_start_ns is None else self.compute_start_ns / 1e9 + age_s

    def finish(self, ended: Ended, reason: str | None, service_s: float | None = None) -> None:
        """Nothing more will be heard of it."""
        self.finished = Finished(self.upcoming, ended, reason, service_s, self.compute_start_ns)


def run(
    schedule: Sequence[Planned],
    *,
    grant: Grant,
    folder: Path,
    spool_dir: Path,
    backend_name: str,
    run_id: str,
    on_before: OnBefore,
    on_running: OnRunning,
    on_finished: OnFinished,
) -> list[Finished]:
    """Make the attempts one after the other; those made before the grant's time was over, in order.

    Checkpoints lie in `folder`, events go to `spool_dir`. `on_before` sees each attempt before its first event and gives
    the ages of its service phase, in s, at which `on_running` is to be called if it is still running then (with the age
    at that moment). `on_finished` follows each. Callbacks run in this thread. Raises NotGranted before anything is started.
    """
    intact = checkpoint(folder)
    truncated = truncated_checkpoint(intact)
    made: list[Finished] = []
    with opened(grant, backend_name, spool_dir, run_id, on_before) as bench:
        for planned in schedule:
            if bench.crew.left_s() <= 0.0:
                break
            bench.crew.corun(planned.corunners)
            path = truncated if planned.failure is Failure.TRUNCATED_CHECKPOINT else intact
            made.append(_make(bench, planned, path, on_running))
            on_finished(made[-1])
    return made


@contextmanager
def opened(grant: Grant, backend_name: str, spool_dir: Path, run_id: str, on_before: OnBefore) -> Iterator[Bench]:
    """A bench with one worker ready; all it started ends with the block. Raises NotGranted before anything is started."""
    with crew(grant, backend_name, spool_dir) as hands, closing(Recorder(spool_dir)) as recorder:
        hands.worker()
        yield Bench(hands, recorder, run_id, Random(run_id), on_before)


def _make(bench: Bench, planned: Planned, path: Path, on_running: OnRunning) -> Finished:
    """One attempt from the state of the page cache to its end."""
    upcoming, ask_at_s = announced(bench, planned, path)
    with underway(bench, upcoming) as work:
        tokens = input_ids(bench, planned)
        work.attempt.mark("eligible")
        reserve(bench, work, path)
        hand_over(bench, work, path, tokens)
        return _watched(bench, work, _due(bench, planned, ask_at_s), on_running)


def announced(bench: Bench, planned: Planned, path: Path) -> tuple[Upcoming, Sequence[float]]:
    """Bring about the state the attempt is to start from and have it predicted; with the ages in s at which to ask about it."""
    upcoming = _upcoming(bench, planned, established(path, planned.state))
    return upcoming, bench.on_before(upcoming)


def established(path: Path, state: State) -> State:
    """Bring the page cache into the state asked for; cache_unknown where the kernel does not prove it."""
    if state is State.RESIDENT:
        return state
    proved = evict(path) if state is State.COLD else fill(path)
    return state if proved else State.CACHE_UNKNOWN


@contextmanager
def underway(bench: Bench, upcoming: Upcoming, post: int = 0) -> Iterator[Underway]:
    """Record the attempt and enqueue it. What leaves the block is an interrupt or a callback's error: no failure of the work."""
    work = Underway(upcoming, bench.recorder.attempt(**upcoming.fields), post)
    work.attempt.mark("enqueue")
    try:
        yield work
    except BaseException:
        if work.finished is None:
            work.attempt.cancelled(CancelReason.SHUTDOWN)
        raise


def reserve(bench: Bench, work: Underway, path: Path) -> None:
    """Have a worker ready, already holding the model where it is to be resident; one that dies over it fails the attempt."""
    planned = work.upcoming.planned
    try:
        if planned.state is State.RESIDENT:
            bench.crew.prepare(path, planned.batch, planned.length, work.post)
        bench.crew.worker(work.post)
    except EOFError:
        _died(bench, work)
    else:
        work.attempt.mark("reservation_commit")


def hand_over(bench: Bench, work: Underway, path: Path, tokens: list[list[int]]) -> None:
    """Let the reserved worker begin, unless the attempt has already failed."""
    if work.finished is not None:
        return
    planned = work.upcoming.planned
    headroom_bytes = HEADROOM_BYTES if planned.failure is Failure.MEMORY_LIMIT else None
    load_path = None if planned.state is State.RESIDENT else str(path)
    work.over_s = time.monotonic() + min(PATIENCE_S, bench.crew.left_s())
    end = bench.crew.worker(work.post)
    _tell(end, "run", attempt_id=work.upcoming.attempt_id, path=load_path, tokens=tokens, headroom_bytes=headroom_bytes)


def listen(bench: Bench, works: Sequence[Underway], until_s: float) -> None:
    """Take what workers say of attempts handed over to them; returns when one has spoken, at the latest at `until_s` (monotonic).

    An attempt whose worker died has failed; one that outlasts all patience is timed out.
    """
    running = {bench.crew.worker(work.post): work for work in works if work.finished is None}
    wake_s = min([until_s, *(work.over_s for work in running.values())])
    spoken = wait(list(running), max(0.0, wake_s - time.monotonic()))
    for end, work in running.items():
        if end in spoken:
            _take(bench, work, end)
        elif time.monotonic() >= work.over_s:
            _time_out(bench, work)


def _take(bench: Bench, work: Underway, end: Connection) -> None:
    """One message about an attempt, or the end of its worker."""
    try:
        message = receive(end)
    except EOFError:
        _died(bench, work)
        return
    if message["word"] == "running":
        work.compute_start_ns = message["since_ns"]
    elif message["word"] == "over":
        work.finish(Ended(message["ended"]), message["reason"], message["service_s"])
        if message["service_s"] is not None:
            planned = work.upcoming.planned
            bench.service_s[planned.tokens, planned.corunners].append(message["service_s"])


def _died(bench: Bench, work: Underway) -> None:
    """Write the terminal event of an attempt whose worker ended by itself."""
    reason = f"worker ended with exit code {bench.crew.drop_worker(work.post)}"
    work.attempt.failed(reason)
    work.finish(Ended.FAILED, reason)


def _time_out(bench: Bench, work: Underway) -> None:
    reason = f"no end within {PATIENCE_S:.0f} s"
    work.attempt.timed_out(reason)
    bench.crew.drop_worker(work.post)
    work.finish(Ended.TIMED_OUT, reason)


def _watched(bench: Bench, work: Underway, due: list[Due], on_running: OnRunning) -> Finished:
    """Follow an attempt to its end: ask and cancel when due."""
    while work.finished is None:
        next_s = work.at_age_s(due[0][0]) if due else math.inf
        listen(bench, [work], next_s)
        if work.finished is None and time.monotonic() >= next_s:
            how = due.pop(0)[1]
            if how is None:
                on_running(work.upcoming, time.monotonic() - work.at_age_s(0.0))
            else:
                _cancel(bench, work, how)
    return work.finished


def _cancel(bench: Bench, work: Underway, how: Cancel) -> None:
    """Ask a running attempt to stop, or stop it by killing its process."""
    work.attempt.cancel_requested(CancelReason.USER)
    if how is Cancel.FLAG:
        _tell(bench.crew.worker(work.post), "cancel")
        return
    bench.crew.drop_worker(work.post)
    work.attempt.cancelled(CancelReason.USER)
    work.finish(Ended.CANCELLED, CancelReason.USER)


def _tell(end: Connection, word: str, **content: Any) -> None:
    """Send to the worker; if it is gone, reading from it will say so."""
    with suppress(OSError):
        send(end, word, **content)


def _upcoming(bench: Bench, planned: Planned, state: State) -> Upcoming:
    """Attempts of one block are one run of the workflow: they share their co-runner and move together."""
    attempt_id = uuid7()
    fields = {
        "attempt_id": attempt_id,
        "workflow_id": "demo",
        "run_id": f"{bench.run}-block-{planned.block}",
        "node_id": f"encode-{planned.index}",
        "host": socket.gethostname(),
        "device": processor_name(),
        "family": FAMILY,
        "model": MODEL,
        "runtime": bench.crew.runtime,
        "precision": "float32",
        "state": state.value,
        "batch": planned.batch,
        "size_in": planned.length,
        "corunners": planned.corunners,
    }
    return Upcoming(attempt_id, planned, fields)


def input_ids(bench: Bench, planned: Planned) -> list[list[int]]:
    """Input ids, shape (batch, length); one past the vocabulary where the attempt is to meet it."""
    tokens = [[bench.rng.randrange(VOCABULARY) for _ in range(planned.length)] for _ in range(planned.batch)]
    if planned.failure is Failure.ID_OUT_OF_RANGE:
        tokens[-1][-1] = VOCABULARY
    return tokens


def typical_s(bench: Bench, planned: Planned) -> float:
    """Median service time of the shape so far in s, else by the median time per token; 0 if nothing has completed."""
    same = bench.service_s.get((planned.tokens, planned.corunners))
    if same:
        return statistics.median(same)
    per_token = [s / tokens for (tokens, _), seconds in bench.service_s.items() for s in seconds]
    return planned.tokens * statistics.median(per_token) if per_token else 0.0


def _due(bench: Bench, planned: Planned, ask_at_s: Sequence[float]) -> list[Due]:
    """What to do at which age of the service phase in s, in order of age."""
    due: list[Due] = [(age_s, None) for age_s in ask_at_s]
    if planned.cancel is not None and planned.cancel_after_fraction is not None:
        due.append((planned.cancel_after_fraction * typical_s(bench, planned), planned.cancel))
    return sorted(due, key=lambda item: item[0])
