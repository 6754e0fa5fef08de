"""Which token a call takes, and whether the one that was sent is good for it."""

from __future__ import annotations

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
SCHEME = b"bearer "


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
    """The token of a request as it came, None where there is none; NoToken where Authorization holds something else."""
    for name, value in headers:
        if name == b"authorization":
            if value[: len(SCHEME)].lower() != SCHEME:
                raise NoToken("Authorization", "something that is no bearer token", ANOTHER)
            return value[len(SCHEME) :].strip()
    return None


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
