"""The demo's worker process: takes attempts over its link, runs them for real and marks every boundary.

`python -m service.demo.worker DESCRIPTOR BACKEND THREADS SPOOL_DIR`; ends when the other end of the link does. `first_output`
is the first layer's activations; the attempt's own output, the pooled vector, is handed over between `compute_finish`
and `producer_terminated`.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from service.demo.backends import backend
from service.demo.encoder import N_LAYERS, Encoder
from service.demo.link import receive, receive_within, send
from telemetry.recorder.marks import Recorder, RunningAttempt
from telemetry.words import CancelReason, Ended


def main() -> None:
    """Say which runtime this is, then serve until the supervisor is gone."""
    end, encoder = Connection(int(sys.argv[1])), backend(sys.argv[2], int(sys.argv[3]))
    recorder = Recorder(Path(sys.argv[4]))
    send(end, "idle", runtime=encoder.runtime)
    while True:
        try:
            message = receive(end)
        except EOFError:
            return
        if message["word"] == "prepare":
            _load(encoder, Path(message["path"]), message["batch"], message["length"])
            send(end, "prepared")
        elif message["word"] == "run":
            send(end, "over", **_run(message, end, recorder, encoder))
        # A "cancel" that arrives here was overtaken by the end of its attempt.


def _run(job: dict[str, Any], end: Connection, recorder: Recorder, encoder: Encoder) -> dict[str, Any]:
    """One attempt from setup to release: how it ended and why, and its service time in s if it completed."""
    try:
        with recorder.join(job["attempt_id"]) as attempt:
            if job["path"] is not None:
                with _address_space(job["headroom_bytes"]):
                    _setup(job, attempt, encoder)
            service_s = _serve(job, end, attempt, encoder)
            attempt.mark("producer_terminated")
            encoder.release()
            attempt.mark("resource_released")
    except Exception as problem:  # noqa: BLE001 -- the recorder has marked it; the worker goes on to the next attempt
        return {"ended": Ended.FAILED, "reason": f"{type(problem).__name__}: {problem}", "service_s": None}
    finally:
        encoder.release()
    if service_s is None:
        return {"ended": Ended.CANCELLED, "reason": CancelReason.USER, "service_s": None}
    return {"ended": Ended.COMPLETED, "reason": None, "service_s": service_s}


def _load(encoder: Encoder, path: Path, batch: int, length: int) -> None:
    """Make the model resident, outside of any attempt."""
    encoder.open(path)
    encoder.materialize()
    encoder.warmup(batch, length)


def _setup(job: dict[str, Any], attempt: RunningAttempt, encoder: Encoder) -> None:
    attempt.mark("phase_start")
    encoder.open(Path(job["path"]))
    attempt.mark("checkpoint_open")
    encoder.materialize()
    attempt.mark("host_materialized")
    encoder.warmup(len(job["tokens"]), len(job["tokens"][0]))
    attempt.mark("warmup_finish")
    attempt.mark("ready")


def _serve(job: dict[str, Any], end: Connection, attempt: RunningAttempt, encoder: Encoder) -> float | None:
    """Compute layer by layer, looking at the flag between layers; service time in s, or None if cancelled."""
    started_ns = time.monotonic_ns()
    attempt.mark("compute_start")
    send(end, "running", since_ns=started_ns)  # only now: whoever hears it may ask about what has been recorded
    for layer in encoder.layers(job["tokens"]):
        if layer == 0:
            attempt.mark("first_output")
        attempt.heartbeat()
        if layer + 1 < N_LAYERS and receive_within(end, 0.0) is not None:
            attempt.cancelled(CancelReason.USER)
            return None
    attempt.mark("compute_finish")
    service_s = (time.monotonic_ns() - started_ns) / 1e9
    send(end, "output", values=encoder.output())
    return service_s


@contextmanager
def _address_space(headroom_bytes: int | None) -> Iterator[None]:
    """Let this process grow by no more than that, so that the kernel itself refuses what a too large load asks for."""
    if headroom_bytes is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used_bytes = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used_bytes + headroom_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


if __name__ == "__main__":
    main()
