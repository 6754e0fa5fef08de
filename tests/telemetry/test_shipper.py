from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import BadField
from telemetry.recorder.marks import Recorder
from telemetry.recorder.shipper import REFUSED, Shipper
from telemetry.recorder.spool import SHIPPED, segments

FLUSH_S = 20.0


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + FLUSH_S
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Api:
    """A real HTTP server which answers as the API does; `status` and `judge` decide what it says."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.refusals = 0
        self.status: Callable[[dict[str, Any]], int] = lambda body: 200
        self.judge: Callable[[str], str] = lambda item_id: "new"
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                status = api.status(body) if self.path == "/v1/events" else 404
                reply = api.accept(body) if status == 200 else api.refuse()
                self.send_response(status)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *args: object) -> None: ...

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    def accept(self, body: dict[str, Any]) -> bytes:
        self.bodies.append(body)
        reply: dict[str, Any] = {"commit": len(self.bodies)}
        for name, key in (("attempts", "attempt_id"), ("events", "event_id")):
            judged = [(item[key], self.judge(item[key])) for item in body[name]]
            reply[name] = [{"id": i, "result": r, "problem": None if r == "new" else "why"} for i, r in judged]
        return json.dumps(reply).encode()

    def refuse(self) -> bytes:
        self.refusals += 1
        return b'{"title":"no"}'

    def received(self, name: str) -> list[dict[str, Any]]:
        return [item for body in self.bodies for item in body[name]]

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def api() -> Iterator[Api]:
    running = Api()
    yield running
    running.close()


@pytest.fixture
def ship(tmp_path: Path, api: Api) -> Iterator[Callable[[], Shipper]]:
    """Start shippers of the test's spool; they are stopped at the end."""
    started: list[Shipper] = []

    def start() -> Shipper:
        started.append(Shipper(tmp_path, api.url, poll_s=0.01, timeout_s=5).start())
        return started[-1]

    yield start
    for shipper in started:
        shipper.stop()


def test_attempts_and_events_arrive_once_and_in_order(tmp_path: Path, api: Api, ship: Callable[[], Shipper]) -> None:
    shipper = ship()
    attempt = Recorder(tmp_path).attempt(attempt_id="a", host="gpu-7")
    for step in range(50):
        attempt.mark("iteration_finish", tokens=step)
    assert shipper.flush(FLUSH_S)
    assert [{"attempt_id": "a", "host": "gpu-7"}] == api.received("attempts")
    assert list(range(50)) == [event["tokens"] for event in api.received("events")]
    assert (51, 0, 0) == (shipper.sent, shipper.refused, shipper.torn)


def test_requests_hold_at_most_a_thousand_records_with_attempts_first(
    tmp_path: Path, api: Api, ship: Callable[[], Shipper]
) -> None:
    recorder = Recorder(tmp_path)
    for number in range(800):
        recorder.attempt(attempt_id=str(number)).mark("enqueue")
    assert ship().flush(FLUSH_S)
    assert [1000, 600] == [len(body["attempts"]) + len(body["events"]) for body in api.bodies]
    known: set[str] = set()
    for body in api.bodies:
        known |= {attempt["attempt_id"] for attempt in body["attempts"]}
        assert {event["attempt_id"] for event in body["events"]} <= known


def test_acknowledged_records_are_not_sent_again_by_the_next_shipper(
    tmp_path: Path, api: Api, ship: Callable[[], Shipper]
) -> None:
    attempt = Recorder(tmp_path).attempt()
    first = ship()
    attempt.mark("enqueue")
    assert first.flush(FLUSH_S)
    first.stop()
    attempt.mark("eligible")
    assert ship().flush(FLUSH_S)
    assert ["enqueue", "eligible"] == [event["kind"] for event in api.received("events")]


def test_what_one_process_had_shipped_is_remembered_while_others_go_on(
    tmp_path: Path, api: Api, ship: Callable[[], Shipper]
) -> None:
    one, other = Recorder(tmp_path).attempt(), Recorder(tmp_path).attempt()
    shipper = ship()
    for attempt in (one, other, one):
        attempt.mark("enqueue")
        assert shipper.flush(FLUSH_S)
    assert 3 == len(api.received("events"))


@pytest.mark.parametrize("status", [503, 507, 500, 429, 404])
def test_passing_trouble_is_waited_out(tmp_path: Path, api: Api, ship: Callable[[], Shipper], status: int) -> None:
    api.status = lambda body: status if api.refusals < 2 else 200
    Recorder(tmp_path).attempt().mark("enqueue")
    assert ship().flush(FLUSH_S)
    assert (2, 1) == (api.refusals, len(api.received("events")))


def test_nothing_is_lost_while_there_is_no_api(tmp_path: Path, api: Api) -> None:
    api.close()
    Recorder(tmp_path).attempt().mark("enqueue")
    shipper = Shipper(tmp_path, api.url, poll_s=0.01).start()
    assert not shipper.flush(0.3)
    shipper.stop()
    assert (1, False) == (len(segments(tmp_path)), (tmp_path / SHIPPED).exists())


