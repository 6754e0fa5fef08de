"""Questions to answers: no HTTP, no store, no lock on the way. API, command line and replay all come through here.

An answer is a pure function of (model value, question, levels, ids, time), so that it can be given again to the byte.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import orjson

from calibrate.conformal.claims import needs_n
from predictors.changing import ContextChange, Course, course
from predictors.contexts import Context
from predictors.distribution import GRID, MEAN_LEVELS, Array, Distribution, Support
from predictors.model import Model
from service.plan_tables import Tables
from telemetry.errors import NoEvidence
from telemetry.ledger import Prediction
from telemetry.words import Status


@dataclass(frozen=True, slots=True)
class Question:
    """A phase of an attempt. With `elapsed_s`, the remaining time of one that runs; `elapsed_source` says whence it is known.

    With `horizon_s`, the causes of its end by then as well, counted from the phase's start. `changes` tell how the context of one
    that runs has changed since its start, at which it was `context`.
    """

    phase: str
    context: Context
    attempt_id: str | None = None
    elapsed_s: float | None = None
    elapsed_source: str | None = None
    horizon_s: float | None = None
    changes: tuple[ContextChange, ...] = ()


@dataclass(frozen=True, slots=True)
class Serving:
    """The model that answers now; replaced whole, never changed. `tables` keeps its laws that plans were made of lately."""

    model: Model
    model_id: str
    tables: Tables = field(default_factory=Tables, init=False, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Asking:
    """What a request adds to its questions: levels, identities, the time."""

    levels: tuple[float, ...]
    request_id: str
    prediction_ids: tuple[str, ...]
    made_ns: int


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer as JSON, and its ledger row (None where nothing was known to answer from)."""

    body: bytes
    row: Prediction | None


def ask(serving: Serving | None, questions: Sequence[Question], asking: Asking) -> list[Answered]:
    """Answer every question in order; NoEvidence if not one of them can be answered."""
    known = [serving is not None and serving.model.knows(q.phase) for q in questions]
    if serving is None or not any(known):
        phases = ", ".join(sorted({q.phase for q in questions}))
        raise NoEvidence("phase", phases, "no finished attempt of these phases is known; POST their events to /v1/events first")
    found = iter(_answered(serving, [q for q, k in zip(questions, known, strict=True) if k], asking, np.flatnonzero(known)))
    return [next(found) if k else _unknown(q, serving, asking) for q, k in zip(questions, known, strict=True)]


def _answered(serving: Serving, questions: list[Question], asking: Asking, places: Any) -> list[Answered]:
    """Answers of questions whose phases are known; `places` are their positions in the request."""
    model = serving.model
    contexts, phases = [q.context for q in questions], [q.phase for q in questions]
    whole = model.predict(contexts, phases)
    courses = {
        i: course(model.predict, q.context, q.phase, q.elapsed_s or 0.0, q.changes) for i, q in enumerate(questions) if q.changes
    }
    elapsed = np.array([courses[i].age_s if i in courses else q.elapsed_s or 0.0 for i, q in enumerate(questions)])
    complete = model.p_complete(contexts, phases, elapsed)
    # A law conditioned on age zero is not the whole law where there is an atom at zero, so the two kinds are read apart.
    aged = np.array([q.elapsed_s is not None for q in questions])
    plain = np.array([not q.changes for q in questions])
    read = _Reading.empty(len(questions), len(asking.levels))
    for pick, residual in ((np.flatnonzero(~aged & plain), False), (np.flatnonzero(aged & plain), True)):
        if pick.size:
            part = whole if pick.size == len(questions) else whole.take(pick)
            read.fill(pick, part.residual(elapsed[pick]) if residual else part, asking.levels)
    for i, found in courses.items():
        read.fill([i], found.remaining, asking.levels)
    ids = [asking.prediction_ids[place] for place in places]
    support = [at_birth.at_an_age() if late else at_birth for at_birth, late in zip(whole.support, aged, strict=True)]
    return [
        _render(serving, q, asking, ids[i], support[i], read.of(i), float(complete[i]), courses.get(i))
        for i, q in enumerate(questions)
    ]


