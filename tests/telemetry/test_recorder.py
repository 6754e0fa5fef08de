from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from telemetry.errors import BadField
from telemetry.recorder.fields import Details, Known
from telemetry.recorder.ids import clock_id, uuid7
from telemetry.recorder.marks import Moment, Recorder, RunningAttempt
from telemetry.recorder.spool import segments
from telemetry.tables import Attempt, Event
from telemetry.timelines import observe


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for segment in segments(folder) for line in segment.read_text().splitlines()]


def events(folder: Path) -> list[Event]:
    return [Event(**line["event"]) for line in lines(folder) if "event" in line]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def lengths(folder: Path) -> dict[str, tuple[str | None, str | None]]:
    return {o.phase: (o.ended, o.cause) for o in observe(None, events(folder)).observations if o.ended}


# --- ids


def test_ids_are_version_7_and_increase_as_text() -> None:
    made = [uuid7() for _ in range(5_000)]
    assert ({7}, {"specified in RFC 4122"}) == ({UUID(i).version for i in made}, {UUID(i).variant for i in made})
    assert sorted(set(made)) == made


def test_ids_of_many_threads_differ_and_increase_in_each() -> None:
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: [uuid7() for _ in range(500)], range(16)))
    assert len({i for each in made for i in each}) == 8_000
    assert all(sorted(each) == each for each in made)


def test_ids_do_not_go_back_when_the_wall_clock_does(monkeypatch: pytest.MonkeyPatch) -> None:
    before = uuid7()
    monkeypatch.setattr("time.time_ns", lambda: 0)
    assert before < uuid7()


def test_clock_id_names_host_and_boot_and_is_stable() -> None:
    assert (clock_id(), 2) == (clock_id(), len([part for part in clock_id().split("/") if part]))


def test_clock_id_without_a_boot_id_is_good_for_this_process_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("telemetry.recorder.ids._BOOT_ID", Path("/nowhere"))
    assert f"process-{os.getpid()}" in clock_id()


# --- marks


def test_names_are_those_of_the_tables() -> None:
    assert set(Attempt.model_fields) - {"attempt_id"} == set(Known.__annotations__)
    sent_with_every_event = {"event_id", "attempt_id", "kind", "wall_ns", "monotonic_ns", "clock_id", "source"}
    assert set(Event.model_fields) - sent_with_every_event == set(Details.__annotations__)


def test_attempt_and_marks_are_rows_of_the_tables(recorder: Recorder, tmp_path: Path) -> None:
    with recorder.attempt(attempt_id='a"é', host="gpu-7", state="cold", batch=4, size_in=64, corunners=0) as attempt:
        attempt.mark("transfer_finish", stage_index=1, transferred_bytes=2**40, attributes={"why": "x\ny"})
        attempt.mark("compute_finish", device_elapsed_s=0.125)
    first, *rest = lines(tmp_path)
    assert Attempt(attempt_id='a"é', host="gpu-7", state="cold", batch=4, size_in=64, corunners=0) == Attempt(**first["attempt"])
    transfer, compute = [Event(**line["event"]) for line in rest]
    assert (1, 2**40, {"why": "x\ny"}) == (
        transfer.stage_index,
        transfer.transferred_bytes,
        json.loads(transfer.attributes or ""),
    )
    assert ('a"é', 0.125, clock_id()) == (compute.attempt_id, compute.device_elapsed_s, compute.clock_id)
    assert compute.source.startswith("recorder@")
    assert compute.source.endswith(f":{os.getpid()}")


def test_a_mark_is_on_disk_before_it_returns(recorder: Recorder, tmp_path: Path) -> None:
    recorder.attempt().mark("enqueue")
    assert ["enqueue"] == [event.kind for event in events(tmp_path)]


def test_phases_mark_both_ends(recorder: Recorder, tmp_path: Path) -> None:
    with recorder.attempt() as attempt, attempt.phase("completion"):
        with attempt.phase("setup"), attempt.phase("open"):
            pass
        with attempt.phase("read"):
            pass
        with attempt.phase("transfer", stage_index=0):
            pass
        with attempt.phase("warmup"):
            pass
        with attempt.phase("service"):
            pass
    completed = {phase for phase, (ended, _) in lengths(tmp_path).items() if ended == "completed"}
    assert {"setup", "open", "read", "transfer", "warmup", "service", "completion"} == completed


def test_exception_is_recorded_as_failure_and_goes_on(recorder: Recorder, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), recorder.attempt() as attempt, attempt.phase("service"):
        _ = 1 / 0
    assert ("failed", "ZeroDivisionError: division by zero") == lengths(tmp_path)["service"]


