"""Outcomes of hosts that the last fit knew none of: a few of them make the next fit due, since fits alone place a host."""

from __future__ import annotations

from collections.abc import Container

from predictors.contexts import GROUPS, Context, groups_of

HOST = GROUPS.index("host")
ENOUGH = 10
"""Outcomes (count) of such hosts, all together, after which a fit is due."""


class Newcomers:
    """Counts outcomes of hosts that had none of their phase and state when the last fit began."""

    def __init__(self) -> None:
        self._met: set[str] = set()
        self._new: set[str] = set()
        self.outcomes = 0
        """Outcomes of such hosts since the last fit."""

    def ended(self, context: Context, phase: str, known: Container[str] = ()) -> None:
        """Count an outcome of a positive duration; hosts whose group is in `known` have had others before any were counted."""
        group = groups_of(context, phase)[HOST]
        if context.host is None or group in self._met:
            return
        if group in known and group not in self._new:
            self._met.add(group)
            return
        self._new.add(group)
        self.outcomes += 1

    def fitted(self) -> None:
        """A fit begins that knows all that was counted."""
        self._met |= self._new
        self._new, self.outcomes = set(), 0

    @property
    def due(self) -> bool:
        """Whether so many are known that a fit should place these hosts."""
        return self.outcomes >= ENOUGH
