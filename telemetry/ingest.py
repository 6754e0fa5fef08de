"""From a request's body to a batch, and from its receipt to the reply: every item is judged alone.

A refused item never keeps the others out. The reply has one result per item, in the order they were sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import orjson
from pydantic import ValidationError

from telemetry.columns import Columns
from telemetry.columns import read as read_columns
from telemetry.errors import BadField, TooLarge
from telemetry.rows import Row
from telemetry.store.batch import Batch, Receipt, Result
from telemetry.tables import Attempt, Event
from telemetry.words import EventKind

MOST_ITEMS = 10_000
"""Attempts and events (count) that one request may hold."""
_EARLIEST_WALL_NS = 10**17
"""1973 in ns. Today's time in us, ms or s lies below it, and so does 0 for something that has not happened."""
_NO_NUMBER: dict[str, tuple[str, tuple[type, ...]]] = {
    "BIGINT": ("a whole number, unquoted", (str, bool)),
    "DOUBLE": ("a number, unquoted", (str, bool)),
    "BOOLEAN": ("true or false, unquoted", (str, int, float)),
}
"""By kind of column: what belongs there, and what could be taken for it."""
_UNITS = ((10**14, "microseconds", "1000"), (10**11, "milliseconds", "10^6"), (1, "seconds", "10^9"))


@dataclass(frozen=True)
class Refusal:
    """Why an item was not taken; `id` is the one it gave, empty if it gave none."""

    id: str
    problem: str
    result: Literal["refused"] = "refused"


@dataclass(frozen=True)
class Prepared:
    """A body that was read: the rows to commit, and per item either its refusal or None where it is among the rows."""

    rows: tuple[Columns, Columns]
    attempts: tuple[Refusal | None, ...]
    events: tuple[Refusal | None, ...]

    @property
    def batch(self) -> Batch:
        """What is to be committed: the attempts first, then the events."""
        return Batch((), columns=self.rows)

    def new(self, receipt: Receipt) -> tuple[Columns, Columns]:
        """Attempts and events that the store had not known before."""
        news = [result.result == "new" for result in receipt.results]
        if all(news):
            return self.rows
        attempts, events = self.rows
        return attempts.only(news[: attempts.size]), events.only(news[attempts.size :])


def read(raw: bytes) -> Prepared:
    """Read a request's body as it arrived: JSON in UTF-8, as `prepare` takes it. Raises BadField, TooLarge."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadField("body", str(error), "send one JSON object in UTF-8, without NaN or Infinity") from error
    if not isinstance(body, dict):
        raise BadField("body", type(body).__name__, "send one JSON object with attempts and events")
    return prepare(body)


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
    (attempts, no_attempts), (events, no_events) = _taken(Attempt, given["attempts"]), _taken(Event, given["events"])
    return Prepared((attempts, events), no_attempts, no_events)


def _taken(table: type[Attempt | Event], items: Sequence[Any]) -> tuple[Columns, tuple[Refusal | None, ...]]:
    """The items that are rows, and per item None or why it is not; looked at one by one only where one may be wrong."""
    columns = read_columns(table, items)
    if columns is not None and not _too_early(columns):
        return columns, (None,) * len(items)
    found = [_read(table, item) for item in items]
    refusals = tuple(one if isinstance(one, Refusal) else None for one in found)
    return Columns.of(table, [one for one in found if isinstance(one, Row)]), refusals


def _too_early(columns: Columns) -> bool:
    return min(columns.values.get("wall_ns", ()), default=_EARLIEST_WALL_NS) < _EARLIEST_WALL_NS


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
    problems = _mistyped(table, item) if isinstance(item, Mapping) else {}
    try:
        row = table.model_validate(item)
    except ValidationError as error:
        for fault in error.errors()[:5]:
            field = ".".join(str(part) for part in fault["loc"]) or table.table
            problems.setdefault(field, _problem(table, field, fault))
    if problems:
        return Refusal(_given_id(table, item), _sendable("; ".join(problems.values())))
    if isinstance(row, Event) and row.wall_ns < _EARLIEST_WALL_NS:
        return Refusal(row.event_id, f"wall_ns: got {row.wall_ns}; {_unit_advice(row.wall_ns)}")
    return row


def _mistyped(table: type[Row], item: Mapping[str, Any]) -> dict[str, str]:
    """Numbers sent as text or truth values, and the other way round, by field: a guess at what was meant may be wrong."""
    found = {}
    for column in table.columns()[: len(table.model_fields)]:
        wanted, wrong = _NO_NUMBER.get(column.sql, ("", ()))
        if type(value := item.get(column.name)) in wrong:
            found[column.name] = f"{column.name}: got {repr(value)[:80]}; it should be {wanted}"
    return found


def _given_id(table: type[Row], item: object) -> str:
    given = item.get(table.key[0]) if isinstance(item, Mapping) else None
    return _sendable(given[:200]) if isinstance(given, str) else ""


def _sendable(text: str) -> str:
    """The text with half surrogates, which no reply can carry, spelled out."""
    return text.encode(errors="backslashreplace").decode()


def _problem(table: type[Row], field: str, fault: Mapping[str, Any]) -> str:
    """One fault as field, what was got, and the remedy."""
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
