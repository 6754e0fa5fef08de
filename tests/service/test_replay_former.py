"""Answers of fits that an earlier program saved come out again as they were, with what such a fit did not tell."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from calibrate.conformal.wrap import Calibrated
from predictors import modelfile
from predictors.contexts import Context
from predictors.synthetic import runs
from service.engine import Asking, Question, Serving, ask
from service.refit import Fit, Saved, fit_as_of
from service.replay import replay
from service.settings import models_folder
from telemetry import asof
from telemetry.store.batch import Batch
from telemetry.store.reader import open_reader
from tests.service.living import Living


def test_a_fit_saved_before_cancellations_were_counted_replays_without_causes(living: Living, tmp_path: Path) -> None:
    living.send(runs(60, seed=2))
    living.settle()
    former = _formerly_saved(living)
    context = Context.of(runs(1, seed=3)[0].attempt.model_dump())
    questions = [Question("service", context), Question("service", context, horizon_s=0.5)]
    answered = ask(former, questions, Asking((0.5, 0.9), "r", ("p1", "p2"), 1_800_000_000_000_000_000))
    assert json.loads(answered[1].body)["causes"] is None
    living.lineup.ledger.extend(a.row for a in answered if a.row is not None)
    living.settle()
    living.store.snapshot(tmp_path / "copy.duckdb")
    with open_reader(tmp_path / "copy.duckdb") as reader:
        found = replay(reader, 2**62)
    assert (2, True) == (found.answers, found.identical)


def _formerly_saved(living: Living) -> Serving:
    """A model of record alone as an earlier program saved and served it."""
    with living.store.reader() as reader:
        model = list(modelfile.forms(fit_as_of(reader, living.store.last_commit)))[1]
    row = modelfile.save(model, models_folder(living.store.path), fitted_ns=1)
    living.store.write(Batch((row,)))
    return Serving(model, row.model_id)


def test_what_an_earlier_program_saved_serves_until_the_first_fit_of_this_one_takes_over(revive: Callable[[], Living]) -> None:
    living = revive()
    living.send(runs(60, seed=2))
    living.settle()
    former = _formerly_saved(living)
    again = revive()
    assert former.model_id == again.lineup.serving.model_id
    again.settle()
    assert isinstance(again.lineup.serving.model, Calibrated)
    with again.store.reader() as reader:
        newest = asof.models(reader, again.store.last_commit)[0]
    assert (again.lineup.serving.model_id, None) == (newest.model_id, json.loads(newest.settings)["parent"])


def _killed(living: Living) -> None:
    """The process ends here: nothing is finished, and what is under way on the thread of fits is all that still comes."""
    living.upkeep._refitter.close()
    living.upkeep.stop = living.upkeep._reader.close  # type: ignore[method-assign]


def test_a_model_written_before_a_kill_serves_after_it_and_its_answers_come_out_again(
    revive: Callable[[], Living], tmp_path: Path
) -> None:
    living = revive()
    for seed in (2, 3):
        living.send(runs(30, seed=seed))
        living.settle()
    before = living.lineup.serving.model_id
    living.send(runs(30, seed=4))
    while not isinstance(living.upkeep._refitter._running.result() if living.upkeep._refitter._running else None, Saved):
        living.upkeep.tick()
    assert before == living.lineup.serving.model_id  # written, and not yet taken over
    _killed(living)
    again = revive()
    assert before != again.lineup.serving.model_id
    context = Context.of(runs(1, seed=3)[0].attempt.model_dump())
    answered = ask(again.lineup.serving, [Question("service", context)], Asking((0.5,), "r", ("p1",), 1_800_000_000_000_000_000))
    again.lineup.ledger.append(answered[0].row)
    again.settle()
    again.store.snapshot(tmp_path / "copy.duckdb")
    with open_reader(tmp_path / "copy.duckdb") as reader:
        found = replay(reader, 2**62)
    assert (1, True) == (found.answers, found.identical)


def test_a_fit_that_was_not_written_before_a_kill_leaves_the_model_before_it(revive: Callable[[], Living]) -> None:
    living = revive()
    living.send(runs(30, seed=2))
    living.settle()
    before = living.lineup.serving.model_id
    living.send(runs(60, seed=3))
    living.upkeep.tick()
    assert isinstance(living.upkeep._refitter._running.result(), Fit)
    _killed(living)
    assert before == revive().lineup.serving.model_id
