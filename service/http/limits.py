"""Plain ASGI guards: the body limit counted while streaming, and the Host header of a loopback service."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from service.http.problems import problem
from service.settings import is_loopback
from telemetry.errors import TooLarge


async def body_of(request: Request, limit_bytes: int) -> bytes:
    """The request's body; TooLarge as soon as more than the limit has arrived or been announced."""
    fix = f"send at most {limit_bytes} bytes a request; split the batch"
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit_bytes:
        raise TooLarge("body", f"{announced} bytes", fix)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit_bytes:
            raise TooLarge("body", f"more than {limit_bytes} bytes", fix)
    return bytes(body)


class LoopbackHosts:
    """Refuse requests whose Host is not this machine: a page elsewhere must not reach the API through a name it controls."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on requests to a loopback name, answer others 421."""
        if scope["type"] == "http":
            host = Request(scope).headers.get("host", "")
            name = host[1 : host.index("]")] if host.startswith("[") and "]" in host else host.rsplit(":", 1)[0]
            if not is_loopback(name):
                refusal = problem(421, "foreign-host", "Host", host, "call the API as 127.0.0.1, [::1] or localhost")
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)
