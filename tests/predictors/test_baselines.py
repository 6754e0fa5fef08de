"""The two rules of thumb answer as the reference peers do, and as worked by hand."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.special import ndtri

from predictors.baselines.configuration_ecdf import ConfigurationEcdf
from predictors.baselines.median_of_nine import MedianOfNine
from predictors.scores import LEVELS


@pytest.fixture(scope="module")
def peers(shared_dir: Path) -> ModuleType:
    """The reference peers, loaded by path; they import their protocol from the same folder."""
    folder = str(shared_dir / "bench")
    sys.path.insert(0, folder)
    try:
        spec = importlib.util.spec_from_file_location("bench_peers", f"{folder}/peers.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    return module


def test_median_of_nine_by_hand() -> None:
    rule = MedianOfNine()
    assert rule.quantiles("a", "setup") is None
    for duration_s in (1.0, 2.0, 4.0):
        rule.learn("a", "setup", duration_s)
    known = rule.quantiles("a", "setup")
    assert known is not None
    assert_allclose(2.0 * np.exp(ndtri(LEVELS)), known)  # fewer than 20 ratios: one nat per standard deviation
    other = rule.quantiles("b", "setup")
    assert other is not None
    assert other[49] == pytest.approx(2.0)  # a configuration without history has its phase's


def test_median_of_nine_forgets_the_tenth() -> None:
    rule = MedianOfNine()
    for duration_s in [100.0] * 9 + [1.0] * 5:
        rule.learn("a", "setup", duration_s)
    known = rule.quantiles("a", "setup")
    assert known is not None
    assert known[49] == pytest.approx(1.0)


def test_ecdf_needs_ten_of_a_configuration_else_goes_up() -> None:
    rule = ConfigurationEcdf()
    assert rule.quantiles("a", "f", "setup") is None
    for duration_s in range(1, 10):
        rule.learn("a", "f", "setup", float(duration_s))
    for duration_s in range(101, 111):
        rule.learn("b", "f", "setup", float(duration_s))
    of_family, of_phase = rule.quantiles("a", "f", "setup"), rule.quantiles("a", "g", "setup")
    assert of_family is not None
    assert of_phase is not None
    assert of_family[49] == pytest.approx(101.0)  # tenth of nineteen
    assert_allclose(of_family, of_phase)
    rule.learn("a", "f", "setup", 10.0)
    of_itself = rule.quantiles("a", "f", "setup")
    assert of_itself is not None
    assert of_itself[49] == pytest.approx(5.5)


def test_ecdf_equals_the_reference_peer(peers: ModuleType, shared_dir: Path) -> None:
    frame = peers.load(str(shared_dir / "datasets" / "model_load.parquet"))
    past, asked = peers.visible(frame, 3), peers.questions(frame, 3)
    rule = ConfigurationEcdf()
    done = peers.finished(past)
    for key, row in zip(peers.config(done), done.itertuples(), strict=True):
        rule.learn(key, row.family, row.phase, row.duration_s)
    mine = [rule.quantiles(key, row.family, row.phase) for key, row in zip(peers.config(asked), asked.itertuples(), strict=True)]
    assert_allclose(peers.config_ecdf(past, asked), np.stack([q for q in mine if q is not None]))


def test_median_of_nine_equals_the_reference_peer_outcome_by_outcome(peers: ModuleType, shared_dir: Path) -> None:
    frame = peers.load(str(shared_dir / "datasets" / "lambda_coldstart.parquet")).iloc[:1500]
    theirs, ours = peers.Last9(), MedianOfNine()
    keys = peers.config(frame)
    for place, (key, row) in enumerate(zip(keys, frame.itertuples(), strict=True)):
        if place % 50 == 49:
            expected, got = theirs.predict(key, row.phase), ours.quantiles(key, row.phase)
            assert got is not None
            assert_allclose(expected, got)
        theirs.update(key, row.phase, float(np.log(max(row.duration_s, 1e-6))))
        ours.learn(key, row.phase, row.duration_s)
