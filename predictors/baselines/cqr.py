"""MAPIE's conformalised quantile regression (Romano et al. 2019) on boosted quantiles of log time.

Trees are fitted on the older rows and conformalised on the newest share: each bound moves by the conformal quantile of how far
outcomes lay beyond it, either side on its own. That is a constant per bound, read off MAPIE once. Levels for which too few rows
are left to conformalise stand aside, and the rest of the law is interpolated in normal scores, as between any levels.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from predictors.baselines.alone import Alone, alone
from predictors.baselines.boosted_quantiles import LEVELS, BoostedQuantiles, boosted, one_thread
from predictors.baselines.designs import Rows, rows_of
from predictors.distribution import Array
from predictors.frames import Frame

CONFORMAL_SHARE = 0.3
MIDDLE = len(LEVELS) // 2


def conformalised(base: BoostedQuantiles, rows: Rows) -> BoostedQuantiles:
    """Base with its bounds conformalised on completed rows that it was not fitted on; the median stays as it is."""
    features = base.codes.features(rows.pairs)[rows.pair]
    shift, kept = np.zeros(len(LEVELS)), [MIDDLE]
    for low in range(MIDDLE):
        high = len(LEVELS) - 1 - low
        if len(rows.z) * LEVELS[low] >= 1.0 + LEVELS[low]:
            shift[low], shift[high] = _moved(base, (low, high), features, rows.z)
            kept += [low, high]
    return base if len(kept) == 1 else replace(base, shift=shift, kept=np.sort(kept))


def _moved(base: BoostedQuantiles, bounds: tuple[int, int], features: Array, z: Array) -> Array:
    """By how much MAPIE moves a lower and an upper bound, shape (2,), once it has seen z (n,) of features (n, n_features)."""
    from mapie.regression import ConformalizedQuantileRegressor

    low, high = bounds
    confidence = float(LEVELS[high] - LEVELS[low])
    fitted = [base.regressors[i] for i in (low, high, MIDDLE)]
    with one_thread(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # crossing bounds: put in order once all levels are known
        regressor = ConformalizedQuantileRegressor(fitted, confidence_level=confidence, prefit=True)
        _, interval = regressor.conformalize(features, z).predict_interval(features[:1])
        plain = [regressor.predict(features[:1])[0] for regressor in fitted[:2]]
    return np.asarray(interval[0, :, 0] - plain)


def fit(frame: Frame, commit: int) -> Alone:
    """The model as of `commit`."""
    rows = rows_of(frame).completed
    cut = len(rows.z) - int(CONFORMAL_SHARE * len(rows.z))
    base = boosted(rows.take(np.arange(cut)))
    return alone(conformalised(base, rows.take(np.arange(cut, len(rows.z)))), frame, commit)
