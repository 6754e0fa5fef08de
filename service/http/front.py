"""The door of the API: every request is named, let in or refused, counted and logged here, in one layer of plain ASGI.

Also an error nobody foresaw is answered here, so that its answer carries the same headers as every other.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http import problems
from service.http.auth import CHALLENGE, OPEN, admitted
from service.http.limits import foreign
from service.http.logs import REQUESTS
from service.http.metrics import Counts
from service.http.rates import Rates
from service.http.tracing import NOW, Named, named
from service.settings import Settings
from telemetry.errors import NoToken, TooMany, WrongScope
from telemetry.tables import Token

log = logging.getLogger(__name__)
requests = logging.getLogger(REQUESTS)
PASSED_ON = "phasecast.passed_on"
"""Set in the scope of a request that another process answers."""
LEFT = 499
"""Stands in counts and log for a caller that left before its request was whole."""
SECURITY = {
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"cache-control": b"no-store",
}
"""Added to every answer that does not say otherwise itself, as the page does."""


class Known(Protocol):
    """Who knows the tokens."""

    @property
    def known(self) -> Mapping[str, Token]:
        """All there are, by id."""


@dataclass(slots=True)
class _Seen:
    """What is known of a request in the end."""

    named: Named
    began_s: float
    token: Token | None = None
    status: int = 0


class Front:
    """Lets requests pass to the app. `keyring` knows the tokens; `counts` counts what is answered by this process."""

    def __init__(self, app: ASGIApp, settings: Settings, keyring: Known, counts: Counts) -> None:
        self._app, self._keyring, self._counts = app, keyring, counts
        self._token_required = settings.token_required
        self._rates = Rates(settings.requests_per_s)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; anything but HTTP passes untouched."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        seen = _Seen(named(scope["headers"]), time.perf_counter())
        NOW.set(seen.named)
        answer = _with_headers(send, seen)
        try:
            await self._let_in(seen, scope, receive, answer)
        except ClientDisconnect:
            seen.status = seen.status or LEFT
        except Exception as error:
            log.exception("unexpected error in %s", scope["path"])
            if seen.status == 0:
                await problems.of_fault(error)(scope, receive, answer)
        self._account(seen, scope)

    async def _let_in(self, seen: _Seen, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        # Where every call shows a token, a page from elsewhere has none to show, whatever name it comes under.
        refusal = None if self._token_required else foreign(Headers(scope=scope))
        if refusal is None:
            try:
                self._admit(seen, scope)
            except (NoToken, WrongScope) as error:
                refusal = problems.of_error(error)
                if isinstance(error, NoToken):
                    refusal.headers["WWW-Authenticate"] = CHALLENGE
            except TooMany as error:
                refusal = problems.of_error(error)
                refusal.headers["Retry-After"] = str(error.got)
        await (refusal or self._app)(scope, receive, send)

    def _admit(self, seen: _Seen, scope: Scope) -> None:
        """Check token and rate. Whoever sends no good token is held to the rate of its address, so that nobody tries many."""
        error = None
        try:
            call = (scope["method"], scope["path"])
            seen.token = admitted(self._keyring.known, call, scope["headers"], time.time_ns(), required=self._token_required)
        except (NoToken, WrongScope) as refused:
            error = refused
        caller = seen.token.token_id if seen.token is not None else f"@{_peer(scope)}"
        if scope["path"] != OPEN and (wait_s := self._rates.wait_s(caller, time.monotonic())) > 0.0:
            raise TooMany(
                "requests", math.ceil(wait_s), "send fewer requests with more questions each, or go on after Retry-After s"
            )
        if error is not None:
            raise error

    def _account(self, seen: _Seen, scope: Scope) -> None:
        """Count the request, and log it where that is wanted."""
        if scope.get(PASSED_ON):
            return
        took_s = time.perf_counter() - seen.began_s
        route = getattr(scope.get("route"), "path", "unmatched")
        self._counts.counted(scope["method"] if route != "unmatched" else "any", route, seen.status, took_s)
        if requests.isEnabledFor(logging.INFO):
            facts = {
                "method": scope["method"],
                "path": scope["path"],
                "status": seen.status,
                "duration_s": round(took_s, 6),
                "peer": _peer(scope),
                "token_id": seen.token.token_id if seen.token is not None else None,
            }
            requests.info("request", extra={"facts": facts})


def _peer(scope: Scope) -> str:
    """Address a request comes from."""
    return scope["client"][0] if scope.get("client") else "unknown"


def _with_headers(send: Send, seen: _Seen) -> Send:
    """`send` with the request's id and what browsers should keep to in the answer's head; notes its status."""
    own = (b"x-request-id", seen.named.request_id.encode("ascii"))

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            seen.status = message["status"]
            given = list(message.get("headers", ()))
            said = {name.lower() for name, _ in given}
            message["headers"] = [*given, own, *(item for item in SECURITY.items() if item[0] not in said)]
        await send(message)

    return sending
