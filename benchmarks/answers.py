"""One `predict` or `residual` over HTTP beside a FastAPI `response_model` no-op with the same models in the same server.

Calls alternate over one kept connection, so that whatever disturbs the machine disturbs both.
"""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import orjson

from benchmarks.measured import Figure, figure, quantile
from predictors.contexts import Context
from predictors.synthetic import runs

ROUNDS, CALLS, WARM = 3, 1_000, 100
KNOWN, LEVELS = 2_000, [0.5, 0.9, 0.95, 0.99]


def run() -> list[Figure]:
    """Ratios of the median and of the 99 % quantile, for contexts that were seen, and for ones never asked before."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.noop", str(Path(folder) / "s.duckdb")]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  our own command
            try:
                assert process.stdout is not None
                netloc = urlsplit(process.stdout.readline().rsplit("at ", 1)[1].strip()).netloc
                return _figures(http.client.HTTPConnection(netloc))
            finally:
                process.terminate()


def _figures(line: http.client.HTTPConnection) -> list[Figure]:
    """Teach the server, then compare each kind of question."""
    contexts = _teach(line)
    seen = [_question(c) for c in contexts]
    fresh = [_question({**c, "model": f"never-{i}"}) for i, c in enumerate(contexts * (ROUNDS * CALLS // len(contexts) + 1))]
    aged = [{"running": [{"context": c, "phase": "service", "elapsed_s": 0.1}], "levels": LEVELS} for c in contexts]
    _call(line, "PUT", "/noop/kept", _call(line, "POST", "/v1/predict", orjson.dumps(seen[0])))
    kinds: tuple[tuple[str, str, list[dict[str, Any]], str, str], ...] = (
        ("predict, known contexts", "predict", seen, "1.5", "2"),
        ("predict, contexts never asked", "predict", fresh, "5", "5"),
        ("residual, known contexts", "residual", aged, "1.5", "2"),
    )
    found = []
    for what, call, asked, reach, reach_99 in kinds:
        medians, tails = [], []
        for round_ in range(ROUNDS):
            bodies = [orjson.dumps(asked[(round_ * CALLS + i) % len(asked)]) for i in range(CALLS)]
            own, plain = _alternate(line, call, bodies)
            medians.append(quantile(own, 0.5) / quantile(plain, 0.5))
            tails.append(quantile(own, 0.99) / quantile(plain, 0.99))
        found += [
            figure(f"answers: {what} / no-op, median of {CALLS}", medians, "x", reach),
            figure(f"answers: {what} / no-op, 99 %", tails, "x", reach_99),
        ]
    return found


def _question(context: dict[str, Any]) -> dict[str, Any]:
    return {"contexts": [context], "phases": ["service"], "levels": LEVELS}


def _alternate(line: http.client.HTTPConnection, call: str, bodies: list[bytes]) -> tuple[list[float], list[float]]:
    """Times in s of calls and of no-ops, in turn, after some that do not count."""
    own, plain = list[float](), list[float]()
    for body in [*bodies[-WARM:], *bodies]:
        for times, path in ((own, f"/v1/{call}"), (plain, f"/noop/{call}")):
            started = time.perf_counter()
            _call(line, "POST", path, body)
            times.append(time.perf_counter() - started)
    return own[WARM:], plain[WARM:]


def _teach(line: http.client.HTTPConnection) -> list[dict[str, Any]]:
    """Send attempts of known law and wait until all is learned; their distinct contexts."""
    made = runs(KNOWN, seed=1)
    for place in range(0, KNOWN, 500):
        part = made[place : place + 500]
        attempts = [run.attempt.model_dump(exclude_none=True) for run in part]
        events = [event.model_dump(exclude_none=True) for run in part for event in run.events]
        told = orjson.loads(_call(line, "POST", "/v1/events", orjson.dumps({"attempts": attempts, "events": events})))
    until = time.monotonic() + 60
    while True:
        line.request("GET", "/readyz")
        ready = orjson.loads(line.getresponse().read())
        if ready["ready"] and ready["learned_to"] >= told["commit"]:
            break
        assert time.monotonic() < until, ready
        time.sleep(0.2)
    time.sleep(2.0)  # a refit that all this has set off
    contexts = {orjson.dumps(Context.of(run.attempt.model_dump()).known()) for run in made}
    return [orjson.loads(context) for context in sorted(contexts)]


def _call(line: http.client.HTTPConnection, method: str, path: str, body: bytes) -> bytes:
    line.request(method, path, body, {"content-type": "application/json"})
    answer = line.getresponse()
    told = answer.read()
    assert answer.status == 200, told
    return told
