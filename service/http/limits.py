"""Guards of a request: the body limit counted while streaming, and who may speak to a loopback service."""

from __future__ import annotations

import asyncio
import zlib
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from service.http.problems import problem
from service.http.running import answering
from service.settings import is_loopback
from telemetry.errors import BadField, TooLarge, TooSlow

READ_WITHIN_S = 30.0
"""Time a body may take to arrive: one that trickles in holds memory for nobody."""
MOST_VALUES = 1_000_000
"""Commas of a question's JSON: a value that is nothing takes three bytes there, and fifty times as many once it is read."""


async def body_of(request: Request, limit_bytes: int) -> bytes:
    """The request's body.

    TooLarge as soon as more than the limit has arrived or been announced, Busy where all bodies together are too much, TooSlow.
    """
    fix = f"send at most {limit_bytes} bytes a request; split the batch"
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limit_bytes:
        raise TooLarge("body", f"{announced} bytes", fix)
    body, bodies = bytearray(), answering(request).bodies
    try:
        async with asyncio.timeout(READ_WITHIN_S):
            async for chunk in request.stream():
                bodies.hold(len(chunk))
                body += chunk
                if len(body) > limit_bytes:
                    raise TooLarge("body", f"more than {limit_bytes} bytes", fix)
    except TimeoutError as error:
        raise TooSlow("body", f"{len(body)} bytes", f"send it whole within {READ_WITHIN_S:g} s") from error
    finally:
        bodies.held_bytes -= len(body)
    whole = request.state.body = bytes(body)  # kept for a worker that has to pass the request on after all
    return whole


def must_be_readable(body: bytes) -> None:
    """TooLarge where a body holds so many values that reading them would take the memory of others."""
    if (count := body.count(b",")) > MOST_VALUES:
        raise TooLarge("body", f"{count} values", f"send at most {MOST_VALUES} values a request; split the batch")


def unpacked(body: bytes, encoding: str, limit_bytes: int) -> bytes:
    """A body as its Content-Encoding says; BadField for one that is not known or damaged, TooLarge past the limit unpacked."""
    if encoding in {"", "identity"}:
        return body
    if encoding != "gzip":
        raise BadField("Content-Encoding", encoding[:80], "send the body plain or as gzip")
    inflating = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
    try:
        found = inflating.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise BadField("body", f"{len(body)} bytes", f"no gzip ({error}); send it whole, or without Content-Encoding") from error
    if len(found) > limit_bytes:
        raise TooLarge("body", f"more than {limit_bytes} bytes unpacked", "split the batch")
    if not inflating.eof:
        raise BadField("body", f"{len(body)} bytes", "its gzip breaks off; send it whole")
    return found


def foreign(headers: Headers) -> Response | None:
    """The answer to a request that a page from elsewhere makes a browser send to this machine; None where it is its own.

    Such a page reaches this machine either through a name it controls, which Host shows, or across origins, which Origin shows.
    """
    host, origin = headers.get("host", ""), headers.get("origin")
    if not _here(f"//{host}"):
        return problem(421, "foreign-host", "Host", host, "call the API as 127.0.0.1, [::1] or localhost")
    if origin is not None and not _here(origin):
        return problem(403, "foreign-origin", "Origin", origin, "a page of another site may not call the API")
    return None


def _here(url: str) -> bool:
    """Whether a URL names this machine."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False
