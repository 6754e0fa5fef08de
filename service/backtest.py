"""Replays recorded observations through the engine: every row is asked when it begins, with what was known by then.

The clock goes from instant to instant. What became known by an instant is told to the model in order; then all rows that begin
there are asked together, so none sees another; then each is told to have begun. A row that still runs at a quantile of its own
answer (STILL_RUNNING) is told to run, so that survivors count. Fits happen as they do while serving: when what is known has grown
by a tenth, or holds a few outcomes of hosts that the last fit knew none of. Nothing here looks past the instant it is at.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from predictors.distribution import GRID
from predictors.experts.forest import LEAST_ROWS
from predictors.frames import Frame
from predictors.model import Change, Model
from service.engine import Asking, Question, Serving, ask
from service.newcomers import Newcomers
from service.recorded import Recorded
from telemetry.ledger import Prediction
from telemetry.words import Ended

GROWTH, FOREST_GROWTH = 1.1, 1.3
"""Growth of what is known after which experts are fitted anew."""
SPARE = GROWTH / (GROWTH - 1.0)
"""Rows per known outcome that fits made for new hosts may read, all together: as many as those made by growth do. It stands for
the share of its time that the service gives to fits."""
SMALL = 64
"""Known outcomes up to which a fit is due at every doubling."""
STILL_RUNNING = (0.5, 0.9, 0.99)
TOGETHER = (0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 0.9, 0.99)
"""The same for rows that begin together: the first of them to end are the short ones, and the others must be seen by then, as
heartbeats would tell of them. A row seen to run only at the quantile before counts for less than it has lasted."""
LEVELS = (0.5, 0.9, 0.95, 0.99)
BATCH = 2_000
"""Rows asked in one request."""
ENDING, RUNNING, QUERY = 0, 1, 2


class Learner(Protocol):
    """How a model that is being replayed gets to know things: see `service.learners`."""

    @property
    def model(self) -> Model | None:
        """The model as it stands; None before the first fit."""

    def learn(self, changes: Sequence[Change], commit: int) -> None:
        """Take in what became known."""

    def fit(self, frame: Frame, commit: int, *, grown: bool) -> None:
        """Fit anew on what is known; `grown` says that it is time for the slower experts too."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What was answered for a row, or for one that had lasted elapsed_s; `made` is None where nothing was known to go by."""

    row: int
    elapsed_s: float | None
    made: Prediction | None


