"""The newest values of a group, kept in order of size as well, so that quantiles are read off."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from functools import cache, cached_property
from operator import itemgetter

import numpy as np

from predictors.distribution import GRID, Array

Pick = Callable[[tuple[float, ...]], tuple[float, ...]]


class Window:
    """At most `size` values, oldest first. Immutable: `having` gives the next one."""

    def __init__(self, size: int, values: tuple[float, ...] = (), ranked: tuple[float, ...] | None = None) -> None:
        self.size = size
        self.values = values
        self._ranked = tuple(sorted(values)) if ranked is None else ranked

    def __len__(self) -> int:
        return len(self.values)

    def having(self, value: float) -> Window:
        """The window with one more value, without its oldest where it was full."""
        ranked, values = list(self._ranked), self.values
        if len(values) >= self.size:
            del ranked[bisect_left(ranked, values[0])]
            values = values[1:]
        insort(ranked, value)
        return Window(self.size, (*values, value), tuple(ranked))

    @property
    def span(self) -> tuple[float, float]:
        """The smallest and the largest value."""
        return self._ranked[0], self._ranked[-1]

    @cached_property
    def quantiles(self) -> Array:
        """Quantiles at GRID, shape (len(GRID),): linear between the ranks i / (n + 1), flat past the outer ones."""
        low, high, share = _places(len(self._ranked))
        return np.array(low(self._ranked)) * (1.0 - share) + np.array(high(self._ranked)) * share


@cache
def _places(n: int) -> tuple[Pick, Pick, Array]:
    """Which of n ranked values lie below and above each level of GRID, and how far it lies between them."""
    at = np.clip(GRID * (n + 1) - 1.0, 0.0, n - 1.0)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, n - 1)
    return itemgetter(*low.tolist()), itemgetter(*high.tolist()), at - low
