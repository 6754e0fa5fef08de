"""1,000 distinct plans of a wait, a setup and a service: plans per second on one core in process, and one request over HTTP.

Over HTTP no two plans share a context, an attempt or a draw, and each is refined until 0.95 is certified or said not to be.
"""

from __future__ import annotations

import http.client
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson

from benchmarks.asked import call, started, taught
from benchmarks.measured import Figure, figure, quantile, seconds
from predictors.contexts import Context
from predictors.joint.quantile_table import timings_of
from predictors.plans.chance import chances
from predictors.plans.graph import Plan, Stage, StageKind
from predictors.synthetic import runs
from service.derive import derive
from service.engine import Serving
from service.plan_questions import ChanceQuestion, Occasion, PlannedStage
from service.planning import ask_chances
from service.refit import founded_as_of
from telemetry.store.batch import Batch
from telemetry.store.file import Store

ROUNDS, PLANS, SCENARIOS = 5, 1_000, 256
REQUESTS, KNOWN = 20, 2_000


def run() -> list[Figure]:
    """The whole answer with its JSON and ledger row, and the arithmetic alone."""
    contexts, serving = _taught()
    stages = [_stages(contexts[place % len(contexts)], place) for place in range(PLANS)]
    questions = [ChanceQuestion(each, 3.0 + place / PLANS, 0.95, f"plan-{place}") for place, each in enumerate(stages)]
    occasion = Occasion("bench", tuple(f"answer-{place}" for place in range(PLANS)), 1, 7, 0.0, None)
    ask_chances(serving, questions, occasion)
    whole = [PLANS / seconds(lambda: ask_chances(serving, questions, occasion)) for _ in range(ROUNDS)]
    law = serving.model.predict([c for c in contexts for _ in range(2)], ["setup", "service"] * len(contexts))
    timings = timings_of(law)
    plans = [_plan(place, place % len(contexts)) for place in range(PLANS)]
    deadlines, levels = np.linspace(3.0, 4.0, PLANS), np.full(PLANS, 0.95)
    alone = [
        PLANS / seconds(lambda: chances(plans, timings, deadlines, levels, seed=7, most_scenarios=SCENARIOS))
        for _ in range(ROUNDS)
    ]
    return [
        figure("plans: chances at 256 scenarios", alone, "plans/s", "20,000"),
        figure("plans: chances refined where close, as JSON and ledger rows", whole, "plans/s"),
        *_over_http(),
    ]


def _over_http() -> list[Figure]:
    """A request of 1,000 plans, again and again with other attempts, so that nothing is drawn before it is asked."""
    with TemporaryDirectory() as folder:
        server = ("-m", "service.cli.main", "serve", "--port", "0", "--store", str(Path(folder) / "s.duckdb"))
        with started(*server) as netloc:
            line = http.client.HTTPConnection(netloc)
            contexts = taught(line, KNOWN)
            took_ms, verdicts = list[float](), Counter[str]()
            for number in range(REQUESTS):
                body = orjson.dumps({"plans": [_asked(contexts, number, place) for place in range(PLANS)], "seed": 7})
                began_s = time.perf_counter()
                told = call(line, "POST", "/v1/chance", body)
                took_ms.append((time.perf_counter() - began_s) * 1e3)
                verdicts.update(one["verdict"] for one in orjson.loads(told)["answers"])
    total = sum(verdicts.values())
    return [
        figure("plans: 1,000 over HTTP", took_ms, "ms", "100"),
        figure("plans: 1,000 over HTTP, 99 %", [quantile(took_ms, 0.99)], "ms"),
        *(figure(f"plans: share answered {verdict}", [n / total], "") for verdict, n in sorted(verdicts.items())),
    ]


def _asked(contexts: Sequence[dict[str, Any]], number: int, place: int) -> dict[str, Any]:
    """One plan as JSON, in a context that no other of its request has."""
    context = {**contexts[place % len(contexts)], "size_in": 16.0 + place}
    attempt = f"attempt-{number}-{place}"
    load = {"name": "load", "kind": "setup", "context": context, "attempt": attempt, "after": ["wait"]}
    compute = {"name": "compute", "kind": "service", "context": context, "attempt": attempt, "after": ["load"]}
    stages = [{"name": "wait", "kind": "wait", "planned_s": place / PLANS}, load, compute]
    return {"stages": stages, "deadline_s": 3.0 + place / PLANS, "level": 0.95}


def _taught() -> tuple[list[Context], Serving]:
    made = runs(300, seed=4)
    with TemporaryDirectory() as folder, Store.open(Path(folder) / "s.duckdb") as store:
        store.write(Batch(tuple(row for run in made for row in (run.attempt, *run.events))))
        with store.reader() as reader:
            derived = derive(reader, sorted(run.attempt.attempt_id for run in made), store.last_commit, store.last_commit)
        assert derived.batch is not None
        commit = store.write(derived.batch).commit
        with store.reader() as reader:
            model = founded_as_of(reader, commit)
    return list(dict.fromkeys(Context.of(run.attempt.model_dump()) for run in made)), Serving(model, "benchmark")


def _stages(context: Context, place: int) -> tuple[PlannedStage, ...]:
    name = f"attempt-{place}"
    wait = PlannedStage("wait", StageKind.WAIT, planned_s=place / PLANS)
    load = PlannedStage("load", StageKind.SETUP, ("wait",), None, context, "setup", name)
    return wait, load, load._replace(name="compute", kind=StageKind.SERVICE, after=("load",), phase="service")


def _plan(place: int, context: int) -> Plan:
    name = f"attempt-{place}"
    return Plan(
        (
            Stage("wait", StageKind.WAIT, (), place / PLANS),
            Stage("load", StageKind.SETUP, ("wait",), timing=2 * context, host="h", attempt=name, share=0.2),
            Stage("compute", StageKind.SERVICE, ("load",), timing=2 * context + 1, host="h", attempt=name, share=0.2, rho=0.3),
        ),
        f"plan-{place}",
    )
