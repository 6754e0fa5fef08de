"""Which token a call takes, and whether the one that was sent is good for it."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping

from telemetry.errors import NoToken
from telemetry.tables import Token
from telemetry.tokens import ANOTHER, checked
from telemetry.words import Scope

OPEN = "/healthz"
"""The one path that takes no token: whatever starts and watches the process has none."""
INGEST = ("/v1/events", "/v1/traces", "/v1/decisions", "/v1/shadow/forecasts")
ADMIN = ("/v1/snapshot", "/v1/tokens", "/v1/grants", "/v1/calibrations")
QUESTIONS = ("/v1/predict", "/v1/residual", "/v1/chance", "/v1/latest-start", "/v1/scenarios", "/v1/forecasts")
CHALLENGE = 'Bearer, Basic realm="Phasecast", charset="UTF-8"'
"""What a 401 tells: programs send a bearer token, a browser asks for it as a password."""


def scope_of(method: str, path: str) -> Scope:
    """The scope a call takes. What is not listed may be read with `query`; to change it takes `admin`."""
    if _within(path, ADMIN):
        return Scope.ADMIN
    if method == "POST" and _within(path, INGEST):
        return Scope.INGEST
    asks = method in {"GET", "HEAD", "OPTIONS"} or (method == "POST" and _within(path, QUESTIONS))
    return Scope.QUERY if asks else Scope.ADMIN


def _within(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place + "/") for place in places)


def sent(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """The token of a request as it came, None where there is none.

    Programs send it as a bearer token; a browser asks its user for it, as the password of Basic, and then sends it by itself, so
    that a page of another site must not profit from it. Raises NoToken for that, and for anything else in Authorization.
    """
    found = {name: value for name, value in headers if name in {b"authorization", b"origin", b"host"}}
    value = found.get(b"authorization")
    if value is None:
        return None
    scheme, _, given = value.partition(b" ")
    if scheme.lower() == b"bearer":
        return given.strip()
    if scheme.lower() != b"basic":
        raise NoToken("Authorization", "neither a bearer token nor Basic", ANOTHER)
    origin = found.get(b"origin")
    if origin is not None and origin.partition(b"://")[2] != found.get(b"host"):
        raise NoToken("Origin", origin.decode("latin-1"), "a page of another site may not use a token that the browser keeps")
    try:
        return base64.b64decode(given.strip(), validate=True).partition(b":")[2]
    except ValueError as error:
        raise NoToken("Authorization", "Basic that is not base64", ANOTHER) from error


def admitted(
    known: Mapping[str, Token],
    call: tuple[str, str],
    headers: Iterable[tuple[bytes, bytes]],
    now_ns: int,
    *,
    required: bool,
) -> Token | None:
    """The token that a call (method, path) comes with; None where it has none and none is required.

    One that is sent is checked even where none is required: a caller whose token has ended should hear of it everywhere.
    Raises NoToken, WrongScope.
    """
    method, path = call
    if path == OPEN:
        return None
    given = sent(headers)
    if given is not None:
        return checked(known, given, scope_of(method, path), now_ns)
    if required:
        raise NoToken("Authorization", "nothing", ANOTHER)
    return None
