"""Phases of device work, timed by the device's own events. They are polled: nothing here makes host or device wait.

    device = DeviceTimer()
    with recorder.attempt(family="encoder", device=device_uuid()) as attempt, device.phase(attempt, "service"):
        output = model(batch)  # returns when the kernels are launched, long before they are done
    ...
    device.drain(timeout_s=10)  # before the process ends: what is not settled by then stays an open phase

The end of a phase is marked once the device has passed it, with its length on the device's clock. Until then the attempt's
heartbeat is kept going, since the device was seen to be at work. An end that does not come in time leaves the phase open.

Without device events the host's clock serves, and the end mark says so: `attributes` are {"timed_by": "host", "why": ...}. If
work may then have gone on after its call returned, the mark is `launch_only` and its length is never taken for that of the work.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Unpack

from telemetry.recorder.fields import Details
from telemetry.recorder.marks import Moment, RunningAttempt, boundaries
from telemetry.words import EventKind

_DRIVERS = (Path("/dev/nvidiactl"), Path("/dev/kfd"), Path("/dev/dxg"))
"""Where a driver for NVIDIA, AMD or Windows' devices shows itself."""
_LONGEST_PAUSE_S = 0.05
_log = logging.getLogger(__name__)


class DeviceEvent(Protocol):
    """What torch.cuda.Event(enable_timing=True) offers, and torch.xpu.Event and torch.mps.Event alike."""

    def record(self) -> object:
        """Put the event behind what the current stream was given so far."""

    def query(self) -> bool:
        """Whether the device has passed it."""

    def elapsed_time(self, end_event: Any, /) -> float:
        """Time on the device from this event to the other one, ms."""


@dataclass(frozen=True)
class Source:
    """Where events come from; without a maker of them, why there is none, and whether work may outlast its call."""

    make: Callable[[], DeviceEvent] | None
    why: str = ""
    launch_only: bool = False


@dataclass(frozen=True)
class Span:
    """A phase whose work is launched and whose end is still to be marked."""

    attempt: RunningAttempt
    end_kind: EventKind
    details: Details
    start: DeviceEvent
    end: DeviceEvent
    deadline_ns: int


def device_events() -> Source:
    """Events of the devices that torch sees. torch is not imported here: work that does without it has no such events."""
    torch = sys.modules.get("torch")
    if torch is None:
        return Source(None, "torch is not in this process", launch_only=any(driver.exists() for driver in _DRIVERS))
    for name in ("cuda", "xpu", "mps"):
        kind = getattr(torch, name, None)
        if kind is not None and kind.device_count() > 0:
            return Source(functools.partial(kind.Event, enable_timing=True))
    return Source(None, "torch has no device here: its work is done when the call returns")


def device_uuid() -> str | None:
    """UUID of torch's current CUDA device, as NVML writes it; None without torch or a device.

    The device's number names nothing: it changes with CUDA_VISIBLE_DEVICES and differs between CUDA and NVML.
    """
    torch = sys.modules.get("torch")
    if torch is None or torch.cuda.device_count() == 0:
        return None
    uuid = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "uuid", None)
    if uuid is None:
        return None
    return str(uuid) if str(uuid).startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"


