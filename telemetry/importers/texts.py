"""Files as text, plain or gzip, in UTF-8 or UTF-16, and never more of them in memory than a stated size.

A file that breaks off keeps what was read before; where and why is said.
"""

from __future__ import annotations

import codecs
import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path

from telemetry.errors import TooLarge, UnknownId
from telemetry.importers.contract import Refused

MOST_BYTES = 256 << 20
"""Unpacked size in bytes past which a file that has to be held whole is not read."""
LINE_BYTES = 1 << 20
BROKEN = (EOFError, gzip.BadGzipFile, zlib.error)
"""What reading a packed file raises where it breaks off or is damaged."""


def raw(path: Path, most_bytes: int = MOST_BYTES) -> tuple[bytes, tuple[Refused, ...]]:
    """All bytes of a file, and the refusal of its end where that could not be read.

    Raises TooLarge past `most_bytes` unpacked, UnknownId if the file can't be read at all.
    """
    parts: list[bytes] = []
    size = 0
    broken: tuple[Refused, ...] = ()
    with opened(path) as file:
        try:
            while part := file.read1(1 << 20):
                size += len(part)
                if size > most_bytes:
                    raise TooLarge("file", f"{path.name}: more than {most_bytes} bytes", "split it into smaller files")
                parts.append(part)
        except BROKEN as error:
            broken = (Refused(None, "end of file", f"the packed file breaks off: {error}"),)
    return b"".join(parts), broken


def whole(path: Path, most_bytes: int = MOST_BYTES) -> tuple[str, tuple[Refused, ...]]:
    """All text of a file, likewise."""
    found, broken = raw(path, most_bytes)
    return decoded(found), broken


class Unended(str):
    """A last line without an end: it may be whole, or cut off."""

    __slots__ = ()


def unended(path: Path) -> bool:
    """Whether a file of lines doesn't end its last one; not where it is a packed one that breaks off, or no text, as Parquet."""
    last = b"\n"
    with opened(path) as file, suppress(*BROKEN):
        while part := file.read1(1 << 20):
            if b"\0" in part:
                return False
            last = part[-1:]
        return last not in {b"\n", b"\r"}
    return False


def lines(path: Path) -> Iterator[tuple[int, str | Refused]]:
    """Lines of a UTF-8 file without their ends, numbered from 1, one in memory at a time.

    In the place of a line longer than LINE_BYTES, and of the end of a packed file that breaks off, stands its refusal.
    """
    number = 0
    with opened(path) as file:
        try:
            while line := file.readline(LINE_BYTES):
                number += 1
                if len(line) == LINE_BYTES and not line.endswith(b"\n"):
                    yield number, Refused(number, "line", f"longer than {LINE_BYTES} bytes")
                    while (rest := file.readline(LINE_BYTES)) and not rest.endswith(b"\n"):
                        pass
                    continue
                text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace")
                yield number, text.rstrip("\r\n") if text.endswith("\n") else Unended(text.rstrip("\r"))
        except BROKEN as error:
            yield number + 1, Refused(number + 1, "end of file", f"the packed file breaks off: {error}")


def decoded(found: bytes) -> str:
    """Text of UTF-8 or, by its mark, UTF-16 bytes; a byte that is neither becomes the replacement character."""
    marked = found.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    return found.decode("utf-16" if marked else "utf-8-sig", errors="replace")


@contextmanager
def opened(path: Path) -> Iterator[gzip.GzipFile | BufferedReader]:
    """The file's bytes, unpacked where it is gzip by its first two."""
    try:
        with path.open("rb") as plain:
            packed = plain.read(2) == b"\x1f\x8b"
        file = gzip.GzipFile(path) if packed else path.open("rb")
    except OSError as error:
        raise UnknownId("file", str(path), f"it cannot be read: {error.strerror or error}") from error
    with file:
        yield file
