"""create_app: store, upkeep and routes put together; and the server that runs it."""

from __future__ import annotations

import contextlib
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import FrameType

import uvicorn
from fastapi import FastAPI

from service.http import problems
from service.http.front import Front
from service.http.metrics import Metrics
from service.http.openapi import tell_scopes
from service.http.owner import behind_workers, serve_behind_workers
from service.http.routes import (
    answers,
    calibrations,
    decisions,
    events,
    forecasts,
    grants,
    health,
    hosts,
    overview,
    page,
    plans,
    reports,
    shadow,
    tokens,
    traces,
)
from service.http.running import Running
from service.http.serving import configured, quicken
from service.lineup import Lineup
from service.measuring import Calibrations
from service.sampling import Sampling
from service.settings import Settings, is_loopback
from service.upkeep import Upkeep
from telemetry.errors import BadField
from telemetry.recorder.ids import clock_id
from telemetry.sampler import Sampler
from telemetry.store.file import Store
from telemetry.store.lock import held_by, holder
from telemetry.tables import Token
from telemetry.tokens import Keyring, in_force, standing


def create_app(settings: Settings, store: Store) -> FastAPI:
    """The API over an open store. Upkeep starts and ends with the app; whoever opened the store closes it."""
    lineup = Lineup(clock_id())

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        upkeep = Upkeep(store, lineup, settings)
        sampling = Sampling(store, Sampler(settings.sample_host), settings.sample_s) if settings.sample_s > 0 else None
        upkeep.start()
        if sampling is not None:
            sampling.start()
        try:
            yield
        finally:
            if sampling is not None:
                sampling.stop()
            measuring.close()
            upkeep.stop()

    metrics, keyring, measuring = Metrics(store, lineup), Keyring(store), Calibrations(store)
    app = FastAPI(
        title="Phasecast", version="0.1.0", lifespan=lifespan, docs_url=None, redoc_url=None, responses=problems.DOCUMENTED
    )
    app.state.running = Running(
        store=store, lineup=lineup, settings=settings, metrics=metrics, keyring=keyring, calibrations=measuring
    )
    app.add_middleware(Front, settings=settings, keyring=keyring, counts=metrics)
    problems.install(app)
    for part in (
        answers,
        plans,
        events,
        traces,
        health,
        hosts,
        grants,
        calibrations,
        overview,
        reports,
        tokens,
        page,
        decisions,
        shadow,
        forecasts,
    ):
        app.include_router(part.router)
    tell_scopes(app)
    return app


def serve(settings: Settings, told: Callable[[str], None]) -> None:
    """Serve until SIGTERM or SIGINT; `told` is given the address once it is known (port 0 picks a free one).

    Raises StoreHeld or BadField before anything is started, and SystemExit(0) once a signal has ended it in order.
    """
    if owner := holder(settings.store):  # Asked first: a second server on the usual port should hear whose store it is.
        raise held_by(settings.store, owner)
    if not settings.store.exists():
        _need_token(settings, ())  # so that no store is made for nothing
    with contextlib.closing(_listen(settings.host, settings.port)) as listening:
        port = listening.getsockname()[1]
        url = f"http://{'[::1]' if ':' in settings.host else settings.host}:{port}"
        store = Store.open(settings.store, url=url)
        quicken()
        try:
            with store.reader() as reader:
                _need_token(settings, standing(reader).values())
            health.sweep_copies(settings.store)
            for asked_to_end in (signal.SIGTERM, signal.SIGINT):
                signal.signal(asked_to_end, _end)
            told(url)
            if settings.workers:
                serve_behind_workers(create_app(behind_workers(settings), store), settings, listening)
            else:
                uvicorn.Server(configured(create_app(settings, store))).run(sockets=[listening])
        finally:
            store.close()


def _need_token(settings: Settings, found: Iterable[Token]) -> None:
    """Refuse to serve where every call needs a token and none of those found is in force."""
    if not settings.token_required or any(in_force(token, time.time_ns()) for token in found):
        return
    make_one = f"make one with `phasecast token add NAME --scope query --store {settings.store}`"
    if is_loopback(settings.host):
        raise BadField("--require-token", "no token in force", f"every call would be refused; {make_one}")
    raise BadField("host", settings.host, f"calls from elsewhere need a token; {make_one}, or keep to --host 127.0.0.1")


def _end(_signal: int, _frame: FrameType | None) -> None:
    """Unwind, so that the store is closed: uvicorn raises its signal again when it is done, and the default would kill."""
    sys.exit(0)


def _listen(host: str, port: int) -> socket.socket:
    """A listening socket, so that the port is known, and shown in the store's lock file, before anything answers on it."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(found[0], socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(found[4])
    except OSError as error:
        listening.close()
        raise BadField("port", port, f"{error.strerror}; choose another with --port, or 0 for any free one") from error
    listening.listen()
    return listening
