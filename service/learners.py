"""Models by name, and how each learns while recorded work is replayed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from calibrate.conformal.wrap import Calibrated
from predictors import hazards
from predictors.aggregate import Weights
from predictors.baselines.registry import NAMES
from predictors.ensemble import EXPERTS, PRIOR, Ensemble
from predictors.experts import forest
from predictors.frames import Frame
from predictors.model import Change, Model
from predictors.resources import NONE, Rates
from predictors.settings import FitSettings
from telemetry.errors import BadField

DEFAULT = "calibrated"
AGGREGATE = "aggregate"
RULES = {f"{name}_rule" if name in EXPERTS else name: name for name in NAMES}
"""Baselines by the name they are asked by: one that shares its name with an expert is the rule on its own."""


def models() -> dict[str, str]:
    """Names of the models that can be asked alone, with what each does."""
    about = {
        DEFAULT: "experts averaged with weights learned online, recalibrated: what is served",
        AGGREGATE: "experts averaged with weights learned online, as they come",
    }
    return (
        about
        | dict.fromkeys(EXPERTS, "expert of the aggregate, alone")
        | {told: NAMES[name].about for told, name in RULES.items()}
    )


class Served:
    """The default model, or a part of it: one that goes on from what it knows when its experts are fitted anew."""

    def __init__(self, name: str, rates: Rates = NONE) -> None:
        self._name, self._rates = name, rates
        self._model: Calibrated | Ensemble | None = None

    @property
    def model(self) -> Model | None:
        """The model as it stands."""
        return self._model

    @property
    def ensemble(self) -> Ensemble | None:
        """The experts and their weights."""
        return self._model.inner if isinstance(self._model, Calibrated) else self._model

    def learn(self, changes: Sequence[Change], commit: int) -> None:
        """Take in what became known."""
        if self._model is not None:
            self._model = self._model.after(changes, commit)

    def fit(self, frame: Frame, commit: int, *, grown: bool) -> None:
        """Fit the model of record, and grow the forest where it is time."""
        record = hazards.fit(frame, commit, FitSettings(), self._rates)
        known = self.ensemble
        if known is None or self._model is None:
            first = Ensemble(record, weights=Weights(_prior(self._name)))
            self._model = Calibrated(first) if self._name == DEFAULT else first
        else:
            self._model = self._model.refounded(record, forest.grow(*known.lessons.arrays()) if grown else None)


class Refitted:
    """A baseline: fitted anew from what is known, and told what follows."""

    def __init__(self, name: str) -> None:
        self._fit = NAMES[name].fit
        self._model: Model | None = None

    @property
    def model(self) -> Model | None:
        """The model as it stands."""
        return self._model

    def learn(self, changes: Sequence[Change], commit: int) -> None:
        """Take in what became known."""
        if self._model is not None:
            self._model = self._model.after(changes, commit)

    def fit(self, frame: Frame, commit: int, *, grown: bool) -> None:
        """Fit on what is known, as seldom as the slower experts: some of them take minutes."""
        if grown or self._model is None:
            self._model = self._fit(frame, commit)


def learner(name: str, rates: Rates = NONE) -> Served | Refitted:
    """The learner of a model by name; BadField names those there are.

    `rates` are those of hosts measured before the first row.
    """
    if name in {DEFAULT, AGGREGATE, *EXPERTS}:
        return Served(name, rates)
    if name in RULES:
        return Refitted(RULES[name])
    raise BadField("model", name, f"give one of {', '.join(models())}")


def _prior(name: str) -> np.typing.NDArray[np.float64]:
    """Weights before any outcome: all on one expert where it is asked alone."""
    if name in EXPERTS:
        return np.array([float(expert == name) for expert in EXPERTS])
    return PRIOR
