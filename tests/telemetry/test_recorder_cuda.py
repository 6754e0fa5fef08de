"""Device work timed by events that are polled, on a device of paper; and by the host's clock where there is none."""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from telemetry.recorder import cuda
from telemetry.recorder.cuda import DeviceTimer, device_events, device_uuid
from telemetry.recorder.marks import Recorder
from telemetry.recorder.spool import segments
from telemetry.tables import Event, Observation
from telemetry.timelines import observe


@dataclass
class Device:
    """Works off what it is given when it is told to; its own clock counts ms of work."""

    given_ms: float = 0.0
    done_ms: float = 0.0

    def event(self) -> PaperEvent:
        return PaperEvent(self)

    def launch(self, work_ms: float) -> None:
        self.given_ms += work_ms

    def finish(self) -> None:
        self.done_ms = self.given_ms


@dataclass
class PaperEvent:
    """Behaves as torch.cuda.Event, its refusal included."""

    device: Device
    at_ms: float = field(default=float("inf"))

    def record(self) -> None:
        self.at_ms = self.device.given_ms

    def query(self) -> bool:
        return self.device.done_ms >= self.at_ms

    def elapsed_time(self, end_event: PaperEvent) -> float:
        if not end_event.query():
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return end_event.at_ms - self.at_ms


class GoneEvent(PaperEvent):
    def query(self) -> bool:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


@pytest.fixture
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(cuda, "_DRIVERS", ())


def events(folder: Path, kind: str | None = None) -> list[Event]:
    records = [json.loads(line) for segment in segments(folder) for line in segment.read_text().splitlines()]
    found = [Event(**record["event"]) for record in records if "event" in record]
    return [event for event in found if kind is None or event.kind == kind]


def row(folder: Path, phase: str = "service") -> Observation:
    return next(o for o in observe(None, events(folder)).observations if o.phase == phase)


# --- polled


def test_a_phase_ends_when_the_device_is_done_with_its_length_on_the_device(recorder: Recorder, tmp_path: Path) -> None:
    device = Device()
    timer = DeviceTimer(device.event)
    with recorder.attempt() as attempt, timer.phase(attempt, "service"):
        device.launch(125.0)
    assert ("running", []) == (row(tmp_path).ended, events(tmp_path, "compute_finish"))
    device.finish()
    assert timer.drain(timeout_s=10)
    assert ("completed", 0.125, "device") == (row(tmp_path).ended, row(tmp_path).duration_s, row(tmp_path).clock)
    assert 0 == timer.given_up


def test_a_length_is_never_asked_of_an_event_that_is_not_passed(recorder: Recorder, tmp_path: Path) -> None:
    """T19: end.record(), then an immediate read."""
    device = Device()
    timer = DeviceTimer(device.event)
    with recorder.attempt() as attempt, timer.phase(attempt, "service"):
        device.launch(10.0)
    timer.poll()
    assert not timer.drain(timeout_s=0.01)
    assert (0, "running") == (timer.given_up, row(tmp_path).ended)
    device.finish()
    assert timer.drain(timeout_s=10)


