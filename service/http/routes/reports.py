"""GET /v1/reports and its parts: whether what was answered came true, how sharp it was, what it rested on, what changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from service import reporting
from service.http.running import running
from service.report_page import POLICY, page
from service.report_schemas import CoverageOut, DriftOut, ReportOut, ReportQuery, SharpnessOut, SupportReportOut
from telemetry.asof_scored import Scores
from telemetry.store.reader import Reader

router = APIRouter(prefix="/v1/reports", tags=["reports"])
Asked = Annotated[ReportQuery, Query()]


@router.get("", response_model=ReportOut)
def get_report(request: Request, query: Asked) -> ReportOut:
    """Give all reports, as of one commit."""
    with _reading(request) as (reader, commit):
        return reporting.report(reader, commit, query.newest)


@router.get("/page", include_in_schema=False)
def get_page(request: Request, query: Asked) -> Response:
    """Give all reports as one HTML file that asks nothing of anybody."""
    with _reading(request) as (reader, commit):
        text = page(reporting.report(reader, commit, query.newest))
    return Response(text, media_type="text/html", headers={"Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'"})


@router.get("/coverage", response_model=CoverageOut)
def get_coverage(request: Request, query: Asked) -> CoverageOut:
    """Judge the newest answers: how often each level was passed, by stratum, over time, while running, and for plans."""
    with _reading(request) as (reader, commit):
        return reporting.coverage(Scores(reader, commit, query.newest))


@router.get("/sharpness", response_model=SharpnessOut)
def get_sharpness(request: Request, query: Asked) -> SharpnessOut:
    """Score the same answers beside simple forecasts: proper scores, widths, and how far median and mean were off."""
    with _reading(request) as (reader, commit):
        return reporting.sharpness(Scores(reader, commit, query.newest))


@router.get("/support", response_model=SupportReportOut)
def get_support(request: Request, query: Asked) -> SupportReportOut:
    """Tell what the newest answers rested on, whether or not their phases have begun."""
    with _reading(request) as (reader, commit):
        return reporting.support(Scores(reader, commit, query.newest))


@router.get("/drift", response_model=DriftOut)
def get_drift(request: Request) -> DriftOut:
    """List drift found and what followed, and what differs between the newest profiles of each host."""
    with _reading(request) as (reader, commit):
        return reporting.drift(reader, commit)


@contextmanager
def _reading(request: Request) -> Iterator[tuple[Reader, int]]:
    """A reader and the newest commit."""
    store = running(request).store
    commit = store.last_commit
    with store.reader() as reader:
        yield reader, commit
