"""Shipper: posts what any process spooled, also one long dead, to `POST {url}/v1/events` until the API has committed it.

Runs as a daemon thread beside the work, or alone: `python -m telemetry.recorder.shipper DIR URL`, which shows the API the
token in $PHASECAST_TOKEN. What was acknowledged is remembered by byte offset; after a crash some records go twice, which the
API recognises by their ids.
One shipper works on a folder at a time; another one waits its turn.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from telemetry.errors import BadField
from telemetry.recorder.spool import SHIPPED, is_written, replace_json, segments, shipped, sizes_bytes

BATCH_RECORDS = 1_000
BATCH_BYTES = 4 * 2**20
REFUSED, SHIPPER_LOCK = "refused.jsonl", "shipper.lock"
_BACK_OFF_S, _LONGEST_BACK_OFF_S = 0.1, 30.0
# What the address, the load or the network may explain: the records are fine, so they are kept and sent again.
_PASSING = frozenset({401, 403, 404, 408, 425, 429})
_log = logging.getLogger(__name__)


@dataclass
class Batch:
    """Records read from the spool for one request, and how far each segment is done once they are acknowledged."""

    attempts: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    offsets: dict[str, int] = field(default_factory=dict)
    size_bytes: int = 0
    torn: int = 0

    @property
    def records(self) -> int:
        """Attempts and events (count)."""
        return len(self.attempts) + len(self.events)

    @property
    def full(self) -> bool:
        """Whether the request has reached a limit."""
        return self.records >= BATCH_RECORDS or self.size_bytes >= BATCH_BYTES


class Shipper:
    """Ships a spool folder in the background. Counters are of this process: sent, refused, torn (records).

    folder: the spool. url: base of the API, http or https. poll_s: wait between looks at an idle spool.
    refused_max_bytes: bound on refused.jsonl, where records the API will not take are kept for a person to look at.
    token: of scope `ingest`, where the API wants one.
    """

    def __init__(
        self,
        folder: str | Path,
        url: str,
        poll_s: float = 0.2,
        timeout_s: float = 30.0,
        refused_max_bytes: int = 2**20,
        token: str | None = None,
    ) -> None:
        self.folder = Path(folder)
        self.url = url
        self.poll_s = poll_s
        self.sent = self.refused = self.torn = 0
        self._timeout_s = timeout_s
        self._refused_max_bytes = refused_max_bytes
        self._headers = {"Content-Type": "application/json"} | ({} if token is None else {"Authorization": f"Bearer {token}"})
        self._connection: http.client.HTTPConnection | None = None
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        _connect(url, timeout_s)  # a wrong address is told to the caller, not to a log

    def start(self) -> Shipper:
        """Begin to ship from a daemon thread."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._thread = threading.Thread(target=self.run, name="phasecast-shipper", daemon=True)
        self._thread.start()
        return self

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything spooled before this call is acknowledged; False if that took longer than timeout_s."""
        wanted = {path.name: size_bytes for path, size_bytes in sizes_bytes(self.folder).items()}
        deadline = time.monotonic() + timeout_s
        while not self._acknowledged(wanted):
            if time.monotonic() >= deadline:
                return False
            self._wake.set()
            time.sleep(min(0.02, timeout_s))
        return True

    def stop(self) -> None:
        """End the thread after the request under way; what is not acknowledged stays in the spool."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def run(self) -> None:
        """Ship until stopped; what `start` runs in its thread."""
        lock = os.open(self.folder / SHIPPER_LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            while not self._locked(lock):
                if self._stopped.wait(self.poll_s):
                    return
            self._ship_until_stopped()
        finally:
            if self._connection is not None:
                self._connection.close()
            os.close(lock)

    def _ship_until_stopped(self) -> None:
        failures = 0
        while not self._stopped.is_set():
            try:
                progress = self._ship_once()
                failures = 0
            except (OSError, http.client.HTTPException, ValueError) as error:
                failures += 1
                self._disconnect()
                longest_s = min(_LONGEST_BACK_OFF_S, _BACK_OFF_S * 2 ** min(failures, 20))
                _log.log(
                    logging.WARNING if failures == 1 else logging.DEBUG, "spool kept, %s does not take it: %s", self.url, error
                )
                self._stopped.wait(random.uniform(longest_s / 2, longest_s))
                continue
            if not progress:
                self._wake.wait(self.poll_s)
                self._wake.clear()

    def _ship_once(self) -> bool:
        """Send one batch and note what was acknowledged. Raises what speaks for trying again later."""
        done = shipped(self.folder)
        batch = read_batch(self.folder, done)
        if not batch.offsets:
            return _sweep(self.folder, done)
        if batch.records:
            self._send(batch.attempts, batch.events)
        self.sent += batch.records
        self.torn += batch.torn
        replace_json(self.folder / SHIPPED, done | batch.offsets)
        return True

    def _send(self, attempts: list[dict[str, Any]], events: list[dict[str, Any]]) -> None:
        """Post records; where the API finds fault with the request as a whole, halve it until the fault is alone."""
        status, reply = self._post({"attempts": attempts, "events": events})
        if status < 300:
            self._sort_out("attempt", attempts, reply["attempts"])
            self._sort_out("event", events, reply["events"])
        elif 400 <= status < 500 and status not in _PASSING:
            self._halve(attempts, events, f"HTTP {status}: {json.dumps(reply)[:500]}")
        else:
            raise http.client.HTTPException(f"HTTP {status}")

    def _halve(self, attempts: list[dict[str, Any]], events: list[dict[str, Any]], problem: str) -> None:
        """Send both halves of a refused request; a single record is set aside."""
        if len(attempts) + len(events) == 1:
            kind: Literal["attempt", "event"] = "attempt" if attempts else "event"
            self._set_aside(kind, (attempts or events)[0], "refused", problem)
        elif attempts and events:
            self._send(attempts, [])
            self._send([], events)
        else:
            half = max(len(attempts), len(events)) // 2
            self._send(attempts[:half], events[:half])
            self._send(attempts[half:], events[half:])

    def _sort_out(self, kind: Literal["attempt", "event"], records: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
        """Set aside what the API did not take; `new` and `repeat` are both done. Raises ValueError if a result is missing."""
        for record, result in zip(records, results, strict=True):
            if result["result"] in {"conflict", "refused"}:
                self._set_aside(kind, record, result["result"], result.get("problem"))

    def _set_aside(self, kind: Literal["attempt", "event"], record: dict[str, Any], result: str, problem: object) -> None:
        """Count a record that will not be sent again, and keep it in refused.jsonl while there is room."""
        self.refused += 1
        _log.warning("%s %s: %s: %s", kind, record.get(f"{kind}_id"), result, problem)
        path = self.folder / REFUSED
        line = json.dumps({"result": result, "problem": problem, kind: record}) + "\n"
        if not path.exists() or path.stat().st_size + len(line) <= self._refused_max_bytes:
            with path.open("a") as kept:
                kept.write(line)

    def _post(self, body: dict[str, Any]) -> tuple[int, Any]:
        """Status and decoded JSON of the reply; a reply that is no JSON reads as None."""
        try:
            response = self._ask(body)
        except (BrokenPipeError, ConnectionResetError, http.client.RemoteDisconnected):
            # An idle connection that the server has closed tells nothing of the server: a fresh one does.
            self._disconnect()
            response = self._ask(body)
        text = response.read()
        if response.status < 300:
            return response.status, json.loads(text)
        with contextlib.suppress(ValueError):
            return response.status, json.loads(text)
        return response.status, None

    def _ask(self, body: dict[str, Any]) -> http.client.HTTPResponse:
        """Send a request on the open connection, or on a new one."""
        if self._connection is None:
            self._connection = _connect(self.url, self._timeout_s)
        path = urlsplit(self.url).path.rstrip("/") + "/v1/events"
        self._connection.request("POST", path, json.dumps(body).encode(), self._headers)
        return self._connection.getresponse()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _acknowledged(self, wanted: dict[str, int]) -> bool:
        """Whether the given segments are acknowledged to the given sizes, or gone since they were."""
        done = shipped(self.folder)
        return all(done.get(name, 0) >= size or not (self.folder / name).exists() for name, size in wanted.items())

    @staticmethod
    def _locked(lock: int) -> bool:
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # not flock, which a forked worker would keep after our end
        except (BlockingIOError, PermissionError):
            return False
        return True


def read_batch(folder: Path, done: dict[str, int]) -> Batch:
    """The next records past the acknowledged offsets, oldest segment first.

    Lines that are not whole are skipped and counted as torn; the tail of a segment still written is left for later.
    """
    batch = Batch()
    for path in segments(folder):
        # Asked before reading: a writer that dies in between only makes us leave its tail for the next look.
        closed = not is_written(path)
        with contextlib.suppress(FileNotFoundError), path.open("rb") as lines:
            offset = lines.seek(done.get(path.name, 0))
            while not batch.full and (line := lines.readline()):
                if not line.endswith(b"\n") and not closed:
                    break
                offset += len(line)
                _take(line, batch)
                batch.offsets[path.name] = offset
        if batch.full:
            break
    return batch


def _take(line: bytes, batch: Batch) -> None:
    """Put one line into the batch."""
    try:
        ((kind, record),) = json.loads(line).items()
        {"attempt": batch.attempts, "event": batch.events}[kind].append(record)
        batch.size_bytes += len(line)
    except (ValueError, KeyError, AttributeError):
        batch.torn += 1


def _sweep(folder: Path, done: dict[str, int]) -> bool:
    """Delete segments that are acknowledged whole and no longer written, and forget those gone; always False: no progress."""
    for path in segments(folder):
        with contextlib.suppress(FileNotFoundError):  # dropped for lack of room meanwhile
            if not is_written(path) and done.get(path.name, 0) >= path.stat().st_size:
                path.unlink()
    left = {path.name for path in segments(folder)}
    if not done.keys() <= left:
        replace_json(folder / SHIPPED, {name: offset for name, offset in done.items() if name in left})
    return False


def _connect(url: str, timeout_s: float) -> http.client.HTTPConnection:
    """A connection to the API, opened at the first request. Raises BadField for anything but http(s)://host[:port]."""
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise BadField("url", url, "give the address of the API, such as http://127.0.0.1:8080")
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout_s)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout_s)


def main() -> None:
    """Ship DIR to URL until interrupted or terminated."""
    if len(sys.argv) != 3:
        sys.exit("usage: python -m telemetry.recorder.shipper DIR URL")
    logging.basicConfig(level=logging.INFO)
    shipper = Shipper(sys.argv[1], sys.argv[2], token=os.environ.get("PHASECAST_TOKEN")).start()
    done = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: done.set())
    done.wait()
    shipper.stop()


if __name__ == "__main__":
    main()
