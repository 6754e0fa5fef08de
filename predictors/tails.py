"""What is said where evidence ends: a declared tail in log time, bounded by the longest duration known.

Past the last edge the hazard per unit of standardised residual is constant: a power law in time. Its rate comes from the
upper order statistics at the root (Hill) and from events over exposure below it, shrunk like every other bin. Then two bounds:
knots past the longest duration known (or the context's own centre) are drawn in towards `LIMIT` times it, so that
no quantile up to 0.999 lies past that; beyond the 0.999 quantile H grows by `SLOPE` per unit of log time.
"""

from __future__ import annotations

import math

import numpy as np

from predictors.distribution import Array

LIMIT = 4.0
SLOPE = 2.0
FAR_HAZARD = -math.log(0.001)
PRIOR_RATE = 2.0
PRIOR_COUNT = 5.0


def hill_rate(z: Array, share: float = 0.02) -> float:
    """Hazard per unit of z among the upper `share` of residuals, with a prior of PRIOR_COUNT events at PRIOR_RATE."""
    top = np.sort(z)[len(z) - max(int(share * len(z)), 1) :] if len(z) else z
    excess = float((top - top[0]).sum()) if len(top) else 0.0
    return (max(len(top) - 1, 0) + PRIOR_COUNT) / (excess + PRIOR_COUNT / PRIOR_RATE)


def bounded(log_t: Array, log_cap: float) -> Array:
    """Knots past log_cap drawn in: log_cap + b d / (b + d) for one that lies d past it, b = log(LIMIT)."""
    room = math.log(LIMIT)
    past = np.maximum(log_t - log_cap, 0.0)
    return np.minimum(log_t, log_cap) + room * past / (room + past)


def extended(log_t: Array, hazard: Array, slope: float, log_longest: float) -> tuple[Array, Array]:
    """Knots and cumulative hazards carried on by `slope` per unit of log time to the 0.999 quantile, then bounded.

    Where the longest duration known lies on the way it becomes a knot: drawing in what lies past it must not hasten what comes
    before.
    """
    if hazard[-1] < FAR_HAZARD:
        far = log_t[-1] + (FAR_HAZARD - hazard[-1]) / slope
        if log_t[-1] < log_longest < far:
            at_longest = hazard[-1] + slope * (log_longest - log_t[-1])
            log_t, hazard = np.append(log_t, log_longest), np.append(hazard, at_longest)
        log_t, hazard = np.append(log_t, far), np.append(hazard, FAR_HAZARD)
    return bounded(log_t, log_longest), hazard
