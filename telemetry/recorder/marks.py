"""Recorder: attempts and their marks, written to the spool as they happen.

    recorder = Recorder("spool")
    with recorder.attempt(host="gpu-7", family="encoder", model="bge@5", state="cold", batch=4, size_in=64) as attempt:
        with attempt.phase("setup"):
            load()
        with attempt.phase("service"):
            for part in parts:
                compute(part)
                attempt.heartbeat()

    @recorder.timed("service", host="gpu-7", family="sort", describe=lambda numbers: {"size_in": len(numbers)})
    def ordered(numbers): ...

A mark takes microseconds: it formats one line and writes it. It is safe from any thread, from asyncio and across fork.
Work on a device that goes on after its call has returned is timed by `telemetry.recorder.cuda`.
"""

from __future__ import annotations

import contextlib
import os
import socket
import time
import weakref
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, ParamSpec, Self, TypeVar, Unpack

from telemetry.errors import BadField
from telemetry.recorder.fields import Details, Known, checked, details_json, to_json
from telemetry.recorder.ids import clock_id, uuid7
from telemetry.recorder.spool import Spool
from telemetry.recorder.wrapping import around
from telemetry.words import PHASES, TERMINAL_KINDS, CancelReason, EventKind

P = ParamSpec("P")
R = TypeVar("R")
_KINDS = {kind.value: kind.value for kind in EventKind}  # plain strings: an enum member formats ten times slower


class Moment(NamedTuple):
    """One instant on both clocks of this host, ns."""

    wall_ns: int
    monotonic_ns: int

    @classmethod
    def now(cls) -> Moment:
        """This instant."""
        return cls(time.time_ns(), time.monotonic_ns())


