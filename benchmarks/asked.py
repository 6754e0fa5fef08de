"""A server taught attempts of known law, and calls of it over kept connections."""

from __future__ import annotations

import http.client
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import orjson

from predictors.contexts import Context
from predictors.synthetic import runs

LEVELS = [0.5, 0.9, 0.95, 0.99]
PART = 500
SETTLE_S = 2.0
"""A refit that teaching has set off."""


@contextmanager
def started(*command: str) -> Iterator[str]:
    """A server of this command of Python's, which prints its address; the address as host:port."""
    with subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True) as process:  # noqa: S603  our own command
        try:
            assert process.stdout is not None
            yield urlsplit(process.stdout.readline().rsplit("at ", 1)[1].strip()).netloc
        finally:
            process.terminate()


def call(line: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None) -> bytes:
    """One call that has to succeed; its answer."""
    line.request(method, path, body, {"content-type": "application/json"})
    answer = line.getresponse()
    told = answer.read()
    assert answer.status == 200, told
    return told


def question(context: dict[str, Any]) -> dict[str, Any]:
    """How long service takes in a context."""
    return {"contexts": [context], "phases": ["service"], "levels": LEVELS}


def taught(line: http.client.HTTPConnection, known: int) -> list[dict[str, Any]]:
    """Send so many attempts and wait until all is learned; their distinct contexts."""
    made = runs(known, seed=1)
    for place in range(0, known, PART):
        part = made[place : place + PART]
        attempts = [run.attempt.model_dump(exclude_none=True) for run in part]
        events = [event.model_dump(exclude_none=True) for run in part for event in run.events]
        told = orjson.loads(call(line, "POST", "/v1/events", orjson.dumps({"attempts": attempts, "events": events})))
    wait_until_learned(line, told["commit"])
    time.sleep(SETTLE_S)
    contexts = {orjson.dumps(Context.of(run.attempt.model_dump()).known()) for run in made}
    return [orjson.loads(context) for context in sorted(contexts)]


def wait_until_learned(line: http.client.HTTPConnection, commit: int, patience_s: float = 120.0) -> None:
    """Wait until answers know of a commit."""
    until = time.monotonic() + patience_s
    while True:
        line.request("GET", "/readyz")
        ready = orjson.loads(line.getresponse().read())
        if ready["ready"] and ready["learned_to"] >= commit:
            return
        assert time.monotonic() < until, ready
        time.sleep(0.2)


def shares(items: Sequence[bytes], parts: int) -> list[Sequence[bytes]]:
    """The items dealt out."""
    return [items[place::parts] for place in range(parts)]
