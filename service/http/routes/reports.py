"""GET /v1/reports/coverage: whether what was answered came true."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import orjson
import pyarrow as pa
from fastapi import APIRouter, Query, Request

from calibrate.evidence.coverage import LEVELS, Cell, Exceeded, Judged, Stratum, coverage
from predictors.distribution import GRID
from service.http.running import running
from service.readings import CoverageOut, CoverageQuery, ExceededOut, StratumOut
from telemetry import asof
from telemetry.words import Ended

router = APIRouter(prefix="/v1/reports", tags=["reports"])


@router.get("/coverage", response_model=CoverageOut)
def get_coverage(request: Request, query: Annotated[CoverageQuery, Query()]) -> CoverageOut:
    """Judge the newest answers per phase, state and host: how often each level was passed, with exact intervals, worst first."""
    store = running(request).store
    commit = store.last_commit
    with store.reader() as reader:
        rows = asof.judged(reader, commit, query.newest)
    found = coverage(judged(rows))
    return CoverageOut(
        as_of_commit=commit,
        answers=len(rows),
        levels=list(LEVELS),
        worst=_in_words(found.worst) if found.worst else None,
        strata=[_stratum(cell) for cell in found.cells],
        pooled=[_stratum(cell) for cell in found.pooled],
    )


def judged(rows: pa.Table) -> Judged:
    """Rows of `asof.judged` as the arrays coverage is computed from."""
    contexts = [orjson.loads(text) for text in rows["context"].to_pylist()]
    asked = zip(rows["elapsed_s"].to_pylist(), rows["phase"].to_pylist(), contexts, strict=True)
    return Judged(
        strata=[Stratum(old is not None, phase, c.get("state", ""), c.get("host", "")) for old, phase, c in asked],
        quantiles_s=rows["quantiles_s"].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(-1, len(GRID)),
        actual_s=np.asarray(rows["actual_s"].to_numpy(), dtype=np.float64),
        ended=[Ended(word) for word in rows["ended"].to_pylist()],
    )


def _stratum(cell: Cell) -> StratumOut:
    """A cell on the wire."""
    return StratumOut(
        asked="while_running" if cell.stratum.while_running else "at_start",
        phase=cell.stratum.phase,
        state=cell.stratum.state,
        host=cell.stratum.host,
        n=cell.n,
        completed=cell.completed,
        censored=cell.censored,
        failed=cell.failed,
        exceeded=[_exceeded(one) for one in cell.exceeded],
        crps_log=cell.crps_log,
    )


def _exceeded(one: Exceeded) -> ExceededOut:
    """A level on the wire."""
    return ExceededOut(
        level=one.level,
        nominal=round(one.nominal, 6),
        misses=one.misses,
        n=one.share.n,
        unresolved=one.unresolved,
        share=one.share.estimate,
        low=one.share.low,
        high=one.share.high,
        weighted=one.weighted,
        outside=one.gap > 0,
    )


def _in_words(cell: Cell) -> str:
    """The stratum's name, and what is furthest off in it."""
    one = max(cell.exceeded, key=lambda level: level.gap)
    place = f"{cell.stratum.phase}, state {cell.stratum.state or 'unknown'}, host {cell.stratum.host or 'unknown'}"
    asked = "asked while running" if cell.stratum.while_running else "asked at the start"
    passed = f"p{one.level * 100:g} passed by {one.misses} of {one.share.n}, {one.nominal:.0%} promised"
    return f"{place}, {asked}: {passed}"
