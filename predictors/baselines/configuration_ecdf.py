"""The empirical distribution of the exact configuration, else of its family, else of its phase."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from predictors.distribution import Array
from predictors.scores import LEVELS

LEAST = 10
"""Durations a configuration or family needs before it is answered by its own."""


class ConfigurationEcdf:
    """What one would plot: all durations seen so far at the finest of three levels that has ten, else whatever there is.

    Quantiles interpolate linearly between order statistics and are recomputed when asked, after new durations only.
    """

    def __init__(self) -> None:
        self._durations: defaultdict[tuple[str, ...], list[float]] = defaultdict(list)
        self._answers: dict[tuple[str, ...], tuple[int, Array]] = {}

    @staticmethod
    def _levels(configuration: str, family: str, phase: str) -> list[tuple[tuple[str, ...], int]]:
        """Keys from fine to coarse, each with the least number of durations it answers from."""
        return [(("configuration", configuration), LEAST), (("family", family, phase), LEAST), (("phase", phase), 1), ((), 1)]

    def learn(self, configuration: str, family: str, phase: str, duration_s: float) -> None:
        """Take a completed duration in s."""
        for key, _ in self._levels(configuration, family, phase):
            self._durations[key].append(duration_s)

    def quantiles(self, configuration: str, family: str, phase: str) -> Array | None:
        """Quantiles in s at 0.01 ... 0.99, shape (99,), or None before anything was seen."""
        for key, least in self._levels(configuration, family, phase):
            known = self._durations.get(key, ())
            if len(known) >= least:
                return self._answer(key)
        return None

    def _answer(self, key: tuple[str, ...]) -> Array:
        """Quantiles of one level, kept until it learns more."""
        known = self._durations[key]
        kept = self._answers.get(key)
        if kept is None or kept[0] != len(known):
            kept = (len(known), np.quantile(known, LEVELS))
            self._answers[key] = kept
        return kept[1]
