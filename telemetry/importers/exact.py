"""Stamps of files as int64 nanoseconds, exactly: a binary float has no room for the last digits of a time since 1970."""

from __future__ import annotations

from telemetry.errors import BadField
from telemetry.importers.decimals import SECONDS_PER, number

SINCE_1970_NS = 10**17
"""1973 in ns: a stamp below it counts from some zero of its own, such as the start of a trace or of its host."""
_NS_PER = {unit: int(seconds * 10**9) for unit, seconds in SECONDS_PER.items()}


def nanoseconds(field: str, given: object, unit: str) -> int:
    """A number in `unit` as ns, half to even past the ns; whole numbers and decimal text pass exactly, a float as it prints.

    BadField where it is no number, or past what 64 bits of ns hold.
    """
    if isinstance(given, int) and not isinstance(given, bool):
        ns = given * _NS_PER[unit]
    else:
        found = number(str(given)) if isinstance(given, str | float) else None
        if found is None:
            raise BadField(field, repr(given)[:80], f"a number of {unit} was expected")
        # A number of 99 digits before the point is cut short here and refused below, never built.
        ns = round(found * _NS_PER[unit]) if found.adjusted() < 20 else 2**63
    if abs(ns) >= 2**63:
        raise BadField(field, str(given)[:80], f"past what 64 bits of ns hold; if it is not in {unit}, give --unit")
    return ns
