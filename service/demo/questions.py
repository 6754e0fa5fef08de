"""What the demo asks of the API: every attempt before it starts, long ones while they run, loads before they must start."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

from predictors.contexts import Context
from service.client.sync import Client
from service.demo.supervisor import Upcoming
from service.plan_schemas import Unanswered
from telemetry.errors import BadField, NoEvidence, UnknownId
from telemetry.words import State

LOADING = ("read", "warmup", "setup")
COMPUTING = ("time_to_first_output", "service")
FRACTIONS = (0.25, 0.5, 0.75)
LEAST_MEDIAN_S = 0.08
"""Shorter services are not asked while they run: the question would take a good part of them."""
DEADLINES = (0.9, 1.1, 1.3, 1.6, 2.0, 3.0)
"""Deadlines asked for, as multiples of the predicted medians of setup and service together."""
DEADLINE_LEVEL = 0.9
RISK = 0.1
"""Risk accepted of a load not being ready when its predecessor ends."""
HAND_OVER_S = 0.001
"""Planned wait between an attempt's being eligible and its start: one message to a worker."""


@dataclass
class Asked:
    """What was asked of the API, beside what its ledger keeps."""

    predicted: int = 0
    not_yet_known: int = 0
    residuals: int = 0
    not_seen_running: int = 0
    latency_s: list[float] = field(default_factory=list)
    fractions: dict[str, float] = field(default_factory=dict)
    """Fraction of the predicted median at which a remaining time was asked, by prediction_id."""


class Questions:
    """The callbacks of a run."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client, self.asked = client, Asked()
        self._rng, self._seed = Random(seed), seed
        self._median_s: dict[str, float] = {}

    def before(self, upcoming: Upcoming) -> Sequence[float]:
        """Predict every phase, ask for a deadline; returns the ages at which to ask for the remaining service time, in s."""
        context = Context.of(upcoming.fields).known()
        resident = upcoming.fields["state"] == State.RESIDENT
        phases = COMPUTING if resident else LOADING + COMPUTING
        began = time.perf_counter()
        try:
            told = self.client.predict([context], phases, attempt_ids=[upcoming.attempt_id])
        except NoEvidence:
            self.asked.not_yet_known += 1
            return ()
        self.asked.latency_s.append(time.perf_counter() - began)
        self.asked.predicted += 1
        medians = {a.phase: a.quantiles_s[0] for a in told.answers if a.quantiles_s is not None}
        if not resident and {"setup", "service"} <= medians.keys():
            self._deadline(upcoming.attempt_id, context, medians["setup"] + medians["service"])
        if medians.get("service", 0.0) < LEAST_MEDIAN_S:
            return ()
        self._median_s[upcoming.attempt_id] = medians["service"]
        return [fraction * medians["service"] for fraction in FRACTIONS]

    def _deadline(self, attempt_id: str, context: dict[str, object], typical_s: float) -> None:
        """Ask for the chance of completing by a deadline drawn before anything is known of the outcome."""
        deadline_s = HAND_OVER_S + typical_s * self._rng.choice(DEADLINES)
        setup = {"name": "setup", "kind": "setup", "context": context, "attempt": attempt_id, "after": ["hand-over"]}
        service = {"name": "service", "kind": "service", "context": context, "attempt": attempt_id, "after": ["setup"]}
        plan = {
            "plan_id": attempt_id,
            "attempt_id": attempt_id,
            "stages": [{"name": "hand-over", "kind": "wait", "planned_s": HAND_OVER_S}, setup, service],
            "deadline_s": deadline_s,
            "level": DEADLINE_LEVEL,
        }
        self.client.chance([plan], self._seed)

    def running(self, upcoming: Upcoming, age_s: float) -> None:
        """Ask by id how much longer the service will take; the API ages it by the attempt's own clock."""
        try:
            told = self.client.residual([{"attempt_id": upcoming.attempt_id, "phase": "service"}])
        except (UnknownId, BadField):
            # Its start is still on its way to the store, or it has just ended.
            self.asked.not_seen_running += 1
            return
        answer = told.answers[0]
        if answer.prediction_id is not None:
            self.asked.residuals += 1
            fraction = age_s / self._median_s[upcoming.attempt_id]
            self.asked.fractions[answer.prediction_id] = min(FRACTIONS, key=lambda known: abs(known - fraction))

    def need(self, load: Upcoming, predecessor: Upcoming) -> float | None:
        """Ask when a load must start to be ready when the running predecessor ends; s from now, None if nobody can say."""
        question = {
            "question_id": load.attempt_id,
            "attempt_id": load.attempt_id,
            "load": {"name": "load", "kind": "setup", "context": Context.of(load.fields).known(), "attempt": load.attempt_id},
            "need": {"predecessors": [{"name": "before", "kind": "service", "running_attempt_id": predecessor.attempt_id}]},
            "delta": RISK,
        }
        try:
            answer = self.client.latest_start([question], self._seed).answers[0]
        except (NoEvidence, UnknownId, BadField):
            return None
        return None if isinstance(answer, Unanswered) else max(answer.latest_start_s or 0.0, 0.0)
