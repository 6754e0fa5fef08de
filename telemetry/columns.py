"""Many rows of one table by column: checked by column as well, since an object for each row is most of what a batch costs.

`read` only ever says yes or nothing. What is wrong with a row, and whether it is wrong at all, is told by the row's own class.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Annotated, Any, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt, MaxLen, MinLen
from pydantic.fields import FieldInfo

from telemetry.rows import Row

_TYPES: dict[str, frozenset[type]] = {
    "VARCHAR": frozenset({str}),
    "BIGINT": frozenset({int}),
    "DOUBLE": frozenset({int, float}),
    "BOOLEAN": frozenset({bool}),
}
_BOUNDS: dict[type, Callable[[Any, float, float], bool]] = {
    Ge: lambda bound, least, _most: least >= bound.ge,
    Gt: lambda bound, least, _most: least > bound.gt,
    Le: lambda bound, _least, most: most <= bound.le,
    Lt: lambda bound, _least, most: most < bound.lt,
    MinLen: lambda bound, least, _most: least >= bound.min_length,
    MaxLen: lambda bound, _least, most: most <= bound.max_length,
}
"""Whether a bound holds for the smallest and the largest of a column."""


@dataclass(frozen=True)
class Columns:
    """`size` rows of a table: one sequence of that length per column of its own, in the table's order."""

    table: type[Row]
    size: int
    values: Mapping[str, Sequence[Any]]

    @classmethod
    def of(cls, table: type[Row], rows: Sequence[Row]) -> Columns:
        """Rows of this table, by column."""
        return cls(table, len(rows), {name: [getattr(row, name) for row in rows] for name in table.model_fields})

    def tuples(self, *names: str) -> Iterator[tuple[Any, ...]]:
        """The rows' values of these columns, of all if none is named."""
        return zip(*(self.values[name] for name in names or self.values), strict=True)

    def only(self, wanted: Sequence[bool]) -> Columns:
        """The rows at the places where `wanted` is true."""
        kept = {name: [value for value, take in zip(column, wanted, strict=True) if take] for name, column in self.values.items()}
        return Columns(self.table, sum(wanted), kept)


@dataclass(frozen=True)
class _Check:
    """What every value of a column must be: one of these types, of these words if any, within bounds of number or length."""

    types: frozenset[type]
    default: Any
    words: frozenset[str] | None
    bounds: tuple[Any, ...]

    def holds(self, column: Sequence[Any]) -> bool:
        """Whether every value of the column is."""
        found = set(map(type, column))
        if not found <= self.types:
            return False
        present = [value for value in column if value is not None] if NoneType in found else column
        if self.words is not None:
            return set(present) <= self.words
        if not present or bool in found:
            return True
        sizes: Sequence[float] = list(map(len, present)) if str in found else present
        least, most = min(sizes), max(sizes)
        if float in self.types and not (most < sys.float_info.max and all(map(math.isfinite, present))):
            return False
        return all(_BOUNDS[type(bound)](bound, least, most) for bound in self.bounds)


def read(table: type[Row], items: Sequence[Any]) -> Columns | None:
    """Rows from objects as JSON gives them; None where a single one may be wrong."""
    checks = _checks(table)
    if not set(map(type, items)) <= {dict} or not (given := set[str]().union(*items)) <= checks.keys():
        return None
    values: dict[str, Sequence[Any]] = {}
    for name, check in checks.items():
        column = [item.get(name, check.default) for item in items] if name in given else [check.default] * len(items)
        if not check.holds(column):  # so where a value that must be there is missing
            return None
        # The engine takes whole numbers for fractional ones only as far as these have room for every digit.
        values[name] = [None if value is None else float(value) for value in column] if float in check.types else column
    return Columns(table, len(items), values)


@cache
def _checks(table: type[Row]) -> dict[str, _Check]:
    """A check per column, from what the table's class says of it."""
    return {
        column.name: _check(table, column.name, _TYPES[column.sql], null=column.null)
        for column in table.columns()[: len(table.model_fields)]
    }


def _check(table: type[Row], name: str, types: frozenset[type], *, null: bool) -> _Check:
    info = table.model_fields[name]
    kind = info.annotation
    words = frozenset(map(str, kind)) if isinstance(kind, type) and issubclass(kind, StrEnum) else None
    bounds = tuple(part for part in _constraints(info) if type(part) in _BOUNDS)
    default = info.default.value if isinstance(info.default, StrEnum) else info.default
    return _Check(types | {NoneType} if null else types, default, words, bounds)


def _constraints(info: FieldInfo) -> Iterator[Any]:
    """What a field's class demands of a value, also inside `... | None`."""
    yield from info.metadata
    for hint in get_args(info.annotation):
        if get_origin(hint) is Annotated:
            for inner in get_args(hint)[1:]:
                yield from inner.metadata
