"""Fixtures that bring a service to life and end it again."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from predictors.synthetic import runs
from service.client.sync import Client, http_client
from service.lineup import Lineup
from service.settings import Settings
from service.upkeep import Upkeep
from telemetry.store.file import Store
from tests.service.living import Living, Served, until
from tests.service.watching import feed, measured


@pytest.fixture
def revive(tmp_path: Path) -> Iterator[Callable[[], Living]]:
    """Open the store of this test, as a process does when it starts; a second call stops the first one's before."""
    alive: list[Living] = []

    def stop() -> None:
        while alive:
            old = alive.pop()
            old.upkeep.stop()
            old.store.close()

    def open_again() -> Living:
        stop()
        settings = Settings(store=tmp_path / "store.duckdb", refit_share=1.0)
        store = Store.open(settings.store)
        lineup = Lineup("here/boot-1")
        alive.append(Living(store, lineup, Upkeep(store, lineup, settings)))
        return alive[0]

    yield open_again
    stop()


@pytest.fixture
def living(revive: Callable[[], Living]) -> Living:
    """The service in this process."""
    return revive()


@contextmanager
def starting() -> Iterator[Callable[..., Served]]:
    """Start `phasecast serve` on a store, with further options; all servers end with the block."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(store: Path, *options: str) -> Served:
        command = [sys.executable, "-m", "service.cli.main", "serve", "--store", str(store), "--port", "0", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        processes.append(process)
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert " at http" in line, f"the server said {line!r} and ended with {process.poll()}"
        return Served(line.rsplit(" at ", 1)[1].strip(), store, process)

    yield start
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(timeout=20)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture(scope="module")
def start_server() -> Iterator[Callable[..., Served]]:
    """Start `phasecast serve`; servers end with the file of tests, so that none costs those that come after it."""
    with starting() as start:
        yield start


@pytest.fixture(scope="session")
def start_lasting_server() -> Iterator[Callable[..., Served]]:
    """Start `phasecast serve` for tests in several files."""
    with starting() as start:
        yield start


@pytest.fixture(scope="session")
def served(start_lasting_server: Callable[[Path], Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """One server for all tests that only talk to it."""
    return start_lasting_server(tmp_path_factory.mktemp("served") / "store.duckdb")


@pytest.fixture(scope="session")
def asked(served: Served) -> Iterator[httpx.Client]:
    """The client of a server that knows nothing; leave it so."""
    with http_client(served.url, timeout_s=30) as http:
        yield http


@pytest.fixture(scope="session")
def answering(start_lasting_server: Callable[[Path], Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server that has learned from 80 synthetic attempts."""
    served = start_lasting_server(tmp_path_factory.mktemp("answering") / "store.duckdb")
    with http_client(served.url, timeout_s=30) as http:
        made = runs(80, seed=7)
        attempts = [run.attempt.model_dump(exclude_none=True) for run in made]
        events = [event.model_dump(exclude_none=True) for run in made for event in run.events]
        commit = Client(http).ingest(attempts, events)["commit"]
        until(lambda: (told := Client(http).ready())["ready"] and told["learned_to"] >= commit)
    return served


@pytest.fixture(scope="module")
def watched(start_server: Callable[[Path], Served], tmp_path_factory: pytest.TempPathFactory) -> Served:
    """A server with work that ended, answers with outcomes, running attempts and a measured host; one per file of tests."""
    store = tmp_path_factory.mktemp("watched") / "store.duckdb"
    measured(store)
    served = start_server(store)
    feed(served.url)
    return served


@pytest.fixture(scope="session")
def http(answering: Served) -> Iterator[httpx.Client]:
    """The client of a server that answers."""
    with http_client(answering.url, timeout_s=30) as client:
        yield client
