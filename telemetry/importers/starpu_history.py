"""One entry of a StarPU history, and what its sums say about it, computed in decimals as far as their digits reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal

from telemetry.importers.decimals import count, number

_AGREES = Decimal("0.02")
"""Share by which a deviation may differ from that of the sums beyond their rounding."""


class Unreadable(Exception):
    """Why a line is no entry."""


@dataclass(frozen=True)
class Entry:
    """Executions of one footprint: size in bytes, flops (None where unknown), mean and spread in the table's unit, n.

    `spread` is the standard deviation that sum, sum2 and n give; where their digits can't tell it from 0, `deviation` if
    that is as small, else None. `contradicts` says that `deviation` lies outside what the sums allow.
    """

    footprint: str
    size: int
    flops: Decimal | None
    mean: Decimal
    deviation: Decimal | None
    total: Decimal
    n: int
    spread: Decimal | None
    contradicts: bool
    figures: tuple[str, ...]


def read_entry(fields: Sequence[str]) -> Entry:
    """The entry of a line: hash, size, flops (absent in old files), mean, dev, sum, sum2, n. Raises Unreadable."""
    if len(fields) not in {7, 8}:
        raise Unreadable(f"{len(fields)} fields; an entry has 8, or 7 without flops")
    footprint, size_text, *rest = fields
    flops_text = rest.pop(0) if len(fields) == 8 else "nan"
    mean, deviation, total, squares = (number(text) for text in rest[:4])
    size, n = count(size_text), count(rest[4])
    if size is None or n is None:
        raise Unreadable(f"size {size_text} or n {rest[4]} is no count")
    if n == 0:
        return Entry(footprint, size, _known(flops_text), Decimal(0), None, Decimal(0), 0, None, False, tuple(fields))
    if mean is None or total is None or squares is None or min(mean, total, squares) < 0:
        raise Unreadable(f"mean {rest[0]}, sum {rest[2]} and sum2 {rest[3]} must be numbers of at least 0")
    if abs(mean - total / n) > _half_ulp(mean) + _half_ulp(total) / n + mean * _AGREES:
        raise Unreadable(f"mean {rest[0]} is not sum / n = {total / n:.6g}")
    spread, contradicts = _spread(n, mean, total, squares, deviation)
    return Entry(footprint, size, _known(flops_text), mean, deviation, total, n, spread, contradicts, tuple(fields))


def _known(text: str) -> Decimal | None:
    """Flops; 0 and nan say that nobody told them."""
    return number(text) or None


def _spread(n: int, mean: Decimal, total: Decimal, squares: Decimal, deviation: Decimal | None) -> tuple[Decimal | None, bool]:
    """Population standard deviation sqrt(sum2 / n - (sum / n)^2), and whether `deviation` contradicts it."""
    average = total / n
    variance = squares / n - average * average
    # What half a unit of the last printed digit of either sum can change.
    doubt = _half_ulp(squares) / n + 2 * mean * _half_ulp(total) / n
    if n == 1 or variance < -doubt:
        return None, n > 1
    allowed = doubt + 2 * _AGREES * max(variance, Decimal(0))
    contradicts = deviation is not None and abs(deviation * deviation - variance) > allowed
    if variance > doubt:
        return variance.sqrt(), contradicts
    return (None if contradicts else deviation), contradicts


def _half_ulp(value: Decimal) -> Decimal:
    """Half a unit in the last digit that `value` was printed with."""
    exponent = value.as_tuple().exponent
    return Decimal(5).scaleb(exponent - 1) if isinstance(exponent, int) else Decimal(0)
