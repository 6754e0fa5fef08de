"""Decorated functions and coroutines, and the attempt that is current where code runs."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import BadField
from telemetry.recorder.marks import Moment, Recorder, current_attempt
from telemetry.recorder.spool import segments
from telemetry.tables import Attempt, Event
from telemetry.timelines import observe


def spooled(folder: Path) -> tuple[list[Attempt], dict[str, list[Event]]]:
    """Attempts in order, and their events by attempt."""
    records = [json.loads(line) for segment in segments(folder) for line in segment.read_text().splitlines()]
    attempts = [Attempt(**record["attempt"]) for record in records if "attempt" in record]
    events = [Event(**record["event"]) for record in records if "event" in record]
    return attempts, {a.attempt_id: [e for e in events if e.attempt_id == a.attempt_id] for a in attempts}


def fates(folder: Path) -> list[dict[str, str]]:
    """Of each attempt, in order, how its phases ended; nobody marks how long these drain."""
    attempts, events = spooled(folder)
    rows = [observe(attempt, events[attempt.attempt_id]).observations for attempt in attempts]
    return [{o.phase: o.ended for o in each if o.ended and o.phase != "drain"} for each in rows]


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(tmp_path)


def test_each_call_is_an_attempt_of_its_own(recorder: Recorder, tmp_path: Path) -> None:
    @recorder.timed("service", family="sort", host="node-1", describe=lambda numbers, **_: {"size_in": len(numbers)})
    def ordered(numbers: list[int], *, reverse: bool = False) -> list[int]:
        """Sorts."""
        return sorted(numbers, reverse=reverse)

    assert ([1, 2, 3], [3, 1]) == (ordered([3, 1, 2]), ordered([1, 3], reverse=True))
    attempts, _ = spooled(tmp_path)
    assert [("sort", "node-1", 3.0), ("sort", "node-1", 2.0)] == [(a.family, a.host, a.size_in) for a in attempts]
    assert [{"service": "completed"}] * 2 == fates(tmp_path)
    assert ("ordered", "Sorts.") == (ordered.__name__, ordered.__doc__)


def test_a_failing_call_fails_its_attempt_and_goes_on(recorder: Recorder, tmp_path: Path) -> None:
    @recorder.timed(family="division")
    def divided(by: int) -> float:
        return 1 / by

    with pytest.raises(ZeroDivisionError):
        divided(0)
    assert [{"service": "failed", "time_to_first_output": "failed"}] == fates(tmp_path)
    assert current_attempt() is None


def test_a_call_with_nothing_known_is_a_phase_of_the_current_attempt(recorder: Recorder, tmp_path: Path) -> None:
    @recorder.timed("setup")
    def load() -> None:
        pass

    @recorder.timed("service", family="sort")
    def work() -> None:
        load()

    work()
    load()
    assert [{"setup": "completed", "service": "completed"}, {"setup": "completed"}] == fates(tmp_path)


def test_a_coroutine_is_timed_until_it_is_done_and_cancelled_if_stopped(recorder: Recorder, tmp_path: Path) -> None:
    @recorder.timed("service", family="wait")
    async def waited(delay_s: float) -> float:
        await asyncio.sleep(delay_s)
        return delay_s

    async def both() -> float:
        stopped = asyncio.create_task(waited(60))
        done = await waited(0.02)
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        return done

    assert 0.02 == asyncio.run(both())
    attempts, events = spooled(tmp_path)
    ended = {
        o.ended: o.duration_s for a in attempts for o in observe(a, events[a.attempt_id]).observations if o.phase == "service"
    }
    assert ({"completed", "cancelled"}, True) == (set(ended), ended["completed"] >= 0.02)


def test_tasks_and_threads_have_an_attempt_of_their_own(recorder: Recorder) -> None:
    async def task(name: str) -> tuple[str, str]:
        with recorder.attempt(attempt_id=name):
            await asyncio.sleep(0.001)
            with recorder.attempt(attempt_id=f"{name}-inner"):
                await asyncio.sleep(0.001)
                inner = current_attempt()
            outer = current_attempt()
            assert inner is not None
            assert outer is not None
            return outer.attempt_id, inner.attempt_id

    async def tasks() -> list[tuple[str, str]]:
        return await asyncio.gather(*(task(f"task-{n}") for n in range(8)))

    def thread(name: str) -> str:
        assert current_attempt() is None
        with recorder.attempt(attempt_id=name):
            gate.wait(timeout=10)
            found = current_attempt()
            assert found is not None
            return found.attempt_id

    gate = threading.Barrier(4)
    with recorder.attempt(attempt_id="main"), ThreadPoolExecutor(4) as pool:
        assert [f"thread-{n}" for n in range(4)] == list(pool.map(thread, [f"thread-{n}" for n in range(4)]))
        assert [(f"task-{n}", f"task-{n}-inner") for n in range(8)] == asyncio.run(tasks())
    assert current_attempt() is None


def test_work_sent_to_a_thread_takes_its_attempt_along(recorder: Recorder, tmp_path: Path) -> None:
    @recorder.timed("service")
    def work() -> None:
        pass

    async def sent() -> None:
        with recorder.attempt(family="sort"):
            await asyncio.to_thread(work)

    asyncio.run(sent())
    assert [{"service": "completed"}] == fates(tmp_path)


def test_an_attempt_may_be_entered_again_inside_itself(recorder: Recorder) -> None:
    attempt = recorder.attempt()
    with attempt:
        with attempt:
            pass
        assert attempt is current_attempt()
    assert current_attempt() is None


def test_generators_are_refused_since_their_call_does_no_work(recorder: Recorder) -> None:
    def numbers() -> Iterator[int]:
        yield 1

    async def later() -> AsyncIterator[int]:
        yield 1

    for function in (numbers, later):
        with pytest.raises(BadField, match="mark the loop"):
            recorder.timed("service")(function)


@pytest.mark.parametrize(("given", "field"), [({"phase": "load"}, "phase"), ({"hostname": "x"}, "hostname")])
def test_wrong_names_are_told_where_the_function_is_decorated(recorder: Recorder, given: dict[str, Any], field: str) -> None:
    with pytest.raises(BadField) as caught:
        recorder.timed(**given)
    assert field == caught.value.field


def test_a_mark_may_be_made_of_an_earlier_moment(recorder: Recorder, tmp_path: Path) -> None:
    attempt = recorder.attempt()
    attempt.mark("compute_start", at=Moment(5_000_000_000, 7_000))
    attempt.mark("compute_finish", Moment(5_000_000_500, 7_500))
    [events] = spooled(tmp_path)[1].values()
    assert [(5_000_000_000, 7_000), (5_000_000_500, 7_500)] == [(e.wall_ns, e.monotonic_ns) for e in events]


@pytest.mark.parametrize("describe", [lambda _n: 1 / 0, lambda _n: {"size_in": float("nan")}, lambda _n: {"nonsense": 1}])
def test_a_call_that_cannot_be_described_runs_and_is_recorded_without_it(
    recorder: Recorder, tmp_path: Path, describe: Callable[[int], Any]
) -> None:
    @recorder.timed("service", host="n", family="sort", describe=describe)
    def doubled(n: int) -> int:
        return 2 * n

    assert 14 == doubled(7)
    assert 1 == recorder.undescribed
    [attempt] = spooled(tmp_path)[0]
    assert ("n", "sort", None) == (attempt.host, attempt.family, attempt.size_in)
