"""What a row that was cancelled, lost or timed out might have come to, so that short rows are not all that experts remember.

Of a row given up at c only T > c is known. Leaving it out keeps the short ones, which end before anyone gives up. One draw from
what had been answered for it, given T > c, stands for its outcome (single imputation, Rubin 1987): a mean would have no spread.
The draw is keyed by the row, so that a replay makes it again. A row given up before nearly all that was answered for it tells of
its like no more than that it was there: its draw would be the answer over again, and half of such rows would hold experts to it.
"""

from __future__ import annotations

import numpy as np

from predictors.distribution import GRID, Array
from predictors.joint.streams import keys_of, stream, uniforms

SEED = 6
SILENT = 0.1
"""Level of the answer up to which a row that was given up says nothing."""


def beyond(log_quantiles: Array, age_s: float, key: str) -> float | None:
    """Log of a duration in s past age_s > 0, drawn from log quantiles at GRID of the positive part; None if that says nothing."""
    log_age = float(np.log(age_s))
    passed = float(np.interp(log_age, log_quantiles, GRID, left=0.0))
    if passed <= SILENT:
        return None
    draw = float(uniforms(stream(SEED, "imputed", keys_of([key])), 1)[0, 0])
    return max(log_age, float(np.interp(passed + draw * (1.0 - passed), GRID, log_quantiles)))
