"""A server with something to watch: work that ended, answers with outcomes, attempts that still run, a measured host."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from predictors.synthetic import Run, runs
from service.client.sync import Client, http_client
from telemetry.recorder.ids import clock_id
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Attempt, Event, Grant, HostProfile
from telemetry.words import EventKind
from tests.service.living import until

KNOWN, ASKED = 120, 60
HOUR_NS = 3_600 * 1_000_000_000
COMPLAINT = "spread 21% of the median: idle the host and measure again"
RATES = {
    "matmul_threads_2_flop_per_s": {"median": 8.1e10, "spread": 0.03, "samples": 40, "complaints": []},
    "memory_copy_bytes_per_s": {"median": 9.4e9, "spread": 0.21, "samples": 12, "complaints": [COMPLAINT]},
}


def measured(store: Path) -> None:
    """Write a grant and the profile of one of the hosts, before anything is served."""
    now_ns = time.time_ns()
    grant = Grant(
        grant_id="grant-1",
        granted_by="ana",
        host="north",
        probes=["matmul", "memory_copy"],
        not_before_ns=now_ns - 2 * HOUR_NS,
        expires_ns=now_ns - HOUR_NS,
        max_run_s=60,
        max_threads=2,
        max_memory_bytes=2**30,
        max_disk_bytes=0,
    )
    profile = HostProfile(
        profile_id="profile-1",
        host="north",
        grant_id="grant-1",
        measured_ns=now_ns - HOUR_NS,
        condition='{"processor": "test processor", "effective_processors": 2.0, "quota": null}',
        rates=json.dumps(RATES),
    )
    with Store.open(store) as opened:
        opened.write(Batch((grant, profile)))


def moved(run: Run, start_ns: int) -> dict[str, list[dict[str, Any]]]:
    """The run as JSON, its first event at the UTC wall time `start_ns`."""
    shift_ns = start_ns - run.events[0].wall_ns
    events = [event.model_copy(update={"wall_ns": event.wall_ns + shift_ns}) for event in run.events]
    return {"attempts": [run.attempt.model_dump(exclude_none=True)], "events": [e.model_dump(exclude_none=True) for e in events]}


def feed(url: str) -> None:
    """Send finished work, ask about more before it comes, let it end, and leave two attempts running."""
    made = runs(KNOWN + ASKED, seed=11)
    with http_client(url, timeout_s=30) as http:
        client = Client(http)
        for part in (made[:KNOWN], made[KNOWN:]):
            if part[0] is made[KNOWN]:
                ask(client, part)
            now_ns = time.time_ns()
            sent = [moved(run, now_ns) for run in part]
            told = client.ingest(*([row for one in sent for row in one[kind]] for kind in ("attempts", "events")))
            until(lambda told=told: client.ready()["ready"] and client.ready()["learned_to"] >= told["commit"])
        start_running(client)
        until(lambda: client.ready()["ledger_pending"] == 0)


def ask(client: Client, part: list[Run]) -> None:
    """Have every run answered before its events exist."""
    contexts = [
        run.attempt.model_dump(include={"host", "device", "family", "model", "state", "batch", "size_in"}) for run in part
    ]
    client.predict(contexts, ["setup", "service"], attempt_ids=[run.attempt.attempt_id for run in part])


def start_running(client: Client) -> None:
    """Two attempts whose setup runs, on this machine's own clock."""
    attempts = [
        Attempt(attempt_id=f"open-{host}", host=host, device="cpu", family="encoder", model="encoder@1", state="cold", batch=4)
        for host in ("north", "south")
    ]
    events = [
        Event(
            event_id=f"{a.attempt_id}-start",
            attempt_id=a.attempt_id,
            kind=EventKind.PHASE_START,
            wall_ns=time.time_ns(),
            monotonic_ns=time.monotonic_ns(),
            clock_id=clock_id(),
            source="watching",
        )
        for a in attempts
    ]
    client.ingest([a.model_dump(exclude_none=True) for a in attempts], [e.model_dump(exclude_none=True) for e in events])
