"""What passes between the owner and its workers comes out as it went in, and a worker tells when it can't be relied upon."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.contexts import Context
from service.http.forward import Forward
from service.http.worker import create_app
from service.lineup import Lineup, RunningAttempt
from service.schemas import ReadyOut
from service.settings import Settings
from service.sightings import RunningPhase
from service.upkeep import Upkeep
from service.workers import follow
from service.workers.crew import Orders, command, orders_of
from service.workers.follow import AskOwner, Followed, Following
from service.workers.follower import Follower
from service.workers.frames import Frame, Kind, encoded, read
from service.workers.records import (
    attempt_of,
    attempt_record,
    row_records,
    rows_of,
    table_bytes,
    table_of,
    token_records,
    tokens_of,
)
from telemetry.ledger import Prediction
from telemetry.store.file import Store
from telemetry.tokens import minted
from tests.service.living import until

ready = ReadyOut(
    ready=True,
    model_id="m",
    phases=["service"],
    last_commit=9,
    learned_to=9,
    ledger_pending=0,
    trouble=None,
    share_calibrated=0.5,
    opened={},
)
ROW = Prediction.model_construct(
    prediction_id="p-1",
    attempt_id=None,
    phase="service",
    made_ns=1_800_000_000_000_000_001,
    context="{}",
    quantiles_s=[0.1, 1 / 3, 2.0**-1074],
)
numbers = st.floats(allow_nan=False, allow_infinity=False)


@pytest.fixture
def line() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The two ends of a worker's line: the owner's, and its own."""
    owners, its = socket.socketpair()
    yield owners, its
    owners.close()
    its.close()


@pytest.fixture
def following(line: tuple[socket.socket, socket.socket]) -> Iterator[Following]:
    """A worker's side, followed until the test is over."""
    found = Following(line[1], Followed("here/boot-1"), lambda: None)
    found.start()
    yield found
    found.stop()


def beat(line: tuple[socket.socket, socket.socket], commit: int | None) -> None:
    told = {"commit": commit, "answers_as": "m", "ready": ready.model_dump_json()}
    line[0].sendall(encoded(Frame(Kind.BEAT, told)))


@settings(max_examples=50)
@given(told=st.dictionaries(st.text(), numbers | st.text() | st.none()), body=st.binary(max_size=100_000))
def test_a_frame_arrives_as_it_was_sent(told: dict[str, Any], body: bytes) -> None:
    owners, its = socket.socketpair()
    with owners, its:
        owners.sendall(encoded(Frame(Kind.CHANGES, told, body)) * 2)
        owners.close()
        assert [Frame(Kind.CHANGES, told, body)] * 2 + [None] == [read(its), read(its), read(its)]


def test_a_line_that_breaks_amid_a_frame_is_the_end(line: tuple[socket.socket, socket.socket]) -> None:
    line[0].sendall(encoded(Frame(Kind.MODEL, None, b"12345"))[:-1])
    line[0].close()
    assert read(line[1]) is None


@given(batch=numbers, seen_s=numbers)
def test_a_running_attempt_comes_out_of_its_record_to_the_bit(batch: float, seen_s: float) -> None:
    attempt = RunningAttempt(Context(host="h", batch=batch), {"setup": RunningPhase("c", 2**62, seen_s)})
    assert attempt == attempt_of(json.loads(json.dumps(attempt_record(attempt))))


def test_ledger_rows_tokens_and_tables_come_out_of_their_records(line: tuple[socket.socket, socket.socket]) -> None:
    _, token = minted("name", ["query"], 1)
    table = pa.table({"duration_s": pa.array([1 / 3, None]), "phase": ["a", "b"]})
    line[0].sendall(encoded(Frame(Kind.GIVEN, [row_records([ROW]), token_records({token.token_id: token})], table_bytes(table))))
    found = read(line[1])
    assert found is not None
    [row] = rows_of(found.told[0])
    assert ROW.__dict__ == row.__dict__
    assert {token.token_id: token} == tokens_of(found.told[1])
    assert table.equals(table_of(found.body))


