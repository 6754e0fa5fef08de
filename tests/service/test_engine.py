from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from predictors import modelfile
from predictors.contexts import Context
from predictors.distribution import GRID, Checked, Support
from predictors.synthetic import runs
from service.engine import Asking, Question, Serving, ask, beyond, judge
from service.lineup import Lineup
from service.settings import Settings
from service.upkeep import Upkeep
from telemetry.errors import NoEvidence
from telemetry.store.file import Store
from telemetry.words import Status
from tests.service.living import Living

SUPPORT = Support(level="configuration", n=9, n_eff=9.0, largest_s=2.0)


def _asking(n: int, *levels: float) -> Asking:
    return Asking(levels or (0.5, 0.9), "request", tuple(f"p{i}" for i in range(n)), 1_700_000_000_000_000_000)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """What a service answers from once it has learned: a value, and the same one for all tests."""
    settings = Settings(store=tmp_path_factory.mktemp("taught") / "store.duckdb", refit_share=1.0)
    with Store.open(settings.store) as store:
        lineup = Lineup("here/boot-1")
        living = Living(store, lineup, Upkeep(store, lineup, settings))
        living.send(runs(120, seed=1))
        living.settle()
        living.upkeep.stop()
    assert lineup.serving is not None
    return lineup.serving


def _context(**other: Any) -> Context:
    return Context(
        **{
            "host": "north",
            "device": "cpu",
            "family": "encoder",
            "model": "encoder@1",
            "state": "cold",
            "batch": 4.0,
            "size_in": 64.0,
            "corunners": 0.0,
            **other,
        }
    )


def test_nothing_known_is_a_problem_that_says_what_to_ingest() -> None:
    with pytest.raises(NoEvidence, match="/v1/events"):
        ask(None, [Question("service", Context())], _asking(1))


def test_an_unknown_phase_beside_a_known_one_gets_no_made_up_number(taught: Serving) -> None:
    known, unknown = ask(taught, [Question("service", _context()), Question("prefill", _context())], _asking(2))
    told = json.loads(unknown.body)
    assert known.row is not None
    assert unknown.row is None
    assert (None, "shadow", ["no_evidence"]) == (told["quantiles_s"], told["status"], told["reasons"])


def test_a_batch_answers_what_single_questions_answer_to_the_byte(taught: Serving) -> None:
    questions = [
        Question("service", _context(size_in=size), elapsed_s=age, elapsed_source="given" if age is not None else None)
        for size in (16.0, 64.0, 128.0)
        for age in (None, 0.0, 0.1)
    ]
    together = ask(taught, questions, _asking(len(questions)))
    for i, question in enumerate(questions):
        alone = ask(taught, [question], Asking((0.5, 0.9), "request", (f"p{i}",), 1_700_000_000_000_000_000))
        assert alone[0].body == together[i].body


def test_the_residual_answer_is_the_law_at_that_age_and_says_how_it_was_had(taught: Serving) -> None:
    whole = taught.model.predict([_context()], ["service"])
    young_s, age_s = float(whole.quantile(0.5)[0, 0]) / 50.0, float(whole.quantile(0.3)[0, 0])
    questions = [Question("service", _context(), elapsed_s=at_s, elapsed_source="given") for at_s in (young_s, age_s)]
    young, old = ask(taught, questions, _asking(2))
    told = [json.loads(answered.body) for answered in (young, old)]
    assert ["conditional", "recalibrated"] == [one["form"] for one in told]
    assert ["conditional", "recalibrated"] == [answered.row.form for answered in (young, old) if answered.row is not None]
    conditional = whole.sf(young_s + np.array(told[0]["quantiles_s"]))[0] / whole.sf(young_s)[0]
    np.testing.assert_allclose([0.5, 0.1], conditional, atol=1e-9)
    np.testing.assert_allclose([0.5, 0.1], whole.residual(age_s).sf(told[1]["quantiles_s"])[0], atol=1e-9)


def test_the_ledger_row_keeps_the_fixed_grid_and_the_hash_of_what_was_served(taught: Serving) -> None:
    answered = ask(taught, [Question("service", _context(), attempt_id="a")], _asking(1, 0.25))[0]
    assert answered.row is not None
    assert len(GRID) == len(answered.row.quantiles_s)
    assert hashlib.sha256(answered.body).hexdigest() == answered.row.answer_sha256
    assert json.loads(answered.body)["quantiles_s"] == [answered.row.quantiles_s[24]]


def test_a_host_never_seen_is_shadow_and_wider(taught: Serving) -> None:
    known = Context.of(runs(1, seed=1)[0].attempt.model_dump())
    questions = [Question("service", known), Question("service", replace(known, host="elsewhere"))]
    seen, new = ask(taught, questions, _asking(2, 0.05, 0.95))
    near, far = json.loads(seen.body), json.loads(new.body)
    assert ("thin", "shadow") == (near["status"], far["status"])
    assert "unseen_configuration" in far["reasons"]
    width = [np.log(a["quantiles_s"][1] / a["quantiles_s"][0]) for a in (near, far)]
    assert width[1] > width[0]


def test_nine_outcomes_claim_the_ninetieth_percentile_and_say_what_the_next_levels_need() -> None:
    assert SUPPORT.claimed_to == pytest.approx(0.9)
    told = beyond([0.5, 0.9, 0.95, 0.99], SUPPORT, 1.7)
    assert [(0.95, 1.7, 10), (0.99, 1.7, 90)] == [(b["level"], b["at_least_s"], b["needs_n"]) for b in told]


