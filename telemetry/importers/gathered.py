"""Rows of one file, gathered so that of each phase only what is known best goes on."""

from __future__ import annotations

from collections.abc import Iterable

from telemetry.errors import BadField
from telemetry.rows import Row
from telemetry.tables import Observation
from telemetry.words import Ended


class Gathered:
    """Rows as they come, each phase once: listed as running and again as ended, it has ended.

    Files list a job twice where they were put together from several reports of one accounting.
    """

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], tuple[int, Row]] = {}

    def add(self, line: int, rows: Iterable[Row]) -> None:
        """Take the rows of a record, all or none. BadField where an earlier line tells a different end of the same phase."""
        better = {}
        for row in rows:
            key = (row.table, str(getattr(row, row.key[0])))
            at, known = self._rows.get(key, (line, row))
            known_s, row_s = running_s(known), running_s(row)
            if key not in self._rows or (known_s is not None and (row_s is None or row_s >= known_s)):
                better[key] = (line, row)
            elif isinstance(row, Observation) and row != known and row_s is None:
                raise BadField("record", key[1], f"line {at} tells another end of it, which is kept")
        self._rows |= better

    def rows(self) -> tuple[Row, ...]:
        """All rows, in the order their keys came."""
        return tuple(row for _, row in self._rows.values())


def running_s(row: Row) -> float | None:
    """How long a phase is known to run, s; None for a row that tells of no phase still running."""
    return row.duration_s if isinstance(row, Observation) and row.ended is Ended.RUNNING else None
