"""What became of a prediction: its observation, as the number the prediction was about."""

from __future__ import annotations

from telemetry.ledger import Outcome, Prediction
from telemetry.tables import Observation
from telemetry.words import Ended


def outcome_of(prediction: Prediction, observation: Observation) -> Outcome | None:
    """The outcome of `prediction` if `observation` is of the phase it was about, over, and not over already when asked.

    `actual_s` is the length of the phase in s, or for an answer about a running attempt the length past the elapsed
    time it was asked at; where `ended` is a censoring, what the length is known to exceed.
    """
    if (prediction.attempt_id, prediction.phase) != (observation.attempt_id, observation.phase):
        return None
    if observation.duration_s is None or observation.started_ns is None or observation.ended in {None, Ended.RUNNING}:
        return None
    if _late(prediction, observation.duration_s, observation.started_ns):
        return None
    assert observation.ended is not None
    return Outcome(
        prediction_id=prediction.prediction_id,
        observation_id=observation.observation_id,
        actual_s=observation.duration_s - (prediction.elapsed_s or 0.0),
        ended=observation.ended,
        started_ns=observation.started_ns,
    )


def _late(prediction: Prediction, duration_s: float, started_ns: int) -> bool:
    """Whether the phase was over when the question was put.

    An answer about a running attempt speaks of phases longer than its elapsed time, wherever the wall clock stood:
    the end may have happened without being known yet, and leaving those out would keep the long ones only.
    """
    if prediction.elapsed_s is not None:
        return prediction.elapsed_s >= duration_s
    return prediction.made_ns >= started_ns + round(duration_s * 1e9)
