"""What regressions learn from: standardised log durations, and what was known of each row as numbers.

Log durations are centred and scaled per phase and then rounded to ROUND decimals: rows are the same numbers to the bit whatever
the unit of time, so that fits that branch on them (trees, descent) come out the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictors.baselines.alone import Pair
from predictors.contexts import CATEGORIES, NUMBERS, Context
from predictors.distribution import Array
from predictors.effects import Ints
from predictors.frames import Flags, Frame

MOST_ROWS = 40_000
"""Rows a regression learns from, the newest: what it costs must not grow with history."""
ROUND = 9
POOLING = 5.0
"""Rows that the scale of all phases weighs in that of one."""
LEAST_SCALE = 1e-3
"""Least standard deviation in log time: what never varied is not known to a nanosecond."""
WORDS = ("phase", *CATEGORIES)


@dataclass(frozen=True)
class Scale:
    """Centre and standard deviation of a phase's log durations."""

    centre: float
    sd: float


@dataclass(frozen=True)
class Rows:
    """Rows above zero of phases with completed ones, in the order in which they became known; arrays are (n_rows,).

    `pairs` are distinct, `pair` indexes into them. `z` and `z_entry` are standardised logs of duration and entry, the latter
    minus infinity at age zero; `event` marks completed rows, all others are censored. `scales` holds one per phase.
    """

    pairs: tuple[Pair, ...]
    pair: Ints
    z: Array
    z_entry: Array
    event: Flags
    weight: Array
    scales: Mapping[str, Scale]

    def take(self, places: Ints) -> Rows:
        """The rows at these places."""
        return replace(
            self,
            pair=self.pair[places],
            z=self.z[places],
            z_entry=self.z_entry[places],
            event=self.event[places],
            weight=self.weight[places],
        )

    @property
    def completed(self) -> Rows:
        """Completed rows alone."""
        return self.take(np.flatnonzero(self.event))


def rows_of(frame: Frame) -> Rows:
    """The newest MOST_ROWS rows of a frame that did not fail and lasted, of phases completed among them."""
    used = np.flatnonzero(~frame.failed & (frame.duration_s > 0.0))[-MOST_ROWS:]
    known = np.zeros(len(frame.phases), dtype=bool)
    known[frame.phase[used[frame.completed[used]]]] = True
    used = used[known[frame.phase[used]]]
    phase, event = frame.phase[used], frame.completed[used]
    log_s = np.log(frame.duration_s[used])
    scales = _scales(log_s[event], phase[event], len(frame.phases))
    centre, sd = (np.array([getattr(scale, name) for scale in scales])[phase] for name in ("centre", "sd"))
    with np.errstate(divide="ignore"):
        z_entry = (np.log(frame.entry_s[used]) - centre) / sd
    code, pair = np.unique(frame.context[used] * len(frame.phases) + phase, return_inverse=True)
    pairs = [(frame.contexts[i // len(frame.phases)], frame.phases[i % len(frame.phases)]) for i in code.tolist()]
    return Rows(
        pairs=tuple(pairs),
        pair=pair.astype(np.int64),
        z=np.round((log_s - centre) / sd, ROUND),
        z_entry=np.round(z_entry, ROUND),
        event=event,
        weight=frame.weight[used],
        scales=dict(zip(frame.phases, scales, strict=True)),
    )


def _scales(log_s: Array, phase: Ints, n_phases: int) -> list[Scale]:
    """Centre and scale per phase; the scale is shrunk to that of all phases around their centres."""
    n = np.bincount(phase, minlength=n_phases)
    centre = np.bincount(phase, log_s, n_phases) / np.maximum(n, 1)
    squares = (log_s - centre[phase]) ** 2
    pooled = float(squares.mean()) if len(squares) else 1.0
    variance = (np.bincount(phase, squares, n_phases) + POOLING * pooled) / (n + POOLING)
    sd = np.maximum(np.sqrt(variance), LEAST_SCALE)
    return [Scale(float(m), float(s)) for m, s in zip(centre, sd, strict=True)]


def words_of(pair: Pair) -> tuple[str, ...]:
    """The phase and each category of a pair, one per name in WORDS; unknown is a value of its own."""
    context, phase = pair
    return (phase, *(getattr(context, name) or "" for name in CATEGORIES))


def numbers_of(context: Context) -> Array:
    """log(1 + x) of each name in NUMBERS, NaN where it is unknown."""
    known = [getattr(context, name) for name in NUMBERS]
    return np.array([np.nan if x is None else np.log1p(max(x, 0.0)) for x in known])


@dataclass(frozen=True)
class NumberScaling:
    """Makes numbers comparable: (n_numbers,) means and standard deviations over the rows where they are known."""

    mean: Array
    sd: Array

    def features(self, context: Context) -> Array:
        """Standardised numbers, 0 where unknown, then flags of the unknown, shape (2 n_numbers,)."""
        numbers = numbers_of(context)
        unknown = np.isnan(numbers)
        return np.concatenate([np.where(unknown, 0.0, (numbers - self.mean) / self.sd), unknown])


def number_scaling(rows: Rows) -> NumberScaling:
    """Means and standard deviations of numbers over rows; what never varied keeps its unit."""
    table = np.array([numbers_of(context) for context, _ in rows.pairs]).reshape(-1, len(NUMBERS))
    often = np.bincount(rows.pair, minlength=len(rows.pairs)).astype(np.float64)[:, None] * ~np.isnan(table)
    total = np.maximum(often.sum(axis=0), 1.0)
    known = np.nan_to_num(table)
    mean = (often * known).sum(axis=0) / total
    sd = np.sqrt((often * (known - mean) ** 2).sum(axis=0) / total)
    return NumberScaling(mean, np.where(sd > 1e-9, sd, 1.0))


def numbered(values: Sequence[str], most: int | None = None) -> dict[str, int]:
    """Distinct values numbered from 0, the most frequent first, then by name; only the first `most`."""
    distinct, count = np.unique(np.asarray(values, dtype=np.str_), return_counts=True)
    order = np.lexsort((distinct, -count))[:most]
    return {str(distinct[i]): number for number, i in enumerate(order)}
