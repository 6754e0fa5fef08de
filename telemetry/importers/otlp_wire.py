"""OTLP traces as they travel, JSON or protobuf, to one plain record per span. Nothing is judged here.

JSON is taken with the names of the specification or of protobuf (`resourceSpans`, `resource_spans`), with the older name of
scopes, ids in hex or base64, and 64-bit numbers as text or numbers.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import orjson

from telemetry.errors import BadField

Scalar = str | int | float | bool
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})+")
_ERROR = frozenset({2, "2", "STATUS_CODE_ERROR"})


@dataclass(frozen=True, slots=True)
class Reported:
    """One span as reported. Ids are hex in lower case, empty where there is none; times are as they came, absent or 0 if none.

    `resource` describes who reported it, `marks` are its events: name and time.
    """

    trace_id: str
    span_id: str
    name: str
    start: object
    end: object
    failed: bool
    message: str
    attributes: Mapping[str, Scalar]
    resource: Mapping[str, Scalar]
    marks: tuple[tuple[str, object], ...]


def from_json(raw: bytes) -> list[Reported]:
    """Spans of one JSON document. Raises BadField where it is no JSON, or JSON of something else."""
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadField("body", str(error), "send one JSON object in UTF-8, without NaN or Infinity") from error
    documents = document if isinstance(document, list) else [document]
    return [span for one in documents for span in _of_document(one)]


def from_protobuf(raw: bytes) -> list[Reported]:
    """Spans of one ExportTraceServiceRequest, which TracesData equals on the wire. Raises BadField where it is none."""
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    try:
        request = ExportTraceServiceRequest.FromString(raw)
    except DecodeError as error:
        raise BadField("body", f"{len(raw)} bytes", "send an ExportTraceServiceRequest in protobuf") from error
    return [
        _of_message(span, resource)
        for group in request.resource_spans
        for resource in [_told(group.resource.attributes)]
        for scope in group.scope_spans
        for span in scope.spans
    ]


def _of_document(document: object) -> Iterator[Reported]:
    if not isinstance(document, dict) or _get(document, "resourceSpans") is None:
        raise BadField("resourceSpans", "missing", "send an ExportTraceServiceRequest: an object with resourceSpans")
    for group in _objects(document, "resourceSpans"):
        resource = _scalars(_get(_object(group, "resource"), "attributes"))
        for scopes in ("scopeSpans", "instrumentationLibrarySpans"):
            for scope in _objects(group, scopes):
                for span in _objects(scope, "spans"):
                    yield _of_object(span, resource)


def _of_object(span: Mapping[str, Any], resource: Mapping[str, Scalar]) -> Reported:
    """A span in JSON."""
    status = _object(span, "status")
    code = status.get("code")
    return Reported(
        _hex(_get(span, "traceId"), 16),
        _hex(_get(span, "spanId"), 8),
        str(span.get("name") or ""),
        _get(span, "startTimeUnixNano"),
        _get(span, "endTimeUnixNano"),
        isinstance(code, int | str) and code in _ERROR,
        str(status.get("message") or ""),
        _scalars(span.get("attributes")),
        resource,
        tuple((str(mark.get("name")), _get(mark, "timeUnixNano")) for mark in _objects(span, "events")),
    )


def _of_message(span: Any, resource: Mapping[str, Scalar]) -> Reported:
    """A span in protobuf."""
    return Reported(
        _known(span.trace_id.hex()),
        _known(span.span_id.hex()),
        span.name,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
        span.status.code in _ERROR,
        span.status.message,
        _told(span.attributes),
        resource,
        tuple((mark.name, mark.time_unix_nano) for mark in span.events),
    )


def _told(attributes: Any) -> dict[str, Scalar]:
    """Plain attributes in protobuf; lists and maps are left out."""
    plain = ("string_value", "int_value", "double_value", "bool_value")
    kinds = ((one.key, one.value, one.value.WhichOneof("value")) for one in attributes)
    return {key: getattr(value, kind) for key, value, kind in kinds if kind in plain}


def _scalars(attributes: object) -> dict[str, Scalar]:
    """Plain attributes in JSON; lists and maps are left out."""
    found: dict[str, Scalar] = {}
    for one in attributes if isinstance(attributes, list) else []:
        value = _object(one, "value") if isinstance(one, dict) else {}
        for kind, made in (("stringValue", str), ("intValue", int), ("doubleValue", float), ("boolValue", bool)):
            if isinstance(given := _get(value, kind), Scalar):
                found[str(one.get("key"))] = _plain(made, given)
    return found


def _plain(made: Callable[[Any], Scalar], given: Scalar) -> Scalar:
    """A value as protobuf would have it, also where it came as text; what is none stays as it came, for others to judge."""
    try:
        return made(given)
    except ValueError:
        return given


def _get(found: Mapping[str, Any], name: str) -> Any:
    """A member by its JSON name, else by its protobuf name."""
    return found[name] if name in found else found.get(_snake(name))


@cache
def _snake(name: str) -> str:
    return re.sub("([A-Z])", r"_\1", name).lower()


def _object(found: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = found.get(name)
    return inner if isinstance(inner, dict) else {}


def _objects(found: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """A member's list of objects; what is no object in it counts as an empty one, so that it is refused and not lost."""
    inner = _get(found, name)
    return [one if isinstance(one, dict) else {} for one in inner] if isinstance(inner, list) else []


def _hex(given: object, size_bytes: int) -> str:
    """An id in hex, also where it came in base64, as protobuf's own JSON has it; empty where it is neither or all 0."""
    text = given if isinstance(given, str) else ""
    if len(text) == 2 * size_bytes and _HEX.fullmatch(text):
        return _known(text.lower())
    try:
        raw = base64.b64decode(text, validate=True)
    except ValueError:
        return ""
    return _known(raw.hex()) if len(raw) == size_bytes else ""


def _known(text: str) -> str:
    """An id, or nothing where it is only zeros."""
    return text if text.strip("0") else ""
