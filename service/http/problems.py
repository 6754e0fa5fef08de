"""Errors as problem documents (RFC 9457): each names the field, what was got and the remedy; none shows a stack trace."""

from __future__ import annotations

import re
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from service.schemas import Problem
from telemetry import errors

STATUS: dict[type[errors.PhasecastError], int] = {
    errors.BadField: 422,
    errors.UnknownId: 404,
    errors.Conflict: 409,
    errors.TooLarge: 413,
    errors.NotGranted: 403,
    errors.NoGrant: 403,
    errors.NotInForce: 403,
    errors.OtherHost: 403,
    errors.ProbeNotNamed: 403,
    errors.CeilingTooSmall: 403,
    errors.NoEvidence: 409,
    errors.Busy: 503,
    errors.NotReached: 502,
    errors.NoToken: 401,
    errors.WrongScope: 403,
    errors.TooMany: 429,
    errors.TooSlow: 408,
    errors.StoreError: 500,
    errors.StoreHeld: 423,
    errors.NewerStore: 500,
    errors.DamagedStore: 500,
    errors.DiskFull: 507,
}
MEDIA_TYPE = "application/problem+json"
REFUSALS = {
    401: "A token is needed, or the one sent is not known",
    403: "The token is not for this call, or the call comes from a page of another site",
    404: "What was asked for by name is not there",
    408: "The body did not arrive in time",
    409: "Nothing known to answer from",
    413: "Too large",
    421: "Sent under a name that is not this machine's",
    422: "A field is wrong",
    429: "Too many requests; Retry-After says in how many seconds to go on",
    500: "A fault of the service; its log has the details",
    503: "Too much is waiting; send the same again in a second",
    507: "The disk is full; questions are answered on",
}
DOCUMENTED: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    for status, text in REFUSALS.items()
}
"""Refusals that any call may get, for the API's description."""
GOT_LIMIT = 200
MOST_FAULTS = 20_000
"""Past so many faults (count) a body is not read out fault by fault: that would cost more than the body itself."""


def problem(status: int, name: str, field: str, got: object, fix: str) -> Response:
    """A problem document as an answer; `name` in kebab case ends its type."""
    return Response(_document(status, name, field, got, fix).model_dump_json(), status, media_type=MEDIA_TYPE)


def document_of(error: errors.PhasecastError) -> Problem:
    """The document of one of our errors."""
    kebab = re.sub(r"(?<!^)(?=[A-Z])", "-", type(error).__name__).lower()
    return _document(STATUS[type(error)], kebab, error.field, error.got, error.fix)


def of_error(error: errors.PhasecastError) -> Response:
    """The answer that tells one of our errors."""
    document = document_of(error)
    return Response(document.model_dump_json(), document.status, media_type=MEDIA_TYPE)


def _document(status: int, name: str, field: str, got: object, fix: str) -> Problem:
    text = got if isinstance(got, str) else repr(got)
    return Problem(
        type=f"urn:phasecast:problem:{name}",
        title=name.replace("-", " "),
        status=status,
        detail=f"{field}: {fix}",
        field=field,
        got=text[:GOT_LIMIT],
        fix=fix,
    )


def of_validation(error: ValidationError) -> Response:
    """The first thing wrong with a request body, and how many more there are."""
    count = error.error_count()
    if count > MOST_FAULTS:
        return problem(422, "bad-field", "body", f"{count} faults", "send one item alone to learn what is wrong with all of them")
    first = error.errors(include_url=False, include_context=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "json_invalid":
        return problem(422, "bad-field", "body", message, "send one JSON object in UTF-8")
    field = ".".join(str(part) for part in first["loc"]) or "body"
    more = f" ({count - 1} more)" if count > 1 else ""
    got = "missing" if first["type"] == "missing" else _shown(first["input"])
    return problem(422, "bad-field", field, got, message + more)


def _shown(value: object) -> str:
    """What was sent; of much of it, only how much: a million items would be written out for two hundred letters."""
    if isinstance(value, list | dict) and len(value) > GOT_LIMIT:
        return f"a {type(value).__name__} of {len(value)}"
    return str(value)


def of_fault(error: Exception) -> Response:
    """The document of an error nobody foresaw: its trace stays in the log."""
    return problem(500, "internal-error", "server", type(error).__name__, "the server's log has the details; please report it")


def install(app: FastAPI) -> None:
    """Answer every error that a request can cause with a problem document."""

    @app.exception_handler(errors.PhasecastError)
    async def _ours(_request: Request, error: errors.PhasecastError) -> Response:
        return of_error(error)

    @app.exception_handler(ValidationError)
    async def _body(_request: Request, error: ValidationError) -> Response:
        return of_validation(error)

    @app.exception_handler(RequestValidationError)
    async def _query(_request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        place = [str(part) for part in first["loc"] if part != "query"]
        return problem(422, "bad-field", ".".join(place) or "query", str(first["input"]), first["msg"])

    @app.exception_handler(HTTPException)
    async def _http(request: Request, error: HTTPException) -> Response:
        name = {404: "unknown-path", 405: "method-not-allowed"}.get(error.status_code, "refused")
        return problem(error.status_code, name, "path", request.url.path, "GET /openapi.json lists the calls")