def test_an_end_that_does_not_come_in_time_leaves_the_phase_open(
    recorder: Recorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """T19."""
    device = Device()
    timer = DeviceTimer(device.event, timeout_s=0.02)
    with caplog.at_level(logging.WARNING), recorder.attempt(attempt_id="a") as attempt, timer.phase(attempt, "service"):
        device.launch(10.0)
    assert timer.drain(timeout_s=10)
    device.finish()
    timer.poll()
    assert (1, "running", []) == (timer.given_up, row(tmp_path).ended, events(tmp_path, "compute_finish"))
    assert {"awaited": "compute_finish", "given_up": "timeout"} == json.loads(events(tmp_path)[-1].attributes or "")
    assert "attempt a stays without compute_finish" in caplog.text


def test_a_device_that_fails_is_told_and_never_raises(
    recorder: Recorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    device = Device()
    timer = DeviceTimer(lambda: GoneEvent(device))
    with caplog.at_level(logging.WARNING), recorder.attempt() as attempt, timer.phase(attempt, "service"):
        device.launch(10.0)
    assert timer.drain(timeout_s=10)
    assert (1, "running") == (timer.given_up, row(tmp_path).ended)
    assert "illegal memory access" in caplog.text


def test_a_device_at_work_keeps_its_attempt_alive(tmp_path: Path) -> None:
    device = Device()
    timer = DeviceTimer(device.event, poll_s=0.001)
    with Recorder(tmp_path, heartbeat_s=0.0).attempt() as attempt, timer.phase(attempt, "service"):
        device.launch(10.0)
    until = time.monotonic() + 10
    while len(events(tmp_path, "heartbeat")) < 3:
        assert time.monotonic() < until
        time.sleep(0.001)
    device.finish()
    assert timer.drain(timeout_s=10)


def test_marks_that_follow_come_after_the_end_of_the_device(recorder: Recorder, tmp_path: Path) -> None:
    device = Device()
    timer = DeviceTimer(device.event, poll_s=60.0)  # only the later mark looks
    with recorder.attempt() as attempt:
        with timer.phase(attempt, "service"):
            device.launch(5.0)
        device.finish()
        attempt.mark("producer_terminated")
    assert ["compute_start", "compute_finish", "producer_terminated"] == [event.kind for event in events(tmp_path)]
    assert "completed" == row(tmp_path, "drain").ended


def test_spans_of_many_threads_are_each_marked_once(recorder: Recorder, tmp_path: Path) -> None:
    device = Device(done_ms=float("inf"))
    timer = DeviceTimer(device.event, poll_s=0.0005)

    def work(name: str) -> None:
        with recorder.attempt(attempt_id=name) as attempt:
            for stage in range(20):
                with timer.phase(attempt, "transfer", stage_index=stage, transferred_bytes=2**33, direction="device_to_host"):
                    pass
                timer.poll()

    threads = [threading.Thread(target=work, args=(f"a{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert timer.drain(timeout_s=10)
    ends = [(e.attempt_id, e.stage_index, e.transferred_bytes, e.direction) for e in events(tmp_path, "transfer_finish")]
    assert sorted((f"a{n}", stage, 2**33, "device_to_host") for n in range(4) for stage in range(20)) == sorted(ends)


def test_an_exception_inside_leaves_the_phase_to_the_attempt(recorder: Recorder, tmp_path: Path) -> None:
    timer = DeviceTimer(Device().event)
    with pytest.raises(MemoryError), recorder.attempt() as attempt, timer.phase(attempt, "service"):
        raise MemoryError("2 GiB")
    assert timer.drain(timeout_s=0)
    assert ("failed", "MemoryError: 2 GiB") == (row(tmp_path).ended, row(tmp_path).cause)


# --- without events


@pytest.mark.usefixtures("no_device")
def test_without_a_device_the_host_times_and_says_so(recorder: Recorder, tmp_path: Path) -> None:
    timer = DeviceTimer()
    with recorder.attempt() as attempt, timer.phase(attempt, "service", attributes={"shape": [2, 3]}):
        time.sleep(0.002)
    [end] = events(tmp_path, "compute_finish")
    assert {"shape": [2, 3], "timed_by": "host", "why": "torch is not in this process"} == json.loads(end.attributes or "")
    assert (False, "completed", "monotonic") == (end.launch_only, row(tmp_path).ended, row(tmp_path).clock)
    assert (row(tmp_path).duration_s or 0) >= 0.002


@pytest.mark.usefixtures("no_device")
def test_a_device_that_nobody_here_can_ask_makes_it_a_launch(
    recorder: Recorder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """T18: no completion mark of the device, so no duration of the work."""
    monkeypatch.setattr(cuda, "_DRIVERS", (tmp_path,))
    with recorder.attempt() as attempt, DeviceTimer().phase(attempt, "service"):
        pass
    assert (True, "launch_only") == (events(tmp_path, "compute_finish")[0].launch_only, row(tmp_path).absence)
    assert "completed" == row(tmp_path, "launch").ended


@pytest.mark.parametrize("refused_at", [1, 2])
def test_events_that_cannot_be_recorded_make_it_a_launch(recorder: Recorder, tmp_path: Path, refused_at: int) -> None:
    device, made = Device(), []

    def make() -> PaperEvent:
        made.append(device.event())
        if len(made) == refused_at:
            raise RuntimeError("operation not permitted when stream is capturing")
        return made[-1]

    with recorder.attempt() as attempt, DeviceTimer(make).phase(attempt, "service"):
        device.launch(3.0)
    [end] = events(tmp_path, "compute_finish")
    assert (True, "launch_only") == (end.launch_only, row(tmp_path).absence)
    assert "stream is capturing" in json.loads(end.attributes or "")["why"]


@pytest.mark.torch
def test_torch_without_a_device_is_timed_by_the_host(recorder: Recorder, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("torch has a device here")
    timer, square = DeviceTimer(), torch.ones(64, 64)
    with recorder.attempt(device=device_uuid()) as attempt, timer.phase(attempt, "service"):
        product = square @ square
    assert (64.0, "completed", "monotonic") == (float(product[0, 0]), row(tmp_path).ended, row(tmp_path).clock)
    why = json.loads(events(tmp_path, "compute_finish")[0].attributes or "")["why"]
    assert "torch has no device here: its work is done when the call returns" == why


@pytest.mark.torch
def test_torch_with_a_device_is_timed_by_it(recorder: Recorder, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("torch has no CUDA device here")
    square, timer = torch.ones(4096, 4096, device="cuda"), DeviceTimer()
    with recorder.attempt(device=device_uuid()) as attempt, timer.phase(attempt, "service"):
        for _ in range(20):
            square = square @ square
    assert timer.drain(timeout_s=60)
    assert ("completed", "device", 0) == (row(tmp_path).ended, row(tmp_path).clock, timer.given_up)


# --- which events, which device


def torch_like(monkeypatch: pytest.MonkeyPatch, **kinds: Any) -> None:
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(**kinds))


def test_events_are_those_of_the_first_kind_of_device_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    none = SimpleNamespace(device_count=lambda: 0)
    torch_like(monkeypatch, cuda=none, xpu=SimpleNamespace(device_count=lambda: 2, Event=lambda **given: given))
    make = device_events().make
    assert make is not None
    assert {"enable_timing": True} == make()
    torch_like(monkeypatch, cuda=none)
    assert (None, False) == (device_events().make, device_events().launch_only)


@pytest.mark.parametrize(
    ("told", "uuid"), [("857c6374-f681", "GPU-857c6374-f681"), ("GPU-857c", "GPU-857c"), ("MIG-5135", "MIG-5135"), (None, None)]
)
def test_the_device_is_known_by_uuid_whatever_its_number(
    monkeypatch: pytest.MonkeyPatch, told: str | None, uuid: str | None
) -> None:
    """T24: two different devices, CUDA's own order, visible devices = 1."""
    properties = [SimpleNamespace(uuid=told)]  # under the mask the second card is number 0
    found = SimpleNamespace(device_count=lambda: 1, current_device=lambda: 0, get_device_properties=lambda n: properties[n])
    torch_like(monkeypatch, cuda=found)
    assert uuid == device_uuid()


@pytest.mark.usefixtures("no_device")
def test_no_torch_is_no_device() -> None:
    assert device_uuid() is None
