"""Eight clients alone, and while 5,000 events a second arrive and fits run: p99 of `predict`, and of a no-op elsewhere.

Each client asks the API and the no-op in turn over connections it keeps. Clients, and the sender of events, are processes apart
from the servers: `python -m benchmarks.contended ROLE ...` runs one. Once with one process that does everything, and once where
another process answers.
"""

from __future__ import annotations

import http.client
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from benchmarks.asked import call, question, started, taught
from benchmarks.measured import Figure, figure, quantile
from benchmarks.sent import EVENTS, batches

KNOWN, CLIENTS, EVENTS_PER_S, SECONDS, MADE_AT_ONCE = 2_000, 8, 5_000, 60.0, 20
WAYS = {"one process": (), "1 worker": ("--workers", "1")}


def run(seconds: float = SECONDS) -> list[Figure]:
    """Figures of each way to serve."""
    found = []
    for way, options in WAYS.items():
        with TemporaryDirectory() as folder:
            server = ("-m", "service.cli.main", "serve", "--port", "0", "--store", str(Path(folder) / "s.duckdb"), *options)
            noop = ("-m", "benchmarks.noop", str(Path(folder) / "noop.duckdb"))
            with started(*server) as api, started(*noop) as plain:
                found += _figures(way, api, plain, seconds)
    return found


def _figures(way: str, api: str, plain: str, seconds: float) -> list[Figure]:
    """Teach, then measure alone and loaded."""
    line = http.client.HTTPConnection(api)
    questions = [question(context) for context in taught(line, KNOWN)]
    kept = call(line, "POST", "/v1/predict", orjson.dumps(questions[0]))
    call(http.client.HTTPConnection(plain), "PUT", "/noop/kept", kept)
    asked = orjson.dumps(questions).decode()
    _ask(api, plain, seconds / 10, asked)  # the first questions of each context
    alone = _ask(api, plain, seconds, asked)
    before = _fits(api)
    with subprocess.Popen(_role("send", api, str(seconds)), stdout=subprocess.PIPE) as sender:  # noqa: S603  our own command
        loaded = _ask(api, plain, seconds, asked)
        assert sender.stdout is not None
        sent = orjson.loads(sender.stdout.read())
    fits = _fits(api) - before
    light, heavy = ({name: quantile(one[name], 0.99) * 1e3 for name in ("own", "plain")} for one in (alone, loaded))
    title = f"contended, {way}"
    return [
        figure(f"{title}: predict p99, loaded / alone", [heavy["own"] / light["own"]], "x", "3"),
        figure(f"{title}: predict p99 alone", [light["own"]], "ms"),
        figure(f"{title}: predict p99 loaded", [heavy["own"]], "ms"),
        figure(f"{title}: no-op p99 alone", [light["plain"]], "ms"),
        figure(f"{title}: no-op p99 loaded", [heavy["plain"]], "ms"),
        figure(f"{title}: questions answered loaded", [len(loaded["own"]) / seconds], "1/s"),
        figure(f"{title}: errors", [alone["errors"] + loaded["errors"] + sent["errors"]], "", "0"),
        figure(f"{title}: events taken in", [sent["events"] / sent["took_s"]], "1/s", "5,000"),
        figure(f"{title}: fits that ended meanwhile", [fits], "", "at least 1"),
    ]


def _role(*told: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.contended", *told]


def _ask(api: str, plain: str, seconds: float, asked: str) -> dict[str, Any]:
    """Times of the clients' questions, from a process of their own."""
    command = _role("ask", api, plain, str(seconds))
    done = subprocess.run(command, input=asked, capture_output=True, check=True, text=True)  # noqa: S603  our own command
    found: dict[str, Any] = orjson.loads(done.stdout)
    return found


def _fits(api: str) -> float:
    """Fits that the API has made."""
    line = http.client.HTTPConnection(api)
    found = re.search(rb"^phasecast_fits_total (\S+)$", call(line, "GET", "/metrics"), re.MULTILINE)
    line.close()
    return float(found[1]) if found else 0.0


def ask(api: str, plain: str, seconds: float, bodies: Sequence[bytes]) -> dict[str, Any]:
    """Ask with all clients at once; times in s, and how many answers were none."""
    until_s = time.perf_counter() + seconds

    def client(place: int) -> tuple[list[float], list[float], int]:
        own, other = http.client.HTTPConnection(api), http.client.HTTPConnection(plain)
        times: tuple[list[float], list[float]] = ([], [])
        errors = 0
        while time.perf_counter() < until_s:
            body = bodies[place % len(bodies)]
            place += CLIENTS
            for kept, line, path in ((times[0], own, "/v1/predict"), (times[1], other, "/noop/predict")):
                began_s = time.perf_counter()
                try:
                    call(line, "POST", path, body)
                except (AssertionError, OSError, http.client.HTTPException):
                    errors += 1
                    line.close()
                kept.append(time.perf_counter() - began_s)
        return *times, errors

    with ThreadPoolExecutor(CLIENTS) as pool:
        told = list(pool.map(client, range(CLIENTS)))
    return {
        "own": [took for own, _, _ in told for took in own],
        "plain": [took for _, other, _ in told for took in other],
        "errors": sum(errors for _, _, errors in told),
    }


def send(api: str, seconds: float) -> dict[str, float]:
    """Send batches at an even rate; how many events were new, and in what time."""
    line, began_s, n, errors = http.client.HTTPConnection(api), time.perf_counter(), 0, 0
    made = batches(MADE_AT_ONCE)
    while (due_s := n * EVENTS / EVENTS_PER_S) < seconds:
        made = made or batches(MADE_AT_ONCE)
        time.sleep(max(0.0, began_s + due_s - time.perf_counter()))
        told = orjson.loads(call(line, "POST", "/v1/events", made.pop().body))
        errors += sum(item["result"] != "new" for item in told["events"])
        n += 1
    line.close()
    return {"events": n * EVENTS, "errors": errors, "took_s": max(seconds, time.perf_counter() - began_s)}


def main(role: str, api: str, *told: str) -> None:
    """Play one of the processes beside the servers."""
    if role == "send":
        found: dict[str, Any] = send(api, float(told[0]))
    else:
        found = ask(api, told[0], float(told[1]), [orjson.dumps(one) for one in orjson.loads(sys.stdin.read())])
    sys.stdout.write(orjson.dumps(found).decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
