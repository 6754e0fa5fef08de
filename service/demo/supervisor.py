"""Run a schedule of attempts: establish their state, have them predicted, run them, ask while they run, stop some.

The supervisor marks enqueue, eligible (the inputs are there) and reservation_commit (a worker is free); the worker marks
the rest. Where a worker is killed or dies, the supervisor writes the terminal event.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

from calibrate.hosts.pagecache import evict, fill
from service.demo.crew import Crew, crew
from service.demo.encoder import FAMILY, MODEL, VOCABULARY, checkpoint, truncated_checkpoint
from service.demo.link import receive_within, send
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
    """How an attempt ended; `service_s` is there only where it completed."""

    upcoming: Upcoming
    ended: Ended
    reason: str | None
    service_s: float | None


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
    intact: Path
    truncated: Path
    run: str
    rng: Random
    on_before: OnBefore
    on_running: OnRunning
    service_s: dict[tuple[int, int], list[float]] = field(default_factory=lambda: defaultdict(list))
    """Completed service times in s by (tokens, corunners)."""


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
    with crew(grant, backend_name, spool_dir) as hands, closing(Recorder(spool_dir)) as recorder:
        hands.worker()
        bench = Bench(hands, recorder, intact, truncated, run_id, Random(run_id), on_before, on_running)
        for planned in schedule:
            if hands.left_s() <= 0.0:
                break
            hands.corun(planned.corunners)
            made.append(_make(bench, planned))
            on_finished(made[-1])
    return made


def _make(bench: Bench, planned: Planned) -> Finished:
    """One attempt from the state of the page cache to its end."""
    path = bench.truncated if planned.failure is Failure.TRUNCATED_CHECKPOINT else bench.intact
    upcoming = _upcoming(bench, planned, established(path, planned.state))
    ask_at_s = bench.on_before(upcoming)
    with bench.recorder.attempt(**upcoming.fields) as attempt:
        attempt.mark("enqueue")
        tokens = _tokens(bench.rng, planned)
        attempt.mark("eligible")
        try:
            end = _reserved(bench, planned, path)
            attempt.mark("reservation_commit")
            _hand_over(end, upcoming, tokens, path)
            finished = _watch(bench, upcoming, attempt, end, _due(bench, planned, ask_at_s))
        except EOFError:
            finished = _died(bench, upcoming)
        except BaseException:  # an interrupt or a callback's error ends the demo: no failure of the work
            attempt.cancelled(CancelReason.SHUTDOWN)
            raise
    if finished.service_s is not None:
        bench.service_s[planned.tokens, planned.corunners].append(finished.service_s)
    return finished


def _reserved(bench: Bench, planned: Planned, path: Path) -> Connection:
    """The link to a free worker, which already holds the model where it is to be resident."""
    if planned.state is State.RESIDENT:
        bench.crew.prepare(path, planned.batch, planned.length)
    return bench.crew.worker()


def _hand_over(end: Connection, upcoming: Upcoming, tokens: list[list[int]], path: Path) -> None:
    planned = upcoming.planned
    headroom_bytes = HEADROOM_BYTES if planned.failure is Failure.MEMORY_LIMIT else None
    load_path = None if planned.state is State.RESIDENT else str(path)
    _tell(end, "run", attempt_id=upcoming.attempt_id, path=load_path, tokens=tokens, headroom_bytes=headroom_bytes)


def _tell(end: Connection, word: str, **content: Any) -> None:
    """Send to the worker; if it is gone, reading from it will say so."""
    with suppress(OSError):
        send(end, word, **content)


def established(path: Path, state: State) -> State:
    """Bring the page cache into the state asked for; cache_unknown where the kernel does not prove it."""
    if state is State.RESIDENT:
        return state
    proved = evict(path) if state is State.COLD else fill(path)
    return state if proved else State.CACHE_UNKNOWN


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


def _tokens(rng: Random, planned: Planned) -> list[list[int]]:
    """Input ids, shape (batch, length); one past the vocabulary where the attempt is to meet it."""
    tokens = [[rng.randrange(VOCABULARY) for _ in range(planned.length)] for _ in range(planned.batch)]
    if planned.failure is Failure.ID_OUT_OF_RANGE:
        tokens[-1][-1] = VOCABULARY
    return tokens


def _typical_s(bench: Bench, planned: Planned) -> float:
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
        due.append((planned.cancel_after_fraction * _typical_s(bench, planned), planned.cancel))
    return sorted(due, key=lambda item: item[0])


def _watch(bench: Bench, upcoming: Upcoming, attempt: RunningAttempt, end: Connection, due: list[Due]) -> Finished:
    """Follow an attempt to its end: ask and cancel when due; EOFError if the worker dies."""
    started_s: float | None = None
    over_s = time.monotonic() + min(PATIENCE_S, bench.crew.left_s())
    while True:
        wake_s = over_s if started_s is None or not due else min(over_s, started_s + due[0][0])
        message = receive_within(end, max(0.0, wake_s - time.monotonic()))
        if message is None and wake_s == over_s:
            attempt.timed_out(f"no end within {PATIENCE_S:.0f} s")
            bench.crew.drop_worker()
            return Finished(upcoming, Ended.TIMED_OUT, f"no end within {PATIENCE_S:.0f} s", None)
        if message is None and started_s is not None:
            act = due.pop(0)[1]
            if act is None:
                bench.on_running(upcoming, time.monotonic() - started_s)
            elif _cancel(bench, attempt, end, act):
                return Finished(upcoming, Ended.CANCELLED, CancelReason.USER, None)
        elif message is not None and message["word"] == "running":
            started_s = message["since_ns"] / 1e9
        elif message is not None and message["word"] == "over":
            return Finished(upcoming, Ended(message["ended"]), message["reason"], message["service_s"])


def _cancel(bench: Bench, attempt: RunningAttempt, end: Connection, how: Cancel) -> bool:
    """Ask a running attempt to stop; True if it has, since its process was killed."""
    attempt.cancel_requested(CancelReason.USER)
    if how is Cancel.FLAG:
        _tell(end, "cancel")
        return False
    bench.crew.drop_worker()
    attempt.cancelled(CancelReason.USER)
    return True


def _died(bench: Bench, upcoming: Upcoming) -> Finished:
    """Write the terminal event of an attempt whose worker ended by itself."""
    reason = f"worker ended with exit code {bench.crew.drop_worker()}"
    bench.recorder.terminal(upcoming.attempt_id, "failed", reason)
    return Finished(upcoming, Ended.FAILED, reason, None)
