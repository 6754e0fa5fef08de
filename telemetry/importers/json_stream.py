"""A JSON file of one long list, read element by element: a broken record spoils nothing else, and each knows its line.

Takes `{"some": "member", "list": [...]}` and a bare `[...]`, which may lack its end, as a file does whose writer was killed.
Decimals stay text, so that no digit is lost on the way.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from telemetry.errors import BadField, TooLarge
from telemetry.importers.contract import Refused
from telemetry.importers.texts import BROKEN

MOST_BYTES = 4 * 2**30
"""Unpacked size past which a file is refused: a few kilobytes of gzip can hold more than any memory."""
_MOST_OF_ONE = 8 * 2**20
_CHUNK = 2**20
_BLANK = re.compile(r"[ \t\n\r]*")
_NEXT = re.compile(r"\}[ \t\n\r]*,[ \t\n\r]*(?=\{)")
_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the file's object, other than the list."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Element:
    """One element of the list, and the line it begins on."""

    line: int
    value: Any


class Readable(Protocol):
    """A file of bytes that gives what it has, so that what came before a break is not lost with it."""

    def read1(self, size: int, /) -> bytes:
        """At most `size` bytes, none at the end."""


def pieces(file: Readable, list_name: str) -> Iterator[Member | Element | Refused]:
    """What the file holds, in its order. Raises BadField where it is no such JSON at all, TooLarge past MOST_BYTES."""
    text = _Text(file)
    if text.peek() == "[":
        yield from _elements(text, may_lack_end=True)
        return
    text.expect("{")
    while (mark := text.peek()) != "}":
        if mark == ",":
            text.expect(",")
            continue
        name = text.member()
        text.expect(":")
        if name == list_name and text.peek() == "[":
            complete = yield from _elements(text, may_lack_end=False)
            if not complete:
                return
        else:
            yield Member(name, text.member())


def _elements(text: _Text, *, may_lack_end: bool) -> Generator[Element | Refused, None, bool]:
    """Elements up to the closing bracket; returns whether it was reached."""
    text.expect("[")
    while (mark := text.peek()) != "]":
        line = text.line
        if not mark:
            if text.broken or not may_lack_end:
                yield Refused(line, "rest of the file", text.broken or "it ends inside its list")
            return False
        if mark == ",":
            text.expect(",")
            continue
        try:
            yield Element(line, text.value())
        except (ValueError, RecursionError) as error:
            found_next = text.skip_record()
            after = f"read on from line {text.line}" if found_next else text.broken or "nothing after it could be read"
            yield Refused(line, "record", f"no JSON ({str(error).partition(':')[0][:80]}); {after}")
            if not found_next:
                return False
    text.expect("]")
    return True


class _Text:
    """The file as text with a place in it; what lies behind the place is forgotten. `broken` says why it ends too early."""

    def __init__(self, file: Readable) -> None:
        self.line = 1
        self.broken: str | None = None
        self._file, self._buffer, self._at, self._seen = file, "", 0, 0
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")

    def peek(self) -> str:
        """The next character that is not blank, empty at the end."""
        while True:
            found = _BLANK.match(self._buffer, self._at)
            assert found is not None
            self._go(found.end())
            if self._at < len(self._buffer) or not self._more():
                return self._buffer[self._at : self._at + 1]

    def expect(self, mark: str) -> None:
        """Pass over one mark."""
        if (got := self.peek()) != mark:
            raise BadField("file", f"line {self.line}: {got!r}", f"{mark!r} was expected; is it JSON of this format, and whole?")
        self._go(self._at + 1)

    def member(self) -> Any:
        """One value that nothing can be read without."""
        try:
            return self.value()
        except (ValueError, RecursionError) as error:
            raise BadField("file", f"line {self.line}: {str(error)[:120]}", "mend the JSON, or give a whole copy") from error

    def value(self) -> Any:
        """One value. Raises ValueError where it is broken or larger than any record, RecursionError where it is too deep."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._buffer, self._at)
            except ValueError:
                if len(self._buffer) - self._at > _MOST_OF_ONE or not self._more():
                    raise
                continue
            if end < len(self._buffer) or not self._more():  # a number at the edge may go on
                self._go(end)
                return value

    def skip_record(self) -> bool:
        """Go to the next record that begins after one ends; False if there is none."""
        while (found := _NEXT.search(self._buffer, self._at)) is None:
            self._go(max(self._at, len(self._buffer) - 1))
            if not self._more():
                return False
        self._go(found.end())
        return True

    def _go(self, to: int) -> None:
        self.line += self._buffer.count("\n", self._at, to)
        self._at = to

    def _more(self) -> bool:
        """Read on; False at the end of the file."""
        try:
            chunk = b"" if self.broken else self._file.read1(_CHUNK)
        except BROKEN as error:
            chunk, self.broken = b"", f"the packed file breaks off: {error}"
        self._seen += len(chunk)
        if self._seen > MOST_BYTES:
            raise TooLarge("file", f"more than {MOST_BYTES} bytes unpacked", "cut it into shorter traces")
        self._buffer, self._at = self._buffer[self._at :] + self._decoder.decode(chunk, not chunk), 0
        return bool(chunk)
