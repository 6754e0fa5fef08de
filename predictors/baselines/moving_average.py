"""The exponential moving average of a configuration's log durations, spread by the phase's recent ratios to such averages."""

from __future__ import annotations

from collections.abc import Sequence

from predictors.baselines.alone import Alone, alone
from predictors.baselines.median_of_nine import LEAST_S, MedianOfNine, recent
from predictors.frames import Frame

NEW_SHARE = 0.125
"""Weight of the newest duration: the average keeps 7/8 of what it was."""


class MovingAverage(MedianOfNine):
    """What network stacks and serving engines do. The oldest of the last 30 durations starts the average."""

    last = 30

    @staticmethod
    def _pick(past: Sequence[float]) -> float:
        """The average a of logs y, oldest first: a <- (1 - NEW_SHARE) a + NEW_SHARE y."""
        places = iter(past)
        average = next(places)
        for log_s in places:
            average += NEW_SHARE * (log_s - average)
        return average


def fit(frame: Frame, commit: int) -> Alone:
    """The model as of `commit`."""
    return alone(recent(MovingAverage(LEAST_S), frame, None), frame, commit)
