"""Two predictors on the same outcomes: paired differences of a score, by how much and how surely.

With d the score of the champion less that of the challenger (positive where the challenger is better), outcomes of one run moving
together: after n outcomes with sum S, mean d = S / n, and V = sum over runs of (their sum less d times their number)^2, which for
runs of one outcome is n times the variance. Looked at after every outcome, for ever, the true mean lies above

    d - sqrt(V (1 + b / n) 2 log(1 + sqrt(1 + n / b) / (2 alpha))) / n      (`radius`, over n)

with probability 1 - alpha, and below the same with a plus (normal mixture: Robbins 1970, Howard et al. 2021; with an estimated
variance: Waudby-Smith et al. 2024). No fixed-n test is repeated. BEST is b: it sets where the bounds are tightest, never whether
they hold. V is an estimate: nothing is said before LEAST outcomes of RUNS runs, and the sum is taken as if one more outcome had
come as bad as the worst so far (for the bound above: as good as the best), so that a challenger that is a little better most of
the time and a disaster seldom is not promoted on the quiet times between.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictors.distribution import GRID, Array
from predictors.joint.streams import stream, uniforms
from predictors.scores import Interval
from telemetry.errors import BadField

ALPHA = 0.006
BEST = 300.0
LEAST = 100
RUNS = 20
RESAMPLES, FEWEST = 2000, 400
ROOM = 2**20
"""Draws held at a time."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the mean difference, each holding at all looks at once with chance 1 - alpha; None if too little is known."""

    mean: float
    low: float | None
    high: float | None
    n: int
    runs: int


@dataclass
class Paired:
    """The running comparison of one pair of predictors: outcome in, bounds out, a few additions each.

    Sums per run of the weighted differences and of the weights; `squares`, `crossed` and `weights` are the sums over runs of
    S^2, S W and W^2, so that V = squares - 2 d crossed + d^2 weights.
    """

    alpha: float = ALPHA
    n: int = 0
    total: float = 0.0
    weight: float = 0.0
    best: float = 0.0
    worst: float = 0.0
    squares: float = 0.0
    crossed: float = 0.0
    weights: float = 0.0
    runs: dict[Hashable, tuple[float, float]] = field(default_factory=dict)

    def add(self, run: Hashable, difference: float, weight: float = 1.0) -> None:
        """Take the outcome of one pair; `weight` is 1 / G where others like it were censored."""
        if not (math.isfinite(difference) and math.isfinite(weight) and weight > 0.0):
            raise BadField("difference, weight", (difference, weight), "give finite numbers, and a weight above 0")
        was, had = self.runs.get(run, (0.0, 0.0))
        now, has = was + weight * difference, had + weight
        self.runs[run] = now, has
        self.n, self.total, self.weight = self.n + 1, self.total + weight * difference, self.weight + weight
        self.best, self.worst = max(self.best, weight * difference), min(self.worst, weight * difference)
        self.squares += now * now - was * was
        self.crossed += now * has - was * had
        self.weights += has * has - had * had

    def bounds(self) -> Bounds:
        """What is known of the mean difference by now."""
        if self.n == 0:
            return Bounds(0.0, None, None, 0, 0)
        mean = self.total / self.weight
        if self.n < LEAST or len(self.runs) < RUNS:
            return Bounds(mean, None, None, self.n, len(self.runs))
        spread = max(self.squares - 2.0 * mean * self.crossed + mean * mean * self.weights, 0.0)
        far = float(radius(spread, self.n, self.alpha))
        low, high = (self.total + self.worst - far) / self.weight, (self.total + self.best + far) / self.weight
        return Bounds(mean, low, high, self.n, len(self.runs))


def radius(spread: ArrayLike, n: ArrayLike, alpha: float = ALPHA) -> Array:
    """How far the sum of n differences with summed squares `spread` may be from n times their mean, at all n at once."""
    v, at = np.asarray(spread, dtype=np.float64), np.asarray(n, dtype=np.float64)
    return np.asarray(np.sqrt(v * (1.0 + BEST / at) * 2.0 * np.log1p(np.sqrt(1.0 + at / BEST) / (2.0 * alpha))))


@dataclass(frozen=True)
class Comparison:
    """One challenger beside the champion on the rows both forecast.

    Mean scores, lower is better, their ratio (challenger over champion) and difference (champion less challenger) with 95 %
    intervals from resampled runs, None below five runs; `bounds` hold at every look. Wins are rows on which the challenger scored
    better; the worst is the row on which it lost most.
    """

    n: int
    runs: int
    champion: float
    challenger: float
    ratio: Interval | None
    difference: Interval | None
    bounds: Bounds
    wins: int
    ties: int
    losses: int
    worst: int | None


