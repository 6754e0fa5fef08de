"""The empirical distribution of the exact configuration, else of its family, else of its phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictors.baselines.alone import Alone, Pair, alone
from predictors.baselines.histories import Histories
from predictors.baselines.quantile_curves import Knots, on_grid
from predictors.contexts import Context
from predictors.distribution import GRID, Array
from predictors.frames import Frame
from predictors.model import Change
from predictors.scores import LEVELS
from telemetry.words import Ended

LEAST = 10
"""Durations a configuration or family needs before it is answered by its own."""
MOST = 20_000
"""Durations kept of a configuration, family or phase, the newest: what is kept must not grow with history."""


class ConfigurationEcdf:
    """What one would plot: durations seen so far at the finest of three levels that has ten, else whatever there is.

    Quantiles interpolate linearly between order statistics and are recomputed when asked, after new durations only.
    """

    def __init__(self) -> None:
        self.durations: Histories[tuple[str, ...]] = Histories(MOST)
        self._answers: dict[tuple[str, ...], Array] = {}

    def fork(self) -> ConfigurationEcdf:
        """A rule that knows the same and learns apart."""
        other = ConfigurationEcdf()
        other.durations = self.durations.fork()
        return other

    @staticmethod
    def _levels(configuration: str, family: str, phase: str) -> list[tuple[tuple[str, ...], int]]:
        """Keys from fine to coarse, each with the least number of durations it answers from."""
        return [(("configuration", configuration), LEAST), (("family", family, phase), LEAST), (("phase", phase), 1), ((), 1)]

    def learn(self, configuration: str, family: str, phase: str, duration_s: float) -> None:
        """Take a completed duration in s."""
        for key, _ in self._levels(configuration, family, phase):
            self.durations.add(key, duration_s)
            self._answers.pop(key, None)

    def forget(self, configuration: str, family: str, phase: str, duration_s: float) -> None:
        """Take such a duration back, where it is still kept; the last that is kept of a phase stays."""
        for key, _ in self._levels(configuration, family, phase):
            self.durations.take_back(key, duration_s, least=1 if key == ("phase", phase) else 0)
            self._answers.pop(key, None)

    def quantiles(self, configuration: str, family: str, phase: str, levels: Array = LEVELS) -> Array | None:
        """Quantiles in s at `levels`, always the same ones, in their shape; None before anything was seen."""
        for key, least in self._levels(configuration, family, phase):
            if len(self.durations.of(key)) >= least:
                return self._answer(key, levels)
        return None

    def _answer(self, key: tuple[str, ...], levels: Array) -> Array:
        """Quantiles of one level, kept until it learns more."""
        kept = self._answers.get(key)
        if kept is None:
            kept = self._answers[key] = np.quantile(self.durations.of(key), levels)
        return kept


@dataclass(frozen=True)
class Plotted:
    """The empirical distribution as part of a model."""

    known: ConfigurationEcdf

    def knots(self, pairs: Sequence[Pair]) -> list[Knots]:
        """Law of durations above zero of each pair."""
        return [on_grid(np.log(self._quantiles_s(*pair))) for pair in pairs]

    def _quantiles_s(self, context: Context, phase: str) -> Array:
        found = self.known.quantiles(context.path(phase)[-1], context.family or "", phase, GRID)
        assert found is not None
        return found

    def after(self, changes: Sequence[Change]) -> Plotted:
        """The rule that also knows the completed durations of `changes`."""
        known = self.known.fork()
        for change in changes:
            if change.ended == Ended.COMPLETED and change.duration_s > 0.0:
                told = known.learn if change.sign > 0 else known.forget
                told(change.context.path(change.phase)[-1], change.context.family or "", change.phase, change.duration_s)
        return Plotted(known)


def fit(frame: Frame, commit: int) -> Alone:
    """The model as of `commit`."""
    known = ConfigurationEcdf()
    for row in np.flatnonzero(frame.completed & (frame.duration_s > 0.0)).tolist():
        context, phase = frame.contexts[frame.context[row]], frame.phases[frame.phase[row]]
        known.learn(context.path(phase)[-1], context.family or "", phase, float(frame.duration_s[row]))
    return alone(Plotted(known), frame, commit)
