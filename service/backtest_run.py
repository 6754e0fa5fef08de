"""One backtest, from a table of recorded observations to a table of answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from predictors.distribution import Array
from predictors.ensemble import EXPERTS
from service.backtest import Replay
from service.backtest_tables import queries_of, writing
from service.learners import DEFAULT, Refitted, Served, learner
from service.recorded import TEST_SHARE, Recorded, recorded
from telemetry.errors import BadField

Progress = Callable[[int, int, int], None]
"""Told rows asked, rows in all, and fits so far."""


@dataclass(frozen=True)
class Summary:
    """What a backtest did. `rows` were asked, `left_out` had no usable duration, `unanswered` came before anything was known.

    `weights` is what each expert weighed on average when the last 40 % of rows were asked; empty for a model that is no average.
    """

    model: str
    rows: int
    queries: int
    left_out: int
    unanswered: int
    fits: int
    seconds: float
    weights: dict[str, float]


@dataclass
class Earned:
    """Adds up what experts weighed in answers about the rows that count."""

    rows: Recorded
    learned: Served
    total: Array = field(default_factory=lambda: np.zeros(len(EXPERTS)))
    n: int = 0
    _seen: int = 0

    def upto(self, done: int) -> None:
        """Look at the rows asked since the last call."""
        first = max(self._seen, int(len(self.rows) * (1.0 - TEST_SHARE)))
        pending = self.learned.ensemble.pending if self.learned.ensemble is not None else {}
        for row in range(first, done):
            asked = pending.get(self.rows.key(row))
            if asked is not None:
                self.total += asked.weights
                self.n += 1
        self._seen = done

    def shares(self) -> dict[str, float]:
        """Mean weight by expert."""
        return dict(zip(EXPERTS, (self.total / self.n).tolist(), strict=True)) if self.n else {}


def backtest(
    path: Path, out: Path, queries: Path | None = None, model: str = DEFAULT, progress: Progress = lambda *_told: None
) -> Summary:
    """Replay the rows of `path` and write what was answered to `out`; BadField or UnknownId where a table can't be used so."""
    started_s = time.perf_counter()
    learned = learner(model)
    if out.resolve() in {path.resolve(), queries.resolve() if queries is not None else None}:
        raise BadField("--out", str(out), "name a file of its own: this one is read")
    rows = recorded(path)
    asked = queries_of(queries, rows) if queries is not None else {}
    replay = Replay(rows, learned, asked)
    earned = _watched(replay, learned, progress)
    unanswered = 0
    with writing(out, rows, aged=queries is not None) as take:
        for answer in replay.answers():
            unanswered += answer.made is None
            take(answer)
    return Summary(
        model=model,
        rows=len(rows),
        queries=sum(map(len, asked.values())),
        left_out=rows.left_out,
        unanswered=unanswered,
        fits=replay.fits,
        seconds=time.perf_counter() - started_s,
        weights=earned.shares() if earned is not None else {},
    )


def _watched(replay: Replay, learned: Served | Refitted, progress: Progress) -> Earned | None:
    """Has the replay tell how far it is, and adds up weights on the way where the model has any."""
    earned = Earned(replay.rows, learned) if isinstance(learned, Served) else None

    def told(done: int) -> None:
        progress(done, len(replay.rows), replay.fits)
        if earned is not None:
            earned.upto(done)

    replay.progress = told
    return earned
