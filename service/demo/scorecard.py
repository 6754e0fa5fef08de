"""What the demo's answers were worth, computed from rows of a snapshot alone: nothing here remembers the run.

A row is one predicted phase of one attempt with its outcome. The two rules of thumb answer the same rows, each knowing what had
ended when our answer was made; the empirical distribution is refitted at the start of each of eight blocks, as its users do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import orjson

from predictors.baselines.configuration_ecdf import ConfigurationEcdf
from predictors.baselines.median_of_nine import MedianOfNine
from predictors.contexts import Context
from predictors.distribution import GRID, Array
from predictors.scores import Interval, crps_log, exceedance, ratio_by_blocks
from telemetry.store.reader import Reader

BLOCKS = 8
SCORED_SHARE = 0.4
LEVELS_SHOWN = (0.5, 0.9, 0.95)
EXCEEDED_AT = {p: int(np.flatnonzero(p == GRID)[0]) for p in LEVELS_SHOWN}
_ROWS = """
SELECT p.prediction_id, p.attempt_id, p.phase, p.made_ns, p.elapsed_s, p.context, p.quantiles_s, o.actual_s, o.ended, o.started_ns
FROM predictions p JOIN outcomes o USING (prediction_id)
WHERE o.known_until IS NULL AND p.elapsed_s IS {} NULL
ORDER BY p.made_ns, p.attempt_id, p.phase
"""


@dataclass(frozen=True)
class Scored:
    """One answer and its truth; `quantiles_s` on the fixed grid. Censored outcomes carry a lower bound in `actual_s`."""

    prediction_id: str
    attempt_id: str
    phase: str
    made_ns: int
    elapsed_s: float | None
    context: Context
    quantiles_s: Array
    actual_s: float
    ended: str
    started_ns: int

    @property
    def completed(self) -> bool:
        """Whether the phase ran to its end."""
        return self.ended == "completed"


def scored_rows(reader: Reader, *, residual: bool = False) -> list[Scored]:
    """Answers with outcomes, in the order they were given: of whole phases, or of remaining times."""
    found = reader.rows(_ROWS.format("NOT" if residual else ""))
    return [
        Scored(key, a, phase, made, elapsed, Context.of(orjson.loads(context)), np.array(q), actual, ended, started)
        for key, a, phase, made, elapsed, context, q, actual, ended, started in found
    ]


_PAST = """
SELECT b.phase, b.duration_s, b.started_ns, a.* FROM observations b JOIN attempts a USING (attempt_id)
WHERE b.known_until IS NULL AND b.ended = 'completed' AND b.started_ns IS NOT NULL
ORDER BY b.started_ns + b.duration_s * 1e9, b.observation_id
"""


@dataclass(frozen=True)
class Past:
    """A phase that completed, and when."""

    ended_ns: int
    phase: str
    family: str
    configuration: str
    duration_s: float


def past(reader: Reader) -> list[Past]:
    """Everything that completed, in order of ending: what the rules of thumb learn from."""
    found = []
    for row in reader.arrow(_PAST).to_pylist():
        context = Context.of(row)
        ended_ns = row["started_ns"] + round(row["duration_s"] * 1e9)
        configuration = _configuration(row["phase"], context)
        found.append(Past(ended_ns, row["phase"], context.family or "", configuration, row["duration_s"]))
    return found


def _configuration(phase: str, context: Context) -> str:
    return f"{phase}#{context.configuration()}"


@dataclass(frozen=True)
class Cell:
    """Coverage and score of one phase and state, of completed rows all three answered; `censored` counts the others."""

    phase: str
    state: str
    n: int
    censored: int
    exceeded: dict[float, Interval]
    crps_log: float
    crps_log_ecdf: float
    crps_log_last9: float


@dataclass(frozen=True)
class Scorecard:
    """The demo's figures: cells over all scored rows, ratios on the last part of the attempts by start."""

    cells: list[Cell]
    ratio_to_ecdf: Interval | None
    ratio_to_last9: Interval | None
    n_last: int
    unanswered: int


def card(rows: Sequence[Scored], history: Sequence[Past]) -> Scorecard:
    """Score every completed row that all three could answer; ratios on the last 40 % of attempts by start, in eight blocks."""
    block = _blocks(rows)
    told = _rules_of_thumb(rows, history, block)
    answered = [i for i, row in enumerate(rows) if row.completed and all(answer[i] is not None for answer in told)]
    ours: list[Array | None] = [row.quantiles_s[:99] for row in rows]
    mine, ecdf, last9 = (_scores(rows, answered, answer) for answer in (ours, *told))
    last = np.array([block[rows[i].attempt_id] > 0 for i in answered], dtype=bool)
    blocks = [block[rows[i].attempt_id] for i, late in zip(answered, last, strict=True) if late]
    ratios = [_ratio(mine[last], other[last], blocks) for other in (ecdf, last9)]
    unanswered = sum(row.completed for row in rows) - len(answered)
    return Scorecard(_cells(rows, answered, (mine, ecdf, last9)), ratios[0], ratios[1], int(last.sum()), unanswered)


