"""Shadow scoring at the edge: rows of the store to the scoreboard and back, and decisions on who answers as rows to commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import orjson
import pyarrow as pa

from calibrate.evidence.compare import on_grid
from calibrate.evidence.promotion import Action, in_office, news, overruled, recorded, since_ns, withdrawn
from calibrate.evidence.shadow import Beside, Scoreboard, Standing, beside, scoreboard
from predictors.contexts import Context
from predictors.distribution import GRID, Array
from predictors.model import Model
from predictors.scores import Interval
from service.answerers import DEFAULT, known, who
from service.shadow_schemas import (
    IntervalOut,
    LateOut,
    PassedOut,
    PromotionIn,
    PromotionOut,
    ShadowForecastIn,
    ShadowOut,
    StandingOut,
)
from telemetry import asof_verdicts
from telemetry.errors import UnknownId
from telemetry.ledger import Prediction
from telemetry.recorder.ids import uuid7
from telemetry.store.reader import Reader
from telemetry.verdicts import Change, ShadowForecast
from telemetry.words import Ended

MOST_LATE = 100
TRIAL = 20_000
"""Forecasts of challengers that one trial holds: the rule's bounds hold from a trial's first row on, and then begin anew."""


def row_of(sent: ShadowForecastIn) -> ShadowForecast:
    """The row of an outside forecast. Raises BadField for one that makes no sense, such as quantiles that cross."""
    form, sent_s = sent.sent()
    levels = sent.levels or []
    return ShadowForecast(
        predictor=sent.predictor,
        attempt_id=sent.attempt_id,
        phase=sent.phase,
        form=form,
        levels=levels,
        sent_s=sent_s,
        quantiles_s=on_grid(form, sent_s, levels).tolist(),
    )


def challenged(challengers: Mapping[str, Model], served: Sequence[Prediction]) -> list[ShadowForecast]:
    """What challengers, by name, answer to questions that were served: rows to commit, for use after the replies are sent.

    Only whole lengths of named attempts have an outcome to be scored by, and each is asked once. A challenger that has learned
    past the commit of the answer it is compared with is left out: it could have known more.
    """
    asked: dict[tuple[str, str], Prediction] = {}
    for row in served:
        if row.attempt_id is not None and row.elapsed_s is None:
            asked.setdefault((row.attempt_id, row.phase), row)
    found: list[ShadowForecast] = []
    for name, model in challengers.items():
        rows = [row for row in asked.values() if model.commit <= row.as_of_commit and model.knows(row.phase)]
        if rows:
            contexts = [Context.of(orjson.loads(row.context)) for row in rows]
            quantiles_s = model.predict(contexts, [row.phase for row in rows]).quantile(GRID)
            found += [beside(row, name, quantiles) for row, quantiles in zip(rows, quantiles_s, strict=True)]
    return found


def board_as_of(reader: Reader, commit: int, newest: int, since: int = 0, office: str | None = None) -> Scoreboard:
    """The scoreboard of the newest forecasts known at a commit that were received after `since`, UTC ns.

    With `office`, of those alone that are beside its answers, or beside none.
    """
    table = asof_verdicts.shadowed(reader, commit, newest, since)
    own, served = _arrays(table["quantiles_s"]), _arrays(table["champion_s"])
    rows = zip(table.drop_columns(["quantiles_s", "champion_s"]).to_pylist(), own, served, strict=True)
    return scoreboard([_beside(row, mine, theirs) for row, mine, theirs in rows if office is None or _faced(row, office)])


def _arrays(column: pa.ChunkedArray) -> list[Array | None]:
    """Lists of numbers as arrays, None for null; never as numbers one by one, of which there would be millions."""
    found: list[Array | None] = []
    for chunk in column.chunks:
        values, ends = chunk.values.to_numpy(), chunk.offsets.to_numpy()
        known = chunk.is_valid().to_numpy(zero_copy_only=False)
        found += [values[ends[i] : ends[i + 1]] if known[i] else None for i in range(len(chunk))]
    return found


def _faced(row: dict[str, Any], office: str) -> bool:
    return row["champion_model"] is None or who(row["champion_model"]) == office


def report(reader: Reader, commit: int, newest: int) -> ShadowOut:
    """What `GET /v1/reports/shadow` and `phasecast shadow` tell: of forecasts beside the one in office, since it took office."""
    changes = asof_verdicts.promotions(reader, commit)
    office, since = in_office(changes, DEFAULT), since_ns(changes, DEFAULT)
    board = board_as_of(reader, commit, newest, since, office)
    return ShadowOut(
        as_of_commit=commit,
        in_office=office,
        in_office_since_ns=since or None,
        standings=[_standing(one) for one in board.standings],
        late=[_late(row) for row in board.late[-MOST_LATE:]],
        late_count=len(board.late),
        promotions=[told(change) for change in changes],
    )


def rulings(reader: Reader, commit: int, now_ns: int) -> tuple[Change, ...]:
    """What the rule decides now about challengers that could answer, as rows to commit; empty while nothing changes.

    Outside predictors are scored but can't be put in office: nobody here can ask them. One promotion ends the trial: all else
    was compared with a champion of yesterday. Of several surely better, the one that is so by most answers.
    """
    changes = asof_verdicts.promotions(reader, commit)
    since = asof_verdicts.trial_ns(reader, commit, since_ns(changes, DEFAULT), TRIAL)
    board = board_as_of(reader, commit, TRIAL, since, in_office(changes, DEFAULT))
    found = [
        one
        for one in board.standings
        if one.phase is None and one.made_beside and news(changes, one.predictor, one.ruling, DEFAULT)
    ]
    better = [one for one in found if one.ruling.action is Action.PROMOTE]
    if better:
        found = [max(better, key=lambda one: one.comparison.bounds.low or 0.0)]
    return tuple(
        recorded(one.predictor, one.ruling, one.comparison.bounds, one.passed.get(0.9), uuid7(), now_ns) for one in found
    )


def decided(asked: PromotionIn, now_ns: int) -> Change:
    """An operator's decision as a row. Raises BadField where somebody is to answer whom nobody here can ask."""
    action = Action(asked.action)
    if action is Action.PROMOTE:
        known(asked.predictor)
    return overruled(asked.predictor, action, asked.operator, asked.reason, uuid7(), now_ns)


