"""How far composite probabilities have been off: calibrated phases do not make calibrated plans.

With answered probabilities p_i and outcomes m_i in {0, 1}, the gap g = mean(m_i - p_i) has variance v = sum p_i (1 - p_i) / n^2
if the answers are right. Before any outcome a bias b ~ N(0, PRIOR_SD^2) is believed; afterwards it is normal with mean
g PRIOR_SD^2 / (PRIOR_SD^2 + v) and variance PRIOR_SD^2 v / (PRIOR_SD^2 + v). The standard error of the next answer is the root of
both squared and added: never nothing, and large where plans have kept missing. A bias counts on its own side alone: that plans
complete more often than was said makes no bound from below less true. An answer of 0 or 1 would give v no share; it may
be biased like any other, so in v its p_i stands PRIOR_SD off the end: a run of sure answers proves no more than it can.

What is wrong by a rule is mended first: answered probabilities are what scenarios say, turned by how that came out (`turnout`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from calibrate.evidence.turnout import NOTHING, Turnout

PRIOR_SD = 0.05
"""Standard deviation of the bias expected of plans nobody has checked yet."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """Sums over answered plans whose outcome is known: their number, gaps m - p, and variances p (1 - p), p off the ends.

    `turnout` tells how what scenarios said came out, before it was turned.
    """

    n: int = 0
    gap: float = 0.0
    variance: float = 0.0
    turnout: Turnout = NOTHING

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Reliability:
        """From its fields as JSON has them."""
        return cls(**{**told, "turnout": Turnout.of(told["turnout"]["bins"])})

    def after(self, probability: float, *, met: bool, said: float | None = None) -> Reliability:
        """With one more outcome; `said` is what scenarios said, the answer itself if None."""
        return self._changed(probability, met, said, 1)

    def without(self, probability: float, *, met: bool, said: float | None = None) -> Reliability:
        """With an outcome taken back that turned out to be another."""
        return self._changed(probability, met, said, -1)

    def _changed(self, probability: float, met: bool, said: float | None, sign: int) -> Reliability:
        return Reliability(
            self.n + sign,
            self.gap + sign * (met - probability),
            self.variance + sign * _variance(probability),
            self.turnout.after(probability if said is None else said, met=met, sign=sign),
        )

    @property
    def calibration_se(self) -> float:
        """Standard error that the bias of such answers adds to the next one, where it may be too high."""
        mean, variance = self._bias
        return math.hypot(min(mean, 0.0), math.sqrt(variance))

    @property
    def above_se(self) -> float:
        """The same where it may be too low."""
        mean, variance = self._bias
        return math.hypot(max(mean, 0.0), math.sqrt(variance))

    @property
    def _bias(self) -> tuple[float, float]:
        """Mean and variance of what is believed of the bias."""
        if self.n == 0:
            return 0.0, PRIOR_SD**2
        v, prior = self.variance / self.n**2, PRIOR_SD**2
        return self.gap / self.n * prior / (prior + v), prior * v / (prior + v)


def _variance(probability: float) -> float:
    """Variance that an answer claims for its outcome."""
    p = min(max(probability, PRIOR_SD), 1.0 - PRIOR_SD)
    return p * (1.0 - p)
