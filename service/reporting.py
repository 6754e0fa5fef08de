"""Reports at the edge: figures of the store to wire models. The API, the command line and the page tell the same numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeVar

import numpy as np

from calibrate.evidence.coverage import LEVELS, Cell, cells, shares, worst
from calibrate.evidence.drift import Change as Drift
from calibrate.evidence.reactions import Action
from service import shadow
from service.hosting import changes_out, profiles_of
from service.report_schemas import (
    ChangeOut,
    CoverageOut,
    DriftOut,
    ElapsedOut,
    ExceededOut,
    PartOut,
    PitOut,
    PlaceOut,
    PlansOut,
    QueriesOut,
    ReasonOut,
    ReportOut,
    SharpnessOut,
    SharpOut,
    StratumOut,
    SupportedOut,
    SupportReportOut,
)
from telemetry import asof
from telemetry.asof_scored import BINS, STRATA, Scores
from telemetry.store.reader import Reader

MOST_SHADOWED = 20_000
PLACE = ("while_running", "phase", *STRATA)
OF_SUPPORT = frozenset({Drift.UNSEEN.value, Action.APART.value})
"""Changes that tell of what is asked about, not of how long it takes."""
P = TypeVar("P", bound=PlaceOut)


def report(reader: Reader, commit: int, newest: int) -> ReportOut:
    """All reports of one commit, from one pass over the answers."""
    scores = Scores(reader, commit, newest)
    return ReportOut(
        as_of_commit=commit,
        committed_ns=asof.committed_ns(reader, commit),
        newest=newest,
        coverage=coverage(scores),
        sharpness=sharpness(scores),
        support=support(scores),
        drift=drift(reader, commit),
        shadow=shadow.report(reader, commit, MOST_SHADOWED),
    )


def coverage(scores: Scores) -> CoverageOut:
    """How often each level was passed, stratum by stratum, over time, while running, and for plans."""
    found = cells(_columns(scores, "coverage"), PLACE)
    crps = {_key(row): row["crps_log"] for row in _rows(scores, "sharpness")}
    told = [(cell, _stratum(cell, crps)) for cell in sorted(found, key=lambda cell: -cell.gap)]
    strata, margins, pooled = _split([out for _, out in told])
    farthest = worst([cell for cell, out in told if out.phase is not None])
    return CoverageOut(
        as_of_commit=scores.commit,
        answers=sum(one.n for one in pooled),
        levels=list(LEVELS),
        worst=_in_words(farthest) if farthest else None,
        strata=strata,
        margins=margins,
        pooled=pooled,
        pit=_pit(_rows(scores, "pit")),
        over_time=[
            PartOut(asked=_asked(cell.place), **_named(cell, "phase", "part", "from_ns", "to_ns"), **_counted(cell))
            for cell in cells(_columns(scores, "over_time"), ("while_running", "phase", "part", "from_ns", "to_ns"))
        ],
        elapsed=[
            ElapsedOut(**_named(cell, "phase", "elapsed_from"), **_counted(cell))
            for cell in cells(_columns(scores, "elapsed"), ("phase", "elapsed_from"))
        ],
        plans=_plans(_rows(scores, "plans")),
        queries=_queries(scores, "coverage", "pit", "over_time", "elapsed", "plans"),
    )


def sharpness(scores: Scores) -> SharpnessOut:
    """Scores beside those of simple forecasts, widths and biases."""
    off = {_key(row): row["median_off"] for row in _rows(scores, "bias")}
    found = [_sharp(row, off[_key(row)]) for row in _rows(scores, "sharpness")]
    found.sort(key=lambda one: one.skill if one.skill is not None else -math.inf)
    strata, margins, pooled = _split(found)
    queries = _queries(scores, "sharpness", "bias")
    return SharpnessOut(
        as_of_commit=scores.commit, levels=list(LEVELS), strata=strata, margins=margins, pooled=pooled, queries=queries
    )


def support(scores: Scores) -> SupportReportOut:
    """What the newest answers rested on."""
    names = SupportedOut.model_fields.keys() - PlaceOut.model_fields.keys()
    found = [SupportedOut(**_place(row), **{name: row[name] for name in names}) for row in _rows(scores, "support")]
    found.sort(key=lambda one: one.median_n_eff)
    strata, margins, pooled = _split(found)
    return SupportReportOut(
        as_of_commit=scores.commit,
        strata=strata,
        margins=margins,
        pooled=pooled,
        reasons=[ReasonOut(**row) for row in _rows(scores, "reasons")],
        drift=[ChangeOut(**row) for row in _rows(scores, "drift") if row["action"] in OF_SUPPORT],
        queries=QueriesOut(setup=[], figures={name: scores.query(name) for name in ("support", "reasons", "drift")}),
    )


def drift(reader: Reader, commit: int) -> DriftOut:
    """Drift, what followed, and what differs in the newest profiles of hosts that were measured twice."""
    scores, profiles = Scores(reader, commit, newest=1), asof.profiles(reader, commit)
    mine = [profiles_of(profiles, host) for host in sorted({row.host for row in profiles})]
    return DriftOut(
        as_of_commit=commit,
        changes=[ChangeOut(**row) for row in _rows(scores, "drift")],
        profiles=[changes_out(rows, None, None) for rows in mine if len(rows) > 1],
        queries=QueriesOut(setup=[], figures={"drift": scores.query("drift")}),
    )


def _rows(scores: Scores, figure: str) -> list[dict[str, Any]]:
    return scores.figure(figure).to_pylist()  # type: ignore[no-any-return]


def _columns(scores: Scores, figure: str) -> dict[str, list[Any]]:
    return scores.figure(figure).to_pydict()  # type: ignore[no-any-return]


def _queries(scores: Scores, *figures: str) -> QueriesOut:
    return QueriesOut(setup=scores.setup, figures={name: scores.query(name) for name in figures})


def _asked(row: Mapping[str, Any]) -> Literal["at_start", "while_running"]:
    return "while_running" if row["while_running"] else "at_start"


def _place(row: Mapping[str, Any]) -> dict[str, Any]:
    """What the answers of a row have in common, as a PlaceOut has it."""
    return {"asked": _asked(row), **{name: row[name] for name in PLACE if name != "while_running"}}


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in PLACE)


def _split(found: Sequence[P]) -> tuple[list[P], list[P], list[P]]:
    """(phase by state and host; by one value or the phase alone; each kind of question pooled), each in the order given."""
    values = [sum(getattr(one, name) is not None for name in STRATA) for one in found]
    strata = [one for one, n in zip(found, values, strict=True) if n > 1]
    margins = [one for one, n in zip(found, values, strict=True) if n <= 1 and one.phase is not None]
    pooled = sorted((one for one in found if one.phase is None), key=lambda one: one.asked)
    return strata, margins, pooled


def _stratum(cell: Cell, crps: Mapping[tuple[Any, ...], float]) -> StratumOut:
    return StratumOut(**_place(cell.place), **_counted(cell), crps_log=crps.get(_key(cell.place)))


def _named(cell: Cell, *names: str) -> dict[str, Any]:
    return {name: cell.place[name] for name in names}


def _counted(cell: Cell) -> dict[str, Any]:
    """Counts of a cell on the wire."""
    return {
        "n": cell.n,
        "completed": cell.completed,
        "censored": cell.censored,
        "failed": cell.failed,
        "exceeded": [
            ExceededOut(
                level=one.level,
                nominal=round(one.nominal, 6),
                misses=one.misses,
                n=one.share.n,
                unresolved=one.unresolved,
                share=one.share.estimate,
                low=one.share.low,
                high=one.share.high,
                always_low=one.always.low,
                always_high=one.always.high,
                weighted=one.weighted,
                if_kept=one.if_kept,
                if_missed=one.if_missed,
                sure_low=one.sure_low,
                sure_high=one.sure_high,
                outside=one.gap > 0,
            )
            for one in cell.exceeded
        ],
    }


def _in_words(cell: Cell) -> str:
    """The stratum's name, and what is furthest off in it."""
    one, place = cell.farthest, cell.place
    names = sorted((name for name in STRATA if place[name] is not None), key=("state", "host", *STRATA).index)
    named = [f"{name.replace('_', ' ')} {place[name] or 'unknown'}" for name in names]
    asked = "asked while running" if place["while_running"] else "asked at the start"
    passed = f"p{one.level * 100:g} passed by {one.misses} of {one.share.n}, {one.nominal:.0%} promised"
    return f"{', '.join([place['phase'], *named])}, {asked}: {passed}"