def ended(changes: Iterable[Change], change_id: str, reason: str, now_ns: int) -> Change:
    """The row that ends a decision. Raises UnknownId, BadField if it has ended."""
    found = next((change for change in changes if change.change_id == change_id), None)
    if found is None:
        raise UnknownId("change_id", change_id, "`phasecast shadow` and GET /v1/reports/shadow list the decisions")
    return withdrawn(found, reason, now_ns)


def told(change: Change) -> PromotionOut:
    """A decision on the wire."""
    return PromotionOut.model_validate(change.model_dump(include=set(PromotionOut.model_fields)))


def _beside(row: dict[str, Any], own_s: Array | None, served_s: Array | None) -> Beside:
    """A row of `asof_verdicts.shadowed` as the scoreboard takes it, with the quantiles of both sides, s."""
    assert own_s is not None
    return Beside(
        predictor=row["predictor"],
        attempt_id=row["attempt_id"],
        phase=row["phase"],
        host=row["host"] or "",
        run=row["run"],
        form=row["form"],
        quantiles_s=own_s,
        received_ns=row["received_ns"],
        made_beside=row["beside"] is not None,
        after_event=row["after_event"],
        answered_ns=row["champion_ns"],
        answered_s=served_s,
        duration_s=row["duration_s"],
        ended=None if row["ended"] is None else Ended(row["ended"]),
    )


def _standing(one: Standing) -> StandingOut:
    """A standing on the wire."""
    found = one.comparison
    return StandingOut(
        predictor=one.predictor,
        phase=one.phase,
        source="challenger" if one.made_beside else "outside",
        counts={place.value: count for place, count in one.counts.items()},
        runs=found.runs,
        champion_crps_log=found.champion,
        predictor_crps_log=found.challenger,
        ratio=_interval(found.ratio),
        difference=_interval(found.difference),
        at_any_look_low=found.bounds.low,
        at_any_look_high=found.bounds.high,
        wins=found.wins,
        ties=found.ties,
        losses=found.losses,
        worst_attempt=one.worst_attempt,
        passed=[PassedOut(level=level, share=IntervalOut(**asdict(share))) for level, share in one.passed.items()],
        action=one.ruling.action.value,
        reason=one.ruling.reason,
    )


def _interval(found: Interval | None) -> IntervalOut | None:
    return None if found is None else IntervalOut(**asdict(found))


def _late(row: Beside) -> LateOut:
    """A forecast that came too late, on the wire."""
    return LateOut.model_validate(
        {
            "predictor": row.predictor,
            "attempt_id": row.attempt_id,
            "phase": row.phase,
            "received_ns": row.received_ns,
            "answered_ns": row.answered_ns,
            "why": row.place.value,
        }
    )
