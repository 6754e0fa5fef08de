"""Times as files write them: instants with a zone, and readings of a local clock that nobody named."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta

from telemetry.errors import BadField
from telemetry.importers.cells import decimal
from telemetry.importers.decimals import SECONDS_PER

_NS_PER_S = 1_000_000_000
_WRITTEN = re.compile(
    r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{1,9})\d*)?)?\s*(Z|UTC|([+-])(\d\d):?(\d\d))?", re.ASCII
)
_1970 = datetime(1970, 1, 1)  # noqa: DTZ001  counted from in the clock's own zone


@dataclass(frozen=True, slots=True)
class Instant:
    """A time as written. `reading_ns` counts from 1970: in UTC where `zoned`, else on the local clock it was read from."""

    text: str
    reading_ns: int
    zoned: bool

    @property
    def started_ns(self) -> int | None:
        """UTC ns, or None where the zone is not known."""
        return self.reading_ns if self.zoned else None

    @property
    def started_text(self) -> str | None:
        """The text where that is all there is."""
        return None if self.zoned else self.text

    def since_ns(self, other: Instant) -> int | None:
        """Length from `other` to this, ns; None where only one of them has a zone."""
        return self.reading_ns - other.reading_ns if self.zoned == other.zoned else None


def written(field: str, text: str) -> Instant:
    """A date with a time, with or without a zone. BadField for other texts."""
    found = _WRITTEN.fullmatch(text.strip())
    if found is None:
        raise BadField(field, text[:80], "a time such as 2026-03-01T10:00:00 was expected")
    day, minute, second, fraction, zone, sign, hours, minutes = found.groups()
    try:
        since = datetime.fromisoformat(f"{day}T{minute}:{second or '00'}") - _1970
    except ValueError as error:
        raise BadField(field, text[:80], f"no such time ({error})") from error
    if sign:
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        since -= offset if sign == "+" else -offset
    whole_s = since.days * 86_400 + since.seconds
    return _dated(field, text, whole_s * _NS_PER_S + int((fraction or "").ljust(9, "0")), zoned=zone is not None)


def counted(field: str, text: str, unit: str) -> Instant:
    """A number of `unit` since 1970 in UTC. BadField for other texts."""
    return _dated(field, text, int(decimal(field, text) * SECONDS_PER[unit] * _NS_PER_S), zoned=True)


def _dated(field: str, text: str, reading_ns: int, *, zoned: bool) -> Instant:
    if not 0 <= reading_ns < 2**63:
        raise BadField(field, text[:80], "a time from 1970 to 2262 was expected")
    return Instant(text.strip(), reading_ns, zoned)