def test_stopped_from_outside_is_cancelled_not_failed(recorder: Recorder, tmp_path: Path) -> None:
    async def work() -> None:
        with recorder.attempt() as attempt, attempt.phase("service"):
            await asyncio.sleep(60)

    async def stop_it() -> None:
        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop_it())
    assert ("cancelled", "unknown") == lengths(tmp_path)["service"]


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (lambda attempt: attempt.timed_out(), ("timed_out", "")),
        (lambda attempt: attempt.cancelled("user"), ("cancelled", "user")),
        (lambda attempt: attempt.failed("disk"), ("failed", "disk")),
    ],
)
def test_an_ending_said_by_the_work_itself_is_not_overruled(
    recorder: Recorder, tmp_path: Path, end: Callable[[RunningAttempt], None], expected: tuple[str, str]
) -> None:
    def stop(attempt: RunningAttempt) -> None:
        end(attempt)
        raise TimeoutError

    with pytest.raises(TimeoutError), recorder.attempt() as attempt, attempt.phase("service"):
        stop(attempt)
    assert expected == lengths(tmp_path)["service"]
    assert ["compute_start", expected[0]] == [event.kind for event in events(tmp_path)]


def test_request_carries_its_reason_and_censors(recorder: Recorder, tmp_path: Path) -> None:
    with recorder.attempt() as attempt:
        attempt.mark("compute_start")
        attempt.cancel_requested("policy")
        attempt.cancelled("policy")
    assert ("cancelled", "policy") == lengths(tmp_path)["service"]


def test_supervisor_ends_the_attempt_of_a_dead_worker(recorder: Recorder, tmp_path: Path) -> None:
    recorder.attempt(attempt_id="a").mark("compute_start")
    killed = Moment.now()
    recorder.terminal("a", "failed", "killed by signal 9", at=killed)
    assert ("failed", "killed by signal 9") == lengths(tmp_path)["service"]
    assert killed == (events(tmp_path)[-1].wall_ns, events(tmp_path)[-1].monotonic_ns)


def test_joined_attempt_writes_marks_but_no_second_record(recorder: Recorder, tmp_path: Path) -> None:
    recorder.join("a").mark("phase_start")
    assert [("event", "a")] == [(kind, row["attempt_id"]) for line in lines(tmp_path) for kind, row in line.items()]


def test_heartbeats_are_limited_in_rate(tmp_path: Path) -> None:
    often, seldom = Recorder(tmp_path / "often", heartbeat_s=0), Recorder(tmp_path / "seldom", heartbeat_s=3600)
    for recorder in (often, seldom):
        attempt = recorder.attempt()
        for _ in range(10):
            attempt.heartbeat()
    assert (10, 1) == (len(events(tmp_path / "often")), len(events(tmp_path / "seldom")))


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (lambda r: r.attempt().mark("compute_end"), "kind"),
        (lambda r: r.attempt().mark("compute_finish", device_s=1), "device_s"),
        (lambda r: r.attempt().mark("compute_finish", device_elapsed_s=float("nan")), "details"),
        (lambda r: r.attempt().mark("heartbeat", attributes={"text": "x" * 20_000}), "attributes"),
        (lambda r: r.attempt(hostname="x"), "hostname"),
        (lambda r: r.attempt(batch=float("inf")), "attempt"),
        (lambda r: r.attempt().phase("load").__enter__(), "phase"),
        (lambda r: r.terminal("a", "ready", "x"), "kind"),
    ],
)
def test_wrong_calls_name_the_field_and_write_no_event(
    recorder: Recorder, tmp_path: Path, wrong: Callable[[Recorder], None], field: str
) -> None:
    with pytest.raises(BadField) as caught:
        wrong(recorder)
    assert (field, []) == (caught.value.field, events(tmp_path))


def test_long_reason_is_cut_to_what_the_table_takes(recorder: Recorder, tmp_path: Path) -> None:
    recorder.attempt().failed("x" * 5_000)
    assert 2000 == len(events(tmp_path)[0].reason or "")


def test_threads_lose_and_tear_nothing(recorder: Recorder, tmp_path: Path) -> None:
    def work(number: int) -> None:
        attempt = recorder.attempt(attempt_id=str(number))
        for step in range(200):
            attempt.mark("iteration_finish", tokens=step)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    marks = {(event.attempt_id, event.tokens) for event in events(tmp_path)}
    assert {(str(number), step) for number in range(6) for step in range(200)} == marks


FORK = """
import os, sys
from telemetry.recorder.marks import Recorder
recorder = Recorder(sys.argv[1])
attempt = recorder.attempt(attempt_id="a")
attempt.mark("enqueue")
child = os.fork()
for _ in range(500):
    attempt.mark("heartbeat")
if child:
    os.waitpid(child, 0)
"""


def test_forked_child_goes_on_under_its_own_name_in_its_own_segment(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FORK, str(tmp_path)], check=True)
    found = events(tmp_path)
    assert (1001, 1001) == (len(found), len({event.event_id for event in found}))
    assert (2, 2) == (len(segments(tmp_path)), len({event.source for event in found}))
    process_part = slice(19, 28)
    assert 2 == len({event.event_id[process_part] for event in found})


def test_importing_the_recorder_imports_nothing_beyond_the_standard_library() -> None:
    show = "import sys, telemetry.recorder.cuda, telemetry.recorder.shipper; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", show], check=True, capture_output=True, text=True).stdout.split()
    foreign = {name.partition(".")[0] for name in loaded} - set(sys.stdlib_module_names) - {"telemetry", "__main__"}
    assert set() == {name for name in foreign if not name.startswith("_")}
