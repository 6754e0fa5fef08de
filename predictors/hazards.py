"""The model of record: hierarchical hazards of standardised log residuals over a partially pooled location.

Each root phase stands alone. A fit places contexts on the log scale (`location`), standardises residuals, and counts events and
exposure per node and grid column (`founding`, `counts`); answers shrink hazards down the context's path (`shrink`, `strata`). A
known outcome changes a few counts; only a refit moves locations, grids and strengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictors import founding
from predictors.causes import Incidence
from predictors.contexts import Context
from predictors.distribution import Array
from predictors.frames import Frame
from predictors.grids import GridHazard
from predictors.joint.dependence import INDEPENDENT, Dependence, Residuals, learn
from predictors.model import Change
from predictors.resources import NONE, Rates
from predictors.settings import FitSettings
from predictors.strata import Stratum
from telemetry.errors import NoEvidence
from telemetry.words import Ended

__all__ = ["FitSettings", "HierarchicalHazards", "fit"]


@dataclass(frozen=True)
class HierarchicalHazards:
    """The fitted model: one stratum per phase, outcomes known up to `commit`, fitted as of `fit_commit`.

    `dependence` is what phases of an attempt and attempts on a host have in common, as of the fit.
    """

    strata: Mapping[str, Stratum]
    commit: int
    fit_commit: int
    settings: FitSettings
    dependence: Dependence = INDEPENDENT

    def knows(self, phase: str) -> bool:
        """Whether any outcome of the phase is known."""
        return phase in self.strata and self.strata[phase].known

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases with a known outcome, sorted."""
        return tuple(sorted(phase for phase in self.strata if self.knows(phase)))

    def outcomes(self, phase: str) -> int:
        """How many completed outcomes of the phase are known, whatever their context."""
        return self.strata[phase].nodes[phase].n if self.knows(phase) else 0

    def of_host(self, context: Context, phase: str) -> float:
        """Log time by which the context's host lies off all hosts, as of the fit; 0 where it has no measured profile."""
        return self.strata[phase].of_host(context) if phase in self.strata else 0.0

    def rests_on_rates(self, context: Context, phase: str) -> bool:
        """Whether the place of the context's host rests on its measured rates alone."""
        return phase in self.strata and self.strata[phase].rests_on_rates(context)

    def predict(self, contexts: Sequence[Context], phases: Sequence[str]) -> GridHazard:
        """Time given completion of each pair, in s; NoEvidence names phases without a known outcome."""
        missing = sorted({phase for phase in phases if not self.knows(phase)})
        if missing:
            raise NoEvidence("phase", missing, "send completed attempts with this phase, or import recorded ones")
        return GridHazard(tuple(self.strata[phase].curve(context) for context, phase in zip(contexts, phases, strict=True)))

    def p_complete(self, contexts: Sequence[Context], phases: Sequence[str], elapsed_s: Array) -> Array:
        """Probability of completing rather than failing, shape (n_pairs,), of phases that have lasted elapsed_s (n_pairs,)."""
        curves = self.predict(contexts, phases).curves
        return np.array([curve.p_complete_at(age_s) for curve, age_s in zip(curves, elapsed_s.tolist(), strict=True)])

    def incidence(self, context: Context, phase: str) -> Incidence | None:
        """How and when the phase ends, by cause; None where the fit told nothing of cancellations. NoEvidence as `predict`."""
        if not self.knows(phase):
            raise NoEvidence("phase", phase, "send completed attempts with this phase, or import recorded ones")
        return self.strata[phase].incidence(context)

    def after(self, changes: Sequence[Change], commit: int) -> HierarchicalHazards:
        """The model that also knows `changes` up to `commit`; a phase met for the first time is placed by them alone."""
        by_phase: dict[str, list[Change]] = {}
        for change in changes:
            if change.ended == Ended.RUNNING and change.duration_s <= change.entry_s:
                continue  # begun, and nothing more: at risk for no time as yet
            by_phase.setdefault(change.phase, []).append(change)
        strata = dict(self.strata)
        for phase, mine in by_phase.items():
            if phase not in strata and any(change.sign > 0 for change in mine):
                strata[phase] = founding.placed(phase, founding.rows_of(mine), self.settings, self.commit)[0]
            if phase in strata:
                strata[phase] = strata[phase].after(mine)
        return replace(self, strata=strata, commit=commit)


def fit(frame: Frame, commit: int, settings: FitSettings, rates: Rates = NONE) -> HierarchicalHazards:
    """The model fitted on a frame, and rates of hosts, known as of `commit`. Deterministic to the bit: no random numbers."""
    strata: dict[str, Stratum] = {}
    residuals: dict[str, Residuals] = {}
    for number, phase in enumerate(frame.phases):
        mine = frame.phase == number
        rows = founding.rows_in(frame, mine)
        strata[phase] = founding.counted(*founding.placed(phase, rows, settings, commit, rates), rows)
        if len(frame.attempt):
            residuals[phase] = founding.residuals(strata[phase], rows, frame.attempt[mine])
    return HierarchicalHazards(strata, commit, commit, settings, learn(residuals))
