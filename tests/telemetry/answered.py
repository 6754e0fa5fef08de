"""Answers with what became of them, as rows; uniform on (0, 100) s unless told otherwise, so that the quantile at p is 100 p."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from predictors.distribution import GRID
from telemetry.ledger import Outcome, Prediction
from telemetry.store.batch import Batch
from telemetry.words import Ended

SECOND_NS = 1_000_000_000
UNIFORM_S = [100.0 * float(level) for level in GRID]
MADE = {"request_id": "r", "as_of_commit": 0, "model_id": "m", "answer_sha256": "0", "levels": [0.5], "reasons": ["too_few"]}
SAID = {"status": "thin", "level": "host", "n": 8, "n_eff": 5.0, "claimed_to": 0.8, "mean_s": 50.0, "horizon_s": 100.0}


def answer(
    number: int,
    actual_s: float,
    ended: Ended = Ended.COMPLETED,
    *,
    context: dict[str, Any] | None = None,
    made_ns: int | None = None,
    quantiles_s: Sequence[float] = UNIFORM_S,
    **changed: Any,
) -> tuple[Prediction, Outcome]:
    """An answer about the service of attempt `a-number`, put a second before it started at `number` times 1000 s."""
    started_ns = number * 1_000 * SECOND_NS
    known = {"state": "cold", "host": "north"} if context is None else context
    about = {
        "attempt_id": f"a-{number}",
        "phase": "service",
        "context": json.dumps(known),
        "path": ["service", f"service#{known}"],
    }
    asked_ns = started_ns - SECOND_NS if made_ns is None else made_ns
    values = {"prediction_id": f"p-{number:06d}", "made_ns": asked_ns, "quantiles_s": list(quantiles_s), **about, **MADE, **SAID}
    prediction = Prediction(**values | changed)
    told = {
        "observation_id": f"{prediction.attempt_id}/service/0",
        "actual_s": actual_s,
        "started_ns": started_ns,
        "ended": ended,
    }
    return prediction, Outcome(prediction_id=prediction.prediction_id, **told)


def batch(told: Sequence[tuple[Prediction, Outcome]]) -> Batch:
    """All of them as one commit."""
    return Batch(tuple(row for pair in told for row in pair))
