"""One rule of thumb as a model: whatever a rule says of durations above zero, with the evidence behind it.

Failures are left out of what rules learn (time given completion); the chance of completing is a share of what ended, whatever has
elapsed. A rule with `after` learns each outcome as it becomes known; any other stands still until the next fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from predictors.baselines.evidence import Evidence, evidence_of
from predictors.baselines.quantile_curves import HAZARDS, Knots, curve_through
from predictors.causes import Incidence
from predictors.contexts import Context
from predictors.distribution import Array
from predictors.frames import Frame
from predictors.grids import Curve, GridHazard
from predictors.joint.dependence import INDEPENDENT, Dependence
from predictors.model import Change
from predictors.scores import FLOOR_S
from telemetry.errors import NoEvidence

Pair = tuple[Context, str]
MEMO = 50_000
"""Pairs of context and phase remembered; further ones are worked out anew each time."""
INSTANT = Knots(np.log(FLOOR_S) + np.arange(len(HAZARDS)) * 1e-6, HAZARDS)
"""What little is left of a phase that never took any time."""


class Rule(Protocol):
    """What a baseline knows. Values are immutable, but for memos of what follows from them."""

    def knots(self, pairs: Sequence[Pair]) -> list[Knots]:
        """Law of durations above zero of each pair; each phase has an outcome above zero."""


@runtime_checkable
class Learning(Rule, Protocol):
    """A rule that takes outcomes as they become known."""

    def after(self, changes: Sequence[Change]) -> Rule:
        """The rule that also knows `changes`, in their order; self is untouched."""


@dataclass(frozen=True)
class Alone:
    """A model of one rule: see `predictors.model.Model`. Phases are independent, and causes are told apart by shares alone."""

    rule: Rule
    evidence: Evidence
    commit: int
    fit_commit: int
    dependence: Dependence = INDEPENDENT
    curves: dict[Pair, Curve] = field(default_factory=dict, repr=False, compare=False)

    def knows(self, phase: str) -> bool:
        """Whether any outcome of the phase is known."""
        return self.evidence.outcomes(phase) > 0

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases with a known outcome, sorted."""
        return self.evidence.phases

    def outcomes(self, phase: str) -> int:
        """How many completed outcomes of the phase are known, whatever their context."""
        return self.evidence.outcomes(phase)

    def predict(self, contexts: Sequence[Context], phases: Sequence[str]) -> GridHazard:
        """Time given completion of each pair, in s; NoEvidence names phases without a known outcome."""
        missing = sorted({phase for phase in phases if not self.knows(phase)})
        if missing:
            raise NoEvidence("phase", missing, "send completed attempts with this phase, or import recorded ones")
        pairs = list(zip(contexts, phases, strict=True))
        found = {pair: self.curves[pair] for pair in pairs if pair in self.curves}
        found |= self._worked_out([pair for pair in dict.fromkeys(pairs) if pair not in found])
        return GridHazard(tuple(found[pair] for pair in pairs))

    def _worked_out(self, pairs: list[Pair]) -> dict[Pair, Curve]:
        """Curves of distinct pairs, remembered where there is room."""
        asked = [pair for pair in pairs if self.evidence.positive(pair[1])]
        said = dict(zip(asked, self.rule.knots(asked) if asked else [], strict=True))
        made = {}
        for pair in pairs:
            zeros, completing = self.evidence.zero_share(*pair), self.evidence.p_complete(*pair)
            made[pair] = curve_through(said.get(pair, INSTANT), zeros, self.evidence.support(*pair), completing)
        if len(self.curves) < MEMO:
            self.curves.update(made)
        return made

    def p_complete(self, contexts: Sequence[Context], phases: Sequence[str], elapsed_s: Array) -> Array:
        """Probability of completing rather than failing, shape (n_pairs,), the same for every elapsed_s (n_pairs,)."""
        curves = self.predict(contexts, phases).curves
        return np.array([curve.p_complete_at(age_s) for curve, age_s in zip(curves, elapsed_s.tolist(), strict=True)])

    def incidence(self, context: Context, phase: str) -> Incidence | None:  # noqa: ARG002
        """None: a rule of thumb tells nothing of causes over time. NoEvidence as `predict`."""
        if not self.knows(phase):
            raise NoEvidence("phase", phase, "send completed attempts with this phase, or import recorded ones")
        return None

    def after(self, changes: Sequence[Change], commit: int) -> Alone:
        """The model that also knows `changes` up to `commit`; only the commit moves where the rule learns in fits alone."""
        if not changes or not isinstance(self.rule, Learning):
            return replace(self, commit=commit)
        evidence = self.evidence.after(changes)
        return replace(self, rule=self.rule.after(changes), evidence=evidence, commit=commit, curves={})


def alone(rule: Rule, frame: Frame, commit: int) -> Alone:
    """The model of a rule that was fitted on a frame known as of `commit`."""
    return Alone(rule, evidence_of(frame), commit, commit)