FEW, ENOUGH = Checked("configuration", 8.0, enough=False), Checked("configuration", 9.0, enough=True)


@pytest.mark.parametrize(
    ("matched", "age_s", "checked", "status", "reasons"),
    [
        (True, None, ENOUGH, Status.CALIBRATED, []),
        (True, None, FEW, Status.THIN, ["too_few_outcomes"]),
        (True, None, None, Status.THIN, ["not_recalibrated"]),
        (True, 3.0, ENOUGH, Status.EXTRAPOLATED, ["older_than_any_known"]),
        (True, 3.0, None, Status.EXTRAPOLATED, ["older_than_any_known", "not_recalibrated"]),
        (False, None, ENOUGH, Status.SHADOW, ["unseen_configuration"]),
        (False, 3.0, FEW, Status.SHADOW, ["unseen_configuration", "older_than_any_known", "too_few_outcomes"]),
    ],
)
def test_status_follows_its_precedence_and_nothing_is_calibrated_before_it_was_checked(
    matched: bool, age_s: float | None, checked: Checked | None, status: Status, reasons: list[str]
) -> None:
    support = Support(level="host", n=9, n_eff=9.0, largest_s=2.0, matched=matched, checked=checked)
    assert (status, reasons) == judge(support, age_s)


@pytest.mark.parametrize(
    ("changed", "unfamiliar", "reasons"),
    [(True, False, ["after_drift"]), (False, True, ["support_drift"]), (True, True, ["after_drift", "support_drift"])],
)
def test_what_changed_or_began_to_come_is_not_for_decisions(changed: bool, unfamiliar: bool, reasons: list[str]) -> None:
    support = Support("host", 900, 900.0, 2.0, checked=ENOUGH, changed=changed, unfamiliar=unfamiliar)
    assert (Status.SHADOW, reasons) == judge(support, None)


def test_an_answer_tells_how_answers_like_it_were_checked(taught: Serving) -> None:
    known = Context.of(runs(1, seed=1)[0].attempt.model_dump())
    told = json.loads(ask(taught, [Question("service", known)], _asking(1))[0].body)
    assert told["support"]["checked"]["n"] > 0.0
    assert told["status"] == ("calibrated" if told["support"]["checked"]["enough"] else "thin")
    assert "not_recalibrated" not in told["reasons"]


def test_the_model_of_record_alone_says_that_nothing_corrects_it(taught: Serving) -> None:
    known = Context.of(runs(1, seed=1)[0].attempt.model_dump())
    alone = Serving(taught.model.inner.record, taught.model_id)
    told = json.loads(ask(alone, [Question("service", known)], _asking(1))[0].body)
    assert ("thin", ["not_recalibrated"]) == (told["status"], told["reasons"])
    assert ["level", "n", "n_eff", "largest_s", "last_commit"] == list(told["support"])


def test_no_answer_holds_nan_or_infinity_even_far_beyond_everything_seen(taught: Serving) -> None:
    known = Context.of(runs(1, seed=1)[0].attempt.model_dump())
    questions = [Question("service", known, elapsed_s=age, elapsed_source="given") for age in (1e3, 1e6, 1e9, 1e12)]
    for answered in ask(taught, questions, _asking(4, 0.5, 0.999)):
        told = json.loads(answered.body, parse_constant=pytest.fail)
        assert all(q >= 0.0 for q in told["quantiles_s"])
        assert told["status"] == "extrapolated"


def test_causes_are_told_with_a_horizon_only_and_sum_to_one(taught: Serving) -> None:
    plain, asked = ask(taught, [Question("service", _context()), Question("service", _context(), horizon_s=0.5)], _asking(2))
    assert "causes" not in json.loads(plain.body)
    assert (None, 0.5) == (plain.row.horizon_asked_s, asked.row.horizon_asked_s)
    told = json.loads(asked.body)["causes"]
    assert 1.0 == pytest.approx(sum(told[name] for name in ("completed", "failed", "cancelled", "running")), abs=1e-9)
    assert (0.5, True) == (told["horizon_s"], told["supported"])
    assert told["completed"] < told["ever_completed"][0] <= told["ever_completed"][1] < 1.0
    assert told["completed_quantiles_s"] == sorted(told["completed_quantiles_s"])
    assert [(0.5, False), (0.9, False), (0.99, False)] == [(b["level"], b["reached"]) for b in told["cancellation"]]
    assert 0.5 == told["cancellation"][1]["if_never_s"]


def test_a_horizon_past_all_that_is_known_says_that_the_tail_answers(taught: Serving) -> None:
    answered = ask(taught, [Question("service", _context(), horizon_s=1e9)], _asking(1))[0]
    told = json.loads(answered.body)["causes"]
    assert not told["supported"]
    assert 0.0 == pytest.approx(told["running"], abs=1e-6)


def test_a_fit_that_told_nothing_of_cancellations_answers_without_causes(taught: Serving) -> None:
    former = Serving(list(modelfile.forms(taught.model.inner.record))[1], taught.model_id)
    answered = ask(former, [Question("service", _context(), horizon_s=0.5)], _asking(1))[0]
    told = json.loads(answered.body)
    assert told["causes"] is None
    assert told["quantiles_s"] is not None