class DeviceTimer:
    """Times phases by device events; one per process is enough, and it may be used from any thread.

    make_event: makes one event, by default torch's where it has a device. poll_s: time between two looks at a fresh span,
    longer ones are looked at less often. timeout_s: how long an end is awaited after its launch.
    """

    def __init__(
        self, make_event: Callable[[], DeviceEvent] | None = None, poll_s: float = 0.002, timeout_s: float = 3600.0
    ) -> None:
        self.given_up = 0
        """Phases (count) left open because their end did not come in time or could not be read."""
        self._given = Source(make_event) if make_event is not None else None
        self._poll_s = poll_s
        self._timeout_ns = round(timeout_s * 1e9)
        self._pending: dict[int, Span] = {}
        self._numbers = itertools.count()
        self._wake, self._starting = threading.Event(), threading.Lock()
        self._watcher: threading.Thread | None = None

    @contextlib.contextmanager
    def phase(self, attempt: RunningAttempt, name: str, **details: Unpack[Details]) -> Iterator[None]:
        """Mark a phase's start now, and its end once the device is done; an exception leaves it to the attempt to fail.

        Both marks carry the details. Raises BadField on an unknown phase, and nothing that a device says.
        """
        start_kind, end_kind = boundaries(name)
        attempt.mark(start_kind, **details)
        start = self._recorded()
        yield
        if not isinstance(start, Source):
            end = self._recorded()
            if not isinstance(end, Source):
                self._await(Span(attempt, end_kind, details, start, end, time.monotonic_ns() + self._timeout_ns))
                return
            start = end
        attempt.mark(end_kind, **_by_host(details, start))

    def poll(self, attempt: RunningAttempt | None = None) -> None:
        """Mark the ends that the device has passed, of one attempt or of all. Never waits; the timer does it by itself."""
        for number, span in self._pending.copy().items():
            if attempt is None or span.attempt is attempt:
                self._look(number, span)

    def drain(self, timeout_s: float) -> bool:
        """Wait until every phase is marked or given up; False if that took longer than timeout_s."""
        deadline = time.monotonic() + timeout_s
        self.poll()
        while self._pending:
            if time.monotonic() >= deadline:
                return False
            time.sleep(self._poll_s)
            self.poll()
        return True

    def _recorded(self) -> DeviceEvent | Source:
        """An event in the current stream, or why there is none."""
        source = self._given or device_events()
        if source.make is None:
            return source
        try:
            event = source.make()
            event.record()
        except Exception as error:  # noqa: BLE001 - whatever a driver says must not reach the measured work
            return Source(None, f"{type(error).__name__}: {error}", launch_only=True)
        return event

    def _await(self, span: Span) -> None:
        """Look at a span until its end is marked: from the watcher, and before each later mark of its attempt."""
        self._pending[next(self._numbers)] = span
        span.attempt.before_mark = functools.partial(self.poll, span.attempt)
        with self._starting:
            if self._watcher is None or not self._watcher.is_alive():  # also after a fork, which takes no threads along
                self._watcher = threading.Thread(target=self._watch, name="phasecast-device-timer", daemon=True)
                self._watcher.start()
        self._wake.set()

    def _watch(self) -> None:
        """Poll while anything is pending, soon after a launch and then ever less often."""
        pause_s: float | None = None
        while True:
            if self._wake.wait(pause_s):
                self._wake.clear()
                pause_s = self._poll_s
            self.poll()
            for span in self._pending.copy().values():
                span.attempt.heartbeat()
            pause_s = min(2 * (pause_s or self._poll_s), _LONGEST_PAUSE_S) if self._pending else None

    def _look(self, number: int, span: Span) -> None:
        """Mark the span's end if the device has passed it. Several threads may look; the one that takes it out marks it.

        The clocks are read before it is taken out: a mark made by whoever finds it gone is later than this one.
        """
        try:
            done = span.end.query()
            now = Moment.now()
            length_s = span.start.elapsed_time(span.end) / 1e3 if done else 0.0
            if not length_s >= 0.0:
                raise ValueError(f"the device's events are {length_s} s apart")  # noqa: TRY301 - told like a driver's refusal
        except Exception as error:  # noqa: BLE001 - see _recorded
            self._give_up(number, span, f"{type(error).__name__}: {error}")
            return
        if done:
            if self._pending.pop(number, None) is not None:
                told: Details = {**span.details, "device_elapsed_s": length_s}
                span.attempt.mark(span.end_kind, now, **told)
        elif now.monotonic_ns > span.deadline_ns and self._give_up(number, span, "the device did not get there in time"):
            span.attempt.mark(EventKind.HEARTBEAT, now, attributes={"awaited": span.end_kind, "given_up": "timeout"})

    def _give_up(self, number: int, span: Span, why: str) -> bool:
        """Leave a phase open, and say so; False if another thread was first."""
        if self._pending.pop(number, None) is None:
            return False
        self.given_up += 1
        _log.warning("attempt %s stays without %s: %s", span.attempt.attempt_id, span.end_kind, why)
        return True


def _by_host(details: Details, source: Source) -> Details:
    """Details of an end mark that the host's clock places."""
    attributes = {**details.get("attributes", {}), "timed_by": "host", "why": source.why[:500]}
    return {**details, "attributes": attributes, "launch_only": source.launch_only}
