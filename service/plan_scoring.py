"""Joins composite answers to what happened: a chance to its attempt's completion, a latest start to readiness and need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from calibrate.evidence.reliability import Reliability
from service.plan_questions import turn_of
from service.scoring import NEWEST
from telemetry import asof
from telemetry.ledger import PlanAnswer, PlanOutcome
from telemetry.store.batch import Batch
from telemetry.store.reader import Reader
from telemetry.tables import Observation
from telemetry.words import Ended

Key = tuple[str, str]
TIE = 1.0 + 1e-9
"""A deadline met to this relative precision is met."""


class WaitingPlans:
    """Answers about named attempts of which something has not ended."""

    def __init__(self, answers: Iterable[PlanAnswer] = ()) -> None:
        self._by_phase: dict[Key, list[PlanAnswer]] = defaultdict(list)
        self._seen: dict[Key, Observation] = {}
        self.add(answers)

    @property
    def attempt_ids(self) -> list[str]:
        """Attempts waited for, sorted."""
        return sorted({attempt_id for attempt_id, _ in self._by_phase})

    def add(self, answers: Iterable[PlanAnswer]) -> None:
        """Wait for these; hypothetical ones, and loads needed by nobody named, have no outcome."""
        for answer in answers:
            for key in _awaited(answer):
                self._by_phase[key].append(answer)

    def score(self, ended: Sequence[Observation]) -> list[tuple[PlanAnswer, PlanOutcome]]:
        """Outcomes of answers of which the last awaited phase is among these."""
        scored = []
        for row in ended:
            key = (row.attempt_id, row.phase)
            if key in self._by_phase:
                self._seen[key] = row
                for answer in list(self._by_phase[key]):
                    if all(other in self._seen for other in _awaited(answer)):
                        scored.append((answer, _outcome(answer, self._seen)))
                        self._forget(answer)
        return [(answer, outcome) for answer, outcome in scored if outcome is not None]

    def _forget(self, answer: PlanAnswer) -> None:
        """Stop waiting; observations nobody waits for any more go too."""
        for key in _awaited(answer):
            self._by_phase[key].remove(answer)
            if not self._by_phase[key]:
                del self._by_phase[key]
                self._seen.pop(key, None)


@dataclass(frozen=True, slots=True)
class Correction:
    """An answer whose outcome was known, the outcome that stood, and what later news makes of it (None: there is none)."""

    answer: PlanAnswer
    before: PlanOutcome
    now: PlanOutcome | None


def corrections(reader: Reader, corrected: Sequence[Observation]) -> list[Correction]:
    """Outcomes that stand in the store and that these observations, corrected by late events, change."""
    ids = sorted({row.attempt_id for row in corrected})
    answers = asof.plan_answers(reader, NEWEST, scored=True, attempt_ids=ids) if ids else []
    if not answers:
        return []
    waiting, before = WaitingPlans(answers), asof.plan_outcomes(reader, NEWEST)
    standing = asof.standing(reader, waiting.attempt_ids, NEWEST).values()
    now = {answer.answer_id: outcome for answer, outcome in waiting.score([row for row in standing if row.absence is None])}
    found = [Correction(a, before[a.answer_id], now.get(a.answer_id)) for a in answers]
    return [one for one in found if one.before != one.now]


def corrected_batch(found: Sequence[Correction]) -> Batch:
    """Versions to close and to write."""
    rows = tuple(one.now for one in found if one.now is not None)
    return Batch(rows, tuple((PlanOutcome, (one.answer.answer_id,)) for one in found))


def _awaited(answer: PlanAnswer) -> list[Key]:
    """Phases whose ends decide the answer."""
    if answer.attempt_id is None:
        return []
    if answer.question == "chance":
        return [(answer.attempt_id, "completion")]
    return [(answer.attempt_id, "setup"), *((name, "service") for name in answer.needed_by)] if answer.needed_by else []


def _outcome(answer: PlanAnswer, seen: Mapping[Key, Observation]) -> PlanOutcome | None:
    """What the ended phases tell of an answer; None where there was no need, since a predecessor did not complete."""
    rows = [seen[key] for key in _awaited(answer)]
    return _completion(answer, rows[0]) if answer.question == "chance" else _readiness(answer, rows[0], rows[1:])


def _completion(answer: PlanAnswer, row: Observation) -> PlanOutcome | None:
    """Completion counted from `eligible`, or from the question where the attempt was eligible before it."""
    if row.duration_s is None or row.started_ns is None or row.ended is None or answer.deadline_s is None:
        return None
    actual_s = row.duration_s - max(answer.made_ns - row.started_ns, 0) / 1e9
    if actual_s <= 0.0:
        return None  # it was over when the question was put
    by_then = actual_s <= answer.deadline_s * TIE
    left_open = row.ended in {Ended.CANCELLED, Ended.TIMED_OUT} and by_then
    met = None if left_open else row.ended is Ended.COMPLETED and by_then
    return PlanOutcome(answer_id=answer.answer_id, actual_s=actual_s, ended=row.ended, met=met)


def _readiness(answer: PlanAnswer, load: Observation, predecessors: Sequence[Observation]) -> PlanOutcome | None:
    """Ready minus needed; wall times place phases of one host beside each other."""
    if load.ended is None or load.started_ns is None or any(row.ended is not Ended.COMPLETED for row in predecessors):
        return None
    if _end_ns(load) <= answer.made_ns:
        return None  # it was over when the question was put
    late_s = (_end_ns(load) - max(_end_ns(row) for row in predecessors)) / 1e9
    censored = load.ended in {Ended.CANCELLED, Ended.TIMED_OUT}
    return PlanOutcome(
        answer_id=answer.answer_id,
        actual_s=late_s,
        started_s=(load.started_ns - answer.made_ns) / 1e9,
        ended=load.ended,
        met=None if censored and late_s <= 0.0 else load.ended is Ended.COMPLETED and late_s <= 0.0,
    )


def _end_ns(row: Observation) -> int:
    assert row.started_ns is not None
    assert row.duration_s is not None
    return row.started_ns + round(row.duration_s * 1e9)


def with_corrections(before: Reliability, found: Sequence[Correction]) -> Reliability:
    """How chances turned out, once these outcomes are other than they seemed."""
    for one in found:
        if one.answer.question == "chance" and one.before.met is not None:
            before = before.without(one.answer.probability, met=one.before.met, said=_said(one.answer))
    return with_outcomes(before, [(one.answer, one.now) for one in found if one.now is not None])


def with_outcomes(before: Reliability, scored: Iterable[tuple[PlanAnswer, PlanOutcome]]) -> Reliability:
    """How chances turned out, with these; outcomes left open by censoring tell nothing."""
    for answer, outcome in scored:
        if answer.question == "chance" and outcome.met is not None:
            before = before.after(answer.probability, met=outcome.met, said=_said(answer))
    return before


def _said(answer: PlanAnswer) -> float:
    """What scenarios said of a chance before it was turned."""
    return float(turn_of(answer).back(np.array(answer.probability)))
