"""Models taught by synthetic attempts through a real store, and what their answers say."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from predictors.contexts import Context
from predictors.joint.dependence import Dependence
from predictors.joint.ranks import Correlations
from predictors.plans.graph import StageKind
from predictors.synthetic import Run
from service.derive import derive
from service.engine import Serving
from service.plan_questions import Occasion, PlannedStage
from service.planning import PlanAnswered
from service.refit import fit_as_of
from telemetry.store.batch import Batch
from telemetry.store.file import Store

Draws = NDArray[np.float64]
NOW_NS = 1_800_000_000_000_000_000
WAIT, SETUP, SERVICE = StageKind.WAIT, StageKind.SETUP, StageKind.SERVICE


def serving_of(store_path: Path, runs: Sequence[Run]) -> Serving:
    """The model of record fitted on these attempts, all of them over."""
    with Store.open(store_path) as store:
        store.write(Batch(tuple(row for run in runs for row in (run.attempt, *run.events))))
        with store.reader() as reader:
            derived = derive(reader, sorted(run.attempt.attempt_id for run in runs), store.last_commit, store.last_commit)
        assert derived.batch is not None
        commit = store.write(derived.batch).commit
        with store.reader() as reader:
            return Serving(fit_as_of(reader, commit), "taught")


def dependent(serving: Serving, *, rho: float = 0.0, share: float = 0.0) -> Serving:
    """The same marginal laws with this dependence everywhere."""
    known = Correlations(MappingProxyType({"setup+service": rho}), MappingProxyType({"setup+service": 500}))
    shares = MappingProxyType({"setup": share, "service": share})
    return replace(serving, model=replace(serving.model, dependence=Dependence(known, shares)))  # type: ignore[type-var]


def context_of(run: Run, **other: Any) -> Context:
    """Context of an attempt, in part another one."""
    return replace(Context.of(run.attempt.model_dump()), **other)


def occasion(n: int = 1, *, seed: int = 7, calibration_se: float = 0.0, cvar_level: float | None = None) -> Occasion:
    return Occasion("request", tuple(f"answer-{i}" for i in range(n)), NOW_NS, seed, calibration_se, cvar_level)


def plain(context: Context, *, wait_s: float = 0.0, attempt: str = "a", **observed: float) -> tuple[PlannedStage, ...]:
    """A wait, a setup and its service; `setup_took_s`, `setup_elapsed_s`, `service_elapsed_s` say what was observed."""
    setup = {"elapsed_s": observed.get("setup_elapsed_s"), "took_s": observed.get("setup_took_s")}
    return (
        PlannedStage("wait", WAIT, planned_s=wait_s),
        PlannedStage("load", SETUP, ("wait",), None, context, "setup", attempt, **setup),
        PlannedStage("compute", SERVICE, ("load",), None, context, "service", attempt, observed.get("service_elapsed_s")),
    )


def told(answered: PlanAnswered) -> dict[str, Any]:
    """An answer's JSON; NaN and infinity are no JSON."""
    found: dict[str, Any] = json.loads(answered.body, parse_constant=lambda text: 1 / 0)
    return found


def correlated(rho: float, n: int, seed: int) -> tuple[Draws, Draws]:
    """Pairs of normal scores with this correlation, drawn apart from the code under test."""
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n)
    return first, rho * first + np.sqrt(1 - rho**2) * rng.normal(size=n)


def durations(serving: Serving, context: Context, phase: str, scores: Draws) -> Draws:
    """Durations in s at these normal scores under the served marginal law."""
    levels = np.linspace(1e-4, 1 - 1e-4, 20_001)
    quantiles = serving.model.predict([context], [phase]).quantile(levels)[0]
    return np.interp(ndtr(scores), levels, quantiles)


def score_at(serving: Serving, context: Context, phase: str, duration_s: float) -> float:
    """Normal score of a duration under the served marginal law."""
    return float(ndtri(serving.model.predict([context], [phase]).cdf(duration_s)[0, 0]))
