"""The scoreboard of those who do not answer: challengers of ours and outside predictors, beside the answers that were served.

Pure: rows of forecasts with what is known of their truth in, standings out. Who forecast after the champion answered, or after
the phase had begun, could have known more: such a row is listed as late and never scored. Both sides are scored alike, by CRPS in
log time from quantiles on one grid; failed phases are left out, censored ones count through the weights of those like them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from calibrate.evidence.compare import Comparison, compare
from calibrate.evidence.promotion import Ruling, ruled
from predictors.distribution import GRID, Array
from predictors.scores import Interval, binomial_interval, censoring_weights, crps_log, resolved_misses
from telemetry.ledger import Prediction
from telemetry.verdicts import ShadowForecast
from telemetry.words import CENSORED, Ended

LEVELS = (0.5, 0.9, 0.95, 0.99)
_PLACE = {level: int(np.flatnonzero(level == GRID)[0]) for level in LEVELS}
_P90 = LEVELS.index(0.9)


class Place(StrEnum):
    """What becomes of a shadow forecast; only `scored` ones are compared."""

    SCORED = "scored"
    CENSORED = "censored"
    FAILED = "failed"
    WAITING = "waiting"
    UNPAIRED = "unpaired"
    AFTER_ANSWER = "late_after_answer"
    AFTER_EVENT = "late_after_event"


LATE = (Place.AFTER_ANSWER, Place.AFTER_EVENT)


@dataclass(frozen=True, slots=True)
class Beside:
    """One shadow forecast, the answer it is beside and the truth; times in s, instants in UTC ns.

    `made_beside` says that the API made it itself, from the commit the answer was made from. `answered_ns` and `answered_s`
    (quantiles on GRID) are None where nothing was answered in time; `ended` None while nothing is known of the phase.
    """

    predictor: str
    attempt_id: str
    phase: str
    host: str
    run: str
    form: str
    quantiles_s: Array
    received_ns: int
    made_beside: bool
    after_event: bool
    answered_ns: int | None
    answered_s: Array | None
    duration_s: float | None
    ended: Ended | None

    @property
    def place(self) -> Place:
        """What becomes of it."""
        if not self.made_beside and self.answered_ns is not None and self.received_ns > self.answered_ns:
            return Place.AFTER_ANSWER
        if not self.made_beside and self.after_event:
            return Place.AFTER_EVENT
        if self.answered_s is None:
            return Place.UNPAIRED
        if self.ended is None or self.duration_s is None:
            return Place.WAITING
        if self.ended is Ended.FAILED:
            return Place.FAILED
        return Place.CENSORED if self.ended in CENSORED else Place.SCORED


@dataclass(frozen=True)
class Standing:
    """One predictor on one phase (None: all of them).

    `passed` is the share of resolved truths above its own quantiles, by level; empty for points, which promise nothing.
    """

    predictor: str
    phase: str | None
    made_beside: bool
    counts: dict[Place, int]
    comparison: Comparison
    worst_attempt: str | None
    passed: dict[float, Interval]
    ruling: Ruling


@dataclass(frozen=True)
class Scoreboard:
    """Standings, each predictor over all phases before phase by phase, and the forecasts that came too late."""

    standings: tuple[Standing, ...]
    late: tuple[Beside, ...]


def scoreboard(rows: Sequence[Beside], seed: int = 0) -> Scoreboard:
    """Compare every predictor with the champion; `rows` are in the order in which their truth became known."""
    found = []
    for predictor, mine in sorted(_grouped(rows).items()):
        found.append(_standing(predictor, None, mine, seed))
        phases = sorted({row.phase for row in mine})
        if len(phases) > 1:
            found += [_standing(predictor, phase, [row for row in mine if row.phase == phase], seed) for phase in phases]
    return Scoreboard(tuple(found), tuple(row for row in rows if row.place in LATE))


def beside(prediction: Prediction, predictor: str, quantiles_s: Array) -> ShadowForecast:
    """The row of a challenger's answer (101,) on GRID to the question about a named attempt that a served answer was for."""
    assert prediction.attempt_id is not None
    return ShadowForecast(
        predictor=predictor,
        attempt_id=prediction.attempt_id,
        phase=prediction.phase,
        form="quantiles",
        levels=[],
        sent_s=[],
        quantiles_s=quantiles_s.tolist(),
        prediction_id=prediction.prediction_id,
    )


def _grouped(rows: Sequence[Beside]) -> dict[str, list[Beside]]:
    found: dict[str, list[Beside]] = defaultdict(list)
    for row in rows:
        found[row.predictor].append(row)
    return found


def _standing(predictor: str, phase: str | None, rows: Sequence[Beside], seed: int) -> Standing:
    """Compare one predictor on the rows that both sides forecast."""
    places = [row.place for row in rows]
    known = [row for row, place in zip(rows, places, strict=True) if place in {Place.SCORED, Place.CENSORED}]
    lost = np.array([row.ended is not Ended.COMPLETED for row in known], dtype=bool)
    duration_s = np.array([row.duration_s or 0.0 for row in known])
    done = np.flatnonzero(~lost)
    weight = _weights(known, duration_s, lost)[done]
    own, served = (_stacked(known, answered=answered) for answered in (False, True))
    champion, challenger = (crps_log(duration_s[done], table[done][:, :99]) for table in (served, own))
    comparison = compare([known[row].run for row in done], champion, challenger, weight, seed)
    passed = {} if any(row.form == "point" for row in known) else _passed(own, duration_s, lost)
    worst = None if comparison.worst is None else known[int(done[comparison.worst])].attempt_id
    return Standing(
        predictor,
        phase,
        made_beside=any(row.made_beside for row in rows),
        counts={place: places.count(place) for place in Place},
        comparison=comparison,
        worst_attempt=worst,
        passed=passed,
        ruling=ruled(comparison.bounds, passed.get(LEVELS[_P90])),
    )


def _weights(known: Sequence[Beside], duration_s: Array, lost: NDArray[np.bool_]) -> Array:
    """1 / G of every row among those of its phase, and of its host where there are enough."""
    if not known:
        return np.empty(0)
    return censoring_weights(duration_s, lost, [[row.phase for row in known], [row.host for row in known]])


def _stacked(known: Sequence[Beside], *, answered: bool) -> Array:
    """Quantiles of all rows, shape (n, 101): those served, or those of the predictor."""
    tables = [row.answered_s if answered else row.quantiles_s for row in known]
    return np.array(tables, dtype=np.float64).reshape(len(known), len(GRID))


def _passed(own: Array, duration_s: Array, lost: NDArray[np.bool_]) -> dict[float, Interval]:
    """Share of resolved truths above each advertised quantile."""
    found = {}
    for level in LEVELS:
        miss, resolved = resolved_misses(duration_s, lost, own[:, _PLACE[level]])
        found[level] = binomial_interval(int(miss[resolved].sum()), int(resolved.sum()))
    return found
