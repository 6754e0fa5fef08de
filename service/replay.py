"""Gives served answers again from the store alone, to the byte: the proof that none of them knew the future.

Models are made again one from the other: founded, or fitted and joined to the memory of the one before, at the commits at which
they were. Where retention removed what the first of them came from, a model file that was kept takes its place. A part of a
model that was promoted answers from it; a rule that was is fitted again as of its commit.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

import orjson

from calibrate.conformal import saved
from calibrate.conformal.wrap import Calibrated
from predictors import modelfile
from predictors.changing import ContextChange
from predictors.contexts import Context
from predictors.experts.forest import grow
from predictors.experts.lessons import Lessons
from predictors.hazards import HierarchicalHazards
from predictors.model import Model
from service.answerers import answering, file_of, fitted_as_of, rule_as_of, who
from service.engine import Asking, Question, Serving, ask
from service.planning import ask_again
from service.refit import Origin, caught_up, fit_as_of, founded_as_of, joined
from telemetry import asof
from telemetry.errors import DamagedStore
from telemetry.ledger import ModelFile, PlanAnswer, Prediction
from telemetry.store.reader import Reader

Row = Prediction | PlanAnswer


@dataclass
class Replayed:
    """How many answers and fits were made again, and which came out different.

    `beyond` counts answers of models that come from before what retention removed: they can't be given again.
    """

    answers: int = 0
    fits: int = 0
    beyond: int = 0
    different_answers: list[str] = field(default_factory=list)
    different_fits: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether everything came out as it was served."""
        return not self.different_answers and not self.different_fits


def replay(
    reader: Reader, upto: int, progress: Callable[[int], None] = lambda _n: None, *, folder: Path | None = None
) -> Replayed:
    """Make every model again, fold what became known, and answer every ledger row of commits up to `upto` again.

    `folder` is where the store's model files lie; without it only models that come from what the store still knows are made.
    """
    again = _Again(reader, upto, progress, folder)
    for model in again.roots():
        again.walk(model)
    again.rules()
    again.found.beyond = sum(len(rows) for model_id, rows in again.ledger.items() if model_id not in again.seen)
    return again.found


@dataclass(frozen=True)
class _Made:
    """A model made again, as of where it began to serve."""

    row: ModelFile
    model: Model


