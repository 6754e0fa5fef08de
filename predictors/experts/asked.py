"""What was answered when a row was asked, kept until its outcome is known: that is judged, not what was learned since."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from predictors.contexts import Context
from predictors.distribution import Array
from predictors.experts.histories import Centres


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One row, as answered.

    `experts` (n_experts, len(GRID)) are log quantiles of the positive part, `mixed` (len(GRID),) their weighted average; `zero`
    is the probability of a duration of zero. `limit` (len(GRID),) are the log times that no quantile
    may pass. `features` are what trees looked at, `centre` the model of record's centre. `path`
    are the nodes in which the answer is judged; `crowd` counts the rows asked at the same instant at each of them.
    """

    context: Context
    phase: str
    path: tuple[str, ...]
    limit: Array
    experts: NDArray[np.float32]
    weights: Array
    mixed: Array
    zero: float
    centre: float
    centres: Centres | None
    features: NDArray[np.float32]
    crowd: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Told:
    """An outcome of a row asked before: it lasted `duration_s`, and ended (or is only known to have lasted that long)."""

    key: str
    asked: Asked
    duration_s: float
    ended: bool
