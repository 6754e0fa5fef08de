"""GET /healthz, /readyz, /metrics, /v1/snapshot: is it alive, can it answer, how does it fare, and a copy of the store."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, PlainTextResponse, Response
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool

from service.http.metrics import MEDIA_TYPE
from service.http.running import Running, running
from service.schemas import ReadyOut

router = APIRouter(tags=["operation"])
SETTLE_S = 10.0
"""A copy waits so long at most for answers given to be in the store: where its disk is full, what there is is still to be had."""


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Tell that the process answers."""
    return {"status": "alive"}


@router.get("/readyz", response_model=ReadyOut)
async def readyz(request: Request) -> ReadyOut | Response:
    """Tell whether questions can be answered: 503 until something has been learned, and once the store's file is gone."""
    told = readiness(running(request))
    return told if told.ready else Response(told.model_dump_json(), 503, media_type="application/json")


def readiness(at: Running) -> ReadyOut:
    """How the process that owns the store stands."""
    serving = at.lineup.serving
    opened = at.store.opened
    lost = at.store.trouble
    return ReadyOut(
        ready=serving is not None and lost is None,
        model_id=serving.model_id if serving else None,
        phases=list(serving.model.phases) if serving else [],
        last_commit=at.store.last_commit,
        learned_to=at.lineup.passed_to,
        ledger_pending=at.lineup.answers_pending,
        trouble=lost or at.lineup.trouble,
        share_calibrated=at.metrics.share_calibrated,
        opened={"created": opened.created, "migrated_from": opened.migrated_from, "lost_commits": opened.lost_commits},
    )


@router.get("/metrics", response_class=PlainTextResponse)
def metrics(request: Request) -> Response:
    """Give counts, times and state in the text format of Prometheus."""
    return Response(running(request).metrics.text(), headers={"Content-Type": MEDIA_TYPE})


def copies_prefix(store: Path) -> str:
    """How the folders of copies on their way out begin: beside the store, so that disk and file system are its own."""
    return f".{store.name}.snapshot-"


def sweep_copies(store: Path) -> None:
    """Remove copies that a killed server left half sent."""
    for folder in store.parent.glob(f"{copies_prefix(store)}*"):
        shutil.rmtree(folder, ignore_errors=True)


@router.get("/v1/snapshot", response_class=FileResponse)
async def snapshot(request: Request) -> FileResponse:
    """Give a copy of the store, consistent at a commit, that any DuckDB client opens.

    All answers given by now are in it, unless they could not be written within 10 s.
    """
    at = running(request)
    store = at.store
    folder = Path(mkdtemp(prefix=copies_prefix(store.path), dir=store.path.parent))
    copy = folder / "snapshot.duckdb"

    def forget() -> None:
        copy.unlink(missing_ok=True)
        folder.rmdir()

    try:
        await run_in_threadpool(at.lineup.settle, SETTLE_S)
        commit = await run_in_threadpool(store.snapshot, copy)
    except BaseException:
        forget()
        raise
    headers = {"X-Phasecast-Commit": str(commit)}
    return FileResponse(copy, media_type="application/vnd.duckdb", headers=headers, background=BackgroundTask(forget))
