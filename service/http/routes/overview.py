"""GET /v1/overview, /v1/running, /v1/contexts: how far the service has come, what runs now, what work was seen."""

from __future__ import annotations

import contextlib
import time

import orjson
from fastapi import APIRouter, Request

from service.answerers import file_of
from service.engine import Asking, Question, Serving, ask
from service.http.running import running
from service.lineup import Lineup
from service.readings import ContextsOut, OpenPhaseOut, OverviewOut, RunningOut, SeenContextOut
from service.schemas import ContextIn
from telemetry import asof
from telemetry.errors import BadField, UnknownId
from telemetry.words import Status

router = APIRouter(prefix="/v1", tags=["overview"])
REMAINING_LEVELS = (0.5, 0.9, 0.95)
MOST_ATTEMPTS = 50
RECENT_ATTEMPTS = 5_000
MOST_CONTEXTS = 200


@router.get("/overview", response_model=OverviewOut)
def get_overview(request: Request) -> OverviewOut:
    """Tell what is committed, what is learned of it, and which model answers; 200 also while nothing is known."""
    at = running(request)
    serving, commit = at.lineup.serving, at.store.last_commit
    with at.store.reader() as reader:
        file_id = file_of(serving.model_id) if serving else None
        fitted = next((row for row in asof.models(reader, commit) if row.model_id == file_id), None)
        committed_ns = asof.committed_ns(reader, commit)
        ended, quarantined = asof.count_ended(reader, commit), asof.count_quarantined(reader, commit)
    return OverviewOut(
        now_ns=time.time_ns(),
        ready=serving is not None,
        phases=list(serving.model.phases) if serving else [],
        last_commit=commit,
        last_commit_ns=committed_ns,
        learned_to=at.lineup.passed_to,
        as_of_commit=serving.model.commit if serving else None,
        ledger_pending=at.lineup.answers_pending,
        ended=ended,
        quarantined=quarantined,
        model_id=serving.model_id if serving else None,
        model_fitted_ns=fitted.fitted_ns if fitted else None,
        model_observations=fitted.n_observations if fitted else None,
    )


@router.get("/contexts", response_model=ContextsOut)
def get_contexts(request: Request) -> ContextsOut:
    """List the contexts of recent work, newest first."""
    at = running(request)
    with at.store.reader() as reader:
        found = asof.recent_contexts(reader, at.store.last_commit, RECENT_ATTEMPTS, MOST_CONTEXTS).to_pylist()
    seen = []
    for row in found:
        attempts = row.pop("attempts")
        seen.append(SeenContextOut(context=ContextIn.model_construct(**row), attempts=attempts))
    return ContextsOut(contexts=seen)


@router.get("/running", response_model=RunningOut)
def get_running(request: Request) -> RunningOut:
    """Tell what runs now and how much longer each phase will take; for people who watch, POST /v1/residual for decisions."""
    lineup = running(request).lineup
    active = lineup.running
    questions = [
        question
        for attempt_id in list(active)[: -MOST_ATTEMPTS - 1 : -1]
        for phase in active[attempt_id].phases
        if (question := _question(lineup, attempt_id, phase)) is not None
    ]
    return RunningOut(levels=list(REMAINING_LEVELS), attempts=len(active), phases=_phases(lineup.serving, questions))


def _question(lineup: Lineup, attempt_id: str, phase: str) -> Question | None:
    """The question about a phase; None if it has ended meanwhile."""
    with contextlib.suppress(UnknownId, BadField):
        return lineup.running_question(attempt_id, phase, None)
    return None


def _phases(serving: Serving | None, questions: list[Question]) -> list[OpenPhaseOut]:
    """Answer those whose phases are known; say of the others that nothing is."""
    known = [q for q in questions if serving is not None and serving.model.knows(q.phase)]
    asking = Asking(REMAINING_LEVELS, "", ("",) * len(known), time.time_ns())
    told = {id(q): orjson.loads(a.body) for q, a in zip(known, ask(serving, known, asking) if known else [], strict=True)}
    nothing = {"quantiles_s": None, "status": Status.SHADOW, "reasons": ["no_evidence"]}
    return [_phase(q, told.get(id(q), nothing)) for q in questions]


def _phase(question: Question, answer: dict[str, object]) -> OpenPhaseOut:
    """One line of the list."""
    return OpenPhaseOut.model_validate(
        {
            "attempt_id": question.attempt_id,
            "phase": question.phase,
            "context": question.context.known(),
            "elapsed_s": question.elapsed_s,
            "elapsed_source": question.elapsed_source,
            "remaining_s": answer["quantiles_s"],
            "status": answer["status"],
            "reasons": answer["reasons"],
        }
    )
