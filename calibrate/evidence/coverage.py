"""Coverage: how often durations passed the quantiles that were answered for them, stratum by stratum.

Pure: rows of answers with what is known of their truth in, counts and exact intervals out. Answers speak of the time given
completion, so failed phases are counted and left out; censored ones count by what they prove.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictors.distribution import GRID, Array
from predictors.scores import Interval, binomial_interval, censoring_weights, crps_log, resolved_misses, weighted_mean
from telemetry.words import CENSORED, Ended

LEVELS = (0.5, 0.9, 0.95, 0.99)
_PLACE = {level: int(np.flatnonzero(level == GRID)[0]) for level in LEVELS}


class Stratum(NamedTuple):
    """What rows are judged together: phase x state x host, asked at the start of the phase or while it ran.

    None means any; the empty string that it was not known.
    """

    while_running: bool
    phase: str | None = None
    state: str | None = None
    host: str | None = None


@dataclass(frozen=True)
class Judged:
    """Answers and their truth, one row each; one per attempt, phase and kind of question, so that rows are independent.

    `strata` (n,), `quantiles_s` (n, 101) on GRID, `actual_s` (n,) the length in s, or for censored rows what it is known to
    exceed; `ended` (n,). Both times are remaining times where the question was asked while the phase ran.
    """

    strata: Sequence[Stratum]
    quantiles_s: Array
    actual_s: Array
    ended: Sequence[Ended]


@dataclass(frozen=True)
class Exceeded:
    """How often one advertised level was passed.

    `share` is taken over the resolved rows with its exact binomial interval; `unresolved` rows were censored below their bound.
    `weighted` corrects for those: each resolved row weighs 1 / G at the time it was resolved.
    """

    level: float
    misses: int
    share: Interval
    unresolved: int
    weighted: float | None

    @property
    def nominal(self) -> float:
        """The share promised: 1 - level."""
        return 1.0 - self.level

    @property
    def gap(self) -> float:
        """How far the promise lies outside the interval; negative inside."""
        return max(self.share.low - self.nominal, self.nominal - self.share.high)


@dataclass(frozen=True)
class Cell:
    """One stratum. `n` answers = `completed` + `censored` + `failed`; `crps_log` is the mean over completed ones, in nats."""

    stratum: Stratum
    n: int
    completed: int
    censored: int
    failed: int
    exceeded: tuple[Exceeded, ...]
    crps_log: float | None

    @property
    def gap(self) -> float:
        """The largest gap of its levels."""
        return max(one.gap for one in self.exceeded)


@dataclass(frozen=True)
class Coverage:
    """Cells worst first, each kind of question pooled, and the worst cell by name (None without rows)."""

    cells: tuple[Cell, ...]
    pooled: tuple[Cell, ...]

    @property
    def worst(self) -> Cell | None:
        """The cell whose promise lies farthest outside its interval, or closest to its edge."""
        return self.cells[0] if self.cells else None


@dataclass(frozen=True)
class _Scored:
    """Per row of Judged: miss, resolved and weight (n, n_levels); score and its weight (n,)."""

    miss: NDArray[np.bool_]
    resolved: NDArray[np.bool_]
    weight: Array
    score: Array
    score_weight: Array


def coverage(judged: Judged) -> Coverage:
    """Judge every stratum, and each kind of question over all strata."""
    ended = np.array([one.value for one in judged.ended], dtype=object)
    rows = np.flatnonzero(ended != Ended.FAILED.value)
    scored = _score(judged, ended, rows)
    cells = [_cell(stratum, places, ended, scored) for stratum, places in _places(judged.strata)]
    pooled = [_cell(kind, places, ended, scored) for kind, places in _places(Stratum(s.while_running) for s in judged.strata)]
    return Coverage(tuple(sorted(cells, key=lambda cell: (-cell.gap, cell.stratum))), tuple(pooled))


def _places(strata: Iterable[Stratum]) -> list[tuple[Stratum, NDArray[np.intp]]]:
    """Row numbers of each stratum, in the order of strata."""
    found: dict[Stratum, list[int]] = defaultdict(list)
    for place, stratum in enumerate(strata):
        found[stratum].append(place)
    return [(stratum, np.array(found[stratum], dtype=np.intp)) for stratum in sorted(found)]


def _score(judged: Judged, ended: NDArray[np.object_], rows: NDArray[np.intp]) -> _Scored:
    """Misses and scores of all rows; those outside `rows` (failed) are unresolved and weigh nothing."""
    n = len(judged.strata)
    lost = np.isin(ended, [one.value for one in CENSORED])
    actual_s, bounds_s = judged.actual_s, judged.quantiles_s[:, [_PLACE[level] for level in LEVELS]]
    miss, resolved, weight = np.zeros((n, len(LEVELS)), bool), np.zeros((n, len(LEVELS)), bool), np.zeros((n, len(LEVELS)))
    path = _path([judged.strata[row] for row in rows])
    for k in range(len(LEVELS)):
        miss[rows, k], resolved[rows, k] = resolved_misses(actual_s[rows], lost[rows], bounds_s[rows, k])
        known_at_s = np.minimum(actual_s[rows], bounds_s[rows, k])
        weight[rows, k] = censoring_weights(actual_s[rows], lost[rows], path, at_s=known_at_s)
    score, score_weight = np.zeros(n), np.zeros(n)
    score[rows] = crps_log(actual_s[rows], judged.quantiles_s[rows, :99])
    score_weight[rows] = np.where(lost[rows], 0.0, censoring_weights(actual_s[rows], lost[rows], path))
    return _Scored(miss, resolved, weight, score, score_weight)


def _path(strata: Sequence[Stratum]) -> list[list[str]]:
    """Labels of the strata in which rows are censored alike, coarsest first."""
    return [[f"{s.while_running}/{s.phase}" for s in strata], [s.state or "" for s in strata], [s.host or "" for s in strata]]


def _cell(stratum: Stratum, places: NDArray[np.intp], ended: NDArray[np.object_], scored: _Scored) -> Cell:
    """Count one stratum."""
    here = ended[places]
    completed, failed = int(np.sum(here == Ended.COMPLETED.value)), int(np.sum(here == Ended.FAILED.value))
    weight = scored.score_weight[places]
    return Cell(
        stratum,
        n=len(places),
        completed=completed,
        censored=len(places) - completed - failed,
        failed=failed,
        exceeded=tuple(_exceeded(k, places, len(places) - failed, scored) for k in range(len(LEVELS))),
        crps_log=weighted_mean(scored.score[places], weight) if weight.sum() > 0 else None,
    )


def _exceeded(k: int, places: NDArray[np.intp], n: int, scored: _Scored) -> Exceeded:
    """Count one level of one stratum with `n` rows that did not fail."""
    miss, resolved = scored.miss[places, k], scored.resolved[places, k]
    n_resolved, misses = int(resolved.sum()), int(miss[resolved].sum())
    weighted = weighted_mean(miss[resolved], scored.weight[places, k][resolved]) if n_resolved else None
    return Exceeded(LEVELS[k], misses, binomial_interval(misses, n_resolved), n - n_resolved, weighted)
