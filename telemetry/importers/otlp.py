"""Files of OTLP traces: JSON as one document or one a line, protobuf as one message or several, each after its size; or packed.

A file is what a collector's file exporter writes, or the body of a request to /v1/traces. Times are ns since 1970. Spans
without an end are running: known to last until the newest time that their reporter gave in the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers.cells import far_apart, reason
from telemetry.importers.contract import Found, Importer, Options, Refused
from telemetry.importers.otlp_rows import Taken, last_seen_ns, taken
from telemetry.importers.otlp_wire import Reported, from_json, from_protobuf
from telemetry.importers.texts import raw

MOST_BYTES = 512 * 2**20
_SPANS = re.compile(rb'"(?:resourceSpans|resource_spans)"\s*:\s*\[')
_SIZE_BYTES = 4
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def recognises(_path: Path, head: bytes) -> bool:
    """Whether it is JSON with resourceSpans, or protobuf built like a request that holds spans."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith((b"{", b"[")):
        return _SPANS.search(text) is not None
    return _built_like_spans(head[_SIZE_BYTES:] if head.startswith(b"\0") else head)


def read(path: Path, options: Options) -> Found:
    """Rows of all spans. Raises BadField where it holds no OTLP traces at all, TooLarge past MOST_BYTES unpacked."""
    spans: list[tuple[int | None, Reported]] = []
    data, broken = raw(path, MOST_BYTES)
    refused = [*broken]
    for piece in _pieces(data):
        if isinstance(piece, Refused):
            refused.append(piece)
        else:
            spans.append(piece)
    n_broken = len(refused)
    until_ns = last_seen_ns([span for _, span in spans], options)
    done: list[Taken] = []
    for line, span in spans:
        try:
            done.append(taken(span, options, until_ns))
        except (BadField, ValidationError) as error:
            refused.append(Refused(line, f"span {span.span_id or span.name or '?'}"[:200], reason(error)))
    rows = tuple(row for one in done for row in one.rows)
    return Found(rows, len(spans) + n_broken, tuple(refused), tuple(_notes(done)))


def _notes(done: list[Taken]) -> Iterator[str]:
    """What a reader of the rows should know."""
    if n_open := sum(one.running for one in done):
        yield f"{n_open} spans have no end: running, known to last until the newest time of their reporter"
    if n_unkeyed := sum(not one.keyed for one in done):
        yield f"{n_unkeyed} spans have no trace id or span id: known again by all they say"
    lengths = [(one.said_s, one.seen_s) for one in done if one.said_s is not None and one.seen_s is not None]
    if far_apart(lengths):
        yield "the latencies that spans tell are some 1000 times off their own times: is one of them in another unit?"


def _pieces(data: bytes) -> Iterator[tuple[int | None, Reported] | Refused]:
    """All spans of a file, each with its line where a document stands on a line of its own."""
    text = data.removeprefix(b"\xef\xbb\xbf")
    if text.lstrip()[:1] in {b"{", b"["}:
        yield from _of_text(text)
    elif data.startswith(b"\0"):
        yield from _of_sized(data)
    else:
        yield from ((None, span) for span in from_protobuf(data))


def _of_text(text: bytes) -> Iterator[tuple[int | None, Reported] | Refused]:
    """One document, else one a line. Raises BadField where it is neither."""
    try:
        spans = from_json(text)
    except BadField as error:
        no_document = error
    else:
        yield from ((None, span) for span in spans)
        return
    read_any = False
    refused: list[Refused] = []
    for line, document in enumerate(text.splitlines(), 1):
        try:
            spans = from_json(document) if document.strip() else []
        except BadField as error:
            refused.append(Refused(line, "document", str(error)))
            continue
        read_any = read_any or bool(document.strip())
        yield from ((line, span) for span in spans)
    if not read_any:
        raise no_document
    yield from refused


def _of_sized(data: bytes) -> Iterator[tuple[int | None, Reported] | Refused]:
    """Messages that each follow their size in four bytes, the highest first."""
    at, number = 0, 0
    while at < len(data):
        size, number = int.from_bytes(data[at : at + _SIZE_BYTES]), number + 1
        message = data[at + _SIZE_BYTES : at + _SIZE_BYTES + size]
        at += _SIZE_BYTES + size
        if len(message) < size:
            yield Refused(None, f"message {number}", f"the file breaks off after {len(message)} of its {size} bytes")
            return
        try:
            yield from ((None, span) for span in from_protobuf(message))
        except BadField as error:
            yield Refused(None, f"message {number}", str(error))


def _built_like_spans(head: bytes) -> bool:
    """Whether the first bytes are a message whose field 1 holds, under field 2 twice, a span with an id or a start time.

    Fields of other numbers are passed over, as they are in reading: a newer exporter may send some.
    """
    try:
        group = next(part for number, part in _fields(head) if number == 1 and part)
        scopes = [part for number, part in _fields(group) if number == 2]
        spans = [part for scope in scopes for number, part in _fields(scope) if number == 2]
        told = [(number, len(part)) for number, part in _fields(spans[0])]
    except (ValueError, StopIteration, IndexError):
        return False
    return bool({(1, 16), (2, 8), (7, 8)} & set(told))


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Fields of a protobuf message: number and content (empty for a varint); one that breaks off is given as far as it goes."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if number == 0 or kind not in {_VARINT, _FIXED64, _BYTES, _FIXED32}:
            raise ValueError(f"no field has tag {tag}")
        if kind == _VARINT:
            _, at = _varint(message, at)
            yield number, b""
            continue
        size, at = _varint(message, at) if kind == _BYTES else ({_FIXED64: 8, _FIXED32: 4}[kind], at)
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, and the place after it. ValueError past 64 bits or where it breaks off."""
    value = 0
    for shift in range(0, 64, 7):
        if at >= len(message):
            raise ValueError("it breaks off")
        value |= (message[at] & 127) << shift
        at += 1
        if message[at - 1] < 128:
            return value, at
    raise ValueError("longer than 64 bits")


OTLP = Importer("otlp", recognises, read)