def compare(run: Sequence[Hashable], champion: Array, challenger: Array, weight: Array, seed: int = 0) -> Comparison:
    """Compare scores (n,) of the same rows, in the order in which they became known; `weight` (n,) as in `Paired.add`."""
    if not len(run) == len(champion) == len(challenger) == len(weight):
        raise BadField("run", len(run), "give one run, two scores and a weight per row")
    off, paired = champion - challenger, Paired()
    for name, difference, w in zip(run, off.tolist(), weight.tolist(), strict=True):
        paired.add(name, difference, w)
    bounds = paired.bounds()
    ratio, difference = _resampled(run, champion * weight, challenger * weight, weight, seed)
    total = float(weight.sum())
    tie = np.isclose(champion, challenger, rtol=1e-9, atol=0.0)
    return Comparison(
        n=len(run),
        runs=bounds.runs,
        champion=float(champion @ weight) / total if len(run) else 0.0,
        challenger=float(challenger @ weight) / total if len(run) else 0.0,
        ratio=ratio,
        difference=difference,
        bounds=bounds,
        wins=int(np.sum((off > 0.0) & ~tie)),
        ties=int(np.sum(tie)),
        losses=int(np.sum((off < 0.0) & ~tie)),
        worst=int(np.argmin(off)) if len(run) else None,
    )


def _resampled(
    run: Sequence[Hashable], champion: Array, challenger: Array, weight: Array, seed: int
) -> tuple[Interval | None, Interval | None]:
    """Ratio and difference of the mean scores, with intervals from RESAMPLES draws of whole runs with replacement."""
    place = _places(run)
    n_runs = int(place.max(initial=-1)) + 1
    if n_runs < 5:
        return None, None
    old, new, of = (np.bincount(place, values, n_runs) for values in (champion, challenger, weight))
    was, now, by = np.vstack([drawn @ np.stack([old, new, of], axis=1) for drawn in _draws(seed, n_runs)]).T
    ratio, off = float(new.sum() / old.sum()), float((old - new).sum() / of.sum())
    low, high = np.quantile((was - now) / by, [0.025, 0.975]).tolist()
    return _ratio(ratio, now, was, n_runs), Interval(off, low, high, n_runs)


def _ratio(estimate: float, now: Array, was: Array, n_runs: int) -> Interval | None:
    """The ratio with its interval; None where the champion may have scored nothing, and every ratio would be beyond it."""
    if not (was > 0.0).all():
        return None
    low, high = np.quantile(now / was, [0.025, 0.975]).tolist()
    return Interval(estimate, low, high, n_runs)


def _draws(seed: int, n_runs: int) -> Iterator[Array]:
    """How often each run is drawn, in parts of shape (n, n_runs): decided by the seed alone.

    RESAMPLES rows in all, fewer for very many runs: their intervals are narrow, and a report should not take seconds.
    """
    size, total = max(1, ROOM // n_runs), max(FEWEST, min(RESAMPLES, 4 * ROOM // n_runs))
    for start in range(0, total, size):
        rows = np.arange(start, min(start + size, total), dtype=np.uint64)
        chosen = (uniforms(stream(seed, "resampled runs", rows), n_runs) * n_runs).astype(np.intp)
        places = (chosen + n_runs * np.arange(len(rows))[:, None]).ravel()
        yield np.bincount(places, minlength=len(rows) * n_runs).reshape(len(rows), n_runs).astype(np.float64)


def _places(run: Sequence[Hashable]) -> NDArray[np.intp]:
    """Runs numbered in order of first appearance."""
    seen: dict[Hashable, int] = {}
    return np.array([seen.setdefault(one, len(seen)) for one in run], dtype=np.intp)


def on_grid(form: str, sent_s: Sequence[float], levels: Sequence[float] = ()) -> Array:
    """What an outside predictor sent, as quantiles in s on GRID (101,), so that all are scored alike.

    A point is a distribution at that point. Quantiles are joined by straight lines in log time, and beyond the outermost levels
    stay where they are: nothing is added to what was said. Samples are their own empirical quantiles. Raises BadField.
    """
    values = np.asarray(sent_s, dtype=np.float64)
    if values.size == 0 or not np.isfinite(values).all() or (values < 0.0).any():
        raise BadField("sent_s", sent_s[:5], "give finite times in s, none negative")
    if form == "point":
        if values.size != 1:
            raise BadField("sent_s", f"{values.size} values", "a point is one time")
        return np.full(len(GRID), values[0])
    if form == "samples":
        return np.asarray(np.quantile(values, GRID, method="inverted_cdf"))
    at = np.asarray(levels, dtype=np.float64)
    if at.shape != values.shape or (np.diff(at) <= 0.0).any() or not ((at > 0.0) & (at < 1.0)).all():
        raise BadField("levels", list(levels)[:5], "give one level in (0, 1) per quantile, ascending")
    if (np.diff(values) < 0.0).any():
        raise BadField("sent_s", sent_s[:5], "quantiles do not cross: give them ascending, as the levels are")
    floor_s = 1e-9
    return np.where(values[0] == values[-1], values[0], np.exp(np.interp(GRID, at, np.log(np.maximum(values, floor_s)))))
