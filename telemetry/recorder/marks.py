"""Recorder: attempts and their marks, written to the spool as they happen.

    recorder = Recorder("spool")
    with recorder.attempt(host="gpu-7", family="encoder", model="bge@5", state="cold", batch=4, size_in=64) as attempt:
        with attempt.phase("setup"):
            load()
        with attempt.phase("service"):
            for part in parts:
                compute(part)
                attempt.heartbeat()

A mark takes microseconds: it formats one line and writes it. It is safe from any thread, from asyncio and across fork.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypedDict, Unpack

from telemetry.errors import BadField
from telemetry.recorder.ids import clock_id, uuid7
from telemetry.recorder.spool import Spool
from telemetry.words import PHASES, TERMINAL_KINDS, CancelReason, EventKind

_KINDS = {kind.value: kind.value for kind in EventKind}  # plain strings: an enum member formats ten times slower
_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_REASON_LENGTH = 2000
_ATTRIBUTES_LENGTH = 20_000


class Known(TypedDict, total=False):
    """What is known of an attempt before it starts; fields mean what the columns of the attempts table say."""

    workflow_id: str
    run_id: str
    node_id: str
    generation: int
    retry_of: str
    decision_id: str
    prediction_id: str
    purpose: str
    host: str
    device: str
    family: str
    model: str
    runtime: str
    precision: str
    mode: str
    state: str
    batch: float
    size_in: float
    corunners: float


class Details(TypedDict, total=False):
    """What a mark may carry; fields mean what the columns of the events table say, `attributes` is any JSON object."""

    device_elapsed_s: float
    stage_index: int
    transferred_bytes: int
    link: str
    direction: str
    source_place: str
    target_place: str
    tokens: int
    reason: str
    attributes: Mapping[str, Any]


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
        record = {"attempt_id": made, **_checked(known, Known)}
        self._spool.append(f'{{"attempt":{_json("attempt", record)}}}\n'.encode())
        return self.join(made)

    def join(self, attempt_id: str) -> RunningAttempt:
        """The handle for marks of an attempt that was recorded elsewhere, such as by the supervisor of this worker."""
        return RunningAttempt(self, attempt_id)

    def terminal(self, attempt_id: str, kind: str, reason: str, at: Moment | None = None) -> None:
        """End an attempt of a process that can no longer do so itself.

        kind: failed, cancelled or timed_out, else BadField. at: when it ended, by default now.
        """
        if kind not in TERMINAL_KINDS:
            raise BadField("kind", kind, f"use one of {', '.join(sorted(TERMINAL_KINDS))}")
        wall_ns, monotonic_ns = at or Moment.now()
        self.write(_json("attempt_id", attempt_id), _KINDS[kind], _details({"reason": reason}), wall_ns, monotonic_ns)

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
        self._origin = f'"clock_id":{_json("clock_id", clock_id())},"source":{_json("source", source)}'

    def _follow_fork(self) -> None:
        self._spool.follow_fork()
        self._name_origin()


class RunningAttempt:
    """Marks of one attempt. As a context manager it records an exception that leaves it as the attempt's failure."""

    def __init__(self, recorder: Recorder, attempt_id: str) -> None:
        self.attempt_id = attempt_id
        self._recorder = recorder
        self._id_json = _json("attempt_id", attempt_id)
        self._heartbeat_due_ns = 0
        self._ended = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None or self._ended:
            return
        if kind.__name__ == "CancelledError":  # asyncio's and that of futures: stopped from outside, so not a failure
            self.cancelled()
        else:
            self.failed(f"{kind.__name__}: {error}")

    def mark(self, kind: str, **details: Unpack[Details]) -> None:
        """Record that a boundary was crossed just now. Raises BadField on an unknown kind or detail."""
        wall_ns, monotonic_ns = time.time_ns(), time.monotonic_ns()
        name = _KINDS.get(kind)
        if name is None:
            raise BadField("kind", kind, f"use one of {', '.join(_KINDS)}")
        self._recorder.write(self._id_json, name, _details(details) if details else "", wall_ns, monotonic_ns)

    @contextlib.contextmanager
    def phase(self, name: str, **details: Unpack[Details]) -> Iterator[None]:
        """Mark a phase's start and, unless an exception leaves it, its end; both carry the details.

        A boundary shared with a neighbour is marked again, which changes nothing: the first mark counts.
        """
        phase = PHASES.get(name)
        if phase is None:
            raise BadField("phase", name, f"use one of {', '.join(PHASES)}")
        self.mark(phase.starts[-1], **details)  # of alternatives the last is the plain one
        yield
        self.mark(phase.ends[0], **details)

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


def _checked(given: Mapping[str, Any], allowed: type) -> dict[str, Any]:
    """The given values without unknowns (None); names the table lacks are refused here, in the caller's own traceback."""
    unknown = [name for name in given if name not in allowed.__annotations__]
    if unknown:
        raise BadField(unknown[0], given[unknown[0]], f"use one of {', '.join(allowed.__annotations__)}")
    return {name: value for name, value in given.items() if value is not None}


def _details(given: Mapping[str, Any]) -> str:
    """Details as the rest of a JSON object: empty, or starting with a comma."""
    values = _checked(given, Details)
    if "reason" in values:
        values["reason"] = values["reason"][:_REASON_LENGTH]
    if "attributes" in values:
        values["attributes"] = _json("attributes", values["attributes"])
        if len(values["attributes"]) > _ATTRIBUTES_LENGTH:
            raise BadField("attributes", len(values["attributes"]), f"keep them under {_ATTRIBUTES_LENGTH} characters of JSON")
    return f",{_json('details', values)[1:-1]}" if values else ""


def _json(field: str, value: object) -> str:
    """Compact JSON on one line; NaN and infinity are refused."""
    try:
        return _ENCODE(value)
    except (TypeError, ValueError) as error:
        raise BadField(field, value, f"pass values that JSON knows: {error}") from error


_RECORDERS: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _follow_fork() -> None:
    """A forked child writes under its own name, to a segment of its own."""
    for recorder in list(_RECORDERS):
        recorder._follow_fork()  # noqa: SLF001 - same module


os.register_at_fork(after_in_child=_follow_fork)
