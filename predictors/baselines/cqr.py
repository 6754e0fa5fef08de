"""MAPIE's conformalised quantile regression (Romano et al. 2019) on boosted quantiles of log time.

Trees are fitted on the older rows and conformalised on the newest share: each bound moves by the conformal quantile of how far
outcomes lay beyond it, either side on its own. That is a constant per bound, read off MAPIE once. Levels for which too few rows
are left to conformalise stand aside, and the rest of the law is interpolated in normal scores, as between any levels.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from predictors.baselines.alone import Alone, alone
from predictors.baselines.boosted_quantiles import LEVELS, BoostedQuantiles, boosted
from predictors.baselines.designs import ROUND, Rows, rows_of
from predictors.distribution import Array
from predictors.frames import Frame

CONFORMAL_SHARE = 0.3
MIDDLE = len(LEVELS) // 2
FAR: Array = np.array([[-1e3, 0.0, 1e3]])
"""Bounds and median of z so far apart that they can't come to cross: where they do, MAPIE sets up logging for the process."""


@dataclass(frozen=True)
class Column:
    """A fitted estimator as MAPIE wants one: it answers with one of its features, which are bounds and median in order."""

    place: int
    n_features_in_: int = 3

    def fit(self, x: Array, z: Array) -> Column:  # noqa: ARG002
        """Nothing to do."""
        return self

    def predict(self, x: Array) -> Array:
        """The feature, shape (n,) of x (n, 3)."""
        return np.asarray(x[:, self.place])


def moved(low: Array, middle: Array, high: Array, z: Array, confidence: float) -> Array:
    """By how much MAPIE moves a lower and an upper bound of z, shape (2,), that were told before z was known; all (n,)."""
    from mapie.regression import ConformalizedQuantileRegressor

    columns = [Column(0), Column(2), Column(1)]
    regressor = ConformalizedQuantileRegressor(columns, confidence_level=confidence, prefit=True)
    _, interval = regressor.conformalize(np.column_stack([low, middle, high]), z).predict_interval(FAR)
    return np.asarray(np.round(interval[0, :, 0] - FAR[0, [0, 2]], ROUND))


def conformalised(base: BoostedQuantiles, rows: Rows) -> BoostedQuantiles:
    """Base with its bounds conformalised on completed rows that it was not fitted on; the median stays as it is."""
    shift, kept = np.zeros(len(LEVELS)), [MIDDLE]
    enough = [low for low in range(MIDDLE) if len(rows.z) * LEVELS[low] >= 1.0 + LEVELS[low]]
    if not enough:
        return base
    q = base.z_quantiles(rows.pairs)[rows.pair]
    for low in enough:
        high = len(LEVELS) - 1 - low
        confidence = float(LEVELS[high] - LEVELS[low])
        shift[[low, high]] = moved(q[:, low], q[:, MIDDLE], q[:, high], rows.z, confidence)
        kept += [low, high]
    return replace(base, shift=shift, kept=np.sort(kept))


def fit(frame: Frame, commit: int) -> Alone:
    """The model as of `commit`."""
    rows = rows_of(frame).completed
    cut = len(rows.z) - int(CONFORMAL_SHARE * len(rows.z))
    base = boosted(rows.take(np.arange(cut)))
    return alone(conformalised(base, rows.take(np.arange(cut, len(rows.z)))), frame, commit)
