"""What is known of the stages of a request: the law of each, what links them, and what its evidence is worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from predictors.distribution import Array, Support
from predictors.joint.quantile_table import Timings, table_of, timings_of
from predictors.joint.scenarios import stacked
from predictors.plans.graph import Plan, Stage, StageKind
from service.engine import Serving, judge
from service.plan_questions import PlannedStage
from service.plan_retries import tried_again
from service.plan_tables import Kind, Tabulated
from telemetry.errors import BadField, NoEvidence
from telemetry.words import Status

PRECEDENCE = (Status.SHADOW, Status.EXTRAPOLATED, Status.THIN, Status.CALIBRATED)
WAITS = -1
"""In the place of a law's row where a stage is a planned wait."""


class Law(NamedTuple):
    """What decides a stage's timing: its kind, its age if it runs, its length if it is over; not its place in the plan."""

    kind: Kind
    elapsed_s: float | None
    took_s: float | None


@dataclass(frozen=True)
class Known:
    """The laws that occur in a request, equal ones once: `timings`, `supports` and `rho` by row; `rows` of each list asked."""

    serving: Serving
    laws: tuple[Law, ...]
    timings: Timings
    supports: tuple[Support, ...]
    rho: tuple[float, ...]
    rows: tuple[tuple[int, ...], ...]

    def plan(self, stages: Sequence[PlannedStage], rows: Sequence[int], key: str) -> Plan:
        """The stages, whose laws are at `rows`, as a plan whose draws are keyed by `key`."""
        share, rho = self.serving.model.dependence.share, self.rho
        return Plan(
            tuple(
                Stage(stage.name, stage.kind, stage.after, stage.planned_s)
                if row == WAITS
                else Stage(
                    stage.name,
                    stage.kind,
                    stage.after,
                    None,
                    row,
                    self.laws[row].kind.context.host or "",
                    stage.attempt,
                    share.get(stage.phase, 0.0),
                    rho[row] if stage.kind is StageKind.SERVICE else 0.0,
                    stage.channel,
                )
                for stage, row in zip(stages, rows, strict=True)
            ),
            key,
        )

    @cached_property
    def _judged(self) -> list[tuple[int, list[str]]]:
        """Place of each law's status in PRECEDENCE, and its reasons."""
        found = [judge(support, law.elapsed_s) for support, law in zip(self.supports, self.laws, strict=True)]
        return [(PRECEDENCE.index(status), reasons) for status, reasons in found]

    def status(self, rows: Sequence[int]) -> tuple[Status, list[str]]:
        """The lowest status among laws, with all reasons."""
        found = [self._judged[row] for row in rows if row != WAITS]
        return PRECEDENCE[min(place for place, _ in found)], sorted({reason for _, reasons in found for reason in reasons})

    @cached_property
    def _behind(self) -> list[float]:
        """Outcomes (effective count) behind each open law; of those behind one that runs, as many as got so far."""
        n_eff = np.array([support.n_eff for support in self.supports])
        over = np.array([law.took_s is not None for law in self.laws])
        return list(np.where(over, np.inf, n_eff * (1.0 - self.timings.passed)).tolist())

    def behind(self, rows: Sequence[int]) -> float:
        """Fewest outcomes behind a law of these that is open."""
        return min((self._behind[row] for row in rows if row != WAITS), default=np.inf)

    @cached_property
    def _claimed(self) -> list[float]:
        """Level that the outcomes known of each law's phase can speak for: n of them for n / (n + 1); 1 where it is over."""
        n = {phase: self.serving.model.outcomes(phase) for phase in {law.kind.phase for law in self.laws}}
        return [1.0 if law.took_s is not None else n[law.kind.phase] / (n[law.kind.phase] + 1.0) for law in self.laws]

    def doubt(self, rows: Sequence[int], status: Status, level: float) -> str | None:
        """Why nothing may be certified at `level` however sure it looks: never seen, or more than so few outcomes can claim."""
        if status is Status.SHADOW:
            return "shadow_cannot_certify"
        claimed = min((self._claimed[row] for row in rows if row != WAITS), default=1.0)
        return "too_few_outcomes" if level > claimed + 1e-12 else None


def known(serving: Serving | None, asked: Sequence[Sequence[PlannedStage]]) -> Known:
    """Laws of lists of stages; NoEvidence names the phases nothing is known of."""
    place: dict[Law, int] = {}
    rows = tuple(
        tuple(
            WAITS
            if s.context is None
            else place.setdefault(Law(Kind(s.context, s.phase, s.retries, s.retry_wait_s), s.elapsed_s, s.took_s), len(place))
            for s in stages
        )
        for stages in asked
    )
    if not place:
        raise BadField("stages", "only waits", "give at least one stage with a context")
    laws = tuple(place)
    missing = sorted(phase for phase in {law.kind.phase for law in laws} if serving is None or not serving.model.knows(phase))
    if serving is None or missing:
        fix = "no finished attempt of these phases is known; POST their events to /v1/events first"
        raise NoEvidence("phase", ", ".join(missing), fix)
    found, at = serving.tables.holding(serving.model, [law.kind for law in laws])
    timings = _timings(serving, found, laws, np.array(at, dtype=np.intp))
    return Known(serving, laws, timings, tuple(found.supports[i] for i in at), tuple(found.rho[i] for i in at), rows)


def _timings(serving: Serving, found: Tabulated, laws: Sequence[Law], at: np.ndarray[tuple[int], np.dtype[np.intp]]) -> Timings:
    """Timings of the laws, in order: those of stages not begun are kept ready, at `at`; others are made by what was observed."""
    observed = [i for i, law in enumerate(laws) if law.elapsed_s is not None or law.took_s is not None]
    if not observed:
        return found.timings(at)
    fresh = np.setdiff1d(np.arange(len(laws)), observed)
    order = np.argsort(np.concatenate([fresh, observed]))
    return stacked(found.alone(at[fresh]), _observed(serving, [laws[i] for i in observed])).take(order)


def _observed(serving: Serving, laws: Sequence[Law]) -> Timings:
    """Timings of stages that run or have finished."""
    contexts, phases = [law.kind.context for law in laws], [law.kind.phase for law in laws]
    elapsed, took = _optional([law.elapsed_s for law in laws]), _optional([law.took_s for law in laws])
    complete = serving.model.p_complete(contexts, phases, np.nan_to_num(elapsed))
    law = serving.model.predict(contexts, phases)
    found = timings_of(law, elapsed_s=elapsed, took_s=took, p_complete=np.where(np.isnan(took), complete, 1.0))
    for i, (kind, elapsed_s, took_s) in enumerate(laws):
        if kind.retries and took_s is None:
            tries = tried_again(serving.model, *kind, elapsed_s)
            again = table_of(tries.law)
            found.table.nodes[i], found.table.knee[i], found.p_complete[i] = again.nodes[0], again.knee[0], tries.p_complete
    return found


def _optional(values: Sequence[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values])