@pytest.mark.parametrize("result", ["conflict", "refused"])
def test_record_the_api_does_not_take_is_kept_aside_and_not_sent_again(
    tmp_path: Path, api: Api, ship: Callable[[], Shipper], result: str
) -> None:
    api.judge = lambda item_id: result if item_id == "bad" else "repeat"
    recorder = Recorder(tmp_path)
    recorder.attempt(attempt_id="bad")
    recorder.attempt(attempt_id="good")
    shipper = ship()
    assert shipper.flush(FLUSH_S)
    kept = [json.loads(line) for line in (tmp_path / REFUSED).read_text().splitlines()]
    assert [{"result": result, "problem": "why", "attempt": {"attempt_id": "bad"}}] == kept
    assert (1, 2) == (shipper.refused, len(api.received("attempts")))


@pytest.mark.parametrize("status", [409, 413, 422])
def test_one_bad_record_does_not_hold_up_the_rest(tmp_path: Path, api: Api, ship: Callable[[], Shipper], status: int) -> None:
    api.status = lambda body: status if any(event.get("tokens") == 13 for event in body["events"]) else 200
    attempt = Recorder(tmp_path).attempt()
    for step in range(40):
        attempt.mark("iteration_finish", tokens=step)
    shipper = ship()
    assert shipper.flush(FLUSH_S)
    assert set(range(40)) - {13} == {event["tokens"] for event in api.received("events")}
    kept = [json.loads(line) for line in (tmp_path / REFUSED).read_text().splitlines()]
    assert [(13, f'HTTP {status}: {{"title": "no"}}')] == [(line["event"]["tokens"], line["problem"]) for line in kept]


def test_file_of_refused_records_is_bounded_but_all_are_counted(tmp_path: Path, api: Api) -> None:
    api.judge = lambda item_id: "refused"
    recorder = Recorder(tmp_path)
    for _ in range(50):
        recorder.attempt()
    shipper = Shipper(tmp_path, api.url, poll_s=0.01, refused_max_bytes=1_000).start()
    assert shipper.flush(FLUSH_S)
    shipper.stop()
    assert 50 == shipper.refused
    assert 0 < (tmp_path / REFUSED).stat().st_size <= 1_000


def test_reply_that_does_not_answer_every_record_is_no_acknowledgement(
    tmp_path: Path, api: Api, ship: Callable[[], Shipper]
) -> None:
    whole = api.accept
    api.accept = lambda body: whole(body) if api.bodies else (whole(body), b'{"attempts": [], "events": []}')[1]  # type: ignore[method-assign]
    Recorder(tmp_path).attempt().mark("enqueue")
    assert ship().flush(FLUSH_S)
    assert 2 == len(api.received("events"))


WORKER = """
import os, signal, sys
from telemetry.recorder.marks import Recorder
attempt = Recorder(sys.argv[1]).attempt(attempt_id="a")
attempt.mark("compute_start")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_spool_of_a_killed_process_is_shipped_by_another_and_cleared(
    tmp_path: Path, api: Api, ship: Callable[[], Shipper]
) -> None:
    worker = subprocess.run([sys.executable, "-c", WORKER, str(tmp_path)], check=False)
    assert -signal.SIGKILL == worker.returncode
    with segments(tmp_path)[0].open("ab") as segment:
        segment.write(b'{"event":{"torn')
    shipper = ship()
    assert shipper.flush(FLUSH_S)
    shipper.stop()
    assert (["a"], ["compute_start"]) == (
        [attempt["attempt_id"] for attempt in api.received("attempts")],
        [event["kind"] for event in api.received("events")],
    )
    assert 1 == shipper.torn


def test_segments_left_behind_go_once_shipped(tmp_path: Path, api: Api, ship: Callable[[], Shipper]) -> None:
    recorder = Recorder(tmp_path)
    recorder.attempt().mark("enqueue")
    shipper = ship()
    assert shipper.flush(FLUSH_S)
    assert 1 == len(segments(tmp_path))
    recorder.close()
    until(lambda: not segments(tmp_path) and json.loads((tmp_path / SHIPPED).read_text()) == {})


def test_second_shipper_waits_for_the_first(tmp_path: Path, api: Api) -> None:
    Recorder(tmp_path).attempt().mark("enqueue")
    command = [sys.executable, "-m", "telemetry.recorder.shipper", str(tmp_path), api.url]
    api.status = lambda body: 503
    with subprocess.Popen(command, stderr=subprocess.PIPE) as first:
        until(lambda: api.refusals > 0)
        second = Shipper(tmp_path, api.url, poll_s=0.01).start()
        assert not second.flush(0.2)
        assert second._connection is None
        first.send_signal(signal.SIGTERM)
        assert first.stderr is not None
        assert b"spool kept" in first.stderr.read()
    assert 0 == first.returncode
    api.status = lambda body: 200
    assert second.flush(FLUSH_S)
    second.stop()
    assert 1 == len(api.received("events"))


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://host", "http://"])
def test_address_that_is_none_is_refused_at_once(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadField, match="address of the API"):
        Shipper(tmp_path, url)


def test_command_without_folder_and_address_says_how_to_call_it() -> None:
    done = subprocess.run([sys.executable, "-m", "telemetry.recorder.shipper"], check=False, capture_output=True, text=True)
    assert (1, "usage: python -m telemetry.recorder.shipper DIR URL\n") == (done.returncode, done.stderr)
