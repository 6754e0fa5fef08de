"""Cells of tables: numbers, lengths and names, or an error that names the column.

Lengths stay decimals until they are whole, so that a float is made once, at the end, and is the one nearest to the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from decimal import Decimal
from statistics import median

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers.decimals import SECONDS_PER, number

LONGEST_NAME = 200
"""Characters of a name that the store takes."""
FAR_OFF = 300.0
"""Two readings of one length this far apart mean that a unit is wrong, which makes 1000; less can have other causes."""
_LONGEST_S = Decimal(2**63).scaleb(-9)


def decimal(field: str, value: object) -> Decimal:
    """A finite number from a cell, exactly; BadField for anything else."""
    found = number(str(value))
    if found is None:
        raise BadField(field, str(value)[:80], "a decimal number was expected")
    return found


def seconds(field: str, value: object, unit: str = "s") -> float:
    """A length in s from a number in `unit`. BadField where it is negative or past 292 years, which no int64 of ns holds."""
    return length(field, decimal(field, value) * SECONDS_PER[unit])


def length(field: str, value_s: Decimal) -> float:
    """A decimal length in s as a float, rounded once; -0.0 is 0. BadField where no length can be so."""
    if value_s < 0:
        raise BadField(field, f"{value_s} s", "a length can't be negative")
    if value_s >= _LONGEST_S:
        raise BadField(field, f"{value_s:.4g} s", "no length is past 292 years; if its unit is another, give --unit")
    return float(value_s) + 0.0


def name(value: object) -> str | None:
    """A name from a cell, or None where it is blank; one too long for the store is cut, and a digest tells it from others."""
    text = "" if value is None else str(value).strip()
    if len(text) > LONGEST_NAME:
        digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=6).hexdigest()
        return f"{text[: LONGEST_NAME - 13]}…{digest}"
    return text or None


def far_apart(pairs: Iterable[tuple[float, float]], *, only_longer: bool = False) -> bool:
    """Whether the first of each pair of lengths (s) is typically off from the second by what a wrong unit makes.

    only_longer: the second is merely an upper bound of what is plausible.
    """
    ratios = [said / shown for said, shown in pairs if said > 0 and shown > 0]
    typical = median(ratios) if ratios else 1.0
    return typical > FAR_OFF or (not only_longer and typical < 1 / FAR_OFF)


def reason(error: BadField | ValidationError) -> str:
    """Why a record was refused, on one line: the field, what was got, what would be right."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        return f"{field}: got {repr(first['input'])[:80]}; {first['msg']}"
    return str(error)
