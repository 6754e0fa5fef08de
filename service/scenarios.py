"""Joint draws of setup and service as an answer: the same worlds for every planner that names the same ids and seed."""

from __future__ import annotations

from typing import Any

import numpy as np

from predictors.contexts import Context
from predictors.joint.scenarios import Attempts, Joint, draw
from predictors.plans.graph import StageKind
from service.engine import Serving
from service.plan_known import known
from service.plan_questions import PlannedStage
from service.plan_schemas import ScenarioAttemptIn, ScenariosRequest
from telemetry.words import State


def ask_scenarios(serving: Serving | None, asked: ScenariosRequest) -> dict[str, Any]:
    """Draws in s, one list per attempt. What is resident has no setup: its setup is 0 s in every scenario."""
    setups, services = [_setup(a) for a in asked.attempts], [_service(a) for a in asked.attempts]
    found = known(serving, [setups, services])
    rows = [np.array(each, dtype=np.intp) for each in found.rows]
    contexts = [stage.context or Context() for stage in services]
    dependence = found.serving.model.dependence
    resident = [context.state == State.RESIDENT for context in contexts]
    joint = Joint(
        rho=[0.0 if r else dependence.correlation(c) for r, c in zip(resident, contexts, strict=True)],
        setup_share=[0.0 if r else dependence.share.get("setup", 0.0) for r in resident],
        service_share=dependence.share.get("service", 0.0),
        bend=dependence.bend,
    )
    hosts = tuple(context.host or f"unknown host of {a.attempt}" for context, a in zip(contexts, asked.attempts, strict=True))
    names = tuple(a.attempt for a in asked.attempts)
    setup, service = (found.timings.take(each) for each in rows)
    times = draw(setup, service, joint, Attempts(hosts, names, names), asked.n_scenarios, asked.seed)
    status, reasons = found.status([row for each in found.rows for row in each])
    return {
        "setup_s": times[:, 0].tolist(),
        "service_s": times[:, 1].tolist(),
        "p_complete": (setup.p_complete * service.p_complete).tolist(),
        "status": status,
        "reasons": reasons,
        "model_id": found.serving.model_id,
        "as_of_commit": found.serving.model.commit,
    }


def _setup(a: ScenarioAttemptIn) -> PlannedStage:
    """The setup; what is resident has a service that is over in its place: that takes no time and needs no evidence of setups."""
    context = Context(**a.context.model_dump())
    if context.state == State.RESIDENT:
        return PlannedStage("setup", StageKind.SETUP, (), None, context, "service", a.attempt, took_s=0.0)
    return PlannedStage("setup", StageKind.SETUP, (), None, context, "setup", a.attempt, a.setup_elapsed_s, a.setup_took_s)


def _service(a: ScenarioAttemptIn) -> PlannedStage:
    context = Context(**a.context.model_dump())
    return PlannedStage("service", StageKind.SERVICE, (), None, context, "service", a.attempt, a.service_elapsed_s)
