"""Founds the calibrated model on recorded history, so that weights and recalibration begin with what history teaches.

The newest ended rows are replayed in the order in which they became known. Experts are fitted on what precedes a step, and each
step doubles what is known; within it, rows are asked in SLICES, each before anything of it is known, and then learned from. So
every row was answered by a model that had not seen it. Rows of a slice that began at one instant count together, as they do
while serving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from calibrate.conformal.wrap import Calibrated
from predictors import hazards
from predictors.aggregate import crowds
from predictors.effects import Ints
from predictors.ensemble import Ensemble
from predictors.experts import forest
from predictors.experts.asked import Asked
from predictors.frames import Frame
from predictors.model import Change
from predictors.resources import NONE, Rates
from predictors.settings import FitSettings
from telemetry.words import Ended

MOST_ROWS = 20_000
"""Rows replayed, the newest: what founding costs must not grow with history."""
FIRST = 8
"""Rows of each phase, on average, before the first step."""
SLICES = 12


def found(
    frame: Frame, commit: int, settings: FitSettings, rates_at: Callable[[int], Rates] = lambda _commit: NONE
) -> Calibrated:
    """The model founded on a frame known as of `commit`. Deterministic to the bit.

    `rates_at` gives the measured rates of hosts as known at a commit: a step knows of no profile that came after it.
    """
    ended = np.flatnonzero(~frame.running)
    model: Calibrated | None = None
    for start, end in _steps(len(ended), FIRST * len(frame.phases)):
        known = ended[:start]
        if not frame.completed[known].any():
            continue
        upto = int(frame.known_from[known[-1]])
        model = _fitted(model, hazards.fit(_part(frame, known), upto, settings, rates_at(upto)))
        for rows in np.array_split(ended[start:end], SLICES):
            if len(rows):
                model = _learned(model, frame, rows)
    return _fitted(model, hazards.fit(frame, commit, settings, rates_at(commit)))


def _steps(n: int, first: int) -> Iterator[tuple[int, int]]:
    """Where steps begin and end among n rows, the first of them after `first` rows."""
    start = max(first, n - MOST_ROWS)
    while start < n:
        end = min(n, 2 * start)
        yield start, end
        start = end


def _fitted(model: Calibrated | None, record: hazards.HierarchicalHazards) -> Calibrated:
    """The model with experts fitted anew; the forest is grown on the lessons there are."""
    if model is None:
        return Calibrated(Ensemble(record))
    return model.refounded(record, forest.grow(*model.inner.lessons.arrays()))


def _learned(model: Calibrated, frame: Frame, rows: Ints) -> Calibrated:
    """The model that was asked these rows, and then told of them."""
    changes = [_change(frame, int(row)) for row in rows]
    known = [(row, change) for row, change in zip(rows, changes, strict=True) if model.knows(change.phase)]
    asked = model.inner.ask([change.context for _, change in known], [change.phase for _, change in known])
    began = [int(frame.started_ns[row]) if len(frame.started_ns) else -1 for row, _ in known]
    pending = {change.key: one for (_, change), one in zip(known, _counted(asked, began), strict=True)}
    waiting = replace(model, inner=replace(model.inner, pending=pending), curves={})
    return waiting.after(changes, int(frame.known_from[rows[-1]]))


def _counted(asked: list[Asked], began: list[int]) -> list[Asked]:
    """Rows with the number of those at each of their nodes that began at the same instant."""
    together: dict[int, list[tuple[str, ...]]] = {}
    for one, instant in zip(asked, began, strict=True):
        together.setdefault(instant, []).append(one.path)
    crowd = {instant: crowds(paths) for instant, paths in together.items()}
    return [replace(one, crowd=tuple(crowd[instant][key] for key in one.path)) for one, instant in zip(asked, began, strict=True)]


def _change(frame: Frame, row: int) -> Change:
    """The coming of one row."""
    ended = Ended.TIMED_OUT
    if frame.completed[row]:
        ended = Ended.COMPLETED
    elif frame.failed[row]:
        ended = Ended.FAILED
    elif len(frame.cancelled) and frame.cancelled[row]:
        ended = Ended.CANCELLED
    known_from = int(frame.known_from[row])
    return Change(
        sign=1,
        known_at=known_from,
        phase=frame.phases[frame.phase[row]],
        context=frame.contexts[frame.context[row]],
        entry_s=float(frame.entry_s[row]),
        duration_s=float(frame.duration_s[row]),
        ended=ended,
        weight=float(frame.weight[row]),
        known_from=known_from,
        key=f"founding/{row}",
        started_ns=_started(frame, row),
    )


def _started(frame: Frame, row: int) -> int | None:
    """When a row began, UTC ns; None where that is not known."""
    started_ns = int(frame.started_ns[row]) if len(frame.started_ns) else -1
    return started_ns if started_ns >= 0 else None


def _part(frame: Frame, rows: Ints) -> Frame:
    """Some rows of a frame, with the phases they are of; what phases of an attempt share is learned from the whole alone."""
    used, phase = np.unique(frame.phase[rows], return_inverse=True)
    return Frame(
        contexts=frame.contexts,
        phases=tuple(frame.phases[i] for i in used),
        context=frame.context[rows],
        phase=phase.astype(np.int64),
        entry_s=frame.entry_s[rows],
        duration_s=frame.duration_s[rows],
        completed=frame.completed[rows],
        failed=frame.failed[rows],
        running=frame.running[rows],
        weight=frame.weight[rows],
        known_from=frame.known_from[rows],
        cancelled=frame.cancelled[rows] if len(frame.cancelled) else frame.cancelled,
    )
