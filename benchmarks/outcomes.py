"""What an outcome costs in weights, recalibration and level controllers, batches of 100, and a day of a million of them.

Rows are asked of a fitted ensemble once; then outcomes of them are learned from, one batch after the other, by the three layers
that keep the average honest. The experts' own memories have benchmarks of their own.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.measured import Figure, figure
from calibrate.conformal.controlled import Controlled
from calibrate.conformal.pit import EDGES, Recalibration
from calibrate.conformal.wrap import placed_of
from predictors import hazards
from predictors.aggregate import RHO, Judged, Weights, losses, shares
from predictors.contexts import Context
from predictors.ensemble import PRIOR, Ensemble
from predictors.experts.asked import Asked, Told
from predictors.frames import Frame
from predictors.model import Change
from predictors.settings import FitSettings
from telemetry.words import Ended

DAY, BATCH = 1_000_000, 100
WINDOW = 10_000
"""Outcomes at the start and at the end whose cost is told apart."""
CONTEXTS, KNOWN = 400, 500
PHASE = "service"
EVERY_NS = 50_000_000
"""Time between the beginnings of two rows. Twenty begin in a typical duration, so that hits are held back as while serving."""
LAYERS = ("weights", "recalibration", "levels")


@dataclass
class _State:
    """The three layers, and the seconds each has taken."""

    weights: Weights
    recalibration: Recalibration
    controlled: Controlled
    took_s: dict[str, float]


def run() -> list[Figure]:
    """Microseconds per outcome by layer, early and late, and seconds for the whole day."""
    return measured(DAY)


def measured(n: int) -> list[Figure]:
    """The same for n outcomes."""
    rng, asked = np.random.default_rng(0), _asked()
    state = _State(Weights(PRIOR), Recalibration(), Controlled(), dict.fromkeys(LAYERS, 0.0))
    made, marks = [], {}
    for first in range(0, n, BATCH):
        _learn(state, [asked[i] for i in rng.integers(0, len(asked), BATCH).tolist()], rng.normal(size=BATCH), first)
        if first + BATCH in {WINDOW, n - WINDOW, n}:
            marks[first + BATCH] = dict(state.took_s)
    for name in LAYERS:
        early, late = marks[WINDOW][name], marks[n][name] - marks[n - WINDOW][name]
        made.append(figure(f"outcomes: {name}, first {WINDOW:,}", [1e6 * early / WINDOW], "us"))
        made.append(figure(f"outcomes: {name}, last {WINDOW:,} of {n:,}", [1e6 * late / WINDOW], "us"))
    whole = sum(state.took_s.values())
    made.append(figure("outcomes: all three, per outcome", [1e6 * whole / n], "us", "100"))
    made.append(figure(f"outcomes: a day of {n:,}", [whole], "s", "180" if n == DAY else ""))
    return made


def _asked() -> list[Asked]:
    """Answers about CONTEXTS contexts on twenty hosts."""
    rng = np.random.default_rng(1)
    contexts = tuple(
        Context(host=f"h{i % 20}", family=f"f{i % 5}", model=f"m{i % 40}", batch=float(1 + i % 8)) for i in range(CONTEXTS)
    )
    frame = Frame(
        contexts=contexts,
        phases=(PHASE,),
        context=rng.integers(0, CONTEXTS, KNOWN),
        phase=np.zeros(KNOWN, dtype=np.int64),
        entry_s=np.zeros(KNOWN),
        duration_s=np.exp(rng.normal(size=KNOWN)),
        completed=np.ones(KNOWN, dtype=np.bool_),
        failed=np.zeros(KNOWN, dtype=np.bool_),
        running=np.zeros(KNOWN, dtype=np.bool_),
        weight=np.ones(KNOWN),
        known_from=np.arange(1, KNOWN + 1),
    )
    model = Ensemble(hazards.fit(frame, KNOWN, FitSettings()))
    asked = model.ask(contexts, [PHASE] * CONTEXTS)
    return [replace(one, crowd=(1,) * len(one.path)) for one in asked]


def _learn(state: _State, asked: list[Asked], log_times: np.ndarray, first: int) -> None:
    """One batch of outcomes, layer by layer."""
    keys = [f"row {first + i}" for i in range(len(asked))]
    told = [Told(key, one, float(np.exp(t)), ended=True) for key, one, t in zip(keys, asked, log_times.tolist(), strict=True)]
    begun, ended = _changes(told, first)
    waiting = dict(zip(keys, asked, strict=True))
    started_s = time.perf_counter()
    alone = [shares(one.path, dict(zip(one.path, one.crowd, strict=True)), RHO) for one in asked]
    crps = [losses(t, one.experts) for one, t in zip(asked, log_times.tolist(), strict=True)]
    state.weights = state.weights.having([Judged(o.path, s, c) for o, s, c in zip(asked, alone, crps, strict=True)])
    weighed_s = time.perf_counter()
    placed = placed_of(told)
    state.recalibration = state.recalibration.having(placed)
    placed_s = time.perf_counter()
    state.controlled = state.controlled.after(begun, waiting, [], lambda _: EDGES)
    outcomes = [(one.key, one.asked, where.u) for one, where in zip(told, placed, strict=True)]
    state.controlled = state.controlled.after(ended, {}, outcomes, lambda _: EDGES)
    done_s = time.perf_counter()
    for name, took_s in zip(LAYERS, (weighed_s - started_s, placed_s - weighed_s, done_s - placed_s), strict=True):
        state.took_s[name] += took_s


def _changes(told: list[Told], first: int) -> tuple[list[Change], list[Change]]:
    """The rows as they begin, EVERY_NS apart, and as they end."""
    starts = [(first + i) * EVERY_NS for i in range(len(told))]
    begun = [
        Change(1, 1, PHASE, one.asked.context, 0.0, 0.0, Ended.RUNNING, 1.0, 1, one.key, start_ns)
        for one, start_ns in zip(told, starts, strict=True)
    ]
    ended = [replace(b, duration_s=one.duration_s, ended=Ended.COMPLETED) for b, one in zip(begun, told, strict=True)]
    return begun, ended
