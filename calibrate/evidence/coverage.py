"""Coverage: how often durations passed the quantiles that were answered for them, stratum by stratum.

Pure: counts of a group of answers in, shares with their intervals out. Answers speak of the time given completion, so failed
phases are counted and left out; censored ones count by what they prove: a phase past its quantile is a miss, however it ends,
and one that was cut off below it is unresolved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from calibrate.evidence.always import ALPHA, share_at_any_look
from predictors.distribution import Array
from predictors.scores import Interval

LEVELS = (0.5, 0.9, 0.95, 0.99)
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Exceeded:
    """How often one advertised level was passed.

    `share` is taken over the resolved rows, with its exact binomial interval; `always` is the interval that holds at every look.
    `weighted` corrects for the `unresolved`: each resolved row weighs 1 / G at the time it was resolved. `if_kept` and
    `if_missed` are the share if all unresolved ones had kept their quantile, and if all had missed it; `sure_low` and `sure_high`
    the lower end of the exact interval of the first and the upper end of that of the second.
    """

    level: float
    misses: int
    share: Interval
    always: Interval
    unresolved: int
    weighted: float | None
    sure_low: float
    sure_high: float

    @property
    def nominal(self) -> float:
        """The share promised: 1 - level."""
        return 1.0 - self.level

    @property
    def gap(self) -> float:
        """How far the promise lies outside the exact intervals, whatever became of the unresolved; negative inside.

        Where hardly anything but misses is resolved, their share alone would cry wolf.
        """
        return max(self.sure_low - self.nominal, self.nominal - self.sure_high)

    @property
    def if_kept(self) -> float:
        """The share if no unresolved row had passed."""
        return self.misses / max(self.share.n + self.unresolved, 1)

    @property
    def if_missed(self) -> float:
        """The share if every unresolved row had passed."""
        return (self.misses + self.unresolved) / max(self.share.n + self.unresolved, 1)


@dataclass(frozen=True)
class Cell:
    """One group. `n` answers = `completed` + `censored` + `failed`; `place` is what its answers have in common, None for any."""

    place: Mapping[str, Any]
    n: int
    completed: int
    censored: int
    failed: int
    exceeded: tuple[Exceeded, ...]

    @property
    def gap(self) -> float:
        """The largest gap of its levels."""
        return max(one.gap for one in self.exceeded)

    @property
    def farthest(self) -> Exceeded:
        """The level that is farthest off."""
        return max(self.exceeded, key=lambda one: one.gap)


def cells(rows: Mapping[str, Sequence[Any]], place: Sequence[str]) -> tuple[Cell, ...]:
    """Cells of the groups in `rows`, in their order; `place` names the columns that say which group each is.

    Columns, as the figures of `telemetry.asof_scored` have them: n, n_completed, n_failed, and for each level such as 90
    misses_90, resolved_90 and, where the rows are weighted, weighted_90.
    """
    n, completed, failed = (np.asarray(rows[name], dtype=np.int64) for name in ("n", "n_completed", "n_failed"))
    exceeded = [_exceeded(rows, level, n - failed) for level in LEVELS]
    return tuple(
        Cell(
            {name: rows[name][row] for name in place},
            n=int(n[row]),
            completed=int(completed[row]),
            censored=int(n[row] - completed[row] - failed[row]),
            failed=int(failed[row]),
            exceeded=tuple(one[row] for one in exceeded),
        )
        for row in range(len(n))
    )


def worst(found: Sequence[Cell]) -> Cell | None:
    """The cell whose promise lies farthest outside its interval, or closest to its edge; None where there is none."""
    return max(found, key=lambda cell: cell.gap, default=None)


def shares(misses: Counts, n: Counts, alpha: float = ALPHA) -> tuple[Array, Array]:
    """Exact (Clopper-Pearson) ends of shares of n: beta quantiles; (0, 1) where n is 0."""
    low = np.where(misses > 0, betaincinv(np.maximum(misses, 1), n - misses + 1, alpha / 2.0), 0.0)
    high = np.where(misses < n, betaincinv(misses + 1, np.maximum(n - misses, 1), 1.0 - alpha / 2.0), 1.0)
    return low, high


def _exceeded(rows: Mapping[str, Sequence[Any]], level: float, asked: Counts) -> list[Exceeded]:
    """One level of every group, `asked` the number of its rows that did not fail."""
    name = round(100 * level)
    misses, resolved = (np.asarray(rows[f"{word}_{name}"], dtype=np.int64) for word in ("misses", "resolved"))
    share = misses / np.maximum(resolved, 1)
    exact, always = shares(misses, resolved), share_at_any_look(misses, resolved)
    sure_low, sure_high = shares(misses, asked)[0], shares(misses + asked - resolved, asked)[1]
    weighted = rows.get(f"weighted_{name}", [None] * len(asked))
    return [
        Exceeded(
            level,
            misses=int(misses[row]),
            share=Interval(float(share[row]), float(exact[0][row]), float(exact[1][row]), int(resolved[row])),
            always=Interval(float(share[row]), float(always[0][row]), float(always[1][row]), int(resolved[row])),
            unresolved=int(asked[row] - resolved[row]),
            weighted=weighted[row],
            sure_low=float(sure_low[row]),
            sure_high=float(sure_high[row]),
        )
        for row in range(len(asked))
    ]
