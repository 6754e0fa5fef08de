"""Answers of fits that an earlier program saved come out again as they were, with what such a fit did not tell."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from predictors import modelfile
from predictors.contexts import Context
from predictors.hazards import HierarchicalHazards
from predictors.synthetic import runs
from service import refit
from service.engine import Asking, Question, ask
from service.replay import replay
from telemetry.store.reader import Reader, open_reader
from tests.service.living import Living


def test_a_fit_saved_before_cancellations_were_counted_replays_without_causes(
    living: Living, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    today = refit.fit_as_of

    def formerly(reader: Reader, commit: int) -> HierarchicalHazards:
        return list(modelfile.forms(today(reader, commit)))[1]

    monkeypatch.setattr(refit, "fit_as_of", formerly)
    living.send(runs(60, seed=2))
    living.settle()
    context = Context.of(runs(1, seed=3)[0].attempt.model_dump())
    questions = [Question("service", context), Question("service", context, horizon_s=0.5)]
    answered = ask(living.lineup.serving, questions, Asking((0.5, 0.9), "r", ("p1", "p2"), 1_800_000_000_000_000_000))
    assert json.loads(answered[1].body)["causes"] is None
    living.lineup.ledger.extend(a.row for a in answered if a.row is not None)
    living.settle()
    living.store.snapshot(tmp_path / "copy.duckdb")
    with open_reader(tmp_path / "copy.duckdb") as reader:
        found = replay(reader, 2**62)
    assert (2, True) == (found.answers, found.identical)