class _Again:
    """One pass: the ledger by model, models by the one they come from, and what was found."""

    def __init__(self, reader: Reader, upto: int, progress: Callable[[int], None], folder: Path | None) -> None:
        self.reader, self.progress, self.folder = reader, progress, folder
        self.complete_from = asof.complete_from(reader)
        self.found, self.seen = Replayed(), set[str]()
        self.rows = asof.models(reader, upto)[::-1]
        self.heirs: dict[str | None, list[ModelFile]] = defaultdict(list)
        for row in self.rows:
            self.heirs[Origin.of(row).parent].append(row)
        given: list[Row] = [*asof.rows_of(Prediction, asof.predictions(reader, upto))]
        given += [row for scored in (False, True) for row in asof.plan_answers(reader, upto, scored=scored)]
        self.ledger: dict[str, list[Row]] = defaultdict(list)
        for answer in sorted(given, key=lambda answer: answer.as_of_commit):
            self.ledger[file_of(answer.model_id)].append(answer)

    def roots(self) -> Iterator[_Made]:
        """Models founded on what the store still knows; then those whose files were kept, oldest first, that none led to."""
        for row in self.rows:
            if Origin.of(row).parent is None and row.fit_commit >= self.complete_from:
                yield _Made(row, self._founded(row))
        for row in self.rows:
            if row.model_id not in self.seen and Origin.of(row).served_from >= self.complete_from:
                model = self._loaded(row)
                if model is not None:
                    yield _Made(row, model)

    def walk(self, root: _Made) -> None:
        """Answer for a model, and for all that come from it."""
        waiting = [root]
        while waiting:
            made = waiting.pop()
            self.seen.add(made.row.model_id)
            waiting += self._answer(made)

    def rules(self) -> None:
        """Answer for rules that were promoted, each fitted again where the store still knows what it was fitted on."""
        for model_id, rows in self.ledger.items():
            commit = fitted_as_of(model_id)
            if commit is None or commit < self.complete_from:
                continue
            self.seen.add(model_id)
            model = rule_as_of(self.reader, who(model_id), commit)
            for row in rows:
                model = caught_up(model, self.reader, row.as_of_commit)
                self._again(model, row)

    def _answer(self, made: _Made) -> list[_Made]:
        """Answer a model's ledger rows in order, and make the models that come from it on the way."""
        heirs = [row for row in self.heirs[made.row.model_id] if Origin.of(row).fit_commit >= self.complete_from]
        stops: list[tuple[int, Row | ModelFile]] = [(row.as_of_commit, row) for row in self.ledger[made.row.model_id]]
        stops += [(commit, row) for row in heirs for commit in (row.fit_commit, Origin.of(row).served_from)]
        stops.sort(key=lambda stop: stop[0])
        model, lessons, born = made.model, dict[str, Lessons](), dict[str, _Made]()
        for commit, same in groupby(stops, key=lambda stop: stop[0]):
            model = caught_up(model, self.reader, commit)
            for _, row in same:
                if not isinstance(row, ModelFile):
                    self._again(model, row)
                    continue
                assert isinstance(model, Calibrated)
                if commit == row.fit_commit:
                    lessons.setdefault(row.model_id, model.inner.lessons)
                if commit == Origin.of(row).served_from and row.model_id not in born:
                    born[row.model_id] = _Made(row, self._succeeded(row, model, lessons[row.model_id]))
        return list(born.values())

    def _again(self, model: Model, row: Row) -> None:
        self.found.answers += 1
        self.progress(self.found.answers)
        if again(answering(model, row.model_id), row) != row.answer_sha256:
            self.found.different_answers.append(row.answer_id if isinstance(row, PlanAnswer) else row.prediction_id)

    def _founded(self, row: ModelFile) -> Model:
        """The model founded anew as of its commit; an earlier program's model of record in the form it was saved in."""
        if row.family != saved.FAMILY:
            forms = list(modelfile.forms(fit_as_of(self.reader, row.fit_commit, rated=False)))
            same = [form for form in forms if self._is(row, modelfile.packed(form))]
            self._note(row, same=bool(same))
            return same[0] if same else forms[0]
        model = caught_up(founded_as_of(self.reader, row.fit_commit), self.reader, Origin.of(row).served_from)
        self._note(row, same=self._is(row, saved.packed(model)))
        return model

    def _succeeded(self, row: ModelFile, before: Calibrated, lessons: Lessons) -> Calibrated:
        """The model that went on from `before` with experts fitted as of its commit."""
        record = caught_up(fit_as_of(self.reader, row.fit_commit), self.reader, Origin.of(row).served_from)
        model = joined(before, record, grow(*lessons.arrays()) if Origin.of(row).grew else None)
        self._note(row, same=self._is(row, saved.packed(model)))
        return model

    def _loaded(self, row: ModelFile) -> Calibrated | HierarchicalHazards | None:
        """The model in its file, None where that is gone or damaged."""
        if self.folder is None:
            return None
        try:
            return saved.load(self.folder / row.file_name, row.sha256)
        except DamagedStore:
            return None

    @staticmethod
    def _is(row: ModelFile, content: bytes) -> bool:
        return hashlib.sha256(content).hexdigest() == row.sha256

    def _note(self, row: ModelFile, *, same: bool) -> None:
        self.found.fits += 1
        if not same:
            self.found.different_fits.append(row.model_id)


def again(model: Model, row: Prediction | PlanAnswer) -> str:
    """SHA-256 of the answer the model gives to a ledger row's question."""
    if isinstance(row, PlanAnswer):
        return ask_again(Serving(model, row.model_id), row).row.answer_sha256
    context = Context.of(orjson.loads(row.context))
    changes = tuple(ContextChange.of(record) for record in orjson.loads(row.changes or "[]"))
    question = Question(row.phase, context, row.attempt_id, row.elapsed_s, row.elapsed_source, row.horizon_asked_s, changes)
    asking = Asking(tuple(row.levels), row.request_id, (row.prediction_id,), row.made_ns)
    return hashlib.sha256(ask(Serving(model, row.model_id), [question], asking)[0].body).hexdigest()
