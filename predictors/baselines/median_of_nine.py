"""The median of the configuration's last nine durations, spread by the phase's recent ratios to such medians."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Self

import numpy as np
from scipy.special import ndtri

from predictors.baselines.alone import Alone, Pair, alone
from predictors.baselines.histories import Histories
from predictors.baselines.quantile_curves import Knots, on_grid
from predictors.distribution import GRID, Array
from predictors.frames import Frame
from predictors.model import Change
from predictors.scores import FLOOR_S, LEVELS
from telemetry.words import Ended

LAST = 9
LAST_OF_PHASE = 200
RATIOS = 2000
LEAST_RATIOS = 20
FRESH_S = 30.0
"""An outcome that comes later than this after the one before it, s, starts the configuration's history anew."""
LEAST_S = float(np.finfo(np.float64).tiny)

AtSeconds = Callable[[int], float]
"""Time in s at which a commit was made."""


class MedianOfNine:
    """A rule of thumb that is hard to beat while a configuration has fresh history.

    A configuration without history is answered by the median of its phase's last 200. The spread is that of the phase's last 2000
    log ratios of a duration to the median answered before it, and a factor e per standard deviation below 20 of them.
    """

    last = LAST

    def __init__(self, floor_s: float = FLOOR_S) -> None:
        self.floor_s = floor_s
        self.configurations: Histories[str] = Histories(self.last)
        self.phases: Histories[str] = Histories(LAST_OF_PHASE)
        self.ratios: Histories[str] = Histories(RATIOS)
        self.heard_s: dict[str, float] = {}

    def fork(self) -> Self:
        """A rule that knows the same and learns apart."""
        other = type(self)(self.floor_s)
        other.configurations, other.phases = self.configurations.fork(), self.phases.fork()
        other.ratios, other.heard_s = self.ratios.fork(), dict(self.heard_s)
        return other

    @staticmethod
    def _pick(past: Sequence[float]) -> float:
        """The centre of logs, oldest first."""
        return median(past)

    def _centre(self, configuration: str, phase: str) -> float | None:
        """Centre of the logs, or None where the phase was never seen."""
        past = self.configurations.of(configuration) or self.phases.of(phase)
        return self._pick(past) if past else None

    def learn(self, configuration: str, phase: str, duration_s: float, at_s: float | None = None) -> None:
        """Take a completed duration in s, known at at_s; the ratio is to the centre before it.

        After more than FRESH_S without an outcome the configuration's history starts anew; never where times are not told.
        """
        log_s = math.log(max(duration_s, self.floor_s))
        centre = self._centre(configuration, phase)
        if centre is not None:
            self.ratios.add(phase, log_s - centre)
        if at_s is not None:
            if at_s - self.heard_s.get(configuration, at_s) > FRESH_S:
                self.configurations.start_anew(configuration)
            self.heard_s[configuration] = at_s
        self.configurations.add(configuration, log_s)
        self.phases.add(phase, log_s)

    def forget(self, configuration: str, phase: str, duration_s: float) -> None:
        """Take the newest such duration back, where it is still remembered.

        The ratio it gave stays, and so does the last that is remembered of a phase: older ones may be gone already.
        """
        log_s = math.log(max(duration_s, self.floor_s))
        self.configurations.take_back(configuration, log_s)
        self.phases.take_back(phase, log_s, least=1)

    def centre(self, configuration: str, phase: str) -> float:
        """The centre in log s of a phase that was seen before."""
        found = self._centre(configuration, phase)
        assert found is not None
        return found

    def spread(self, phase: str, levels: Array) -> Array:
        """Quantiles at `levels` of a log ratio to the centre, shape of `levels`."""
        ratios = self.ratios.of(phase)
        return np.asarray(np.quantile(ratios, levels) if len(ratios) >= LEAST_RATIOS else ndtri(levels))

    def quantiles(self, configuration: str, phase: str) -> Array | None:
        """Quantiles in s at 0.01 ... 0.99, shape (99,), or None where the phase was never seen."""
        centre = self._centre(configuration, phase)
        return None if centre is None else np.asarray(np.exp(centre + self.spread(phase, LEVELS)))


@dataclass(frozen=True)
class Recent:
    """A rule that answers from recent history, as part of a model. `at_s` tells when commits were made, None where nobody knows.

    `spreads` remembers what each phase's ratios say.
    """

    history: MedianOfNine
    at_s: AtSeconds | None = None
    spreads: dict[str, Array] = field(default_factory=dict, repr=False, compare=False)

    def knots(self, pairs: Sequence[Pair]) -> list[Knots]:
        """Law of durations above zero of each pair."""
        return [on_grid(self.history.centre(c.path(phase)[-1], phase) + self._spread(phase)) for c, phase in pairs]

    def _spread(self, phase: str) -> Array:
        found = self.spreads.get(phase)
        if found is None:
            found = self.spreads[phase] = self.history.spread(phase, GRID)
        return found

    def after(self, changes: Sequence[Change]) -> Recent:
        """The rule that also knows the completed durations of `changes`."""
        history = self.history.fork()
        for change in changes:
            if change.ended == Ended.COMPLETED and change.duration_s > 0.0:
                key, phase = change.context.path(change.phase)[-1], change.phase
                if change.sign > 0:
                    history.learn(key, phase, change.duration_s, self.at_s and self.at_s(change.known_at))
                else:
                    history.forget(key, phase, change.duration_s)
        return replace(self, history=history, spreads={})


def recent(history: MedianOfNine, frame: Frame, at_s: AtSeconds | None) -> Recent:
    """The rule once it has learned the completed durations of a frame above zero, in the order in which they became known."""
    leaves: dict[tuple[int, int], str] = {}
    for row in np.flatnonzero(frame.completed & (frame.duration_s > 0.0)).tolist():
        place = int(frame.context[row]), int(frame.phase[row])
        phase = frame.phases[place[1]]
        key = leaves.get(place)
        if key is None:
            key = leaves[place] = frame.contexts[place[0]].path(phase)[-1]
        history.learn(key, phase, float(frame.duration_s[row]), at_s and at_s(int(frame.known_from[row])))
    return Recent(history, at_s)


def fit(frame: Frame, commit: int, at_s: AtSeconds | None = None) -> Alone:
    """The model as of `commit`. With `at_s`, an outcome after FRESH_S of silence starts its configuration's history anew."""
    return alone(recent(MedianOfNine(LEAST_S), frame, at_s), frame, commit)
