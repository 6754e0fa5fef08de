"""Cost of one mark: alone, by four threads at once, and beside four threads that compute."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.measured import Figure, figure, seconds
from telemetry.recorder.marks import Recorder
from telemetry.words import EventKind

ROUNDS, MARKS, THREADS = 7, 10_000, 4


def run() -> list[Figure]:
    """Microseconds per mark; beside computing threads the processor time of the marking thread, since it must share."""
    alone, together, beside = [], [], []
    with TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder) / "spool")
        for _ in range(ROUNDS):
            alone.append(seconds(lambda: _mark(recorder)) / MARKS * 1e6)
            with ThreadPoolExecutor(THREADS) as threads:
                wall_s = seconds(lambda: list(threads.map(lambda _: _mark(recorder), range(THREADS))))
            together.append(wall_s / (THREADS * MARKS) * 1e6)
            with _computing():
                started = time.thread_time()
                _mark(recorder)
                beside.append((time.thread_time() - started) / MARKS * 1e6)
        recorder.close()
    return [
        figure("recorder: one mark, one thread", alone, "us", "5"),
        figure("recorder: one mark, four threads marking", together, "us", "5"),
        figure("recorder: one mark, four threads computing (processor time)", beside, "us", "5"),
        figure("recorder: four threads marking / one", [a / b for a, b in zip(together, alone, strict=True)], "x"),
    ]


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
