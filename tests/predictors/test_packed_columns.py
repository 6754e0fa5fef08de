"""Rows come back from their columns as they were."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictors import columns


@dataclass(frozen=True)
class Place:
    name: str
    height: float | None


@dataclass(frozen=True)
class Seen:
    number: int
    length: float
    curve: NDArray[np.float32]
    last: tuple[float, ...]
    crowd: tuple[int, ...]
    path: tuple[str, ...]
    where: Place | None


ROWS = [
    Seen(3, 0.1, np.array([1.5, np.inf], dtype=np.float32), (0.1, 0.2), (1, 2), ("a", "b"), Place("höst", None)),
    Seen(2**40, -0.0, np.array([2.5, 0.0], dtype=np.float32), (), (), (), None),
]


def test_rows_come_back_with_the_same_values_and_types() -> None:
    arrays: dict[str, Any] = {}
    told = columns.pack("seen", ROWS, arrays)
    back = columns.unpack("seen", told, arrays, Seen, where=Place)
    for was, now in zip(ROWS, back, strict=True):
        assert (was.number, was.length, was.last, was.crowd, was.path, was.where) == (
            now.number, now.length, now.last, now.crowd, now.path, now.where,
        )  # fmt: skip
        assert (np.float32, was.curve.tobytes()) == (now.curve.dtype, now.curve.tobytes())
    assert str(ROWS[1].length) == str(back[1].length)
    assert (int, float) == (type(back[0].number), type(back[0].length))


def test_numbers_are_arrays_and_words_are_not() -> None:
    arrays: dict[str, Any] = {}
    told = columns.pack("seen", ROWS, arrays)
    assert [["a", "b"], []] == told["path"]
    assert [["höst", None], None] == told["where"]
    assert all(array.dtype.kind in "iuf" for array in arrays.values())
    assert [2, 0] == arrays["seen.last.length"].tolist()


def test_no_rows_are_no_columns() -> None:
    arrays: dict[str, Any] = {}
    assert {} == columns.pack("seen", [], arrays)
    assert [] == columns.unpack("seen", {}, arrays, Seen)
    assert {} == arrays