def _blocks(rows: Iterable[Scored]) -> dict[str, int]:
    """Block of each attempt by its first answer: 0 for the first 60 %, then 1 to 8."""
    order = list(dict.fromkeys(row.attempt_id for row in rows))
    first = int(len(order) * (1 - SCORED_SHARE))
    tail = max(1, len(order) - first)
    return {a: 0 if i < first else 1 + (i - first) * BLOCKS // tail for i, a in enumerate(order)}


def _rules_of_thumb(
    rows: Sequence[Scored], history: Sequence[Past], block: dict[str, int]
) -> tuple[list[Array | None], list[Array | None]]:
    """What the empirical distribution and the median of nine say of each row, knowing what had ended when ours was made."""
    ecdf, last9 = ConfigurationEcdf(), MedianOfNine()
    ended, fitted_to, now_block = 0, 0, 0
    told: tuple[list[Array | None], list[Array | None]] = ([], [])
    for row in rows:
        while ended < len(history) and history[ended].ended_ns <= row.made_ns:
            last9.learn(history[ended].configuration, history[ended].phase, history[ended].duration_s)
            ended += 1
        if now_block == 0 or block[row.attempt_id] != now_block:
            now_block = block[row.attempt_id]
            for known in history[fitted_to:ended]:
                ecdf.learn(known.configuration, known.family, known.phase, known.duration_s)
            fitted_to = ended
        configuration = _configuration(row.phase, row.context)
        told[0].append(ecdf.quantiles(configuration, row.context.family or "", row.phase))
        told[1].append(last9.quantiles(configuration, row.phase))
    return told


def _scores(rows: Sequence[Scored], answered: Sequence[int], told: Sequence[Array | None]) -> Array:
    """CRPS in log time of one predictor on the rows answered by all."""
    quantiles = [q for i in answered if (q := told[i]) is not None]
    return crps_log([rows[i].actual_s for i in answered], np.array(quantiles)) if quantiles else np.empty(0)


def _ratio(mine: Array, other: Array, blocks: list[int]) -> Interval | None:
    """Ratio of mean scores with its 90 % interval by blocks; None where there are too few rows to tell."""
    return ratio_by_blocks(mine, other, blocks) if len(set(blocks)) >= 2 and other.sum() > 0 else None


def _cells(rows: Sequence[Scored], answered: Sequence[int], scores: Sequence[Array]) -> list[Cell]:
    """One cell per phase and state."""
    place = {i: k for k, i in enumerate(answered)}
    key = [(row.phase, row.context.state or "") for row in rows]
    cells = []
    for phase, state in sorted(set(key)):
        here = [i for i in range(len(rows)) if key[i] == (phase, state)]
        done = [i for i in here if i in place]
        if done:
            actual = np.array([rows[i].actual_s for i in done])
            exceeded = {p: exceedance(actual, [rows[i].quantiles_s[k] for i in done]) for p, k in EXCEEDED_AT.items()}
            means = [float(score[[place[i] for i in done]].mean()) for score in scores]
            censored = sum(not rows[i].completed for i in here)
            cells.append(Cell(phase, state, len(done), censored, exceeded, *means))
    return cells


@dataclass(frozen=True)
class ResidualCell:
    """Remaining times asked at about one fraction of the predicted median."""

    fraction: float
    n: int
    exceeded_p50: Interval
    exceeded_p90: Interval
    crps_log: float


def residual_cells(rows: Sequence[Scored], fractions: dict[str, float]) -> list[ResidualCell]:
    """Exceedance of remaining times by the fraction of the median at which they were asked."""
    cells = []
    for fraction in sorted(set(fractions.values())):
        here = [r for r in rows if r.completed and fractions.get(r.prediction_id) == fraction]
        if here:
            actual, q = np.array([r.actual_s for r in here]), np.array([r.quantiles_s for r in here])
            p50, p90 = (exceedance(actual, q[:, EXCEEDED_AT[p]]) for p in (0.5, 0.9))
            cells.append(ResidualCell(fraction, len(here), p50, p90, float(crps_log(actual, q[:, :99]).mean())))
    return cells