def _pit(rows: Sequence[Mapping[str, Any]]) -> list[PitOut]:
    """One histogram per phase and kind of question; an empty bin weighs 0."""
    found: dict[tuple[bool, str], PitOut] = {}
    for row in rows:
        key = row["while_running"], row["phase"]
        one = found.setdefault(key, PitOut(asked=_asked(row), phase=row["phase"], n=0, weights=[0.0] * BINS))
        one.n += row["n"]
        one.weights[row["bin"]] = row["weight"]
    return list(found.values())


def _plans(rows: Sequence[Mapping[str, Any]]) -> list[PlansOut]:
    met, n = (np.array([row[name] for row in rows], dtype=np.int64) for name in ("met", "n"))
    low, high = shares(met, n)
    return [
        PlansOut(**row, share=row["met"] / row["n"], low=float(low[place]), high=float(high[place]))
        for place, row in enumerate(rows)
    ]


def _sharp(row: Mapping[str, Any], median_off: float) -> SharpOut:
    """Scores of one stratum on the wire."""
    whole, wide = row["crps_unconditional"], row["width_unconditional"]
    same = ("crps_log", "crps_unconditional", "crps_of_nine", "crps_beside_nine", "width_log", "mean_bias")
    return SharpOut(
        **_place(row),
        **{name: row[name] for name in same},
        completed=row["n_completed"],
        skill=1.0 - row["crps_log"] / whole if whole > 0 else None,
        pinball=[row[f"pinball_{round(100 * level)}"] for level in LEVELS],
        relative_width=row["width_log"] / wide if wide > 0 else None,
        median_bias=math.expm1(min(median_off, 100.0)),
    )
