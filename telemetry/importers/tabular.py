"""Text tables with one record a line: their header, their delimiter, and their records as a stream."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from telemetry.importers.contract import HEAD_BYTES, Refused
from telemetry.importers.texts import decoded, lines


def records(path: Path, delimiter: str) -> Iterator[tuple[int, list[str] | Refused]]:
    """(Line its last cell is on, cells); blank lines are passed over. Cells may be quoted, except between tabs.

    In the place of what can't be read stands its refusal.
    """
    refused: list[tuple[int, Refused]] = []
    at = 0

    def texts() -> Iterator[str]:
        nonlocal at
        for at, text in lines(path):
            if isinstance(text, Refused):
                refused.append((at, text))
            else:
                yield text + "\n"

    plain = delimiter == "\t"
    reader = csv.reader(texts(), delimiter=delimiter, quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield at, Refused(at, "line", str(error))
            continue
        yield from refused
        refused.clear()
        if cells is None:
            return
        if any(cells):
            yield at, cells


def head_lines(head: bytes) -> list[str]:
    """Whole lines at the start of a file, from its first bytes; a last line that was cut off is left out."""
    found = decoded(head).splitlines(keepends=True)
    if len(head) >= HEAD_BYTES and len(found) > 1 and not found[-1].endswith("\n"):
        found.pop()
    return [line.rstrip("\r\n") for line in found]


def first_line(path: Path) -> str:
    """The first line that isn't blank; empty where there is none."""
    return next((text for _, text in lines(path) if isinstance(text, str) and text.strip()), "")


def header(line: str, delimiters: str) -> tuple[str, list[str]]:
    """Names of the columns in a header, cut by the one of these characters that it holds most often; that character first."""
    delimiter = max(delimiters, key=line.count)
    return delimiter, [cell.strip().strip('"') for cell in line.split(delimiter)]
