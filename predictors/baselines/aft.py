"""lifelines' log-normal accelerated failure time: log T = x b + sigma e, of what is known before the start.

Categories are one-hot, the MOST_VALUES most frequent of each but for the first, numbers log(1 + x) and standardised. Censored
rows count by S(t), late ones by S(t) / S(entry). Fitted on standardised log durations of all phases together, of at most
designs.MOST_ROWS rows.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from predictors.baselines.alone import Alone, Pair, alone
from predictors.baselines.designs import WORDS, NumberScaling, Rows, Scale, number_scaling, numbered, rows_of, words_of
from predictors.baselines.quantile_curves import SCORES, Knots, on_grid
from predictors.distribution import Array
from predictors.frames import Frame

MOST_VALUES = 30
PENALTY = 0.01
"""Ridge weight: what separates rows completely must not run off."""
LEAST_SD = 1e-3
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Design:
    """Columns of x: `place` of each value by name in WORDS, then numbers and the flags of unknown ones."""

    place: tuple[Mapping[str, int], ...]
    numbers: NumberScaling

    @property
    def n_columns(self) -> int:
        """Number of columns."""
        return sum(len(places) for places in self.place) + 2 * len(self.numbers.mean)

    def row(self, pair: Pair) -> Array:
        """The columns of a pair, shape (n_columns,); values that are not among the frequent ones have no column."""
        columns = np.zeros(self.n_columns)
        start = 0
        for places, word in zip(self.place, words_of(pair), strict=True):
            if word in places:
                columns[start + places[word]] = 1.0
            start += len(places)
        columns[start:] = self.numbers.features(pair[0])
        return columns


@dataclass(frozen=True)
class LogNormalAft:
    """The fitted regression on standardised log time: z = x `weight` + `intercept` + `sigma` e."""

    design: Design
    weight: Array
    intercept: float
    sigma: float
    scales: Mapping[str, Scale]

    def knots(self, pairs: Sequence[Pair]) -> list[Knots]:
        """Law of durations above zero of each pair."""
        return [self._knots(pair) for pair in pairs]

    def _knots(self, pair: Pair) -> Knots:
        scale = self.scales[pair[1]]
        z = float(self.design.row(pair) @ self.weight) + self.intercept
        return on_grid(scale.centre + scale.sd * (z + self.sigma * SCORES))


def _design(rows: Rows) -> Design:
    """Columns for the values that are frequent among rows; the most frequent of each name is the base."""
    words = np.array([words_of(pair) for pair in rows.pairs], dtype=np.str_).reshape(-1, len(WORDS))[rows.pair]
    places = [numbered(words[:, i].tolist(), MOST_VALUES) for i in range(len(WORDS))]
    return Design(tuple({v: i - 1 for v, i in each.items() if i} for each in places), number_scaling(rows))


def _regressed(x: Array, rows: Rows) -> tuple[Array, float, float]:
    """Weights (n_columns,), intercept and sigma by maximum likelihood; the phase's own law where that does not converge."""
    varied = np.flatnonzero(x.std(axis=0) > 1e-6)
    weight = np.zeros(x.shape[1])
    found = _fitted(x[:, varied], rows)
    if found is None:
        z = rows.completed.z
        return weight, float(z.mean()), max(float(z.std()), LEAST_SD)
    mu = found["mu_"]
    weight[varied] = [mu.get(f"x{i}", 0.0) for i in range(len(varied))]
    return weight, float(mu["Intercept"]), max(float(np.exp(found["sigma_"]["Intercept"])), LEAST_SD)


def _fitted(x: Array, rows: Rows) -> Any:
    """Parameters as lifelines finds them, or None where its search fails, as it may with a few rows, or all alike."""
    import pandas as pd
    from lifelines import LogNormalAFTFitter
    from lifelines.exceptions import ConvergenceError

    table = pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
    table["T"], table["E"], table["W"], table["entry"] = np.exp(rows.z), rows.event, rows.weight, np.exp(rows.z_entry)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitter = LogNormalAFTFitter(penalizer=PENALTY)
            params = fitter.fit(table, "T", "E", weights_col="W", entry_col="entry").params_
    except (ConvergenceError, ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        _LOG.warning("the log-normal regression on %d rows failed, each phase has one law: %s", len(table), error)
        return None
    return params if np.isfinite(params.to_numpy()).all() else None


def fit(frame: Frame, commit: int) -> Alone:
    """The model as of `commit`."""
    rows = rows_of(frame)
    design = _design(rows)
    x = np.array([design.row(pair) for pair in rows.pairs]).reshape(-1, design.n_columns)[rows.pair]
    weight, intercept, sigma = _regressed(x, rows) if len(rows.z) else (np.zeros(x.shape[1]), 0.0, 1.0)
    return alone(LogNormalAft(design, weight, intercept, sigma, rows.scales), frame, commit)
