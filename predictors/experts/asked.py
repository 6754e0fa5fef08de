"""What was answered when a row was asked, kept until its outcome is known: that is judged, not what was learned since."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from predictors.aggregate import crowds
from predictors.contexts import Context
from predictors.distribution import Array
from predictors.experts.histories import Centres

TOGETHER = 0.1
"""Of rows told of at once, those have begun together that began within this share of what is typical of them."""


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One row, as answered.

    `experts` (n_experts, len(GRID)) are log quantiles of the positive part, `mixed` (len(GRID),) their weighted average; `zero`
    is the probability of a duration of zero. `limit` (len(GRID),) are the log times that no quantile
    may pass. `features` are what trees looked at, `centre` the model of record's centre. `path`
    are the nodes in which the answer is judged; `crowd` counts the rows that began together at each of them.
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


def counted(asked: Sequence[Asked], started_ns: Sequence[int | None], within: float) -> list[Asked]:
    """Rows asked in one step, with how many of those at each of their nodes began together with them.

    That is `within` a share of what is typical of them, 0 for at one instant. Rows whose start was not seen are taken to have.
    """
    beginning = _beginnings([1e9 * within * math.exp(one.centre) for one in asked], started_ns)
    paths: dict[int, list[tuple[str, ...]]] = {}
    for one, number in zip(asked, beginning, strict=True):
        paths.setdefault(number, []).append(one.path)
    crowd = {number: crowds(together) for number, together in paths.items()}
    return [
        replace(one, crowd=tuple(crowd[number][key] for key in one.path)) for one, number in zip(asked, beginning, strict=True)
    ]


def _beginnings(within_ns: Sequence[float], started_ns: Sequence[int | None]) -> list[int]:
    """A number for each row's beginning: 0 where it was not seen, else that of the first begun within_ns before or less."""
    number, first_ns, found = 0, -1, [0] * len(within_ns)
    for start_ns, row in sorted((start_ns, row) for row, start_ns in enumerate(started_ns) if start_ns is not None):
        if number == 0 or start_ns - first_ns > within_ns[row]:
            number, first_ns = number + 1, start_ns
        found[row] = number
    return found
