"""What another policy would have met: logged decisions of the store, evaluated and told."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from calibrate.explore.decided import Decided, always, least_expected, log_of
from calibrate.explore.offpolicy import NOT_COVERED, Limits, evaluate
from predictors.scores import Interval
from service.shadow_schemas import IntervalOut, PolicyOut, PolicyQuery
from telemetry import asof_verdicts
from telemetry.decisions import listed
from telemetry.store.reader import Reader
from telemetry.words import Ended


def report(reader: Reader, commit: int, asked: PolicyQuery) -> PolicyOut:
    """Judge a policy as of a commit."""
    decided = decided_as_of(reader, commit, asked.phase, asked.newest)
    if not decided:
        return _nothing(commit)
    log = log_of(decided, least_expected if asked.always is None else always(asked.always), asked.within_s)
    found = evaluate(log)
    return PolicyOut(
        as_of_commit=commit,
        doubly_robust=_told(found.doubly_robust),
        self_normalised=_told(found.self_normalised),
        ips=_told(found.ips),
        logged_mean_s=float(log.outcome[log.seen].mean()) if log.seen.any() else None,
        refused=list(found.refused),
        decisions=found.decisions,
        seen=found.seen,
        runs=found.runs,
        effective=found.effective,
        largest_weight=found.largest_weight,
        cut_at=found.limits.largest_weight,
        cut=found.cut,
        cut_mass=found.cut_mass,
        unlogged=found.unlogged,
        not_covered=found.not_covered,
    )


def decided_as_of(reader: Reader, commit: int, phase: str, newest: int) -> list[Decided]:
    """Decisions of the store with their outcomes and the answers they used."""
    rows = asof_verdicts.decided(reader, commit, phase, newest).to_pylist()
    alternatives = [listed(row["alternatives"]) for row in rows]
    ids = sorted({one["prediction_id"] for told in alternatives for one in told if one.get("prediction_id")})
    answers = {name: np.array(values) for name, values in asof_verdicts.answers(reader, ids, commit).items()}
    return [
        Decided(
            decision_id=row["decision_id"],
            run=row["run"],
            choice=row["choice"],
            alternatives=told,
            duration_s=row["duration_s"],
            ended=Ended(row["ended"]) if row["ended"] else None,
            answers=answers,
        )
        for row, told in zip(rows, alternatives, strict=True)
    ]


def _nothing(commit: int) -> PolicyOut:
    """What is told before anything was decided."""
    return PolicyOut(
        as_of_commit=commit,
        doubly_robust=None,
        self_normalised=None,
        ips=None,
        logged_mean_s=None,
        refused=["nothing is logged: POST /v1/decisions, and name the decision in the attempts that follow it"],
        decisions=0,
        seen=0,
        runs=0,
        effective=0.0,
        largest_weight=0.0,
        cut_at=Limits().largest_weight,
        cut=0.0,
        cut_mass=0.0,
        unlogged=0.0,
        not_covered=NOT_COVERED,
    )


def _told(found: Interval | None) -> IntervalOut | None:
    return None if found is None else IntervalOut(**asdict(found))
