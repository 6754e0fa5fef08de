"""What the recorder marks, through the shipper, HTTP and the store, to observations: every kind, and every length."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from telemetry import asof
from telemetry.recorder.marks import Moment, Recorder, RunningAttempt
from telemetry.recorder.shipper import Shipper
from telemetry.store.file import Store
from telemetry.tables import Attempt, Event, Observation
from telemetry.words import EventKind
from tests.service.living import Served

NS_PER_MS = 1_000_000
LENGTHS_NS = {
    "30 days": 30 * 86_400 * 1_000 * NS_PER_MS,
    "30 days and 1 ns": 30 * 86_400 * 1_000 * NS_PER_MS + 1,
    "2^31 ms less one": (2**31 - 1) * NS_PER_MS,
    "2^31 ms": 2**31 * NS_PER_MS,
    "2^31 ms and one": (2**31 + 1) * NS_PER_MS,
    "40 minutes, in us past 2^31": 2_400_000_000 * 1_000,
    "1 ns": 1,
    "nothing": 0,
}
BEGUN = Moment(time.time_ns() - 31 * 86_400 * 1_000 * NS_PER_MS, 5_000_000_000)


def later(ns: int) -> Moment:
    return Moment(BEGUN.wall_ns + ns, BEGUN.monotonic_ns + ns)


@dataclass(frozen=True)
class Kept:
    """What stands in the store of each attempt."""

    attempts: dict[str, Attempt]
    events: dict[str, list[Event]]
    rows: dict[str, Observation]

    def phases(self, attempt_id: str) -> dict[str, tuple[float | None, str | None]]:
        """Length and ending of each phase that has one, segments past the first numbered."""
        mine = {key.removeprefix(f"{attempt_id}/").removesuffix("/0"): row for key, row in self.rows.items()}
        return {name: (row.duration_s, row.ended) for name, row in mine.items() if row.attempt_id == attempt_id and row.ended}


def record(recorder: Recorder) -> None:
    """Attempts of all sorts."""
    for name, length_ns in LENGTHS_NS.items():
        attempt = recorder.attempt(attempt_id=name)
        attempt.mark("compute_start", BEGUN)
        attempt.mark("compute_finish", later(length_ns))
    every_kind(recorder.attempt(attempt_id="every kind", retry_of="requeued", workflow_id="w", run_id="r", generation=2**40))
    requeued(recorder.attempt(attempt_id="requeued", decision_id="d", prediction_id="p"))
    launched = recorder.attempt(attempt_id="launched")
    launched.mark("compute_start", BEGUN)
    launched.mark("compute_finish", later(7_000), launch_only=True)
    asked_to_stop = recorder.attempt(attempt_id="asked to stop")
    asked_to_stop.mark("compute_start", BEGUN)
    asked_to_stop.mark("cancel_requested", later(2_000_000_000), reason="policy")
    asked_to_stop.mark("cancelled", later(3_000_000_000))


def every_kind(attempt: RunningAttempt) -> None:
    """One second between each boundary and the next, two transfers, then one of output."""
    s = 1_000_000_000
    for second, kind in enumerate(k for k in EventKind if k not in {"cancel_requested", "failed", "cancelled", "timed_out"}):
        if not kind.startswith("transfer"):
            attempt.mark(kind, later(second * s), **({"tokens": 2**40} if kind == "iteration_finish" else {}))
    for stage, (first, last) in enumerate(((6, 7), (6.25, 6.75), (14, 17))):
        moved = {"stage_index": stage, "link": "pcie-0", "source_place": "host", "target_place": "gpu-0"}
        direction = "device_to_host" if stage == 2 else "host_to_device"
        attempt.mark("transfer_start", later(round(first * s)), direction=direction, **moved)
        attempt.mark("transfer_finish", later(round(last * s)), direction=direction, transferred_bytes=2**33 + stage, **moved)


def requeued(attempt: RunningAttempt) -> None:
    """Waits 1 s, is sent back, waits 8 s, and fails."""
    for second, kind in ((1, "eligible"), (2, "reservation_commit"), (50, "eligible"), (58, "reservation_commit")):
        attempt.mark(kind, later(second * 1_000_000_000))
    attempt.mark("phase_start", later(59_000_000_000))
    attempt.mark("failed", later(60_000_000_000), reason="lost its node")


@pytest.fixture(scope="module")
def kept(start_server: Callable[[Path], Served], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    """Record, ship to a real server, let it end, and read its store."""
    folder = tmp_path_factory.mktemp("recorded")
    served = start_server(folder / "store.duckdb")
    recorder = Recorder(folder / "spool")
    record(recorder)
    shipper = Shipper(folder / "spool", served.url).start()
    assert shipper.flush(timeout_s=20)
    shipper.stop()
    assert 0 == shipper.refused
    served.process.terminate()
    assert 0 == served.process.wait(timeout=20)
    names = [*LENGTHS_NS, "every kind", "requeued", "launched", "asked to stop"]
    with Store.open(served.store) as store, store.reader() as reader:
        at = store.last_commit
        yield Kept(asof.attempts(reader, names, at), asof.events(reader, names, at), asof.standing(reader, names, at))


@pytest.mark.parametrize("name", LENGTHS_NS)
def test_every_length_survives_to_the_nanosecond(kept: Kept, name: str) -> None:
    """T14: no 32 bits on the way."""
    start, end = sorted(kept.events[name], key=lambda event: event.kind == "compute_finish")
    assert (LENGTHS_NS[name], LENGTHS_NS[name]) == (
        (end.monotonic_ns or 0) - (start.monotonic_ns or 0),
        end.wall_ns - start.wall_ns,
    )
    assert (LENGTHS_NS[name] / 1e9, "completed") == kept.phases(name)["service"]


def test_every_kind_of_boundary_bounds_its_phases(kept: Kept) -> None:
    expected = {
        "eligibility_wait": 1.0,
        "queue": 1.0,
        "owner_wait": 1.0,
        "open": 1.0,
        "read": 1.0,
        "transfer": 1.0,
        "transfer/1": 0.5,
        "transfer/2": 3.0,
        "warmup": 1.0,
        "setup": 6.0,
        "time_to_first_output": 1.0,
        "service": 4.0,
        "completion": 16.0,
        "drain": 1.0,
        "release": 1.0,
    }
    assert {name: (length_s, "completed") for name, length_s in expected.items()} == kept.phases("every kind")


def test_what_a_mark_carries_is_kept(kept: Kept) -> None:
    [iteration] = [event for event in kept.events["every kind"] if event.kind == "iteration_finish"]
    assert 2**40 == iteration.tokens
    ends = sorted((e for e in kept.events["every kind"] if e.kind == "transfer_finish"), key=lambda e: e.stage_index or 0)
    assert [(2**33, "host_to_device"), (2**33 + 1, "host_to_device"), (2**33 + 2, "device_to_host")] == [
        (event.transferred_bytes, event.direction) for event in ends
    ]
    assert {("pcie-0", "host", "gpu-0")} == {(event.link, event.source_place, event.target_place) for event in ends}


def test_a_retry_is_an_attempt_of_its_own_that_names_the_one_before(kept: Kept) -> None:
    again, first = kept.attempts["every kind"], kept.attempts["requeued"]
    assert ("requeued", "w", "r", 2**40) == (again.retry_of, again.workflow_id, again.run_id, again.generation)
    assert (None, "d", "p") == (first.retry_of, first.decision_id, first.prediction_id)


def test_a_second_wait_is_a_segment_of_its_own_and_failure_ends_what_was_open(kept: Kept) -> None:
    expected = {
        "queue": (1.0, "completed"),
        "queue/1": (8.0, "completed"),
        "owner_wait": (1.0, "completed"),
        "open": (1.0, "failed"),
        "setup": (1.0, "failed"),
        "completion": (59.0, "failed"),
    }
    assert expected == kept.phases("requeued")
    assert "lost its node" == kept.rows["requeued/setup/0"].cause


def test_a_launch_and_a_request_to_stop_are_what_they_are(kept: Kept) -> None:
    assert ("launch_only", (7e-6, "completed")) == (
        kept.rows["launched/service/0"].absence,
        kept.phases("launched")["launch"],
    )
    stopped = kept.rows["asked to stop/service/0"]
    assert (2.0, "cancelled", "policy") == (stopped.duration_s, stopped.ended, stopped.cause)
