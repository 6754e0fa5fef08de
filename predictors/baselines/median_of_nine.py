"""The median of the configuration's last nine durations, spread by the phase's recent ratios to such medians."""

from __future__ import annotations

from collections import defaultdict, deque
from functools import partial

import numpy as np
from scipy.special import ndtri

from predictors.distribution import Array
from predictors.scores import FLOOR_S, LEVELS

LAST = 9
LAST_OF_PHASE = 200
RATIOS = 2000
LEAST_RATIOS = 20


class MedianOfNine:
    """A rule of thumb that is hard to beat while a configuration has fresh history.

    A configuration without history is answered by the median of its phase's last 200. The spread is that of the phase's last 2000
    log ratios of a duration to the median answered before it, and a factor e per standard deviation below 20 of them.
    """

    def __init__(self, floor_s: float = FLOOR_S) -> None:
        self._floor_s = floor_s
        self._configurations: defaultdict[str, deque[float]] = defaultdict(partial(deque, maxlen=LAST))
        self._phases: defaultdict[str, deque[float]] = defaultdict(partial(deque, maxlen=LAST_OF_PHASE))
        self._ratios: defaultdict[str, deque[float]] = defaultdict(partial(deque, maxlen=RATIOS))

    def _centre(self, configuration: str, phase: str) -> float | None:
        """Median of the logs, or None where the phase was never seen."""
        past = self._configurations.get(configuration) or self._phases.get(phase)
        return float(np.median(past)) if past else None

    def learn(self, configuration: str, phase: str, duration_s: float) -> None:
        """Take a completed duration in s; the ratio is to the median before it."""
        log_s = float(np.log(max(duration_s, self._floor_s)))
        centre = self._centre(configuration, phase)
        if centre is not None:
            self._ratios[phase].append(log_s - centre)
        self._configurations[configuration].append(log_s)
        self._phases[phase].append(log_s)

    def quantiles(self, configuration: str, phase: str) -> Array | None:
        """Quantiles in s at 0.01 ... 0.99, shape (99,), or None where the phase was never seen."""
        centre = self._centre(configuration, phase)
        if centre is None:
            return None
        ratios = self._ratios[phase]
        spread = np.quantile(ratios, LEVELS) if len(ratios) >= LEAST_RATIOS else ndtri(LEVELS)
        return np.asarray(np.exp(centre + spread))
