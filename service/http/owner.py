"""The server of the process that owns the store where other processes answer: reached by them alone, over a socket file."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from socket import socket
from tempfile import TemporaryDirectory
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.http.routes.health import readiness
from service.http.running import Running
from service.http.serving import GRACE_S, configured
from service.settings import Settings
from service.workers.crew import Crew, Orders
from service.workers.follow import taken
from service.workers.frames import Frame
from service.workers.publish import Publisher


class OwnerServer(uvicorn.Server):
    """A server that starts its workers once it can be asked, and ends after them: they may need it to finish what they are at."""

    def __init__(self, config: uvicorn.Config, begin: Callable[[], None], end: Callable[[], None]) -> None:
        super().__init__(config)
        self._begin, self._end = begin, end
        self._ending: threading.Thread | None = None

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start, then begin."""
        await super().startup(sockets)
        self._begin()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End the workers first, on a thread, as this one serves them meanwhile; a second signal waits for nothing."""
        if self._ending is not None:
            super().handle_exit(sig, frame)
            return
        self._ending = threading.Thread(target=self._end_in_order, name="phasecast-ending")
        self._ending.start()

    def _end_in_order(self) -> None:
        try:
            self._end()
        finally:
            self.should_exit = True


def behind_workers(settings: Settings) -> Settings:
    """Settings of an owner: its workers have counted the requests of each caller already."""
    return replace(settings, rate_per_s=0.0)


def serve_behind_workers(app: FastAPI, settings: Settings, listening: socket) -> None:
    """Serve until a signal: `settings.workers` processes answer on `listening`, `app` what they pass on."""
    at: Running = app.state.running
    with TemporaryDirectory(prefix="phasecast-") as folder:  # for this user alone
        owner_socket = str(Path(folder) / "owner.socket")
        publisher = Publisher(at.store, at.lineup, at.keyring, lambda: readiness(at).model_dump_json())
        crew = Crew(settings.workers, _orders(settings, listening, owner_socket), publisher, lambda frame: _take(at, frame))
        at.metrics.watch_workers(lambda: crew.alive, lambda: crew.restarts)
        at.lineup.gather = publisher.gather

        def begin() -> None:
            publisher.start()
            crew.start()

        def end() -> None:
            crew.stop(GRACE_S + 2.0)

        try:
            OwnerServer(configured(app, uds=owner_socket, forwarded_allow_ips="*"), begin, end).run()
        finally:
            end()
            publisher.stop()


def _orders(settings: Settings, listening: socket, owner_socket: str) -> Callable[[int], Orders]:
    def told(line_fd: int) -> Orders:
        return Orders(
            listening_fd=listening.fileno(),
            line_fd=line_fd,
            owner_socket=owner_socket,
            store=str(settings.store),
            host=settings.host,
            require_token=settings.require_token,
            rate_per_s=settings.rate_per_s,
            log_format=settings.log_format,
        )

    return told


def _take(at: Running, frame: Frame) -> None:
    """Take up what a worker has answered: ledger rows as if they were answered here, and counts."""
    rows, counts = taken(frame)
    at.lineup.ledger.extend(rows)
    for kind, *told in counts:
        if kind == "request":
            at.metrics.counted(*told)
        else:
            at.metrics.answered(*told)
