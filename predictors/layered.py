"""A mapping that changes by making a new one, at a cost that does not grow with its size at every step.

Few recent entries lie over many older ones; once there are more recent ones than the square root of the older, both become one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")
LEAST_RECENT = 64


class Layered(Mapping[K, V]):
    """An immutable mapping; `having` gives one with entries added or replaced and leaves this one as it is."""

    __slots__ = ("_older", "_recent")

    def __init__(self, older: dict[K, V] | None = None, recent: dict[K, V] | None = None) -> None:
        self._older: dict[K, V] = {} if older is None else older
        self._recent: dict[K, V] = {} if recent is None else recent

    def having(self, changed: Mapping[K, V]) -> Layered[K, V]:
        """This mapping with `changed` entries."""
        recent = {**self._recent, **changed}
        if len(recent) > LEAST_RECENT and len(recent) ** 2 > len(self._older):
            return Layered({**self._older, **recent})
        return Layered(self._older, recent)

    def __getitem__(self, key: K) -> V:
        if key in self._recent:
            return self._recent[key]
        return self._older[key]

    def get(self, key: K, default: V | None = None) -> V | None:  # type: ignore[override]
        """The entry, or `default`: the hot path, so without an exception on the way."""
        found = self._recent.get(key)
        return found if found is not None else self._older.get(key, default)

    def __iter__(self) -> Iterator[K]:
        yield from self._older
        yield from (key for key in self._recent if key not in self._older)

    def __len__(self) -> int:
        return len(self._older) + sum(key not in self._older for key in self._recent)

    def __contains__(self, key: object) -> bool:
        return key in self._recent or key in self._older
