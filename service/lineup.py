"""What is published to the threads that answer: the serving model, the running attempts, the queue of given answers.

Upkeep replaces `serving` and `running` whole, and says in `derived_to` up to which commit `running` tells; readers take the
reference once. Appending to a deque needs no lock. `calibrated` is the model that learns and is refitted: it serves, unless a
part of it or a rule was promoted over it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from calibrate.evidence.reliability import Reliability
from predictors.contexts import Context
from service.engine import Question, Serving
from service.intake import Intake
from service.sightings import RunningPhase, Sightings
from telemetry.errors import BadField, UnknownId
from telemetry.ledger import PlanAnswer, Prediction


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt that has not ended, as far as committed events tell."""

    context: Context
    phases: Mapping[str, RunningPhase]


@dataclass
class Challenged:
    """Questions (count) that challengers answered since the start, and those dropped because too many came at once."""

    asked: int = 0
    dropped: int = 0


@dataclass
class Fits:
    """Background fits so far (count), the seconds they took together, and those of the last one."""

    n: int = 0
    total_s: float = 0.0
    last_s: float = 0.0

    def note(self, took_s: float) -> None:
        """Count one more."""
        self.n, self.total_s, self.last_s = self.n + 1, self.total_s + took_s, took_s


@dataclass
class Lineup:
    """The published state. `clock_id` names this machine's monotonic clock, read by `monotonic_ns`.

    `learned_to` is the commit of the newest observations learned, `looked_to` the one up to which nothing is left to learn.
    `trouble` says what stopped the last round of upkeep, None while all is well. `writing` counts answers that left `ledger`
    and are not on disk yet. `gather` brings answers that other processes have given by now into `ledger`, and `settle` has
    all of them on disk; both wait so many seconds at most, and `settle` tells whether it came to that.
    """

    clock_id: str
    serving: Serving | None = None
    calibrated: Serving | None = None
    running: Mapping[str, RunningAttempt] = field(default_factory=dict)
    ledger: deque[Prediction | PlanAnswer] = field(default_factory=deque)
    reliability: Mapping[str, Reliability] = field(default_factory=dict)
    challenged: Challenged = field(default_factory=Challenged)
    fits: Fits = field(default_factory=Fits)
    sightings: Sightings = field(default_factory=Sightings)
    intake: Intake = field(default_factory=Intake)
    derived_to: int = 0
    learned_to: int = 0
    looked_to: int = 0
    trouble: str | None = None
    monotonic_ns: Callable[[], int] = time.monotonic_ns
    writing: int = 0
    gather: Callable[[float], None] = lambda _most_s: None
    settle: Callable[[float], bool] = lambda _most_s: True

    @property
    def answers_pending(self) -> int:
        """Answers given that are not on disk yet; never too few."""
        return self.writing + len(self.ledger)

    @property
    def passed_to(self) -> int:
        """Commit up to which whatever became known is in the answers."""
        return max(self.learned_to, self.looked_to)

    def reliability_of(self, question: str) -> Reliability:
        """How earlier composite answers of this kind turned out."""
        return self.reliability.get(question, Reliability())

    def running_question(self, attempt_id: str, phase: str, elapsed_s: float | None) -> Question:
        """Question about a running attempt by id, aged by this machine's clock where that is the attempt's own."""
        attempt = self._running(attempt_id)
        if attempt is None:
            fix = "it has ended, or its events have not arrived; send context and elapsed_s instead of the id"
            raise UnknownId("attempt_id", attempt_id, fix)
        if elapsed_s is not None:
            return Question(phase, attempt.context, attempt_id, elapsed_s, "given")
        open_phase = attempt.phases.get(phase)
        if open_phase is None:
            fix = f"its open phases are {sorted(attempt.phases)}; ask for one of them, or give elapsed_s"
            raise BadField("phase", phase, fix)
        if open_phase.started_monotonic_ns is not None and open_phase.clock_id == self.clock_id:
            age_s = (self.monotonic_ns() - open_phase.started_monotonic_ns) / 1e9
            return Question(phase, attempt.context, attempt_id, max(age_s, open_phase.seen_s), "monotonic")
        return Question(phase, attempt.context, attempt_id, open_phase.seen_s, "last_event")

    def _running(self, attempt_id: str) -> RunningAttempt | None:
        """The attempt as upkeep observed it, with what was committed since; None where no phase of it is open."""
        observed, seen = self.running.get(attempt_id), self.sightings.of(attempt_id, self.derived_to)
        if seen is None:
            return observed
        if observed is None:
            return RunningAttempt(seen.context, dict(seen.phases)) if seen.phases else None
        still = {name: open_phase for name, open_phase in observed.phases.items() if name not in seen.closed}
        return RunningAttempt(observed.context, {**seen.phases, **still}) if {**seen.phases, **still} else None