@dataclass
class Replay:
    """One pass over recorded rows. `queries` maps a row to the ages at which its remaining time is asked."""

    rows: Recorded
    learner: Learner
    queries: Mapping[int, Sequence[float]] = field(default_factory=dict)
    progress: Callable[[int], None] = lambda _done: None
    fits: int = 0
    _known: list[int] = field(default_factory=list)
    _waiting: list[tuple[float, int, int, float]] = field(default_factory=list)
    _counted_s: dict[int, float] = field(default_factory=dict)
    _running: dict[int, None] = field(default_factory=dict)
    _newcomers: Newcomers = field(default_factory=Newcomers)
    _fitted: int = 0
    _grown: int = 0
    _spared: int = 0

    def answers(self) -> Iterator[Answer]:
        """Answers in the order in which they were made."""
        begun = self.rows.begun_s
        start, n = 0, len(self.rows)
        while start < n:
            end = int(np.searchsorted(begun, begun[start], side="right"))
            yield from self._advance(float(begun[start]))
            for first in range(start, end, BATCH):
                yield from self._ask(range(first, min(first + BATCH, end)))
            self._begin(range(start, end))
            self.progress(end)
            start = end
        yield from self._advance(np.inf)

    def _advance(self, now_s: float) -> Iterator[Answer]:
        """Everything that happens up to an instant: endings, rows seen to run, questions about running ones."""
        changes: list[Change] = []
        while self._waiting and self._waiting[0][0] <= now_s:
            at_s, kind, row, age_s = heapq.heappop(self._waiting)
            if kind == QUERY:
                self._learn(changes, at_s)
                changes = []
                yield self._remaining(row, age_s)
            elif kind == RUNNING and row in self._running:
                changes += [*self._retracted(row), self._change(row, 1, age_s, Ended.RUNNING)]
                self._counted_s[row] = age_s
            elif kind == ENDING:
                changes += [*self._retracted(row), self._change(row, 1, float(self.rows.duration_s[row]), self.rows.ended[row])]
                self._running.pop(row, None)
                self._known.append(row)
                if self.rows.ended[row] == Ended.COMPLETED and self.rows.duration_s[row] > 0.0:
                    self._newcomers.ended(self.rows.contexts[row], self.rows.phase[row])
        if np.isfinite(now_s):
            self._learn(changes, now_s)

    def _learn(self, changes: list[Change], now_s: float) -> None:
        n = len(self._known)
        grown = n > self._fitted and n >= (2 * self._fitted if n <= SMALL else self._fitted * GROWTH + 1)
        placing = not grown and n > SMALL and self._newcomers.due and self._spared + n <= SPARE * n
        due = (grown or placing) and any(self.rows.ended[row] == Ended.COMPLETED for row in self._known)
        if due:
            changes += self._seen_to_run(now_s)
        if changes:
            self.learner.learn(changes, n)
        if due:
            forest = n >= LEAST_ROWS and n >= self._grown * FOREST_GROWTH
            self.learner.fit(self._frame(), n, grown=forest)
            self._newcomers.fitted()
            self._fitted, self.fits = n, self.fits + 1
            self._grown = n if forest else self._grown
            self._spared += n if placing else 0

    def _seen_to_run(self, now_s: float) -> list[Change]:
        """Every running row told at its age: a fit counts it so, and what was told is what will be taken back."""
        changes: list[Change] = []
        for row in self._running:
            age_s = now_s - float(self.rows.begun_s[row])
            if self.rows.timed and age_s > 0.0 and age_s != self._counted_s.get(row):
                changes += [*self._retracted(row), self._change(row, 1, age_s, Ended.RUNNING)]
                self._counted_s[row] = age_s
        return changes

    def _ask(self, rows: range) -> Iterator[Answer]:
        """Answers of rows that begin now."""
        made = self._answered([(row, None) for row in rows])
        for row, prediction in zip(rows, made, strict=True):
            if prediction is not None and self.rows.timed:
                for level in TOGETHER if len(rows) > 1 else STILL_RUNNING:
                    age_s = prediction.quantiles_s[int(np.argmin(np.abs(GRID - level)))]
                    if age_s < self.rows.duration_s[row]:  # otherwise it has ended by then, and no one sees it run
                        heapq.heappush(self._waiting, (float(self.rows.begun_s[row]) + age_s, RUNNING, row, age_s))
            yield Answer(row, None, prediction)

    def _begin(self, rows: range) -> None:
        for row in rows:
            heapq.heappush(self._waiting, (float(self.rows.known_s[row]), ENDING, row, 0.0))
            for age_s in self.queries.get(row, ()):
                at_s = float(self.rows.begun_s[row]) + (age_s if self.rows.timed else 0.0)
                heapq.heappush(self._waiting, (at_s, QUERY, row, age_s))
            self._running[row] = None
        self.learner.learn([self._change(row, 1, 0.0, Ended.RUNNING) for row in rows], len(self._known))

    def _remaining(self, row: int, age_s: float) -> Answer:
        return Answer(row, age_s, self._answered([(row, age_s)])[0])

    def _answered(self, asked: Sequence[tuple[int, float | None]]) -> list[Prediction | None]:
        """The engine's answers, as rows of the ledger."""
        model = self.learner.model
        if model is None or not any(model.knows(self.rows.phase[row]) for row, _ in asked):
            return [None] * len(asked)
        questions = [Question(self.rows.phase[row], self.rows.contexts[row], None, age_s) for row, age_s in asked]
        ids = tuple(self.rows.key(row) for row, _ in asked)
        return [one.row for one in ask(Serving(model, "backtest"), questions, Asking(LEVELS, "backtest", ids, 0))]

    def _change(self, row: int, sign: int, duration_s: float, ended: Ended) -> Change:
        known, phase, context = len(self._known), self.rows.phase[row], self.rows.contexts[row]
        started_ns = round(1e9 * float(self.rows.begun_s[row])) if self.rows.timed else None
        return Change(sign, known, phase, context, 0.0, duration_s, ended, 1.0, known, self.rows.key(row), started_ns)

    def _retracted(self, row: int) -> list[Change]:
        """Takes back that a row ran, where it was told so."""
        age_s = self._counted_s.pop(row, None)
        return [] if age_s is None else [self._change(row, -1, age_s, Ended.RUNNING)]

    def _frame(self) -> Frame:
        """What is known now: rows that ended, and those that run, at the age last told."""
        rows = np.array([*self._known, *self._counted_s], dtype=np.int64)
        duration = self.rows.duration_s[rows]
        runs = np.arange(len(rows)) >= len(self._known)
        duration[runs] = list(self._counted_s.values())
        ended = [self.rows.ended[row] for row in self._known] + [Ended.RUNNING] * len(self._counted_s)
        contexts: dict[object, int] = {}
        phases: dict[str, int] = {}
        context = np.array([contexts.setdefault(self.rows.contexts[row], len(contexts)) for row in rows], dtype=np.int64)
        phase = np.array([phases.setdefault(self.rows.phase[row], len(phases)) for row in rows], dtype=np.int64)
        _, attempt = np.unique(self.rows.run[rows], return_inverse=True)
        return Frame(
            contexts=tuple(contexts),  # type: ignore[arg-type]
            phases=tuple(phases),
            context=context,
            phase=phase,
            entry_s=np.zeros(len(rows)),
            duration_s=duration,
            completed=np.array([end == Ended.COMPLETED for end in ended]),
            failed=np.array([end == Ended.FAILED for end in ended]),
            running=runs,
            weight=np.ones(len(rows)),
            known_from=np.arange(1, len(rows) + 1, dtype=np.int64),
            attempt=attempt.astype(np.int64),
            started_ns=np.round(1e9 * self.rows.begun_s[rows]).astype(np.int64) if self.rows.timed else np.empty(0, np.int64),
        )
