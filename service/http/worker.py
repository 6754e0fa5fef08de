"""A process that answers questions and owns nothing: it follows what the owner publishes and passes every other call on to it.

`python -m service.http.worker ORDERS` is how the owner starts it.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.routing import Route

from service.http import problems
from service.http.forward import Forward
from service.http.front import Front
from service.http.logs import configure
from service.http.metrics import Counts
from service.http.routes import answers, plans
from service.http.running import Answering
from service.http.serving import configured, quicken
from service.settings import Settings
from service.workers.crew import Orders, orders_of
from service.workers.follow import AskOwner, Followed, Following
from telemetry.recorder.ids import clock_id

MOST_COUNTS = 100_000
"""Counts kept for the owner where it takes none: the oldest are dropped, as they are when a process dies."""


class CountsForOwner(Counts):
    """Keeps counts until they are handed over: the owner alone shows them, so that they never go down."""

    def __init__(self, counts: deque[list[Any]]) -> None:
        self._counts = counts

    def counted(self, method: str, route: str, status: int, took_s: float) -> None:
        """Count one request."""
        self._counts.append(["request", method, route, status, took_s])

    def answered(self, kind: str, statuses: Iterable[str]) -> None:
        """Count answers to one kind of question by their statuses."""
        self._counts.append(["answers", kind, list(statuses)])


def create_app(settings: Settings, following: Following, owner: Forward) -> FastAPI:
    """The API of a worker: questions here, all else at the owner, as is what this process does not know."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await owner.close()

    app = FastAPI(title="Phasecast", lifespan=lifespan, docs_url=None, redoc_url=None, openapi_url=None)
    counts = CountsForOwner(following.counts)
    app.state.running = Answering(lineup=following.lineup, settings=settings, metrics=counts)
    app.add_middleware(Front, settings=settings, keyring=following, counts=counts)
    problems.install(app)

    @app.exception_handler(AskOwner)
    async def _ask_owner(request: Request, _error: AskOwner) -> Response:
        return await owner.answer(request, request.state.body)

    @app.get("/healthz")
    async def _healthz() -> dict[str, str]:
        return {"status": "alive"}

    @app.get("/readyz")
    async def _readyz() -> Response:
        told = following.readiness()
        return Response(told.model_dump_json(), 200 if told.ready else 503, media_type="application/json")

    app.include_router(answers.router)
    app.include_router(plans.router)
    app.router.routes.append(Route("/{path:path}", owner))
    return app


def main(orders: Orders) -> None:
    """Answer until told to end, or until the owner is gone."""
    configure(orders.log_format)
    quicken()
    line = socket.socket(fileno=orders.line_fd)
    listening = socket.socket(fileno=orders.listening_fd)
    following = Following(line, Followed(clock_id()), lambda: os.kill(os.getpid(), signal.SIGTERM))
    settings = Settings(
        store=Path(orders.store), host=orders.host, require_token=orders.require_token, rate_per_s=orders.rate_per_s
    )
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    following.start()
    try:
        following.await_first_word()
        uvicorn.Server(configured(create_app(settings, following, Forward(orders.owner_socket)))).run(sockets=[listening])
    finally:
        following.stop()


if __name__ == "__main__":
    main(orders_of(sys.argv[1]))
