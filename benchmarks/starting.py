"""Start to ready on a store of 10^7 events, and memory of the processes that serve it, its outcomes in 10^4 configurations.

`python -m benchmarks.starting STORE N_EVENTS N_OUTCOMES` makes the store: events of attempts as recorders send them, marked as
observed; the outcomes beside them are of the law of `benchmarks.fits`, and a model is fitted on them and saved.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import psutil

from benchmarks.asked import call, question, started
from benchmarks.fits import observations
from benchmarks.measured import Figure, figure
from benchmarks.sent import KINDS, START_NS
from predictors.contexts import CATEGORIES, NUMBERS
from service.derive import DERIVED_TO
from service.local import fitted_now
from telemetry.columns import Columns
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Attempt, Event, Observation, StateRow
from telemetry.words import Clock, Ended

EVENTS, OUTCOMES, PART, STARTS = 10_000_000, 1_000_000, 100_000, 3
WORKERS = 1


def run(events: int = EVENTS, outcomes: int = OUTCOMES) -> list[Figure]:
    """Seconds and bytes, of several starts."""
    with TemporaryDirectory() as folder:
        store = Path(folder) / "s.duckdb"
        command = [sys.executable, "-m", "benchmarks.starting", str(store), str(events), str(outcomes)]
        subprocess.run(command, check=True)  # noqa: S603  our own command
        size_bytes = store.stat().st_size
        told = [_start(store) for _ in range(STARTS)]
    title = f"start: {events:,} events, {outcomes:,} outcomes"
    return [
        figure(f"{title}, to ready", [ready_s for ready_s, _, _ in told], "s", "5"),
        figure(f"{title}, resident memory of the owner", [owner / 2**20 for _, owner, _ in told], "MiB", "572"),
        figure(f"{title}, of a worker", [worker / 2**20 for _, _, worker in told], "MiB", "572"),
        figure(f"{title}, the file", [size_bytes / 2**20], "MiB"),
    ]


def _start(store: Path) -> tuple[float, float, float]:
    """Seconds until questions are answered; bytes of the process that owns the store, and of one that answers."""
    server = ("-m", "service.cli.main", "serve", "--port", "0", "--store", str(store))
    began_s = time.perf_counter()
    with started(*server) as netloc:
        _until_answered(netloc)
        ready_s = time.perf_counter() - began_s
        owner_bytes = _resident_bytes(netloc)
    with started(*server, "--workers", str(WORKERS)) as netloc:
        _until_answered(netloc)
        call(http.client.HTTPConnection(netloc), "POST", "/v1/predict", orjson.dumps(question({"host": "host-1"})))
        worker_bytes = _worker_bytes(netloc)
    return ready_s, owner_bytes, worker_bytes


def _until_answered(netloc: str) -> None:
    line = http.client.HTTPConnection(netloc)
    while True:
        line.request("GET", "/readyz")
        answer = line.getresponse()
        answer.read()
        if answer.status == 200:
            return
        time.sleep(0.02)


def _resident_bytes(netloc: str) -> float:
    """Resident memory as the owner tells it."""
    told = call(http.client.HTTPConnection(netloc), "GET", "/metrics")
    found = re.search(rb"^process_resident_memory_bytes (\S+)$", told, re.MULTILINE)
    assert found is not None
    return float(found[1])


def _worker_bytes(netloc: str) -> float:
    """Resident memory of the process that holds the port and none of the store's files."""
    port = int(netloc.rpartition(":")[2])
    found = [
        process.memory_info().rss
        for process in psutil.Process().children(recursive=True)
        if "service.http.worker" in process.cmdline()
        and port in {one.laddr.port for one in process.net_connections() if one.laddr}
    ]
    return float(max(found))


def make(path: Path, events: int, outcomes: int) -> None:
    """Write the store and its model."""
    with Store.open(path) as store:
        for batch in _sent(events):
            store.write(batch)
        for batch in _outcomes(outcomes):
            store.write(batch)
        upto = StateRow(name=DERIVED_TO, value=str(store.last_commit))
        store.write(Batch((upto,)))
    fitted_now(path)


def _sent(events: int) -> Iterator[Batch]:
    """Events of attempts with eight boundaries each."""
    for begin in range(0, events, PART):
        places = range(begin, min(events, begin + PART))
        attempts = [f"sent-{place // len(KINDS)}" for place in places]
        fields = Event.model_fields.items()
        columns: dict[str, list[Any]] = {
            name: [None if field.is_required() else field.default] * len(places) for name, field in fields
        }
        columns |= {
            "event_id": [f"event-{place}" for place in places],
            "attempt_id": list(attempts),
            "kind": [KINDS[place % len(KINDS)] for place in places],
            "wall_ns": [START_NS + place * 10**7 for place in places],
            "monotonic_ns": [place * 10**7 for place in places],
            "clock_id": ["bench/boot-1"] * len(places),
            "source": ["recorder@bench:1"] * len(places),
        }
        yield Batch((), (), (Columns(Event, len(places), columns),))


def _outcomes(n: int) -> Iterator[Batch]:
    """Attempts in many configurations with what their phases took."""
    for rows in observations(n).to_batches(max_chunksize=PART):
        found = rows.to_pylist()
        records = {row["attempt_id"]: row for row in found}
        attempts = [
            Attempt.model_construct(attempt_id=key, **{name: row[name] for name in (*CATEGORIES, *NUMBERS)})
            for key, row in records.items()
        ]
        yield Batch((*attempts, *(_observed(row) for row in found)))


def _observed(row: dict[str, Any]) -> Observation:
    return Observation.model_construct(
        observation_id=f"{row['attempt_id']}/{row['phase']}/0",
        attempt_id=row["attempt_id"],
        phase=row["phase"],
        started_ns=START_NS + row["started_ns"],
        entry_s=row["entry_s"],
        duration_s=row["duration_s"],
        ended=Ended(row["ended"]),
        clock=Clock.MONOTONIC,
    )


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
