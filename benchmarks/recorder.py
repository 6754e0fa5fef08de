"""Cost of one mark: alone, by four threads at once, and beside four threads that compute."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.measured import Figure, figure
from telemetry.recorder.marks import Recorder
from telemetry.words import EventKind

ROUNDS, MARKS, THREADS = 7, 10_000, 4


def run() -> list[Figure]:
    """Microseconds of processor time per mark; where four threads mark also of wall time, with their waiting for each other."""
    alone, together, wall, beside = list[float](), list[float](), list[float](), list[float]()
    with TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "spool")
        for _ in range(ROUNDS):
            alone.append(_us_per_mark(time.thread_time, recorder))
            with ThreadPoolExecutor(THREADS) as threads:
                started, used = time.perf_counter(), time.process_time()
                list(threads.map(lambda _: _mark(recorder), range(THREADS)))
                together.append((time.process_time() - used) / (THREADS * MARKS) * 1e6)
                wall.append((time.perf_counter() - started) / (THREADS * MARKS) * 1e6)
            with _computing():
                beside.append(_us_per_mark(time.thread_time, recorder))
        recorder.close()
    return [
        figure("recorder: one mark, one thread", alone, "us", "5"),
        figure("recorder: one mark, four threads marking", together, "us", "5"),
        figure("recorder: one mark, four threads marking, wall time", wall, "us"),
        figure("recorder: one mark, four threads computing", beside, "us", "5"),
        figure("recorder: four threads marking / one", [a / b for a, b in zip(together, alone, strict=True)], "x"),
    ]


def _us_per_mark(clock: Callable[[], float], recorder: Recorder) -> float:
    started = clock()
    _mark(recorder)
    return (clock() - started) / MARKS * 1e6


def _mark(recorder: Recorder) -> None:
    attempt = recorder.attempt(host="bench")
    for _ in range(MARKS):
        attempt.mark(EventKind.HEARTBEAT)


@contextmanager
def _computing() -> Iterator[None]:
    """Four threads that multiply matrices, outside the interpreter's lock for most of the time."""
    ended = threading.Event()

    def compute() -> None:
        matrix = np.ones((200, 200))
        while not ended.is_set():
            matrix @ matrix

    with ThreadPoolExecutor(THREADS) as threads:
        for _ in range(THREADS):
            threads.submit(compute)
        try:
            yield
        finally:
            ended.set()