@dataclass(frozen=True, slots=True)
class _Reading:
    """What is read off the distributions of a request, one row per question."""

    grid: Array
    asked: Array
    mean: Array
    horizon: Array
    backed_s: Array
    forms: list[str]

    @classmethod
    def empty(cls, n: int, n_levels: int) -> _Reading:
        return cls(np.empty((n, len(GRID))), np.empty((n, n_levels)), np.empty(n), np.empty(n), np.empty(n), ["conditional"] * n)

    def fill(self, rows: Any, dist: Distribution, levels: tuple[float, ...]) -> None:
        # All levels at once: the cost of a single question is in calls, not in levels. GRID ends at the horizon of the mean.
        same = np.concatenate([GRID, levels, MEAN_LEVELS])
        at = np.empty((dist.n_contexts, len(same) + 1))
        at[:, :-1] = same
        at[:, -1] = [s.backed_to for s in dist.support]
        read, last, end = dist.quantile(at), len(GRID), len(GRID) + len(levels)
        self.grid[rows], self.asked[rows], self.backed_s[rows] = read[:, :last], read[:, last:end], read[:, -1]
        self.horizon[rows] = read[:, last - 1]
        self.mean[rows] = np.minimum(read[:, end:-1], read[:, last - 1 : last]).mean(axis=1)
        for row, form in zip(rows, dist.forms, strict=True):
            self.forms[row] = form

    def of(self, i: int) -> dict[str, Any]:
        return {
            "grid": self.grid[i].tolist(),
            "asked": self.asked[i].tolist(),
            "mean": float(self.mean[i]),
            "horizon": float(self.horizon[i]),
            "backed_s": float(self.backed_s[i]),
            "form": self.forms[i],
        }


def judge(support: Support, elapsed_s: float | None, elapsed_source: str | None = None) -> tuple[Status, list[str]]:
    """Status of an answer and its reasons: nothing is `calibrated` before enough outcomes have checked answers like it.

    An age known by the newest event alone stands still until the next one: it is told, since the phase may be older.
    """
    reasons = [] if support.matched else ["unseen_configuration"]
    if elapsed_s is not None and elapsed_s >= support.largest_s:
        reasons.append("older_than_any_known")
    checked = support.checked
    status = Status.CALIBRATED if checked is not None and checked.enough else Status.THIN
    if reasons:
        status = Status.EXTRAPOLATED if support.matched else Status.SHADOW
    for found, word in ((support.changed, "after_drift"), (support.unfamiliar, "support_drift")):
        if found:
            status = Status.SHADOW
            reasons.append(word)
    if elapsed_source == "last_event":
        reasons.append("age_as_of_last_event")
    if checked is None:
        reasons.append("not_recalibrated")
    elif not checked.enough:
        reasons.append("too_few_outcomes")
    return status, reasons


def _told(support: Support, made_ns: int) -> dict[str, Any]:
    """The evidence as an answer made then gives it."""
    told = {name: getattr(support, name) for name in ("level", "n", "n_eff", "largest_s", "last_commit")}
    if support.checked is not None:
        told["checked"] = {name: getattr(support.checked, name) for name in ("level", "n", "enough")}
    if support.provenance is not None:
        told["provenance"] = support.provenance
        told["age_s"] = max(made_ns - support.newest_ns, 0) / 1e9 if support.newest_ns is not None else None
    return told


def beyond(levels: Sequence[float], support: Support, at_least_s: float) -> list[dict[str, Any]]:
    """Levels asked for above what so many outcomes can claim: p needs p / (1 - p) outcomes (rank ceil((n + 1) p) <= n)."""
    return [
        {
            "level": p,
            "at_least_s": at_least_s,
            "needs_n": max(1, needs_n(p) - support.n),
            "reason": "too_few_outcomes",
        }
        for p in levels
        if p > support.backed_to + 1e-12
    ]


