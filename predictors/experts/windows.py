"""The newest values of a group, kept in order of size as well, so that quantiles are read off."""

from __future__ import annotations

from bisect import bisect_left, insort
from functools import cached_property

import numpy as np

from predictors.distribution import GRID, Array


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

    @cached_property
    def quantiles(self) -> Array:
        """Quantiles at GRID, shape (len(GRID),): linear between the ranks i / (n + 1), flat past the outer ones."""
        ranked = np.array(self._ranked)
        return np.asarray(np.interp(GRID * (len(ranked) + 1) - 1.0, np.arange(len(ranked)), ranked))
