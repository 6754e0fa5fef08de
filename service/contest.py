"""Challengers beside the model that serves: asked what it was asked, once its answers are out; and whoever is promoted answers.

A challenger answers from the very state that the served answer came from: parts of the calibrated model are views of it, and a
rule is told of every commit together with it. Looks at the evidence, and fits of rules, happen on a thread of their own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from typing import Any

from calibrate.conformal.wrap import Calibrated
from calibrate.evidence.promotion import KIND, asked, in_office
from predictors.baselines.alone import Alone, Learning
from service.answerers import DEFAULT, PARTS, part_id, part_of, rule_as_of, rule_id, who
from service.engine import Serving
from service.learners import RULES
from service.lineup import Lineup
from service.refit import caught_up
from service.shadow import challenged, rulings
from telemetry import asof_verdicts
from telemetry.ledger import Prediction
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import Reader
from telemetry.tables import Observation
from telemetry.verdicts import Change, ShadowForecast

log = logging.getLogger(__name__)
HELD = 8
"""Published states kept, so that an answer given while the next one was made is met by the state it came from."""
MOST = 50
"""Questions put to challengers in a round of upkeep, some 15 ms of work; what is more is dropped, and counted."""
AWAITED = 50_000
"""Questions whose outcomes are counted; older ones may be asked again."""
LEAST, GROWTH = 25, 0.05
"""A look at the evidence is due after so many outcomes, and after so large a share of those there were."""
RETRY_S = 300.0
"""Pause after a fit or a look that failed."""


@dataclass(frozen=True)
class Published:
    """A state that answers: the calibrated model, and rules told of the same commits."""

    calibrated: Serving
    rules: Mapping[str, Serving]

    def by(self, name: str) -> Serving | None:
        """Who goes by this name, in this state; None where that one can't answer yet."""
        if name == DEFAULT:
            return self.calibrated
        if name in PARTS and isinstance(self.calibrated.model, Calibrated):
            return Serving(part_of(self.calibrated.model, name), part_id(self.calibrated.model_id, name))
        return self.rules.get(name)


