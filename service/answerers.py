"""Who can answer, by name: the calibrated model, its parts, and rules of thumb; and what their answers carry as `model_id`.

The calibrated model answers as `ID`, its file's id. A part of it (one expert alone, or the average before recalibration) has no
state of its own and answers as `ID/NAME`. A rule is fitted on all that was known at a commit, told what follows, and answers as
`NAME@COMMIT`: enough to make either again.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from calibrate.conformal.wrap import Calibrated
from predictors.aggregate import Weights
from predictors.baselines.registry import NAMES
from predictors.ensemble import EXPERTS, Ensemble
from predictors.frames import frame_of
from predictors.model import Model
from service.learners import AGGREGATE, RULES
from telemetry import asof
from telemetry.errors import BadField
from telemetry.store.reader import Reader

DEFAULT = "default"
"""The calibrated model: it answers while nobody was promoted."""
PARTS = (AGGREGATE, *EXPERTS)
ANSWERERS = (DEFAULT, *PARTS, *RULES)


def known(name: str, field: str = "predictor") -> str:
    """The name, if somebody here goes by it; BadField names all who do."""
    if name not in ANSWERERS:
        raise BadField(field, name, f"nobody here goes by that name; give one of {', '.join(ANSWERERS)}")
    return name


def part_of(model: Calibrated, name: str) -> Ensemble:
    """A part of the calibrated model as a model: it knows what the whole knows, and answers without recalibration."""
    if name == AGGREGATE:
        return model.inner
    alone = np.array([float(expert == name) for expert in EXPERTS])
    return replace(model.inner, weights=Weights(alone), memo={})


def part_id(model_id: str, name: str) -> str:
    """What answers of a part carry as `model_id`."""
    return f"{model_id}/{name}"


def rule_id(name: str, commit: int) -> str:
    """What answers of a rule fitted as of a commit carry as `model_id`."""
    return f"{name}@{commit}"


def file_of(model_id: str) -> str:
    """The id of the model file behind an answer; that of a rule's answers is nobody's."""
    return model_id.partition("/")[0]


def who(model_id: str) -> str:
    """The name of who gave an answer."""
    if "@" in model_id:
        return model_id.partition("@")[0]
    return model_id.partition("/")[2] or DEFAULT


def answering(model: Model, model_id: str) -> Model:
    """Who of a file's model gave an answer: it, or a part of it."""
    name = who(model_id)
    return part_of(model, name) if name in PARTS and isinstance(model, Calibrated) else model


def fitted_as_of(model_id: str) -> int | None:
    """The commit a rule was fitted as of, from what its answers carry; None for answers of the calibrated model or a part."""
    return int(model_id.partition("@")[2]) if "@" in model_id else None


def rule_as_of(reader: Reader, name: str, commit: int) -> Model:
    """The rule of this name, fitted on what was known at a commit."""
    return NAMES[RULES[name]].fit(frame_of(asof.observations(reader, commit)), commit)
