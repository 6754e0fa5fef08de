"""From a request's body to a batch, and from its receipt to the reply: every item is judged alone.

A refused item never keeps the others out. The reply has one result per item, in the order they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from telemetry.errors import BadField, TooLarge
from telemetry.rows import Row
from telemetry.store.batch import Batch, Receipt, Result
from telemetry.tables import Attempt, Event
from telemetry.words import EventKind

MOST_ITEMS = 10_000
"""Attempts and events (count) that one request may hold."""
_EARLIEST_WALL_NS = 10**17
"""1973 in ns. Today's time in us, ms or s lies below it, and so does 0 for something that has not happened."""
_UNITS = ((10**14, "microseconds", "1000"), (10**11, "milliseconds", "10^6"), (1, "seconds", "10^9"))


@dataclass(frozen=True)
class Refusal:
    """Why an item was not taken; `id` is the one it gave, empty if it gave none."""

    id: str
    problem: str
    result: Literal["refused"] = "refused"


class _Body(BaseModel):
    """A body in which nothing is wrong."""

    model_config = ConfigDict(extra="forbid")

    attempts: list[Attempt] = []
    events: list[Event] = []


@dataclass(frozen=True)
class Prepared:
    """A body that was read: the batch to commit, and per item either its refusal or None where it is in the batch.

    The batch holds the attempts first, then the events.
    """

    batch: Batch
    attempts: tuple[Refusal | None, ...]
    events: tuple[Refusal | None, ...]


def read(raw: bytes) -> Prepared:
    """Read a request's body as it arrived: JSON in UTF-8, as `prepare` takes it.

    Validating while parsing is twice as fast as one after the other; only a body in which something is wrong is read again,
    item by item, to tell what. Raises BadField, TooLarge.
    """
    try:
        body = _Body.model_validate_json(raw)
    except ValidationError:
        return prepare(_parsed(raw))
    if len(body.attempts) + len(body.events) > MOST_ITEMS or any(event.wall_ns < _EARLIEST_WALL_NS for event in body.events):
        return prepare(_parsed(raw))
    rows: tuple[Row, ...] = (*body.attempts, *body.events)
    return Prepared(Batch(rows), (None,) * len(body.attempts), (None,) * len(body.events))


def _parsed(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadField("body", str(error), "send one JSON object in UTF-8, without NaN or Infinity") from error
    if not isinstance(body, dict):
        raise BadField("body", type(body).__name__, "send one JSON object with attempts and events")
    return body


def prepare(body: Mapping[str, Any]) -> Prepared:
    """Read `{"attempts": [...], "events": [...]}`, each item an object with the fields of its table.

    Raises BadField where the body itself is wrong, TooLarge past MOST_ITEMS.
    """
    for name in body:
        if name not in {"attempts", "events"}:
            raise BadField(name, type(body[name]).__name__, "unknown field; a body has attempts and events")
    given = {name: body.get(name, []) for name in ("attempts", "events")}
    for name, items in given.items():
        if not isinstance(items, list):
            raise BadField(name, type(items).__name__, f"give a list of {name}")
    if (size := sum(map(len, given.values()))) > MOST_ITEMS:
        raise TooLarge("events", size, f"send at most {MOST_ITEMS} attempts and events in one request")
    attempts = [_read(Attempt, item) for item in given["attempts"]]
    events = [_read(Event, item) for item in given["events"]]
    return Prepared(
        Batch(tuple(row for row in (*attempts, *events) if isinstance(row, Row))),
        tuple(None if isinstance(row, Row) else row for row in attempts),
        tuple(None if isinstance(row, Row) else row for row in events),
    )


def reply(prepared: Prepared, receipt: Receipt) -> dict[str, Any]:
    """The answer to a request: the commit, and per item its id, result and problem, in the order sent."""
    results = iter(receipt.results)
    attempts = _told(next(results) if refusal is None else refusal for refusal in prepared.attempts)
    events = _told(next(results) if refusal is None else refusal for refusal in prepared.events)
    return {"commit": receipt.commit, "attempts": attempts, "events": events}


def _told(found: Iterable[Result | Refusal]) -> list[dict[str, str | None]]:
    return [{"id": one.id, "result": one.result, "problem": one.problem} for one in found]


def _read(table: type[Attempt | Event], item: object) -> Attempt | Event | Refusal:
    """One item as a row, or why not."""
    try:
        row = table.model_validate(item)
    except ValidationError as error:
        return Refusal(_given_id(table, item), _sendable("; ".join(_problem(table, fault) for fault in error.errors()[:5])))
    if isinstance(row, Event) and row.wall_ns < _EARLIEST_WALL_NS:
        return Refusal(row.event_id, f"wall_ns: got {row.wall_ns}; {_unit_advice(row.wall_ns)}")
    return row


def _given_id(table: type[Row], item: object) -> str:
    given = item.get(table.key[0]) if isinstance(item, Mapping) else None
    return _sendable(given[:200]) if isinstance(given, str) else ""


def _sendable(text: str) -> str:
    """The text with half surrogates, which no reply can carry, spelled out."""
    return text.encode(errors="backslashreplace").decode()


def _problem(table: type[Row], fault: Mapping[str, Any]) -> str:
    """One fault as field, what was got, and the remedy."""
    field = ".".join(str(part) for part in fault["loc"]) or table.table
    got = f"got {repr(fault['input'])[:80]}" if fault["type"] != "missing" else "missing"
    return f"{field}: {got}; {_remedy(table, field, fault)}"


def _remedy(table: type[Row], field: str, fault: Mapping[str, Any]) -> str:
    if fault["type"] == "extra_forbidden":
        return f"unknown field; {table.table} have {', '.join(table.model_fields)}"
    if field == "kind":
        return f"known kinds are {', '.join(EventKind)}"
    if fault["type"] == "missing":
        return f"every one of {table.table} needs it"
    return str(fault["msg"]).replace("Input should", "it should")


def _unit_advice(wall_ns: int) -> str:
    """What a time that lies before 1973 in ns most likely is."""
    for least, unit, factor in _UNITS:
        if wall_ns >= least:
            return f"as ns this is before 1973; if it is {unit}, multiply by {factor}"
    return "0 is no time; send the event once it has happened"
