"""Joins answers to what happened: predictions wait by attempt and phase until an observation of it is final."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from telemetry import asof
from telemetry.ledger import Outcome, Prediction
from telemetry.outcomes import outcome_of
from telemetry.rows import Row
from telemetry.store.batch import Batch
from telemetry.store.reader import Reader
from telemetry.tables import Observation

NEWEST = 2**62
"""A commit after all: scores are joined from whatever is known now."""


class Waiting:
    """Predictions about named attempts whose phase has not ended."""

    def __init__(self, predictions: Iterable[Prediction] = ()) -> None:
        self._by_phase: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
        self.add(predictions)

    def add(self, predictions: Iterable[Prediction]) -> None:
        """Wait for these; hypothetical ones (without an attempt) have no outcome."""
        for row in predictions:
            if row.attempt_id is not None:
                self._by_phase[row.attempt_id, row.phase].append(row)

    def score(self, reader: Reader, ended: Sequence[Observation], corrected: Sequence[Observation]) -> Batch | None:
        """Outcomes of observations that became final, as a batch; None if there are none.

        An observation that a late event corrected finds its predictions in the store, and their outcomes are replaced.
        """
        outcomes: list[Outcome] = []
        closes: list[tuple[type[Row], tuple[Any, ...]]] = []
        for row in ended:
            outcomes += _outcomes(self._by_phase.pop((row.attempt_id, row.phase), ()), row)
        for row in corrected:
            self._by_phase.pop((row.attempt_id, row.phase), None)
            kept = asof.rows_of(Prediction, asof.predictions(reader, NEWEST, attempt_ids=[row.attempt_id]))
            predictions = [p for p in kept if p.phase == row.phase]
            outcomes += _outcomes(predictions, row)
            closes += [(Outcome, (p.prediction_id,)) for p in predictions]
        return Batch(tuple(outcomes), tuple(closes)) if outcomes or closes else None


def _outcomes(predictions: Iterable[Prediction], row: Observation) -> list[Outcome]:
    """What the observation tells of each prediction; nothing of one made after the phase was over."""
    return [found for p in predictions if (found := outcome_of(p, row)) is not None]
