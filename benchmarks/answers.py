"""One `predict` or `residual` over HTTP beside a FastAPI `response_model` no-op with the same models in the same server.

Calls alternate over kept connections, so that whatever disturbs the machine disturbs both.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson

from benchmarks.asked import LEVELS, call, question, shares, started, taught
from benchmarks.measured import Figure, figure, quantile

ROUNDS, CALLS, WARM = 3, 1_000, 100
KNOWN, CLIENTS = 2_000, (1, 8)


def run() -> list[Figure]:
    """Ratios of the median and of the 99 % quantile, for contexts that were seen, and for ones never asked before."""
    with TemporaryDirectory() as folder, started("-m", "benchmarks.noop", str(Path(folder) / "s.duckdb")) as netloc:
        return _figures(netloc)


def _figures(netloc: str) -> list[Figure]:
    """Teach the server, then compare each kind of question."""
    line = http.client.HTTPConnection(netloc)
    contexts = taught(line, KNOWN)
    seen = [question(c) for c in contexts]
    aged = [{"running": [{"context": c, "phase": "service", "elapsed_s": 0.1}], "levels": LEVELS} for c in contexts]
    call(line, "PUT", "/noop/kept", call(line, "POST", "/v1/predict", orjson.dumps(seen[0])))
    found = []
    for clients in CLIENTS:
        n = ROUNDS * CALLS // len(contexts) + 1
        fresh = [question({**c, "model": f"never-{clients}-{i}"}) for i, c in enumerate(contexts * n)]
        kinds: tuple[tuple[str, str, list[dict[str, Any]], str, str], ...] = (
            ("predict, known contexts", "predict", seen, "1.5", "2"),
            ("predict, contexts never asked", "predict", fresh, "5", "5"),
            ("residual, known contexts", "residual", aged, "1.5", "2"),
        )
        for what, path, asked, reach, reach_99 in kinds:
            found += _compared(
                netloc, clients, (f"{what}, {clients} clients" if clients > 1 else what), path, asked, reach, reach_99
            )
    return found


def _compared(
    netloc: str, clients: int, what: str, path: str, asked: Sequence[dict[str, Any]], reach: str, reach_99: str
) -> list[Figure]:
    """Both ratios of one kind of question."""
    medians, tails = [], []
    for round_ in range(ROUNDS):
        bodies = [orjson.dumps(asked[(round_ * CALLS + i) % len(asked)]) for i in range(CALLS)]
        own, plain = _alternate(netloc, clients, path, bodies)
        medians.append(quantile(own, 0.5) / quantile(plain, 0.5))
        tails.append(quantile(own, 0.99) / quantile(plain, 0.99))
    return [
        figure(f"answers: {what} / no-op, median of {CALLS}", medians, "x", reach),
        figure(f"answers: {what} / no-op, 99 %", tails, "x", reach_99),
    ]


def _alternate(netloc: str, clients: int, path: str, bodies: list[bytes]) -> tuple[list[float], list[float]]:
    """Times in s of calls and of no-ops, in turn, of all clients together."""

    def client(share: Sequence[bytes]) -> tuple[list[float], list[float]]:
        line = http.client.HTTPConnection(netloc)
        own, plain = list[float](), list[float]()
        warm = WARM // clients
        for body in [*share[-warm:], *share]:
            for times, where in ((own, f"/v1/{path}"), (plain, f"/noop/{path}")):
                began_s = time.perf_counter()
                call(line, "POST", where, body)
                times.append(time.perf_counter() - began_s)
        line.close()
        return own[warm:], plain[warm:]

    with ThreadPoolExecutor(clients) as pool:
        told = list(pool.map(client, shares(bodies, clients)))
    return [took for own, _ in told for took in own], [took for _, plain in told for took in plain]
