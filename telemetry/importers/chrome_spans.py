"""Records of a Chrome trace paired into spans. Complete ones (X) stand alone; B and E pair by thread, b and e by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from telemetry.errors import BadField
from telemetry.importers.contract import Refused
from telemetry.importers.exact import nanoseconds

BEGINS, ENDS = frozenset("BbS"), frozenset("EeF")
SPANS = BEGINS | {"X"}
"""Records that are a span or begin one."""
PASSED_OVER = frozenset("stfiIRCMNODPnTpvVc(),=")
"""Flows, instants, counters, metadata, objects, samples, steps, dumps and marks: none of them has a length."""
_ASYNC = frozenset("bSeF")


@dataclass(frozen=True, slots=True)
class Mark:
    """A record that begins, ends or is a span, its time in ns on the trace's own clock."""

    line: int
    at_ns: int
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Span:
    """A span: the record that began it, and its length in ns; None where its end was not seen."""

    mark: Mark
    length_ns: int | None


@dataclass
class Spans:
    """What was gathered of a trace.

    `first_ns` and `last_ns` bound all its stamps; `n_passed_over` counts what has no length; `names` are those of processes
    (by pid and None) and of threads (by pid and tid).
    """

    unit: str
    found: list[Span] = field(default_factory=list)
    refused: list[Refused] = field(default_factory=list)
    n_read: int = 0
    n_passed_over: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    names: dict[tuple[str, str | None], str] = field(default_factory=dict)
    _paired: dict[object, list[Mark]] = field(default_factory=dict)

    def take(self, line: int, record: object) -> None:
        """Take in one record of the list."""
        self.n_read += 1
        try:
            self._sort_in(line, record)
        except (BadField, TypeError) as error:
            name = str(record.get("name"))[:80] if isinstance(record, dict) else "record"
            self.refused.append(Refused(line, name, str(error)))

    def settle(self) -> None:
        """Pair what begins with what ends, in time order: files are not sorted."""
        for marks in self._paired.values():
            self.found.extend(self._pairs(sorted(marks, key=lambda mark: mark.at_ns)))
        self._paired.clear()

    def _sort_in(self, line: int, record: object) -> None:
        if not isinstance(record, dict):
            raise BadField("record", repr(record)[:80], "an object was expected")
        kind = record.get("ph")
        if kind in PASSED_OVER:
            self.n_passed_over += 1
            if kind == "M":
                self._name(record)
            return
        if kind != "X" and kind not in BEGINS | ENDS:
            raise BadField("ph", kind, "no kind of record that is known")
        mark = Mark(line, nanoseconds("ts", record.get("ts"), self.unit), record)
        if kind == "X":
            length_ns = self._length(mark)
            self._see(mark.at_ns + (length_ns or 0))
            self.found.append(Span(mark, length_ns))
        else:
            self._paired.setdefault(_partner(record), []).append(mark)
        self._see(mark.at_ns)

    def _name(self, record: dict[str, Any]) -> None:
        given = arguments(record).get("name")
        if record.get("name") in {"process_name", "thread_name"} and isinstance(given, str):
            thread = str(record.get("tid")) if record["name"] == "thread_name" else None
            self.names[str(record.get("pid")), thread] = given

    def _length(self, mark: Mark) -> int | None:
        """Length of a complete span. None where it has none yet, which some write as an end of 0."""
        given = mark.record.get("dur")
        if given is None:
            return None
        length_ns = nanoseconds("dur", given, self.unit)
        if length_ns < 0:
            if mark.at_ns + length_ns == 0:
                return None
            raise BadField("dur", given, "a span can't end before it starts")
        return length_ns

    def _pairs(self, marks: Iterable[Mark]) -> Iterator[Span]:
        """Spans of one thread or id: an end belongs to what began last, since spans nest."""
        begun: list[Mark] = []
        for mark in marks:
            if mark.record["ph"] in BEGINS:
                begun.append(mark)
            elif begun:
                start = begun.pop()
                yield Span(_joined(start, mark), mark.at_ns - start.at_ns)
            else:
                self.refused.append(Refused(mark.line, str(mark.record.get("name"))[:80], "an end of what never began"))
        yield from (Span(mark, None) for mark in begun)

    def _see(self, at_ns: int) -> None:
        self.first_ns = at_ns if self.first_ns is None else min(self.first_ns, at_ns)
        self.last_ns = at_ns if self.last_ns is None else max(self.last_ns, at_ns)


def _partner(record: dict[str, Any]) -> object:
    """What the two ends of a span have in common: the thread, or for what wanders between threads its id."""
    if record["ph"] not in _ASYNC:
        return "thread", str(record.get("pid")), str(record.get("tid"))
    ids = record.get("id2")
    ids = ids if isinstance(ids, dict) else {"global": record.get("id")}
    within = str(record.get("pid")) if "local" in ids else None
    return "id", str(record.get("cat")), str(record.get("scope")), str(ids.get("local", ids.get("global"))), within


def _joined(start: Mark, end: Mark) -> Mark:
    """The beginning with what only the end told."""
    told = {**arguments(end.record), **arguments(start.record)}
    return Mark(start.line, start.at_ns, {**end.record, **start.record, "args": told})


def arguments(record: dict[str, Any]) -> dict[str, Any]:
    """What a record tells beside its times."""
    found = record.get("args")
    return found if isinstance(found, dict) else {}
