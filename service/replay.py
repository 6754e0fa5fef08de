"""Gives served answers again from the store alone, to the byte: the proof that none of them knew the future."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import groupby

import orjson

from predictors import modelfile
from predictors.changing import ContextChange
from predictors.contexts import Context
from predictors.model import Model
from service.engine import Asking, Question, Serving, ask
from service.planning import ask_again
from service.refit import caught_up, fit_as_of
from telemetry import asof
from telemetry.ledger import ModelFile, PlanAnswer, Prediction
from telemetry.store.reader import Reader


@dataclass
class Replayed:
    """How many answers and fits were made again, and which came out different.

    `beyond` counts answers of fits from before what retention removed: they can't be given again.
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


def replay(reader: Reader, upto: int, progress: Callable[[int], None] = lambda _n: None) -> Replayed:
    """Refit every model as of its commit, fold what became known, and answer every ledger row of commits up to `upto` again."""
    found = Replayed()
    models, complete_from = {row.model_id: row for row in asof.models(reader, upto)}, asof.complete_from(reader)
    ledger: list[Prediction | PlanAnswer] = [*asof.rows_of(Prediction, asof.predictions(reader, upto))]
    ledger += [row for scored in (False, True) for row in asof.plan_answers(reader, upto, scored=scored)]
    ledger.sort(key=lambda row: (row.model_id, row.as_of_commit))
    for model_id, rows in groupby(ledger, key=lambda row: row.model_id):
        if models[model_id].fit_commit < complete_from:
            found.beyond += len(list(rows))
            continue
        model = _refit(reader, models[model_id], found)
        for commit, same in groupby(rows, key=lambda row: row.as_of_commit):
            model = caught_up(model, reader, commit)
            for row in same:
                found.answers += 1
                progress(found.answers)
                if again(model, row) != row.answer_sha256:
                    found.different_answers.append(row.answer_id if isinstance(row, PlanAnswer) else row.prediction_id)
    return found


def _refit(reader: Reader, row: ModelFile, found: Replayed) -> Model:
    """The model fitted anew from what was known at its commit, in the form it was saved in; noted where none gives its file."""
    model = fit_as_of(reader, row.fit_commit)
    found.fits += 1
    for form in modelfile.forms(model):
        if hashlib.sha256(modelfile.packed(form)).hexdigest() == row.sha256:
            return form
    found.different_fits.append(row.model_id)
    return model


def again(model: Model, row: Prediction | PlanAnswer) -> str:
    """SHA-256 of the answer the model gives to a ledger row's question."""
    if isinstance(row, PlanAnswer):
        return ask_again(Serving(model, row.model_id), row).row.answer_sha256
    context = Context.of(orjson.loads(row.context))
    changes = tuple(ContextChange.of(record) for record in orjson.loads(row.changes or "[]"))
    question = Question(row.phase, context, row.attempt_id, row.elapsed_s, row.elapsed_source, row.horizon_asked_s, changes)
    asking = Asking(tuple(row.levels), row.request_id, (row.prediction_id,), row.made_ns)
    return hashlib.sha256(ask(Serving(model, row.model_id), [question], asking)[0].body).hexdigest()
