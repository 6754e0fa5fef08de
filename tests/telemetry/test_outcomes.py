import pytest

from telemetry.ledger import Outcome, Prediction
from telemetry.outcomes import outcome_of
from telemetry.tables import Observation

START_NS = 1_780_000_000_000_000_000


def prediction(made_s: float = -1.0, elapsed_s: float | None = None, attempt_id: str | None = "a1") -> Prediction:
    asked = {"prediction_id": "p1", "request_id": "r", "attempt_id": attempt_id, "phase": "service", "elapsed_s": elapsed_s}
    made = {"made_ns": START_NS + round(made_s * 1e9), "as_of_commit": 0, "model_id": "m", "context": "{}", "path": ["service"]}
    said = {"status": "thin", "reasons": [], "level": "phase", "n": 0, "n_eff": 0.0, "claimed_to": 0.5}
    grid = {"mean_s": 1.0, "horizon_s": 9.0, "levels": [0.5], "quantiles_s": [1.0], "answer_sha256": "0"}
    return Prediction(**asked, **made, **said, **grid)


def observation(duration_s: float | None = 10.0, ended: str | None = "completed", **changed: object) -> Observation:
    values = {"observation_id": "a1/service/0", "attempt_id": "a1", "phase": "service", "started_ns": START_NS}
    return Observation(**values | {"duration_s": duration_s, "ended": ended} | changed)


def outcome(actual_s: float, ended: str = "completed") -> Outcome:
    return Outcome(prediction_id="p1", observation_id="a1/service/0", actual_s=actual_s, ended=ended, started_ns=START_NS)


def test_a_whole_duration_is_compared_with_the_duration() -> None:
    assert outcome(10.0) == outcome_of(prediction(), observation())


def test_a_residual_is_compared_with_what_was_left() -> None:
    assert outcome(7.5) == outcome_of(prediction(made_s=2.5, elapsed_s=2.5), observation())


@pytest.mark.parametrize("ended", ["failed", "cancelled", "timed_out"])
def test_however_it_ended_is_kept_with_its_length_or_bound(ended: str) -> None:  # P17, T10
    assert outcome(8.0, ended) == outcome_of(prediction(elapsed_s=2.0), observation(ended=ended))


def test_a_running_or_absent_phase_has_no_outcome_yet() -> None:
    assert outcome_of(prediction(), observation(ended="running")) is None
    assert outcome_of(prediction(), observation(None, None, absence="unobserved")) is None
    assert outcome_of(prediction(), observation(started_ns=None)) is None


def test_an_answer_about_something_else_has_no_outcome_here() -> None:
    assert outcome_of(prediction(attempt_id="a2"), observation()) is None
    assert outcome_of(prediction(attempt_id=None), observation()) is None
    assert outcome_of(prediction(), observation(phase="setup")) is None


def test_a_prediction_made_when_the_phase_was_over_is_late() -> None:
    assert outcome(10.0) == outcome_of(prediction(made_s=9.999_999_999), observation())
    assert outcome_of(prediction(made_s=10.0), observation()) is None


def test_a_residual_is_late_by_the_elapsed_time_it_was_asked_at_not_by_the_wall() -> None:
    assert outcome(1.0) == outcome_of(prediction(made_s=12.0, elapsed_s=9.0), observation())
    assert outcome_of(prediction(made_s=5.0, elapsed_s=10.0), observation()) is None


def test_a_phase_of_no_length_is_an_outcome_of_zero() -> None:  # S05
    assert outcome(0.0) == outcome_of(prediction(), observation(0.0))
