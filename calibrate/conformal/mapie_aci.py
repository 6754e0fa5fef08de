"""MAPIE's adaptive conformal inference as a wrapper of its own, to be chosen by name and to check ours against.

Around the base's median, in log time: of n scores log T - log median it takes the ceil((n + 1) p)-th as the upper end at level p;
alpha moves by gamma (2 (1 - p) - miss), where a miss is a truth outside the two-sided interval at 2 p - 1 (MAPIE 1.x,
TimeSeriesRegressor, method "aci"). Unlike `levels.py` it clips alpha to [0, 1], which forfeits the long-run bound, and it knows
nothing of censoring.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictors.distribution import Array
from predictors.scores import FLOOR_S
from telemetry.errors import BadField


class Bound(NamedTuple):
    """Upper bounds in s, shape (n,), always finite; `open` (n,) marks those that stand in for "no bound is known"."""

    upper_s: Array
    open: NDArray[np.bool_]


class MapieAci:
    """Upper bounds at one level above 1/2, in two decimals, from completed attempts and the medians answered for them.

    median_s, actual_s (n,) in s make the scores. They stay as they are; what is learned is alpha.
    """

    def __init__(self, median_s: ArrayLike, actual_s: ArrayLike, *, level: float = 0.9, gamma: float = 0.05) -> None:
        from mapie.regression import TimeSeriesRegressor
        from sklearn.linear_model import LinearRegression

        if not 0.5 < level < 1.0 or abs(round(level, 2) - level) > 1e-9:
            raise BadField("level", level, "give a level between 0.51 and 0.99 in two decimals; MAPIE rounds alpha to them")
        centre, truth = _log(median_s)[:, None], _log(actual_s)
        if not len(truth):
            raise BadField("actual_s", 0, "give the lengths of completed attempts, and the medians answered for them")
        self._confidence = round(2.0 * level - 1.0, 2)
        self._gamma = gamma
        self._widest = float((truth - centre[:, 0]).max())
        as_it_is = LinearRegression(fit_intercept=False).fit([[1.0]], [1.0])
        self._mapie = TimeSeriesRegressor(as_it_is, method="aci", cv="prefit").fit(centre, truth)
        self.bound(median_s)

    @property
    def alpha(self) -> float:
        """The two-sided miss rate asked for now, in [0, 1]."""
        return float(next(iter(self._mapie.current_alpha.values())))

    def bound(self, median_s: ArrayLike) -> Bound:
        """Bounds for attempts with these medians in s, shape (n,)."""
        centre = _log(median_s)
        _, ends = self._mapie.predict(centre[:, None], confidence_level=[self._confidence], allow_infinite_bounds=True)
        upper = ends[:, 1, 0]
        known = np.isfinite(upper)
        return Bound(np.exp(np.where(known, upper, centre + self._widest)), ~known)

    def learn(self, median_s: ArrayLike, actual_s: ArrayLike) -> None:
        """Moves alpha by completed attempts, in order."""
        self._mapie.adapt_conformal_inference(
            _log(median_s)[:, None], _log(actual_s), gamma=self._gamma, confidence_level=[self._confidence]
        )


def _log(seconds: ArrayLike) -> Array:
    """Log of seconds, raised to the clock's floor."""
    values = np.asarray(seconds, dtype=np.float64)
    if values.ndim != 1 or not np.all(np.isfinite(values) & (values >= 0.0)):
        raise BadField("median_s, actual_s", "a negative or non-finite time", "give arrays (n,) of seconds of 0 or more")
    return np.asarray(np.log(np.maximum(values, FLOOR_S)))
