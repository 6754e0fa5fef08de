"""Answers made ready again after every change: what was asked about lately is likely to be asked about soon."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import orjson

from predictors.contexts import Context
from predictors.model import Model
from telemetry.ledger import PlanAnswer, Prediction

MOST = 200
"""Pairs of a context and a phase kept ready."""
SLICE = 10
"""Pairs answered between two looks at whether there is something better to do."""


class Recent:
    """The pairs asked about last; a model remembers its answers, so asking it once makes the next time cheap."""

    def __init__(self) -> None:
        self._pairs: dict[tuple[Context, str], None] = {}

    def note(self, given: Sequence[Prediction | PlanAnswer]) -> None:
        """Take in what was answered, oldest first; only the newest count."""
        for row in [row for row in given if isinstance(row, Prediction)][-MOST:]:
            pair = Context.of(orjson.loads(row.context)), row.phase
            self._pairs.pop(pair, None)
            self._pairs[pair] = None
        for old in list(self._pairs)[:-MOST]:
            del self._pairs[old]

    def warm(self, model: Model, may_go_on: Callable[[], bool]) -> None:
        """Ask the model about the pairs it can answer, newest first, as long as `may_go_on`."""
        pairs = [pair for pair in reversed(self._pairs) if model.knows(pair[1])]
        for start in range(0, len(pairs), SLICE):
            if not may_go_on():
                return
            part = pairs[start : start + SLICE]
            model.predict([context for context, _ in part], [phase for _, phase in part])