def test_orders_survive_the_command_line() -> None:
    orders = Orders(3, 4, "x y/owner.socket", "it's.duckdb", "::1", require_token=True, rate_per_s=None, log_format="json")
    assert orders == orders_of(command(orders)[-1])


def test_a_worker_that_follows_is_ready_as_the_owner_is(following: Following, line: tuple[socket.socket, socket.socket]) -> None:
    beat(line, None)
    following.await_first_word()
    assert ready == following.readiness()


def test_a_worker_that_is_behind_says_so(
    following: Following, line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "BEHIND_S", 0.05)
    beat(line, 12)
    following.await_first_word()
    until(lambda: not following.readiness().ready)
    assert "behind: this process answers as of commit None, the owner as of 12" == following.readiness().trouble
    beat(line, None)
    until(lambda: following.readiness().ready)


def test_a_worker_that_hears_nothing_says_so(
    following: Following, line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    beat(line, None)
    following.await_first_word()
    monkeypatch.setattr(follow, "SILENT_S", 0.0)
    assert "nothing heard for" in (following.readiness().trouble or "")
    assert not following.readiness().ready


def test_answers_are_handed_over_before_the_owner_goes_on(
    following: Following, line: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "FLUSH_S", 1.0)
    came = list[Frame]()
    follower = Follower(line[0], came.append)
    try:
        until(lambda: follower.met)
        following.lineup.ledger.append(ROW)
        follower.ask_gather(1)
        assert follower.has_gathered(1, time.monotonic() + 10.0)
        assert ["p-1"] == [row.prediction_id for frame in came for row in rows_of(frame.told["rows"])]  # type: ignore[union-attr]
    finally:
        follower.join(1.0)


def test_a_worker_that_has_gone_is_not_waited_for(line: tuple[socket.socket, socket.socket]) -> None:
    follower = Follower(line[0], lambda _frame: None)
    line[1].close()
    assert follower.has_gathered(1, time.monotonic() + 10.0)
    assert not follower.alive
    follower.join(1.0)


def test_what_a_worker_has_not_heard_of_is_the_owners_to_answer() -> None:
    lineup = Followed("here/boot-1")
    lineup.running = {"a": RunningAttempt(Context(host="h"), {"setup": RunningPhase(None, None, 0.5)})}
    assert 0.5 == lineup.running_question("a", "setup", None).elapsed_s
    for attempt_id, phase in (("b", "setup"), ("a", "service")):
        with pytest.raises(AskOwner):
            lineup.running_question(attempt_id, phase, None)


def test_an_owner_out_of_reach_is_told_as_a_fault_of_the_moment(following: Following, tmp_path: Path) -> None:
    told = asked_of(create_app(Settings(store=tmp_path / "s"), following, Forward(str(tmp_path / "nobody"))))("GET", "/v1/hosts")
    assert (503, "server") == (told.status_code, told.json()["field"])
    assert "again" in told.json()["fix"]


def asked_of(app: Any) -> Callable[..., httpx.Response]:
    """Function that calls an app in this process."""

    def call(method: str, path: str, **sent: Any) -> httpx.Response:
        async def within() -> httpx.Response:
            async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1") as http:
                return await http.request(method, path, **sent)

        return asyncio.run(within())

    return call


@pytest.mark.parametrize(("workers", "nicer"), [(0, 0), (1, 5)])
def test_rounds_give_way_to_answers_of_other_processes(tmp_path: Path, workers: int, nicer: int) -> None:
    asked = Settings(store=tmp_path / "store.duckdb", workers=workers)
    with Store.open(asked.store) as store:
        upkeep, own = Upkeep(store, Lineup("here/boot-1"), asked), os.getpriority(os.PRIO_PROCESS, 0)
        upkeep.start()
        rounds = next(thread for thread in threading.enumerate() if thread.name == "phasecast-upkeep")
        assert rounds.native_id is not None
        until(lambda: own + nicer == os.getpriority(os.PRIO_PROCESS, rounds.native_id or 0), 5.0)
        upkeep.stop()
