"""Events per second into the store: over HTTP and in process, beside a raw Arrow insert of the same batches into the same table.

The raw insert commits each batch by itself, from Arrow tables made before the clock starts: no validation, no ids compared, no
answer. It gets a file of its own per round, as the others do, so that each meets a table of the same size.

Over HTTP the clock stops when the last batch is acknowledged, which is when it is on disk. The server learns meanwhile, except
where it says that learning is paused; but learning gives way to taking in and ends later. `until learned` counts to its end.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

import orjson
import pyarrow as pa

from benchmarks.measured import Figure, figure, seconds
from benchmarks.sent import ATTEMPTS, EVENTS, Sent, batches
from telemetry import ingest
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.opening import connect
from telemetry.tables import Event

ROUNDS, BATCHES = 5, 40
LEARNING = ("-m", "service.cli.main", "serve", "--port", "0", "--store")
PAUSED = ("-m", "benchmarks.paused")
ENDED_PHASES = 7
"""Of the attempts sent, each (count): queue, owner_wait, setup, service, drain, release, completion."""


def run() -> list[Figure]:
    """Events/s of each way in every round, then each round's ratio to the raw insert."""
    ways: dict[str, Callable[[Path, list[Sent]], float]] = {
        "raw Arrow insert": raw,
        "Store.write": in_process,
        "read, Store.write and reply": prepared,
        "HTTP, 1 connection": lambda folder, sent: over_http(folder, sent, 1),
        "HTTP, 1 connection, learning paused": lambda folder, sent: over_http(folder, sent, 1, PAUSED),
        "HTTP, 8 connections": lambda folder, sent: over_http(folder, sent, 8),
        "HTTP, 8 connections, learning paused": lambda folder, sent: over_http(folder, sent, 8, PAUSED),
        "HTTP, 8 connections, until learned": lambda folder, sent: until_learned(folder, sent, 8),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            sent = batches(BATCHES)
            with TemporaryDirectory() as folder:
                rates[name].append(EVENTS * len(sent) / way(Path(folder), sent))
    reaches = dict.fromkeys(("HTTP, 1 connection", "HTTP, 8 connections"), "50,000")
    found = [figure(f"ingest: {name}", values, "events/s", reaches.get(name, "")) for name, values in rates.items()]
    plain = rates.pop("raw Arrow insert")
    for name, values in rates.items():
        ratios = [own / other for own, other in zip(values, plain, strict=True)]
        found.append(figure(f"ingest: {name} / raw", ratios, "x", "0.5" if name == "Store.write" else ""))
    return found


def raw(folder: Path, sent: Sequence[Sent]) -> float:
    """Wall time in s of plain inserts, one transaction per batch."""
    names = list(Event.model_fields)
    tables = [pa.table(list(zip(*(tuple(row.model_dump().values()) for row in one.rows), strict=True)), names) for one in sent]
    columns = ", ".join(names)
    with connect(folder / "raw.duckdb") as connection:
        for statement in Event.ddl():
            connection.execute(statement)

        def insert() -> None:
            for number, incoming in enumerate(tables, start=1):  # the engine finds the table by the variable's name  # noqa: B007
                sql = f"INSERT INTO events ({columns}, known_from) SELECT {columns}, {number} FROM incoming"  # noqa: S608
                connection.execute(sql)

        return seconds(insert)


def in_process(folder: Path, sent: Sequence[Sent]) -> float:
    """Wall time in s of writing rows that are made already."""
    with Store.open(folder / "s.duckdb") as store:
        return seconds(lambda: [store.write(Batch(one.rows)) for one in sent])


def prepared(folder: Path, sent: Sequence[Sent]) -> float:
    """Wall time in s of all that the API does without HTTP: from a body's bytes to a reply's."""

    def take(store: Store, body: bytes) -> bytes:
        given = ingest.read(body)
        return orjson.dumps(ingest.reply(given, store.write(given.batch)))

    with Store.open(folder / "s.duckdb") as store:
        return seconds(lambda: [take(store, one.body) for one in sent])


def over_http(folder: Path, sent: Sequence[Sent], connections: int, server: Sequence[str] = LEARNING) -> float:
    """Wall time in s until the last batch is acknowledged."""
    with served(folder / "s.duckdb", server) as url:
        return seconds(lambda: _post(url, sent, connections))


def until_learned(folder: Path, sent: Sequence[Sent], connections: int) -> float:
    """Wall time in s until all phases that ended in what was sent are observed as ended."""
    ended = ENDED_PHASES * ATTEMPTS * len(sent)

    def post_and_wait() -> None:
        _post(url, sent, connections)
        while _overview(url)["ended"] < ended:
            time.sleep(0.1)

    with served(folder / "s.duckdb", LEARNING) as url:
        return seconds(post_and_wait)


@contextmanager
def served(store: Path, server: Sequence[str] = LEARNING) -> Iterator[str]:
    """A server process; its address."""
    command = [sys.executable, *server, str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  our own command
        try:
            assert process.stdout is not None
            yield process.stdout.readline().rsplit(" at ", 1)[1].strip()
        finally:
            process.terminate()


def _overview(url: str) -> dict[str, int]:
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    connection.request("GET", "/v1/overview")
    with closing(connection):
        return dict(orjson.loads(connection.getresponse().read()))


def _post(url: str, sent: Sequence[Sent], connections: int) -> None:
    """Post batches over so many connections at a time."""
    with ThreadPoolExecutor(connections) as senders:
        shares = [sent[place::connections] for place in range(connections)]
        list(senders.map(lambda share: _post_all(url, share), shares))


def _post_all(url: str, sent: Sequence[Sent]) -> None:
    """Post batches over one connection; every event must be new."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc)
    for one in sent:
        connection.request("POST", "/v1/events", one.body, {"content-type": "application/json"})
        answer = connection.getresponse()
        told = orjson.loads(answer.read())
        assert answer.status == 200, told
        assert all(item["result"] == "new" for item in told["events"])
    connection.close()
