"""Predictors that can be named alone, each with one line on what it does; none is imported before it is fitted."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import NamedTuple

from predictors.frames import Frame
from predictors.model import Model

Fit = Callable[[Frame, int], Model]


class Named(NamedTuple):
    """A predictor: what it does, and the fit that makes its model from a frame known as of a commit."""

    about: str
    fit: Fit


def _late(module: str) -> Fit:
    """The fit of a module of this folder, which is imported when it is called."""

    def fit(frame: Frame, commit: int) -> Model:
        model: Model = import_module(f"predictors.baselines.{module}").fit(frame, commit)
        return model

    return fit


ABOUT = {
    "median_of_nine": "median of the configuration's last nine durations, spread by the phase's recent ratios; learns online",
    "moving_average": "exponential moving average (1/8) of the configuration's log durations, spread likewise; learns online",
    "configuration_ecdf": "empirical distribution of the configuration, else of its family, else of its phase; learns online",
    "kaplan_meier": "Kaplan-Meier curve of the phase, that of the family shrunk to it; censoring, late entry; learns online",
    "aft": "lifelines' log-normal accelerated failure time on all that is known before the start; censoring, late entry",
    "boosted_quantiles": "scikit-learn's histogram gradient boosting of seven quantiles of log time; completed rows alone",
    "cqr": "boosted quantiles of older rows, conformalised by MAPIE on the newest; completed rows alone",
    "network": "torch network with embeddings and hazards on bins of log time; censoring, late entry; needs the extra torch",
}
NAMES: dict[str, Named] = {name: Named(about, _late(name)) for name, about in ABOUT.items()}
