"""What trees are grown on: rows as they were asked, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import Array
from predictors.experts.forest import MOST_ROWS

Lesson = tuple[NDArray[np.float32], float]


class Lessons:
    """The newest lessons: features (n_features,), residual in log time. Immutable values sharing a list, each to its own end."""

    __slots__ = ("_n", "_rows")

    def __init__(self, rows: list[Lesson] | None = None) -> None:
        self._rows: list[Lesson] = [] if rows is None else rows
        self._n = len(self._rows)

    def __len__(self) -> int:
        return self._n

    def having(self, lessons: Sequence[Lesson]) -> Lessons:
        """These lessons and further ones; far past MOST_ROWS the oldest are left behind."""
        if not lessons:
            return self
        rows = self._rows
        if len(rows) != self._n or self._n >= 2 * MOST_ROWS:  # another value went on from here, or the list has grown long
            rows = rows[: self._n][-MOST_ROWS:]
        rows.extend(lessons)
        return Lessons(rows)

    def arrays(self) -> tuple[Array, Array]:
        """Features (n, n_features) and residuals (n,) of the newest lessons."""
        newest = self._rows[: self._n][-MOST_ROWS:]
        features = np.array([features for features, _ in newest], dtype=np.float64)
        return features, np.array([residual for _, residual in newest], dtype=np.float64)
