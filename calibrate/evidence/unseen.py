"""Support drift: values never seen, and shapes outside the range seen.

How many fields of a context are new to a frozen record of what was seen is a score like any other: shown to a `drift.Watch` of
its own, it raises an alarm when new things come more often than before, at the same stated rate of false alarms. It needs no
outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from predictors.contexts import CATEGORIES, NUMBERS, Context


@dataclass(frozen=True)
class Seen:
    """Values seen per name in CATEGORIES (None, unknown, is one too), and the range per name in NUMBERS (None: never known)."""

    values: dict[str, frozenset[str | None]]
    ranges: dict[str, tuple[float, float] | None]


def seen(contexts: Iterable[Context]) -> Seen:
    """The record of contexts, to be frozen together with a node's scorer."""
    rows = list(contexts)
    numbers = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in NUMBERS}
    return Seen(
        {name: frozenset(getattr(row, name) for row in rows) for name in CATEGORIES},
        {name: (min(known), max(known)) if known else None for name, known in numbers.items()},
    )


def unseen(context: Context, record: Seen) -> tuple[str, ...]:
    """Names of the fields that are new to a record: a category never seen, a known number outside its range."""
    new = [name for name in CATEGORIES if getattr(context, name) not in record.values[name]]
    for name in NUMBERS:
        value, known = getattr(context, name), record.ranges[name]
        if value is not None and (known is None or not known[0] <= value <= known[1]):
            new.append(name)
    return tuple(new)
