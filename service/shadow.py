"""Shadow scoring at the edge: rows of the store to the scoreboard and back, and decisions on who answers as rows to commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import orjson

from calibrate.evidence.compare import on_grid
from calibrate.evidence.promotion import Action, in_office, news, overruled, recorded, withdrawn
from calibrate.evidence.shadow import Beside, Scoreboard, Standing, beside, scoreboard
from predictors.contexts import Context
from predictors.distribution import GRID
from predictors.model import Model
from predictors.scores import Interval
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

DEFAULT = "default"
"""Who answers while nobody was promoted."""
MOST_LATE = 100


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


def board_as_of(reader: Reader, commit: int, newest: int) -> Scoreboard:
    """The scoreboard of the newest forecasts known at a commit."""
    return scoreboard([_beside(row) for row in asof_verdicts.shadowed(reader, commit, newest).to_pylist()])


def report(reader: Reader, commit: int, newest: int) -> ShadowOut:
    """What `GET /v1/reports/shadow` and `phasecast shadow` tell."""
    board, changes = board_as_of(reader, commit, newest), asof_verdicts.promotions(reader, commit)
    return ShadowOut(
        as_of_commit=commit,
        in_office=in_office(changes, DEFAULT),
        standings=[_standing(one) for one in board.standings],
        late=[_late(row) for row in board.late[-MOST_LATE:]],
        late_count=len(board.late),
        promotions=[told(change) for change in changes],
    )


def rulings(reader: Reader, commit: int, newest: int, now_ns: int) -> tuple[Change, ...]:
    """What the rule decides now about challengers that could answer, as rows to commit; empty while nothing changes.

    Outside predictors are scored but can't be put in office: nobody here can ask them.
    """
    changes = asof_verdicts.promotions(reader, commit)
    made: list[Change] = []
    for one in board_as_of(reader, commit, newest).standings:
        if one.phase is None and one.made_beside and news([*changes, *made], one.predictor, one.ruling, DEFAULT):
            made.append(recorded(one.predictor, one.ruling, one.comparison.bounds, one.passed.get(0.9), uuid7(), now_ns))
    return tuple(made)


def decided(asked: PromotionIn, now_ns: int) -> Change:
    """An operator's decision as a row."""
    return overruled(asked.predictor, Action(asked.action), asked.operator, asked.reason, uuid7(), now_ns)


def ended(changes: Iterable[Change], change_id: str, reason: str, now_ns: int) -> Change:
    """The row that ends a decision. Raises UnknownId, BadField if it has ended."""
    found = next((change for change in changes if change.change_id == change_id), None)
    if found is None:
        raise UnknownId("change_id", change_id, "`phasecast shadow` and GET /v1/reports/shadow list the decisions")
    return withdrawn(found, reason, now_ns)


def told(change: Change) -> PromotionOut:
    """A decision on the wire."""
    return PromotionOut.model_validate(change.model_dump(include=set(PromotionOut.model_fields)))


def _beside(row: dict[str, Any]) -> Beside:
    """A row of `asof_verdicts.shadowed` as the scoreboard takes it."""
    return Beside(
        predictor=row["predictor"],
        attempt_id=row["attempt_id"],
        phase=row["phase"],
        host=row["host"] or "",
        run=row["run"],
        form=row["form"],
        quantiles_s=np.array(row["quantiles_s"]),
        received_ns=row["received_ns"],
        made_beside=row["beside"] is not None,
        after_event=row["after_event"],
        answered_ns=row["champion_ns"],
        answered_s=None if row["champion_s"] is None else np.array(row["champion_s"]),
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
