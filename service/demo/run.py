"""One run of the demo from consent to snapshot: grant, profile, API, attempts predicted over HTTP, everything committed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from predictors.contexts import Context
from service.client.sync import Client, http_client
from service.demo import supervisor
from service.demo.schedule import Planned
from telemetry.errors import BadField, NoEvidence, NotReached, UnknownId
from telemetry.recorder.shipper import Shipper
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Grant, HostProfile
from telemetry.words import State

LOADING = ("read", "warmup", "setup")
COMPUTING = ("time_to_first_output", "service")
FRACTIONS = (0.25, 0.5, 0.75)
LEAST_MEDIAN_S = 0.1
"""Shorter services are not asked while they run: the question would take a good part of them."""
SHIP_S = 0.01
"""The shipper looks at the spool this often: questions about running attempts want their start to have arrived."""
START_S, SETTLE_S = 30.0, 60.0


@dataclass
class Asked:
    """What was asked of the API, beside what its ledger keeps."""

    predicted: int = 0
    not_yet_known: int = 0
    residuals: int = 0
    not_seen_running: int = 0
    latency_s: list[float] = field(default_factory=list)
    fractions: dict[str, float] = field(default_factory=dict)
    """Fraction of the predicted median at which a remaining time was asked, by prediction_id."""


class Questions:
    """The callbacks of a run: every attempt is predicted before it starts, long ones are asked about while they run."""

    def __init__(self, client: Client) -> None:
        self.client, self.asked = client, Asked()
        self._median_s: dict[str, float] = {}

    def before(self, upcoming: supervisor.Upcoming) -> Sequence[float]:
        """Predict every phase of the attempt; returns the ages at which to ask for the remaining service time, in s."""
        context = Context.of(upcoming.fields).known()
        phases = COMPUTING if upcoming.fields["state"] == State.RESIDENT else LOADING + COMPUTING
        began = time.perf_counter()
        try:
            told = self.client.predict([context], phases, attempt_ids=[upcoming.attempt_id])
        except NoEvidence:
            self.asked.not_yet_known += 1
            return ()
        self.asked.latency_s.append(time.perf_counter() - began)
        self.asked.predicted += 1
        service = next(a for a in told.answers if a.phase == "service")
        if service.quantiles_s is None or service.quantiles_s[0] < LEAST_MEDIAN_S:
            return ()
        self._median_s[upcoming.attempt_id] = service.quantiles_s[0]
        return [fraction * service.quantiles_s[0] for fraction in FRACTIONS]

    def running(self, upcoming: supervisor.Upcoming, age_s: float) -> None:
        """Ask by id how much longer the service will take; the API ages it by the attempt's own clock."""
        try:
            told = self.client.residual([{"attempt_id": upcoming.attempt_id, "phase": "service"}])
        except (UnknownId, BadField):
            # Its start is still on its way to the store, or it has just ended.
            self.asked.not_seen_running += 1
            return
        answer = told.answers[0]
        if answer.prediction_id is not None:
            self.asked.residuals += 1
            fraction = age_s / self._median_s[upcoming.attempt_id]
            self.asked.fractions[answer.prediction_id] = min(FRACTIONS, key=lambda known: abs(known - fraction))


@dataclass(frozen=True)
class Made:
    """A finished run: its store's last snapshot, what was asked, how attempts ended."""

    snapshot: Path
    asked: Asked
    finished: list[supervisor.Finished]


def consent(store: Path, grant: Grant, profile: HostProfile) -> None:
    """Write the grant and what was measured under it, before anything is served."""
    opened = Store.open(store)
    try:
        opened.write(Batch((grant, profile)))
    finally:
        opened.close()


@contextmanager
def api(store: Path) -> Iterator[str]:
    """A real `phasecast serve` on a free port; ends with the block, as a service ends: by SIGTERM."""
    command = [sys.executable, "-m", "service.cli.main", "serve", "--store", str(store), "--port", "0"]
    with (
        (store.parent / "serve.log").open("ab") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log) as process,  # noqa: S603  our own command line
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            if " at " not in line:
                raise NotReached("api", "it did not start", f"see {log.name}")
            yield line.rsplit(" at ", 1)[1].strip()
        finally:
            process.terminate()
            process.wait(timeout=START_S)


def make(
    folder: Path,
    store: Path,
    schedule: Sequence[Planned],
    grant: Grant,
    backend_name: str,
    on_finished: Callable[[supervisor.Finished], None],
) -> Made:
    """Serve, run the schedule, wait until everything is committed and scored, take a snapshot."""
    spool = store.parent / "spool"
    spool.mkdir(exist_ok=True)
    with api(store) as url, http_client(url) as http:
        questions = Questions(Client(http))
        shipper = Shipper(spool, url, poll_s=SHIP_S)
        shipper.start()
        finished = supervisor.run(
            schedule,
            grant=grant,
            folder=folder,
            spool_dir=spool,
            backend_name=backend_name,
            run_id=store.parent.name,
            on_before=questions.before,
            on_running=questions.running,
            on_finished=on_finished,
        )
        if not shipper.flush(SETTLE_S):
            raise NotReached("api", url, f"events are still in {spool}; they are sent when the API answers again")
        shipper.stop()
        _settle(questions.client)
        snapshot = store.with_name("snapshot.duckdb")
        questions.client.snapshot(snapshot)
    return Made(snapshot, questions.asked, finished)


def _settle(client: Client) -> None:
    """Wait until upkeep has nothing left to do: two looks at the same commit with an empty ledger queue."""
    seen: dict[str, Any] = {}
    until_s = time.monotonic() + SETTLE_S
    while time.monotonic() < until_s:
        now = client.ready()
        if now["ledger_pending"] == 0 and now["last_commit"] == seen.get("last_commit"):
            return
        seen = now
        time.sleep(1.0)
    raise NotReached("api", f"still busy after {SETTLE_S:g} s", "the store is whole; `phasecast serve` finishes the rest")
