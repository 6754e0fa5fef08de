"""An ensemble that was asked, and told what came of it: what laws of ensembles are tried on."""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from predictors import hazards
from predictors.contexts import Context
from predictors.ensemble import Ensemble
from predictors.experts import forest
from predictors.frames import Frame
from predictors.model import Change
from predictors.settings import FitSettings
from telemetry.words import Ended

PAIRS = (
    [
        Context(host="north", family="encoder", state="cold", size_in=64.0, batch=4.0),
        Context(host="south", family="encoder", state="cached", size_in=16.0, batch=1.0),
        Context(host="north", family="decoder", state="cached", size_in=64.0),
        Context(host="never seen", family="neither"),
        Context(host="north", family="encoder", state="cold", size_in=64.0, batch=4.0),
    ],
    ["setup", "setup", "setup", "setup", "queue"],
)
M = TypeVar("M")
BURST = 6
"""Rows that begin at one instant."""
ARRAYS = ("context", "phase", "entry_s", "duration_s", "completed", "failed", "running", "weight", "known_from")


def recorded(n: int = 240) -> Frame:
    """Setups that complete, fail, are cancelled and run; queues most of which take no time at all."""
    rng = np.random.default_rng(5)
    context, phase = rng.integers(0, 3, n), rng.integers(0, 2, n)
    time_s = np.exp(np.array([1.0, -2.0, -1.0])[context] + 0.3 * rng.normal(size=n))
    time_s = np.where((phase == 1) & (rng.random(n) < 0.7), 0.0, time_s)
    fate = rng.random(n)
    return Frame(
        contexts=tuple(PAIRS[0][:3]),
        phases=("setup", "queue"),
        context=context,
        phase=phase,
        entry_s=np.zeros(n),
        duration_s=time_s,
        completed=(fate < 0.8) | (time_s == 0.0),
        failed=(fate >= 0.8) & (fate < 0.9) & (time_s > 0.0),
        running=(fate >= 0.95) & (time_s > 0.0),
        weight=np.ones(n),
        known_from=np.arange(1, n + 1),
    )


def part(frame: Frame, rows: slice) -> Frame:
    """Some rows of a frame."""
    return Frame(frame.contexts, frame.phases, **{name: getattr(frame, name)[rows] for name in ARRAYS})


def begun(frame: Frame, row: int) -> Change:
    """A row that was asked about."""
    context, phase = frame.contexts[frame.context[row]], frame.phases[frame.phase[row]]
    return Change(1, row, phase, context, 0.0, 0.0, Ended.RUNNING, 1.0, row, f"row {row}")


def ended(frame: Frame, row: int) -> Change:
    """A row as it ended, or how long it is known to run."""
    kinds = (frame.completed[row], frame.failed[row], frame.running[row], True)
    how = (Ended.COMPLETED, Ended.FAILED, Ended.RUNNING, Ended.CANCELLED)[kinds.index(True)]
    context, phase = frame.contexts[frame.context[row]], frame.phases[frame.phase[row]]
    return Change(1, row, phase, context, 0.0, float(frame.duration_s[row]), how, 1.0, row, f"row {row}")


def fitted(frame: Frame) -> Ensemble:
    """Experts fitted on a frame, which have been asked nothing."""
    return Ensemble(hazards.fit(frame, 60, FitSettings()))


def learned(model: M, frame: Frame, first: int = 60) -> M:
    """The model asked about the rows of a frame from `first` on, a burst at a time, each told before the next."""
    for start in range(first, len(frame), BURST):
        rows = range(start, min(start + BURST, len(frame)))
        model = model.after([begun(frame, row) for row in rows], start)
        model = model.after([ended(frame, row) for row in rows], rows[-1] + 1)
    return model


def taught(frame: Frame) -> Ensemble:
    """An ensemble fitted on the first rows, asked about and told the others, with a forest grown on them."""
    known = learned(fitted(part(frame, slice(60))), frame)
    return known.refounded(known.record, forest.grow(*known.lessons.arrays()))
