"""The newest values of each of many keys, cheap to fork: a fork copies what a key knows when it first changes it."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)


class Histories(Generic[Key]):
    """Per key, the newest `most` values, oldest first."""

    def __init__(self, most: int, known: Mapping[Key, deque[float]] | None = None) -> None:
        self._most = most
        self._known = dict(known or {})
        self._own: set[Key] = set()

    def fork(self) -> Histories[Key]:
        """The same histories, which from now on change apart from these."""
        self._own = set()
        return Histories(self._most, self._known)

    def of(self, key: Key) -> Sequence[float]:
        """What is known of a key: nothing where it was never seen."""
        return self._known.get(key, ())

    def add(self, key: Key, value: float) -> None:
        """Take a value; the oldest goes where there are more than `most`."""
        self._changing(key).append(value)

    def start_anew(self, key: Key) -> None:
        """Drop what is known of a key."""
        self._changing(key).clear()

    def take_back(self, key: Key, value: float, least: int = 0) -> None:
        """Drop the newest such value, if it is still known and more than `least` are."""
        known = self.of(key)
        if value in known and len(known) > least:
            mine = self._changing(key)
            del mine[len(mine) - 1 - list(reversed(mine)).index(value)]

    def _changing(self, key: Key) -> deque[float]:
        """The key's values, as ones that may be changed here."""
        if key not in self._own:
            self._known[key] = deque(self._known.get(key, ()), maxlen=self._most)
            self._own.add(key)
        return self._known[key]
