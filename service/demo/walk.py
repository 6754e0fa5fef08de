"""One datum's way through the system, read from a snapshot: event > row > observation > model > answer > outcome > coverage."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from service.answerers import file_of
from telemetry.store.reader import Reader

_CHOSEN = """
SELECT p.prediction_id FROM predictions p JOIN outcomes o USING (prediction_id)
WHERE p.phase = 'service' AND p.elapsed_s IS NULL AND o.ended = 'completed' AND o.known_until IS NULL
ORDER BY p.made_ns DESC LIMIT 1
"""
_EVENTS = """
SELECT event_id, kind, monotonic_ns, known_from FROM events
WHERE attempt_id = ? AND kind IN ('compute_start', 'compute_finish') ORDER BY monotonic_ns
"""
_COVERED = """
SELECT count(*) FILTER (WHERE o.actual_s <= p.quantiles_s[90]), count(*)
FROM predictions p JOIN outcomes o USING (prediction_id)
WHERE p.phase = 'service' AND p.elapsed_s IS NULL AND o.ended = 'completed' AND o.known_from <= ? AND o.known_until IS NULL
"""


@dataclass(frozen=True)
class Step:
    """A station of the walk: which part of the system, and what the datum looked like there."""

    station: str
    shown: str


def walk(reader: Reader) -> list[Step]:
    """Follow the last completed service that was predicted; empty if there is none."""
    chosen = reader.rows(_CHOSEN)
    if not chosen:
        return []
    answer = _one(reader, "SELECT * FROM predictions WHERE prediction_id = ?", chosen[0][0])
    outcome = _one(reader, "SELECT * FROM outcomes WHERE prediction_id = ? AND known_until IS NULL", chosen[0][0])
    return [
        *_answered(reader, answer),
        *_happened(reader, answer["attempt_id"], outcome["observation_id"]),
        *_judged(reader, answer, outcome),
    ]


def _answered(reader: Reader, answer: dict[str, Any]) -> list[Step]:
    """The model that answered, and its answer before the attempt started."""
    model = _one(reader, "SELECT * FROM models WHERE model_id = ?", file_of(answer["model_id"]))
    q, known = answer["quantiles_s"], f"{answer['n']} outcomes at level {answer['level']}"
    fitted = f"fitted as of commit {model['fit_commit']} on {model['n_observations']} rows"
    return [
        Step(
            "model", f"{model['family']} {model['model_id']}, {fitted}, then every outcome up to commit {answer['as_of_commit']}"
        ),
        Step("answer", f"service in {q[49]:.4f} s (p50), {q[89]:.4f} s (p90); {known}; {answer['status']}: {answer['reasons']}"),
        Step("ledger", f"row of commit {answer['known_from']}; SHA-256 of the answer's JSON {answer['answer_sha256'][:16]}..."),
    ]


def _happened(reader: Reader, attempt_id: str, observation_id: str) -> list[Step]:
    """Events as they were recorded, and the observation they became."""
    seen = _one(reader, "SELECT * FROM observations WHERE observation_id = ? AND known_until IS NULL", observation_id)
    versions = reader.rows("SELECT count(*) FROM observations WHERE observation_id = ?", (observation_id,))[0][0]
    length = f"{seen['ended']} after {seen['duration_s']:.4f} s on the {seen['clock']} clock"
    return [
        *[
            Step("event", f"{e['kind']} at {e['monotonic_ns']} ns; {e['event_id']}, row of commit {e['known_from']}")
            for e in reader.arrow(_EVENTS, (attempt_id,)).to_pylist()
        ],
        Step("observation", f"{seen['phase']} {length}; version {versions}, known from commit {seen['known_from']}"),
    ]


def _judged(reader: Reader, answer: dict[str, Any], outcome: dict[str, Any]) -> list[Step]:
    """The outcome joined to the answer, and the coverage it went into."""
    side = "above" if outcome["actual_s"] > answer["quantiles_s"][89] else "within"
    within, n = reader.rows(_COVERED, (outcome["known_from"],))[0]
    return [
        Step("outcome", f"{outcome['actual_s']:.4f} s, {side} its p90; joined at commit {outcome['known_from']}"),
        Step("coverage", f"with it, {within} of {n} services so far stayed within their p90"),
    ]


def _one(reader: Reader, sql: str, key: str) -> dict[str, Any]:
    """The one row of a query by key."""
    found: dict[str, Any] = reader.arrow(sql, (key,)).to_pylist()[0]
    return found