class Contest:
    """Who is asked, who answers, and what is decided about them. Belongs to the thread of upkeep."""

    def __init__(self, store: Store, lineup: Lineup, challengers: Iterable[str]) -> None:
        self._store, self._lineup, self._challengers = store, lineup, tuple(challengers)
        self._decisions: list[Change] = []
        self._undecided = True
        self._rules: dict[str, Serving] = {}
        self._fitted_beside: dict[str, str] = {}
        self._states: dict[tuple[str, int], Published] = {}
        self._awaited: dict[tuple[str, str], None] = {}
        self._scored, self._due_at, self._retry_at_s = 0, LEAST, 0.0
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="phasecast-contest")
        self._look: tuple[list[Change], Future[tuple[Change, ...]]] | None = None
        self._fit: tuple[str, Future[Serving]] | None = None
        store.subscribe(self._heard)

    def heed(self, reader: Reader, commit: int) -> None:
        """Read what was decided, and let whoever is in office now answer."""
        if self._undecided:
            self._undecided = False
            self._decisions = asof_verdicts.promotions(reader, commit)
            self.publish(self._lineup.calibrated)

    def publish(self, calibrated: Serving | None) -> None:
        """Have the one in office answer, given the calibrated model as it stands: that one where the other can't yet."""
        self._lineup.calibrated = calibrated
        if calibrated is None:
            self._lineup.serving = None
            return
        state = Published(calibrated, dict(self._rules))
        serving = state.by(self._office) or calibrated
        self._lineup.serving = serving
        self._states[serving.model_id, serving.model.commit] = state
        for old in list(self._states)[:-HELD]:
            del self._states[old]

    def answered(self, given: Sequence[object]) -> tuple[ShadowForecast, ...]:
        """What challengers say to questions that were served: to be committed together with the answers."""
        names = self._asks
        new = [row for row in given if isinstance(row, Prediction) and self._is_new(row)] if names else []
        questions: dict[tuple[str, int], list[Prediction]] = {}
        for row in new[:MOST]:
            questions.setdefault((row.model_id, row.as_of_commit), []).append(row)
        found: list[ShadowForecast] = []
        for state_id, rows in questions.items():
            if (state := self._states.get(state_id)) is not None:
                found += _said(state, [name for name in names if name != who(state_id[0])], rows)
        met = {(row.attempt_id, row.phase) for row in found}
        self._lineup.challenged.asked += len(met)
        self._lineup.challenged.dropped += len({(row.attempt_id, row.phase) for row in new} - met)
        self._awaited.update(dict.fromkeys(sorted(met)))
        for old in list(islice(self._awaited, max(0, len(self._awaited) - AWAITED))):
            del self._awaited[old]
        return tuple(found)

    def learn(self, reader: Reader, commit: int) -> None:
        """Tell rules what became known up to a commit; the next `publish` is of them as well."""
        self._rules = {name: Serving(caught_up(one.model, reader, commit), one.model_id) for name, one in self._rules.items()}

    def note(self, ended: Iterable[Observation]) -> None:
        """Count outcomes of questions that challengers were asked."""
        for row in ended:
            if (row.attempt_id, row.phase) in self._awaited:
                del self._awaited[row.attempt_id, row.phase]
                self._scored += 1

    def go_on(self, reader: Reader, upto: int) -> None:
        """Take up fits and looks that are done, and start those that are due; a decision is heeded once it is committed."""
        self._take_up(reader, upto)
        if self.busy or time.monotonic() < self._retry_at_s or self._lineup.calibrated is None:
            return
        if (name := self._unfitted()) is not None:
            self._fitted_beside[name] = self._lineup.calibrated.model_id
            self._fit = name, self._pool.submit(self._fitted, name, upto)
        elif self._scored >= self._due_at and self._asks:
            self._due_at = self._scored + max(LEAST, int(GROWTH * self._scored))
            self._look = self._decisions, self._pool.submit(self._ruled, upto)

    def wait(self) -> bool:
        """Wait for a fit or a look under way, which the next `go_on` takes up; False where nothing is."""
        under_way: list[Future[Any]] = [one[1] for one in (self._look, self._fit) if one is not None]
        wait(under_way)
        return bool(under_way)

    @property
    def busy(self) -> bool:
        """Whether a fit or a look is under way."""
        return self._look is not None or self._fit is not None

    @property
    def ready(self) -> bool:
        """Whether the one in office is who answers, or nobody can yet."""
        calibrated = self._lineup.calibrated
        return calibrated is None or Published(calibrated, self._rules).by(self._office) is not None

    def close(self) -> None:
        """Wait for what is under way, and leave it."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    @property
    def _office(self) -> str:
        return in_office(self._decisions, DEFAULT)

    @property
    def _asks(self) -> tuple[str, ...]:
        return asked(self._decisions, self._challengers, DEFAULT)

    def _heard(self, _commit: int, batches: Sequence[Batch]) -> None:
        """Called by the writer: somebody may have decided something."""
        if any(isinstance(row, Change) and row.kind == KIND for batch in batches for row in batch.rows):
            self._undecided = True

    def _is_new(self, row: Prediction) -> bool:
        """Whole lengths of named attempts have an outcome to be scored by; each is asked once."""
        return row.attempt_id is not None and row.elapsed_s is None and (row.attempt_id, row.phase) not in self._awaited

    def _unfitted(self) -> str | None:
        """A rule that is to be fitted: one not met yet, or one that learns in fits alone, once experts were fitted anew."""
        assert self._lineup.calibrated is not None
        for name in (self._office, *self._asks):
            known = self._rules.get(name)
            if name in RULES and (
                known is None or (not _learns(known) and self._fitted_beside.get(name) != self._lineup.calibrated.model_id)
            ):
                return name
        return None

    def _fitted(self, name: str, commit: int) -> Serving:
        with self._store.reader() as reader:
            return Serving(rule_as_of(reader, name, commit), rule_id(name, commit))

    def _ruled(self, commit: int) -> tuple[Change, ...]:
        with self._store.reader() as reader:
            return rulings(reader, commit, time.time_ns())

    def _take_up(self, reader: Reader, upto: int) -> None:
        try:
            if self._fit is not None and self._fit[1].done():
                (name, fitted), self._fit = self._fit, None
                made = fitted.result()
                self._rules[name] = Serving(caught_up(made.model, reader, upto), made.model_id)
                self.publish(self._lineup.calibrated)
            if self._look is not None and self._look[1].done():
                (before, look), self._look = self._look, None
                ruled = look.result()
                if ruled and before is self._decisions and not self._undecided:
                    self._store.write(Batch(ruled))
        except Exception:
            log.exception("a fit or a look of challengers failed; what serves is not touched by it")
            self._retry_at_s = time.monotonic() + RETRY_S


def _said(state: Published, names: Sequence[str], rows: Sequence[Prediction]) -> list[ShadowForecast]:
    """What challengers say in a state. One that fails is left out: nobody waits for it."""
    found: list[ShadowForecast] = []
    for name in names:
        if (one := state.by(name)) is None:
            continue
        try:
            found += challenged({name: one.model}, rows)
        except Exception:
            log.exception("challenger %s did not answer", name)
    return found


def _learns(known: Serving) -> bool:
    """Whether a rule learns each outcome as it becomes known."""
    return isinstance(known.model, Alone) and isinstance(known.model.rule, Learning)
