"""One run of the demo from consent to snapshot: grant, profile, API, attempts predicted over HTTP, everything committed."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from service.client.sync import Client, http_client
from service.demo import supervisor
from service.demo.questions import Asked, Questions
from service.demo.relay import Round, relay
from service.demo.schedule import Planned
from service.demo.supervisor import Finished
from telemetry.errors import NotReached
from telemetry.recorder.shipper import Shipper
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import Grant, HostProfile

SHIP_S = 0.01
"""The shipper looks at the spool this often: questions about running attempts want their start to have arrived."""
START_S, SETTLE_S = 30.0, 60.0


@dataclass(frozen=True)
class Work:
    """What is to be done, under which grant; checkpoints lie in `folder`."""

    schedule: Sequence[Planned]
    n_rounds: int
    grant: Grant
    folder: Path
    backend_name: str
    seed: int


@dataclass(frozen=True)
class Made:
    """A finished run: its store's last snapshot, what was asked, how attempts and relay rounds ended."""

    snapshot: Path
    asked: Asked
    finished: list[Finished]
    rounds: list[Round]


def consent(store: Path, grant: Grant, profile: HostProfile) -> None:
    """Write the grant and what was measured under it, before anything is served."""
    opened = Store.open(store)
    try:
        opened.write(Batch((grant, profile)))
    finally:
        opened.close()


@contextmanager
def api(store: Path) -> Iterator[str]:
    """A real server on a free port; ends with the block, as a service ends: by SIGTERM. It never outlives us."""
    command = [sys.executable, "-m", "service.demo.serving", str(store)]
    with (
        (store.parent / "serve.log").open("ab") as log,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as process,  # noqa: S603  our own command line
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


def make(store: Path, work: Work, on_finished: Callable[[], None]) -> Made:
    """Serve, make the attempts and the relay rounds, wait until everything is committed and scored, take a snapshot.

    `on_finished` follows each attempt and each round.
    """
    spool = store.parent / "spool"
    spool.mkdir(exist_ok=True)
    with api(store) as url, http_client(url) as http:
        questions = Questions(Client(http), work.seed)
        with shipping(spool, url):
            finished, rounds = _worked(work, spool, store.parent.name, questions, on_finished)
        _settle(questions.client)
        snapshot = store.with_name("snapshot.duckdb")
        questions.client.snapshot(snapshot)
    return Made(snapshot, questions.asked, finished, rounds)


def _worked(
    work: Work, spool: Path, run_id: str, questions: Questions, on_finished: Callable[[], None]
) -> tuple[list[Finished], list[Round]]:
    """Make the attempts of the schedule, then the relay rounds."""
    finished = supervisor.run(
        work.schedule,
        grant=work.grant,
        folder=work.folder,
        spool_dir=spool,
        backend_name=work.backend_name,
        run_id=run_id,
        on_before=questions.before,
        on_running=questions.running,
        on_finished=lambda _attempt: on_finished(),
    )
    rounds = relay(
        work.n_rounds,
        grant=work.grant,
        folder=work.folder,
        spool_dir=spool,
        backend_name=work.backend_name,
        run_id=f"{run_id}-relay",
        on_before=questions.before,
        on_need=questions.need,
        on_finished=lambda _round: on_finished(),
    )
    return finished, rounds


@contextmanager
def shipping(spool: Path, url: str) -> Iterator[None]:
    """Ship what is spooled while the block runs; what is left is sent at its end."""
    shipper = Shipper(spool, url, poll_s=SHIP_S)
    shipper.start()
    yield
    if not shipper.flush(SETTLE_S):
        raise NotReached("api", url, f"events are still in {spool}; they are sent when the API answers again")
    shipper.stop()


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