class Recorder:
    """Writes attempts and events of this process to a spool folder, from which a shipper takes them to the API.

    spool_dir: folder, shared by all processes of the host. source: who reports, by default recorder@host:pid.
    heartbeat_s: least time between two heartbeats of an attempt. max_spool_bytes: bound on the folder.
    """

    def __init__(
        self, spool_dir: str | Path, source: str | None = None, heartbeat_s: float = 0.1, max_spool_bytes: int = 256 * 2**20
    ) -> None:
        self.heartbeat_ns = round(heartbeat_s * 1e9)
        self.undescribed = 0
        """Calls (count) of timed functions whose description failed; they ran and were recorded without it."""
        self._given_source = source
        self._spool = Spool(Path(spool_dir), max_spool_bytes)
        self._name_origin()
        _RECORDERS.add(self)

    @property
    def dropped(self) -> int:
        """Records (count) lost for lack of room in the spool folder."""
        return self._spool.dropped

    def attempt(self, *, attempt_id: str | None = None, **known: Unpack[Known]) -> RunningAttempt:
        """Record a new attempt and return the handle for its marks, which is also a context manager.

        attempt_id: a UUIDv7 if not given. Raises BadField on a name or value that the attempts table does not take.
        """
        made = attempt_id or uuid7()
        record = {"attempt_id": made, **checked(known, Known)}
        self._spool.append(f'{{"attempt":{to_json("attempt", record)}}}\n'.encode())
        return self.join(made)

    def join(self, attempt_id: str) -> RunningAttempt:
        """The handle for marks of an attempt that was recorded elsewhere, such as by the supervisor of this worker."""
        return RunningAttempt(self, attempt_id)

    def timed(
        self, phase: str = "service", describe: Callable[..., Known] | None = None, **known: Unpack[Known]
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Decorator for functions and coroutine functions: every call is an attempt of its own with this one phase.

        known: what holds for all calls. describe: what is known of one call, from its arguments. With neither of the two, a
        call made while an attempt is current is that attempt's phase. A call that cannot be described runs and is recorded
        all the same, and counted in `undescribed`. Raises BadField at once for a wrong phase or `known`.
        """
        boundaries(phase)
        checked(known, Known)

        @contextlib.contextmanager
        def marked(*args: Any, **kwargs: Any) -> Iterator[None]:
            running = None if known or describe else current_attempt()
            if running is not None:
                with running.phase(phase):
                    yield
                return
            with self._described(known, describe, args, kwargs) as attempt, attempt.phase(phase):
                yield

        return lambda function: around(function, marked)

    def _described(
        self, known: Known, describe: Callable[..., Known] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> RunningAttempt:
        """An attempt with what is known of one call; without that, and counted, where describing the call fails."""
        if describe is not None:
            try:
                told: Known = {**known, **describe(*args, **kwargs)}
                return self.attempt(**told)
            except Exception:  # noqa: BLE001  the measured work must not stop because of what was to be said of it
                self.undescribed += 1
        return self.attempt(**known)

    def terminal(self, attempt_id: str, kind: str, reason: str, at: Moment | None = None) -> None:
        """End an attempt of a process that can no longer do so itself.

        kind: failed, cancelled or timed_out, else BadField. at: when it ended, by default now.
        """
        if kind not in TERMINAL_KINDS:
            raise BadField("kind", kind, f"use one of {', '.join(sorted(TERMINAL_KINDS))}")
        wall_ns, monotonic_ns = at or Moment.now()
        self.write(to_json("attempt_id", attempt_id), _KINDS[kind], details_json({"reason": reason}), wall_ns, monotonic_ns)

    def write(self, attempt_id_json: str, kind: str, details_json: str, wall_ns: int, monotonic_ns: int) -> None:
        """Write one event line from parts that are JSON already; `mark` is what to call."""
        line = (
            f'{{"event":{{"event_id":"{uuid7()}","attempt_id":{attempt_id_json},"kind":"{kind}","wall_ns":{wall_ns},'
            f'"monotonic_ns":{monotonic_ns},{self._origin}{details_json}}}}}\n'
        )
        self._spool.append(line.encode())

    def close(self) -> None:
        """Let go of the spool; what was recorded stays there for the shipper."""
        _RECORDERS.discard(self)
        self._spool.close()

    def _name_origin(self) -> None:
        """The part that all events of this process share, as JSON."""
        source = self._given_source or f"recorder@{socket.gethostname()}:{os.getpid()}"
        self._origin = f'"clock_id":{to_json("clock_id", clock_id())},"source":{to_json("source", source)}'

    def _follow_fork(self) -> None:
        self._spool.follow_fork()
        self._name_origin()


class RunningAttempt:
    """Marks of one attempt. As a context manager it records an exception that leaves it as the attempt's failure.

    Inside, it is also the `current_attempt`. before_mark: called before a mark reads the clocks, for those who wait to learn
    of earlier moments of this attempt.
    """

    def __init__(self, recorder: Recorder, attempt_id: str) -> None:
        self.attempt_id = attempt_id
        self.before_mark: Callable[[], None] | None = None
        self._recorder = recorder
        self._id_json = to_json("attempt_id", attempt_id)
        self._heartbeat_due_ns = 0
        self._ended = False
        self._outer: list[RunningAttempt | None] = []

    def __enter__(self) -> Self:
        self._outer.append(_CURRENT.get())
        _CURRENT.set(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _CURRENT.set(self._outer.pop())
        if kind is None or self._ended:
            return
        if kind.__name__ == "CancelledError":  # asyncio's and that of futures: stopped from outside, so not a failure
            self.cancelled()
        elif issubclass(kind, (KeyboardInterrupt, SystemExit)):
            self.cancelled(CancelReason.SHUTDOWN)
        else:
            self.failed(f"{kind.__name__}: {error}")

    def mark(self, kind: str, at: Moment | None = None, **details: Unpack[Details]) -> None:
        """Record that a boundary was crossed, by default just now. Raises BadField on an unknown kind or detail."""
        if at is None:
            if self.before_mark is not None:
                self.before_mark()
            wall_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
        else:
            wall_ns, monotonic_ns = at
        name = _KINDS.get(kind)
        if name is None:
            raise BadField("kind", kind, f"use one of {', '.join(_KINDS)}")
        self._recorder.write(self._id_json, name, details_json(details) if details else "", wall_ns, monotonic_ns)

    @contextlib.contextmanager
    def phase(self, name: str, **details: Unpack[Details]) -> Iterator[None]:
        """Mark a phase's start and, unless an exception leaves it, its end; both carry the details.

        A boundary shared with a neighbour is marked again, which changes nothing: the first mark counts.
        """
        start, end = boundaries(name)
        self.mark(start, **details)
        yield
        self.mark(end, **details)

    def heartbeat(self) -> None:
        """Say that the attempt is still running; calls within `heartbeat_s` of the last one do nothing."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._heartbeat_due_ns:
            self._heartbeat_due_ns = now_ns + self._recorder.heartbeat_ns
            self.mark(EventKind.HEARTBEAT)

    def cancel_requested(self, reason: str = CancelReason.UNKNOWN) -> None:
        """Somebody asked for this attempt to stop; reason: user, policy, shutdown or unknown."""
        self.mark(EventKind.CANCEL_REQUESTED, reason=reason)

    def cancelled(self, reason: str = CancelReason.UNKNOWN) -> None:
        """It stopped because it was asked to."""
        self._end(EventKind.CANCELLED, reason)

    def timed_out(self, reason: str = "") -> None:
        """It was stopped at its time limit."""
        self._end(EventKind.TIMED_OUT, reason)

    def failed(self, reason: str) -> None:
        """It ended in a failure of this cause."""
        self._end(EventKind.FAILED, reason)

    def _end(self, kind: EventKind, reason: str) -> None:
        self._ended = True
        self.mark(kind, reason=reason)


_CURRENT: ContextVar[RunningAttempt | None] = ContextVar("phasecast_attempt", default=None)


def current_attempt() -> RunningAttempt | None:
    """The attempt whose `with` block this code runs in; None outside of any.

    Threads and tasks have one each, as with every context variable: a task starts with the one of the code that made it,
    a thread with none.
    """
    return _CURRENT.get()


def boundaries(phase: str) -> tuple[EventKind, EventKind]:
    """Kinds of the marks at both ends of a phase. Raises BadField on a name that is none of them."""
    known = PHASES.get(phase)
    if known is None:
        raise BadField("phase", phase, f"use one of {', '.join(PHASES)}")
    return known.starts[-1], known.ends[0]  # of alternatives the last is the plain one


_RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _follow_fork() -> None:
    """A forked child writes under its own name, to a segment of its own."""
    for recorder in list(_RECORDERS):
        recorder._follow_fork()  # noqa: SLF001 - same module


os.register_at_fork(after_in_child=_follow_fork)
