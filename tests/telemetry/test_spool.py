from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from telemetry.recorder.shipper import read_batch
from telemetry.recorder.spool import SHIPPED, Spool, dropped, is_written, replace_json, segments, sizes_bytes

RECORD = b'{"event":{"event_id":"%06d"}}\n'
SIZE = len(RECORD % 0)


def ids(folder: Path) -> list[int]:
    return [int(record["event_id"]) for record in read_batch(folder, {}).events]


def test_what_was_appended_is_read_back_in_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    assert all(spool.append(RECORD % n) for n in range(10))
    assert list(range(10)) == ids(tmp_path)


def test_segments_rotate_at_their_size(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=10 * SIZE)
    for n in range(25):
        spool.append(RECORD % n)
    assert [10, 10, 5] == [path.read_bytes().count(b"\n") for path in segments(tmp_path)]
    assert list(range(25)) == ids(tmp_path)


def test_only_the_present_segment_of_a_living_writer_counts_as_written(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=SIZE)
    spool.append(RECORD % 0)
    assert [False, True] == [is_written(path) for path in segments(tmp_path)]
    spool.close()
    assert [False, False] == [is_written(path) for path in segments(tmp_path)]


def test_past_the_bound_the_oldest_segments_go_and_are_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=30 * SIZE, segment_bytes=10 * SIZE)
    for n in range(95):
        spool.append(RECORD % n)
    assert list(range(60, 95)) == ids(tmp_path)
    assert (60, 60) == (spool.dropped, dropped(tmp_path))


def test_segments_swept_while_their_sizes_are_read_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path, segment_bytes=SIZE)
    for n in range(3):
        spool.append(RECORD % n)
    first, second, *rest = listed = segments(tmp_path)
    second.unlink()
    monkeypatch.setattr("telemetry.recorder.spool.segments", lambda folder: listed)
    assert [first, *rest] == list(sizes_bytes(tmp_path))
    assert SIZE == sizes_bytes(tmp_path)[first]


def test_acknowledged_records_that_go_were_not_lost(tmp_path: Path) -> None:
    spool = Spool(tmp_path, max_bytes=10 * SIZE, segment_bytes=10 * SIZE)
    spool.append(RECORD % 0)
    replace_json(tmp_path / SHIPPED, {segments(tmp_path)[0].name: SIZE})
    for n in range(1, 25):
        spool.append(RECORD % n)
    assert 9 == dropped(tmp_path)


def test_segment_of_another_living_writer_is_never_dropped(tmp_path: Path) -> None:
    other = Spool(tmp_path)
    other.append(RECORD % 999)
    spool = Spool(tmp_path, max_bytes=SIZE, segment_bytes=5 * SIZE)
    for n in range(20):
        spool.append(RECORD % n)
    assert 999 in ids(tmp_path)


def test_full_disk_is_counted_and_not_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)

    def full(descriptor: int, record: bytes) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        assert not spool.append(RECORD % 0)
    assert spool.append(RECORD % 1)
    assert ([1], 1) == (ids(tmp_path), spool.dropped)
    spool.close()
    assert 1 == dropped(tmp_path)


def test_record_after_a_torn_one_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool, write = Spool(tmp_path), os.write
    with monkeypatch.context() as patched:
        patched.setattr(os, "write", lambda descriptor, record: write(descriptor, record[:7]))
        assert not spool.append(RECORD % 0)
    spool.append(RECORD % 1)
    batch = read_batch(tmp_path, {})
    assert ([1], 1, 1) == ([int(event["event_id"]) for event in batch.events], batch.torn, spool.dropped)


def test_closed_spool_counts_what_comes_late(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.close()
    assert (False, 1) == (spool.append(RECORD % 0), spool.dropped)


def test_rotation_under_many_threads_loses_nothing(tmp_path: Path) -> None:
    spool = Spool(tmp_path, segment_bytes=20 * SIZE)

    def write(first: int) -> None:
        for n in range(first, first + 100):
            spool.append(RECORD % n)

    threads = [threading.Thread(target=write, args=(100 * k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(range(600)) == sorted(ids(tmp_path))


@pytest.mark.parametrize("tail", [b'{"event":{"ev', b'{"event"', b"\x00\xff"])
def test_torn_last_line_of_a_dead_writer_is_skipped_and_counted(tmp_path: Path, tail: bytes) -> None:
    spool = Spool(tmp_path)
    spool.append(RECORD % 1)
    with segments(tmp_path)[0].open("ab") as segment:
        segment.write(tail)
    living = read_batch(tmp_path, {})
    assert ([SIZE], 0) == (list(living.offsets.values()), living.torn)
    spool.close()
    dead = read_batch(tmp_path, {})
    assert ([SIZE + len(tail)], 1, 1) == (list(dead.offsets.values()), dead.torn, len(dead.events))


WRITER = """
import sys
from telemetry.recorder.marks import Recorder
attempt = Recorder(sys.argv[1]).attempt(attempt_id="a")
while True:
    for step in range(1 << 30):
        attempt.mark("iteration_finish", tokens=step)
        sys.stdout.write(f"{step}\\n")
        sys.stdout.flush()
"""


@pytest.mark.parametrize("marks_before_kill", [1, 40, 400])
def test_every_mark_that_returned_survives_a_sigkill(tmp_path: Path, marks_before_kill: int) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        returned = [int(child.stdout.readline()) for _ in range(marks_before_kill)]
        child.send_signal(signal.SIGKILL)
        returned += [int(line) for line in child.stdout.read().split("\n")[:-1]]
    spooled: list[int] = []
    done: dict[str, int] = {}
    while (batch := read_batch(tmp_path, done)).offsets:
        spooled += [event["tokens"] for event in batch.events]
        done |= batch.offsets
    assert returned == spooled[: len(returned)]
    assert len(spooled) <= len(returned) + 1