def _causes(serving: Serving, q: Question, horizon_s: float, levels: tuple[float, ...]) -> dict[str, Any] | None:
    """Ends by cause up to the horizon; None where the fit in use was saved without them."""
    incidence = serving.model.incidence(q.context, q.phase)
    if incidence is None:
        return None
    at = np.array([horizon_s])
    completed, failed, cancelled = incidence.by(at)[:, 0].tolist()
    return {
        "horizon_s": horizon_s,
        "supported": horizon_s <= incidence.supported_to_s,
        "completed": completed,
        "failed": failed,
        "cancelled": cancelled,
        "running": float(incidence.survival(at)[0]),
        "completed_quantiles_s": incidence.quantile_given_completion(np.array(levels), horizon_s).tolist(),
        "ever_completed": list(incidence.ever()),
        "cancellation": [asdict(bound) for bound in incidence.cancellation_bound(horizon_s)],
    }


def _render(
    serving: Serving,
    q: Question,
    asking: Asking,
    prediction_id: str,
    support: Support,
    read: dict[str, Any],
    p_complete: float,
    changed: Course | None = None,
) -> Answered:
    """One answer as JSON and as a ledger row; the row keeps the hash of the JSON."""
    if changed is not None:
        support = changed.remaining.support[0].at_an_age()
    status, reasons = judge(support, q.elapsed_s if changed is None else changed.age_s, q.elapsed_source)
    answer = {
        "prediction_id": prediction_id,
        "attempt_id": q.attempt_id,
        "phase": q.phase,
        "elapsed_s": q.elapsed_s,
        "elapsed_source": q.elapsed_source,
        "form": read["form"],
        "status": status,
        "reasons": reasons,
        "levels": list(asking.levels),
        "quantiles_s": read["asked"],
        "mean_s": read["mean"],
        "horizon_s": read["horizon"],
        "p_complete": p_complete,
        "claimed_to": support.claimed_to,
        "controlled_at": support.controlled_at,
        "controlled_within": support.controlled_within,
        "beyond": beyond(asking.levels, support, read["backed_s"]),
        "support": _told(support, asking.made_ns),
        "model_id": serving.model_id,
        "as_of_commit": serving.model.commit,
        "made_ns": asking.made_ns,
        "needs": None,
    }
    if q.horizon_s is not None:
        answer["causes"] = _causes(serving, q, q.horizon_s, asking.levels)
    if changed is not None:
        answer["operational_age_s"], answer["pace"] = changed.age_s, changed.pace
    body = orjson.dumps(answer)
    # Every value was made here, so validating the row again would only cost the caller time.
    row = Prediction.model_construct(
        prediction_id=prediction_id,
        request_id=asking.request_id,
        attempt_id=q.attempt_id,
        phase=q.phase,
        made_ns=asking.made_ns,
        as_of_commit=serving.model.commit,
        model_id=serving.model_id,
        context=orjson.dumps(q.context.known()).decode(),
        path=list(q.context.path(q.phase)),
        elapsed_s=q.elapsed_s,
        elapsed_source=q.elapsed_source,
        horizon_asked_s=q.horizon_s,
        changes=orjson.dumps([change.record() for change in q.changes]).decode() if q.changes else None,
        form=read["form"],
        status=status.value,
        reasons=reasons,
        level=support.level,
        n=support.n,
        n_eff=support.n_eff,
        claimed_to=support.claimed_to,
        p_complete=p_complete,
        mean_s=read["mean"],
        horizon_s=read["horizon"],
        levels=list(asking.levels),
        quantiles_s=read["grid"],
        answer_sha256=hashlib.sha256(body).hexdigest(),
    )
    return Answered(body, row)


def _unknown(q: Question, serving: Serving, asking: Asking) -> Answered:
    """Say that nothing is known of this phase, and what would change that."""
    answer = {
        "prediction_id": None,
        "attempt_id": q.attempt_id,
        "phase": q.phase,
        "elapsed_s": q.elapsed_s,
        "elapsed_source": q.elapsed_source,
        "form": "conditional",
        "status": Status.SHADOW,
        "reasons": ["no_evidence"],
        "levels": list(asking.levels),
        "quantiles_s": None,
        "mean_s": None,
        "horizon_s": None,
        "p_complete": None,
        "claimed_to": 0.0,
        "beyond": [],
        "support": None,
        "model_id": serving.model_id,
        "as_of_commit": serving.model.commit,
        "made_ns": asking.made_ns,
        "needs": f"no finished {q.phase} is known; POST the events of at least one to /v1/events",
    }
    return Answered(orjson.dumps(answer), None)
