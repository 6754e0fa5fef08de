"""GET /v1/reports and its parts: whether what was answered came true, how sharp it was, what it rested on, what changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel

from service import reporting
from service.http.running import running
from service.report_page import POLICY, page
from service.report_schemas import CoverageOut, DriftOut, ReportOut, ReportQuery, SharpnessOut, SupportReportOut
from telemetry.asof_scored import Scores
from telemetry.store.reader import Reader

router = APIRouter(prefix="/v1/reports", tags=["reports"])
Asked = Annotated[ReportQuery, Query()]


@router.get("", response_model=ReportOut)
def get_report(request: Request, query: Asked) -> Response:
    """Give all reports, as of one commit."""
    return told(request, query, lambda reader, commit: reporting.report(reader, commit, query.newest))


@router.get("/page", include_in_schema=False)
def get_page(request: Request, query: Asked) -> Response:
    """Give all reports as one HTML file that asks nothing of anybody."""
    text = _kept(request, query, lambda reader, commit: page(reporting.report(reader, commit, query.newest)))
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'"})


@router.get("/coverage", response_model=CoverageOut)
def get_coverage(request: Request, query: Asked) -> Response:
    """Judge the newest answers: how often each level was passed, by stratum, over time, while running, and for plans."""
    return told(request, query, lambda reader, commit: reporting.coverage(Scores(reader, commit, query.newest)))


@router.get("/sharpness", response_model=SharpnessOut)
def get_sharpness(request: Request, query: Asked) -> Response:
    """Score the same answers beside simple forecasts: proper scores, widths, and how far median and mean were off."""
    return told(request, query, lambda reader, commit: reporting.sharpness(Scores(reader, commit, query.newest)))


@router.get("/support", response_model=SupportReportOut)
def get_support(request: Request, query: Asked) -> Response:
    """Tell what the newest answers rested on, whether or not their phases have begun."""
    return told(request, query, lambda reader, commit: reporting.support(Scores(reader, commit, query.newest)))


@router.get("/drift", response_model=DriftOut)
def get_drift(request: Request) -> Response:
    """List drift found and what followed, and what differs between the newest profiles of each host."""
    return told(request, None, reporting.drift)


def told(request: Request, query: BaseModel | None, report: Callable[[Reader, int], BaseModel]) -> Response:
    """A report as of the newest commit, as JSON."""
    text = _kept(request, query, lambda reader, commit: report(reader, commit).model_dump_json())
    return Response(text, media_type="application/json")


def _kept(request: Request, query: BaseModel | None, make: Callable[[Reader, int], str]) -> bytes:
    """What a call tells of the newest commit, made only where it was not asked before."""
    at = running(request)
    commit = at.store.last_commit

    def made() -> bytes:
        with at.store.reader() as reader:
            return make(reader, commit).encode()

    asked = query.model_dump_json() if query is not None else ""
    return at.kept.text(commit, (request.scope["route"].path, asked), made)
