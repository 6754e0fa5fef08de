"""How chances of plans came out, by how likely they were said to be, and the turn that follows from it.

Shift and stretch of logits are those that make the outcomes likeliest (logistic regression), drawn towards 0 and 1 by normal
priors: a dozen outcomes turn little. Outcomes are counted in bins of what was said, which lose little and never grow.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit

from predictors.plans.turn import AS_SAID, Turn

EDGES = (0.01, 0.05, 0.15, 0.3, 0.5, 0.7, 0.8, 0.875, 0.925, 0.95, 0.97, 0.985, 0.995)
"""Between bins: where plans are refused or held, chances are told apart finely."""
END = 1e-3
"""What is said nearer to 0 or 1 counts as said so near: scenarios do not tell more."""
SHIFT_SD, STRETCH_SD = 0.3, 0.15
"""Standard deviations of what is believed before any outcome."""
STRETCHES = (0.25, 4.0)
"""Bounds of the stretch."""
STEPS, ENOUGH = 50, 1e-10
"""Newton steps taken at most, and the step that ends them."""
UNIT = 2.0**-20
"""Logits are summed in whole numbers of this, so that an outcome taken back leaves nothing."""
Bin = tuple[int, int, int]


@dataclass(frozen=True)
class Turnout:
    """Per bin of what was said: outcomes (count), those met (count), and the sum of the logits said, in UNITs."""

    bins: tuple[Bin, ...] = ((0, 0, 0),) * (len(EDGES) + 1)

    @classmethod
    def of(cls, bins: Sequence[Sequence[int]]) -> Turnout:
        """From bins as JSON has them."""
        return cls(tuple((n, met, logits) for n, met, logits in bins))

    def after(self, said: float, *, met: bool, sign: int = 1) -> Turnout:
        """With one more outcome; with one less where sign is -1."""
        place, p = bisect_right(EDGES, said), min(max(said, END), 1.0 - END)
        n, n_met, logits = self.bins[place]
        changed = (n + sign, n_met + sign * met, logits + sign * round(math.log(p / (1.0 - p)) / UNIT))
        return Turnout((*self.bins[:place], changed, *self.bins[place + 1 :]))

    @cached_property
    def turn(self) -> Turn:
        """The turn that outcomes so far call for; none before the first."""
        n, met, logits = np.array(self.bins).T
        seen = n > 0
        if not seen.any():
            return AS_SAID
        n, met, x = n[seen], met[seen], UNIT * logits[seen] / n[seen]
        design, prior = np.stack([np.ones(len(x)), x]), np.array([SHIFT_SD, STRETCH_SD]) ** -2.0
        found = np.array(AS_SAID)
        for _ in range(STEPS):
            p = expit(found @ design)
            pull = design @ (met - n * p) - prior * (found - AS_SAID)
            step = np.linalg.solve((design * (n * p * (1.0 - p))) @ design.T + np.diag(prior), pull)
            found = found + np.clip(step, -1.0, 1.0)
            found[1] = min(max(found[1], STRETCHES[0]), STRETCHES[1])
            if np.abs(step).max() < ENOUGH:
                break
        return Turn(float(found[0]), float(found[1]))


NOTHING = Turnout()
"""Before any outcome."""
