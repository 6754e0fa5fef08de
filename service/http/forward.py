"""Passing a request on to the process that owns the store, over the socket file in its private folder, and its answer back."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
from fastapi import Request
from fastapi.responses import Response, StreamingResponse
from starlette.background import BackgroundTask
from starlette.types import Receive, Scope, Send

from service.http.front import PASSED_ON
from service.http.limits import body_of
from service.http.running import answering
from service.http.tracing import request_id
from telemetry.errors import Busy

CONNECT_S = 5.0
OF_THE_LINE = frozenset({b"connection", b"keep-alive", b"transfer-encoding", b"te", b"trailer", b"upgrade"})
"""Headers that belong to one connection (RFC 9110, 7.6.1)."""
OURS_IN = OF_THE_LINE | {b"content-length", b"x-request-id", b"x-forwarded-for", b"x-forwarded-proto", b"expect"}
OURS_OUT = OF_THE_LINE | {b"date", b"server", b"x-request-id"}


class Forward:
    """The owner's API, as an ASGI app: whatever is asked of this one is asked of it, under the same request id and token."""

    def __init__(self, owner_socket: str) -> None:
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=20)
        self._owner = httpx.AsyncClient(
            transport=httpx.AsyncHTTPTransport(uds=owner_socket, limits=limits),
            timeout=httpx.Timeout(None, connect=CONNECT_S),  # it is on this machine: it answers, or its socket closes
            trust_env=False,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on a request whose body nobody has read."""
        request = Request(scope, receive)
        body = await body_of(request, answering(request).settings.body_limit_bytes)
        await (await self.answer(request, body))(scope, receive, send)

    async def answer(self, request: Request, body: bytes) -> Response:
        """The owner's answer to a request with this body; Busy where the owner can't be reached."""
        scope = request.scope
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        headers = [(name, value) for name, value in scope["headers"] if name not in OURS_IN]
        headers += [(b"x-request-id", request_id().encode("ascii")), (b"x-forwarded-for", _peer(scope))]
        url = httpx.URL("http://owner").copy_with(raw_path=scope.get("raw_path", scope["path"].encode()) + query)
        asked = self._owner.build_request(request.method, url, headers=headers, content=body)
        try:
            told = await self._owner.send(asked, stream=True)
        except httpx.TransportError as error:
            gone = f"{type(error).__name__}: the process that owns the store does not answer"
            raise Busy("server", gone, "send the same again in a second") from error
        scope[PASSED_ON] = True
        answer = StreamingResponse(_raw(told), told.status_code, background=BackgroundTask(told.aclose))
        answer.raw_headers = [(name.lower(), value) for name, value in told.headers.raw if name.lower() not in OURS_OUT]
        return answer

    async def close(self) -> None:
        """Close the connections to the owner."""
        await self._owner.aclose()


async def _raw(told: httpx.Response) -> AsyncIterator[bytes]:
    async for chunk in told.aiter_raw():
        yield chunk


def _peer(scope: Scope) -> bytes:
    """Address of who asks, which the owner counts and logs by."""
    client = scope.get("client")
    return client[0].encode("ascii") if client else b"unknown"
