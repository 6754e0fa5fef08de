"""Chances turned by how earlier ones came out: calibrated phases do not make calibrated plans.

A chance's logit is moved and stretched (Platt, 1999): what was said to be likelier stays likelier, and what is certain so.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy.special import expit, logit

from predictors.distribution import Array


class Turn(NamedTuple):
    """logit(turned) = shift + stretch logit(said); stretch is above 0."""

    shift: float = 0.0
    stretch: float = 1.0

    def of(self, said: Array) -> Array:
        """Turned chances, same shape."""
        return said if self == AS_SAID else np.asarray(expit(self.shift + self.stretch * logit(said)))

    def back(self, turned: Array) -> Array:
        """What was said, same shape."""
        return turned if self == AS_SAID else np.asarray(expit((logit(turned) - self.shift) / self.stretch))

    def spread(self, said: Array, se: Array) -> Array:
        """How far a standard error about what was said reaches once turned, to the side where it reaches farther; same shape."""
        if self == AS_SAID:
            return se
        at, low, high = (self.of(np.clip(said + step, 0.0, 1.0)) for step in (0.0, -se, se))
        return np.asarray(np.maximum(high - at, at - low))


AS_SAID = Turn()
"""Chances that stand as they are."""
