from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from predictors import hazards, modelfile
from predictors.contexts import Context
from predictors.frames import Frame
from predictors.joint.dependence import INDEPENDENT, Residuals, learn

HERE = Context(host="north", state="cold")
THERE = Context(host="south", state="cold")


def _residuals(z: np.ndarray, contexts: tuple[Context, ...] = (HERE,), context: np.ndarray | None = None) -> Residuals:
    places = np.zeros(len(z), dtype=np.int64) if context is None else context
    return Residuals(np.arange(len(z)), contexts, places, z)


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.5])
def test_the_correlation_of_setup_and_service_is_recovered(rho: float) -> None:
    rng = np.random.default_rng(1)
    first = rng.normal(size=4000)
    second = rho * first + np.sqrt(1 - rho**2) * rng.normal(size=4000)
    found = learn({"setup": _residuals(first), "service": _residuals(second)})
    assert rho == pytest.approx(found.correlation(HERE), abs=0.04)


def test_pairs_are_of_one_attempt_whatever_the_order_in_which_phases_became_known() -> None:
    rng = np.random.default_rng(2)
    z = rng.normal(size=500)
    shuffled = rng.permutation(500)
    setup = Residuals(np.arange(500), (HERE,), np.zeros(500, dtype=np.int64), z)
    service = Residuals(shuffled, (HERE,), np.zeros(500, dtype=np.int64), z[shuffled])
    assert learn({"setup": setup, "service": service}).correlation(HERE) > 0.9


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7])
def test_what_successive_attempts_on_a_host_have_in_common_is_its_states_share(share: float) -> None:
    rng = np.random.default_rng(3)
    n = 6000
    place = np.tile([0, 1], n // 2)
    state = rng.normal(size=(2, n // 100))[:, np.arange(n) // 100][place, np.arange(n)]  # each host's state lasts a hundred rows
    z = np.sqrt(share) * state + np.sqrt(1 - share) * rng.normal(size=n)
    found = learn({"service": _residuals(z, (HERE, THERE), place)}).share["service"]
    assert share == pytest.approx(found, abs=0.12)


def test_few_pairs_claim_little() -> None:
    z = np.array([-1.0, 1.0, -0.5, 0.5, 0.2])
    found = learn({"setup": _residuals(z), "service": _residuals(z)})
    assert found.correlation(HERE) < 0.5
    assert found.share["service"] < 0.1


def test_nothing_known_is_independence() -> None:
    assert learn({}).correlation(HERE) == 0.0
    assert learn({"setup": _residuals(np.zeros(0))}).share == {"setup": 0.0}


def test_a_fit_learns_it_and_its_file_keeps_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    n = 300
    common = rng.normal(size=n)
    durations = np.exp(np.concatenate([0.3 * common, 0.3 * common + 0.1 * rng.normal(size=n)]))
    yes, no = np.ones(2 * n, dtype=bool), np.zeros(2 * n, dtype=bool)
    phase = np.repeat([0, 1], n)
    attempt = np.tile(np.arange(n), 2)
    plain = (np.zeros(2 * n, dtype=np.int64), phase, np.zeros(2 * n), durations, yes, no, no, np.ones(2 * n), np.arange(2 * n))
    model = hazards.fit(Frame((HERE,), ("setup", "service"), *plain, attempt=attempt), 7, hazards.FitSettings())
    assert model.dependence.correlation(HERE) > 0.7
    row = modelfile.save(model, tmp_path, fitted_ns=1)
    assert model.dependence == modelfile.load(tmp_path / row.file_name, row.sha256).dependence
    assert INDEPENDENT == hazards.fit(Frame((HERE,), ("setup", "service"), *plain), 7, hazards.FitSettings()).dependence


def test_a_joint_law_that_is_not_normal_is_learned_by_a_fit_and_kept_by_its_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    n = 2000
    late = 1.0 / rng.gamma(3.0, 1.0 / 3.0, size=n)  # what both have in common has a long tail on one side
    durations = np.exp(np.concatenate([0.1 * rng.normal(size=n), 0.1 * rng.normal(size=n)])) * np.tile(late, 2)
    yes, no = np.ones(2 * n, dtype=bool), np.zeros(2 * n, dtype=bool)
    plain = (np.zeros(2 * n, dtype=np.int64), np.repeat([0, 1], n), np.zeros(2 * n), durations, yes, no, no, np.ones(2 * n))
    frame = Frame((HERE,), ("setup", "service"), *plain, np.arange(2 * n), attempt=np.tile(np.arange(n), 2))
    model = hazards.fit(frame, 7, hazards.FitSettings())
    assert model.dependence.bend is not None
    row = modelfile.save(model, tmp_path, fitted_ns=1)
    assert model.dependence == modelfile.load(tmp_path / row.file_name, row.sha256).dependence
    assert [None, None] == [form.dependence.bend for form in modelfile.forms(model)][1:]
