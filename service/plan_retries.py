"""Stages that may be tried again: how long the model says that takes, failures and all."""

from __future__ import annotations

import numpy as np

from predictors.contexts import Context
from predictors.distribution import Array, Distribution
from predictors.model import Model
from predictors.plans.retries import FAILING_AT, Tries, with_another


def tried_again(model: Model, context: Context, phase: str, retries: int, wait_s: float, elapsed_s: float | None = None) -> Tries:
    """The law of a stage tried up to 1 + retries times, waiting wait_s before each retry; the first try has lasted elapsed_s."""
    law = model.predict([context], [phase])
    once = found = Tries(law, _p_complete(model, context, phase, 0.0))
    failing_s = _failing_s(model, context, phase, law, 0.0)
    for _ in range(retries - (elapsed_s is not None)):
        found = with_another(once, failing_s, found, wait_s)
    if elapsed_s is None:
        return found
    running = Tries(law.residual(elapsed_s), _p_complete(model, context, phase, elapsed_s))
    return with_another(running, _failing_s(model, context, phase, running.law, elapsed_s), found, wait_s)


def _p_complete(model: Model, context: Context, phase: str, elapsed_s: float) -> float:
    return float(model.p_complete([context], [phase], np.array([elapsed_s]))[0])


def _failing_s(model: Model, context: Context, phase: str, law: Distribution, elapsed_s: float) -> Array:
    """Further time to failure in s at FAILING_AT, as failures have come; as completions do where the model counts none."""
    incidence = model.incidence(context, phase)
    return law.quantile(FAILING_AT)[0] if incidence is None else incidence.quantile_given_failure(FAILING_AT, elapsed_s)
