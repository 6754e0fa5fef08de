"""Joint draws as answered: keyed by name and seed, finite, conditioned on what was observed, and linked as the model says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.special import ndtr, ndtri
from scipy.stats import kstest

from predictors.contexts import Context
from predictors.distribution import Distribution
from predictors.synthetic import World, runs
from service.engine import Serving
from service.plan_schemas import ScenariosRequest
from service.scenarios import ask_scenarios
from telemetry.errors import NoEvidence
from tests.service.taught import Draws, context_of, dependent, serving_of

SURE = World(failure_mean_s=None, cancel_mean_s=None)
MADE = runs(200, seed=4, world=SURE)
SEEN = next(context_of(run) for run in MADE if run.attempt.state == "cold" and run.attempt.host == "north")
SOUTH = next(context_of(run) for run in MADE if run.attempt.state == "cold" and run.attempt.host == "south")


@pytest.fixture(scope="module")
def sure(tmp_path_factory: pytest.TempPathFactory) -> Serving:
    """A model of a world in which everything completes."""
    return serving_of(tmp_path_factory.mktemp("sure") / "store.duckdb", MADE)


def attempt(name: str, context: Context = SEEN, **observed: float) -> dict[str, Any]:
    return {"attempt": name, "context": context.known(), **observed}


def drawn(serving: Serving, *attempts: dict[str, Any], n: int = 500, seed: int = 7) -> dict[str, Any]:
    return ask_scenarios(serving, ScenariosRequest(attempts=attempts, n_scenarios=n, seed=seed))


def scores(serving: Serving, context: Context, phase: str, durations_s: list[float]) -> Draws:
    """Normal scores of durations under the served marginal law."""
    return ndtri(serving.model.predict([context], [phase]).cdf(np.array(durations_s))[0])


def follow(law: Distribution, durations_s: list[float]) -> bool:
    """Whether draws follow a law of one context, but for the cell of the table that holds them (below 2 %) and chance (0.1 %)."""
    apart = kstest(durations_s, lambda t: law.cdf(t)[0]).statistic
    return bool(apart < 0.02 + 1.95 / np.sqrt(len(durations_s)))


def test_marginals_are_those_that_predict_serves(sure: Serving) -> None:
    found = drawn(dependent(sure, rho=0.6, share=0.5), attempt("a"), attempt("b", SOUTH), n=10_000)
    for place, context in enumerate((SEEN, SOUTH)):
        for phase in ("setup", "service"):
            assert follow(sure.model.predict([context], [phase]), found[f"{phase}_s"][place])
    assert [1.0, 1.0] == found["p_complete"]
    assert ("thin", ["not_recalibrated"], sure.model_id) == (found["status"], found["reasons"], found["model_id"])


def test_setup_and_service_of_an_attempt_and_attempts_of_a_host_hang_together_as_the_model_says(sure: Serving) -> None:
    found = drawn(dependent(sure, rho=0.6, share=0.4), attempt("a"), attempt("b"), attempt("c", SOUTH), n=10_000)
    setup = [scores(sure, c, "setup", s) for c, s in zip((SEEN, SEEN, SOUTH), found["setup_s"], strict=True)]
    service = scores(sure, SEEN, "service", found["service_s"][0])
    assert 0.6 == pytest.approx(np.corrcoef(setup[0], service)[0, 1], abs=0.04)
    assert 0.4 == pytest.approx(np.corrcoef(setup[0], setup[1])[0, 1], abs=0.04)
    assert 0.0 == pytest.approx(np.corrcoef(setup[0], setup[2])[0, 1], abs=0.04)


def test_a_subset_in_any_order_meets_the_same_worlds_and_another_seed_others(sure: Serving) -> None:
    serving = dependent(sure, rho=0.6, share=0.4)
    asked = [attempt("a"), attempt("b", SOUTH), attempt("c"), attempt("d", replace(SEEN, batch=1.0))]
    whole, part, fewer = drawn(serving, *asked), drawn(serving, asked[2], asked[0]), drawn(serving, *asked, n=100)
    for phase in ("setup_s", "service_s"):
        assert [whole[phase][2], whole[phase][0]] == part[phase]
        assert [one[:100] for one in whole[phase]] == fewer[phase]
    assert whole["setup_s"] != drawn(serving, *asked, seed=8)["setup_s"]
    assert whole["setup_s"][0] != drawn(serving, attempt("another name"))["setup_s"][0]


def test_attempts_on_hosts_nobody_named_share_nothing(sure: Serving) -> None:
    nowhere = replace(SEEN, host=None)
    found = drawn(dependent(sure, share=0.9), attempt("a", nowhere), attempt("b", nowhere), n=4000)
    assert 0.0 == pytest.approx(np.corrcoef(np.argsort(np.argsort(found["setup_s"])))[0, 1], abs=0.06)


def test_a_finished_setup_takes_no_more_time_and_moves_its_service(sure: Serving) -> None:
    serving = dependent(sure, rho=0.7)
    took_s = float(sure.model.predict([SEEN], ["setup"]).quantile(float(ndtr(1.5)))[0, 0])
    found = drawn(serving, attempt("a", setup_took_s=took_s), n=10_000)
    eps = scores(sure, SEEN, "service", found["service_s"][0])
    assert {0.0} == set(found["setup_s"][0])
    assert 0.7 * 1.5 == pytest.approx(eps.mean(), abs=0.03)
    assert np.sqrt(1 - 0.7**2) == pytest.approx(eps.std(), abs=0.03)


def test_running_phases_are_drawn_past_their_age(sure: Serving) -> None:
    age_s = float(sure.model.predict([SEEN], ["setup"]).quantile(0.8)[0, 0])
    service_age_s = float(sure.model.predict([SEEN], ["service"]).quantile(0.5)[0, 0])
    other = attempt("b", setup_took_s=age_s, service_elapsed_s=service_age_s)
    found = drawn(dependent(sure), attempt("a", setup_elapsed_s=age_s), other, n=10_000)
    assert follow(sure.model.predict([SEEN], ["setup"]).residual(age_s), found["setup_s"][0])
    assert follow(sure.model.predict([SEEN], ["service"]).residual(service_age_s), found["service_s"][1])
    assert {0.0} == set(found["setup_s"][1])


def test_what_is_resident_has_no_setup_and_needs_no_evidence_of_one(tmp_path: Path) -> None:
    """In a fleet of residents no setup was ever seen, and their services are as well known as any."""
    made = [
        replace(run, attempt=run.attempt.model_copy(update={"state": "resident"}), events=run.events[:3] + run.events[4:])
        for run in runs(60, seed=4, world=SURE)
    ]
    serving = serving_of(tmp_path / "store.duckdb", made)
    assert "setup" not in serving.model.phases
    context = context_of(made[0])
    found = drawn(serving, attempt("a", context), n=3000)
    assert {0.0} == set(found["setup_s"][0])
    assert follow(serving.model.predict([context], ["service"]), found["service_s"][0])
    assert "thin" == found["status"]
    with pytest.raises(NoEvidence, match="setup"):
        drawn(serving, attempt("a", replace(context, state="cold")))


def test_a_resident_neighbour_shares_its_hosts_state_by_its_service_alone(sure: Serving) -> None:
    serving = dependent(sure, rho=0.6, share=0.5)
    resident = attempt("r", replace(SEEN, state="resident"))
    alone, beside = drawn(serving, attempt("a")), drawn(serving, resident, attempt("a"))
    assert alone["setup_s"][0] == beside["setup_s"][1]  # a resident's setup proves nothing
    ranks = np.argsort(np.argsort([beside["service_s"][0], beside["service_s"][1]]))
    assert np.corrcoef(ranks)[0, 1] > 0.35


def test_what_may_fail_says_so(tmp_path: Path) -> None:
    serving = serving_of(tmp_path / "store.duckdb", runs(200, seed=5, world=World(failure_mean_s=1.0, cancel_mean_s=None)))
    found = drawn(serving, attempt("a"), attempt("b", setup_took_s=2.0, service_elapsed_s=0.5))
    p = serving.model.p_complete([SEEN, SEEN, SEEN], ["setup", "service", "service"], np.array([0.0, 0.0, 0.5]))
    assert [p[0] * p[1], p[2]] == found["p_complete"]
    assert found["p_complete"][0] < 0.9


def test_far_beyond_everything_seen_draws_stay_finite_and_say_what_they_are(sure: Serving) -> None:
    found = drawn(sure, attempt("a", setup_elapsed_s=1e9), attempt("new", replace(SEEN, host="elsewhere")), n=100)
    assert np.isfinite([found["setup_s"], found["service_s"]]).all()
    assert ("shadow", {"older_than_any_known", "unseen_configuration"}) == (
        found["status"],
        set(found["reasons"]) - {"not_recalibrated"},
    )


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"setup_elapsed_s": 1.0, "setup_took_s": 1.0}, "give setup_elapsed_s"),
        ({"service_elapsed_s": 1.0}, "give setup_took_s"),
        ({"service_elapsed_s": 1.0, "setup_elapsed_s": 1.0}, "give setup_took_s"),
        ({"context": {"state": "resident"}, "setup_took_s": 1.0}, "has no setup"),
        ({"context": {"state": "resident"}, "setup_elapsed_s": 0.0}, "has no setup"),
        ({"setup_elapsed_s": -0.1}, "greater than or equal to 0"),
    ],
)
def test_observations_that_contradict_each_other_are_refused(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ScenariosRequest(attempts=[{"attempt": "a", "context": {}, **wrong}])


def test_names_key_the_draws_so_they_differ_and_draws_are_bounded() -> None:
    with pytest.raises(ValidationError, match="a name of its own"):
        ScenariosRequest(attempts=[attempt("a"), attempt("a", SOUTH)])
    many = [attempt(str(i)) for i in range(1000)]
    assert 1000 == ScenariosRequest(attempts=many, n_scenarios=1000).n_scenarios
    with pytest.raises(ValidationError, match="1000 attempts x 1001 scenarios is more than 1,000,000 draws"):
        ScenariosRequest(attempts=many, n_scenarios=1001)
