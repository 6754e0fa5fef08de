"""Numbers and units as files write them: decimal text to a decimal, and a length to seconds with one rounding at the end."""

from __future__ import annotations

import re
from decimal import Decimal

from telemetry.errors import BadField

SECONDS_PER: dict[str, Decimal] = {
    "ns": Decimal("1e-9"),
    "us": Decimal("1e-6"),
    "ms": Decimal("1e-3"),
    "s": Decimal(1),
}
"""Seconds in one of each unit of time, by its short name."""
_LONG_NAMES = {"nanoseconds": "ns", "microseconds": "us", "\u00b5s": "us", "milliseconds": "ms", "seconds": "s", "sec": "s"}
_NUMBER = re.compile(r"[+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?", re.ASCII)


def number(text: str) -> Decimal | None:
    """The finite number that `text` is, exactly; None for anything else, such as nan, inf, N/A or an empty field."""
    text = text.strip()
    return Decimal(text) if _NUMBER.fullmatch(text) else None


def count(text: str) -> int | None:
    """The whole number that fits 64 bits and that `text` is, also written as 6.0 or 6e0; None for anything else."""
    value = number(text)
    return int(value) if value is not None and value == value.to_integral_value() and 0 <= value < 2**63 else None


def unit_of(word: str) -> str | None:
    """Short name of a unit of time given by its short or long name; None if it is none."""
    word = word.strip().lower()
    word = _LONG_NAMES.get(word, word)
    return word if word in SECONDS_PER else None


def unit_told(unit: str | None) -> str | None:
    """Short name of the unit the user told; None if none was. Raises BadField where it is no unit of time."""
    if unit is None:
        return None
    known = unit_of(unit)
    if known is None:
        raise BadField("--unit", unit, f"units of time are {', '.join(SECONDS_PER)}")
    return known


def in_seconds(value: Decimal, unit: str) -> float:
    """A length in `unit` (short name) as s: the decimal product, rounded once to a 64-bit float."""
    return float(value * SECONDS_PER[unit])
