"""Rows of one dataclass as arrays, one for each field, and back with the same bits.

A field goes by what its values are: numbers and arrays of one shape become one array; tuples of numbers one flat array with their
lengths; dataclasses and whatever else JSON can hold stay in the header.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any, TypeVar

import numpy as np

R = TypeVar("R")
Arrays = dict[str, Any]


def pack(at: str, rows: Sequence[Any], arrays: Arrays) -> dict[str, Any]:
    """Puts fields of the rows, all of one dataclass, into `arrays` under names that begin with `at`; gives the header's part."""
    if not rows:
        return {}
    return {f.name: _column(f"{at}.{f.name}", [getattr(row, f.name) for row in rows], arrays) for f in fields(rows[0])}


def unpack(at: str, told: Mapping[str, Any], arrays: Mapping[str, Any], kind: type[R], **nested: type[Any]) -> list[R]:
    """The rows that `pack` took apart; `nested` names the dataclasses of fields that hold one."""
    columns = {name: _values(f"{at}.{name}", held, arrays, nested.get(name)) for name, held in told.items()}
    return [kind(**dict(zip(columns, row, strict=True))) for row in zip(*columns.values(), strict=True)]


def _column(at: str, values: list[Any], arrays: Arrays) -> Any:
    """One field: the name of its kind, or what JSON holds of it."""
    if all(isinstance(value, np.ndarray) and value.shape == values[0].shape for value in values):
        arrays[at] = np.stack(values)
        return "arrays"
    if all(isinstance(value, float) for value in values):
        arrays[at] = np.array(values, dtype=np.float64)
        return "numbers"
    if all(type(value) is int for value in values):
        arrays[at] = np.array(values, dtype=np.int64)
        return "numbers"
    if all(isinstance(value, tuple) for value in values) and (kind := _numbers(values)) is not None:
        arrays[at] = np.array([number for value in values for number in value], dtype=kind)
        arrays[f"{at}.length"] = np.array([len(value) for value in values], dtype=np.int64)
        return "tuples"
    return [_plain(value) for value in values]


def _numbers(values: list[tuple[Any, ...]]) -> type[np.generic] | None:
    """The type of the numbers in all these tuples; None where they hold anything else."""
    if all(isinstance(number, float) for value in values for number in value):
        return np.float64
    return np.int64 if all(type(number) is int for value in values for number in value) else None


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return [getattr(value, f.name) for f in fields(value)]
    return list(value) if isinstance(value, tuple) else value


def _values(at: str, held: Any, arrays: Mapping[str, Any], kind: type[Any] | None) -> list[Any]:
    """A field's values, one for each row."""
    if held == "arrays":
        return list(arrays[at])
    if held == "numbers":
        found: list[Any] = arrays[at].tolist()
        return found
    if held == "tuples":
        flat, ends = arrays[at].tolist(), np.cumsum(arrays[f"{at}.length"]).tolist()
        return [tuple(flat[start:end]) for start, end in zip([0, *ends], ends, strict=False)]
    if kind is not None:
        return [None if value is None else kind(*value) for value in held]
    return [tuple(value) if isinstance(value, list) else value for value in held]
