"""Who answers: a rule that promotes a challenger on evidence alone, an operator who may overrule it, and both on record.

The champion of today is beside every challenger on the same outcomes. A challenger is promoted once it is surely better in the
score at any look (`compare.Bounds`), and keeps the promise of its p90; the former champion then goes on as a challenger, so
that one promoted by luck is demoted by the same rule. What an operator decides stands until it is withdrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import orjson

from calibrate.evidence.compare import Bounds
from predictors.scores import Interval
from telemetry.errors import BadField
from telemetry.verdicts import Change

KIND = "promotion"
RULE = "rule"
"""`decided_by` of what no operator decided."""
PROMISED = 0.1
"""Share of outcomes that may pass a p90."""


class Action(StrEnum):
    """What becomes of a challenger: it answers from now on, answers no more, is left where it is, or is no longer asked."""

    PROMOTE = "promote"
    DEMOTE = "demote"
    HOLD = "hold"
    RETIRE = "retire"


@dataclass(frozen=True)
class Ruling:
    """What the rule says of a challenger, and why in words."""

    action: Action
    reason: str


def ruled(bounds: Bounds, passed: Interval | None) -> Ruling:
    """What the rule says, from the mean difference of scores and the share of outcomes that passed the challenger's p90.

    `passed` is None for a point, which promises nothing and so is never promoted.
    """
    if bounds.low is None or bounds.high is None:
        return Ruling(Action.HOLD, f"too little is known: {bounds.n} outcomes of {bounds.runs} runs")
    told = (
        f"{bounds.mean:+.4g} nats, {bounds.low:+.4g} to {bounds.high:+.4g} at any look, {bounds.n} outcomes of {bounds.runs} runs"
    )
    if bounds.high < 0.0:
        return Ruling(Action.RETIRE, f"surely worse: {told}")
    if bounds.low <= 0.0:
        return Ruling(Action.HOLD, f"not surely better: {told}")
    if passed is None:
        return Ruling(Action.HOLD, f"better, but a point promises nothing that could be kept: {told}")
    if passed.low > PROMISED:
        return Ruling(
            Action.HOLD, f"better, but {passed.estimate:.1%} of outcomes passed its p90 (at least {passed.low:.1%}): {told}"
        )
    return Ruling(Action.PROMOTE, f"surely better: {told}")


def recorded(predictor: str, ruling: Ruling, bounds: Bounds, passed: Interval | None, change_id: str, now_ns: int) -> Change:
    """The ruling as a row, with the numbers it was made from."""
    evidence = {"bounds": asdict(bounds), "passed_p90": asdict(passed) if passed else None}
    return _change(predictor, ruling, RULE, evidence, change_id, now_ns)


def overruled(predictor: str, action: Action, operator: str, reason: str, change_id: str, now_ns: int) -> Change:
    """What an operator decides, as a row. Raises BadField without a name and a reason: both are looked for later."""
    for field, text in (("operator", operator), ("reason", reason)):
        if not text.strip() or (field == "operator" and text == RULE):
            raise BadField(field, text, "say who decides, and why")
    return _change(predictor, Ruling(action, reason), operator, {}, change_id, now_ns)


def withdrawn(change: Change, reason: str, now_ns: int) -> Change:
    """The row of a decision that ends, to take its place."""
    if change.undone_ns is not None:
        raise BadField("change_id", change.change_id, f"it was withdrawn before: {change.undone_reason}")
    return change.model_copy(update={"undone_ns": now_ns, "undone_reason": reason})


def in_office(changes: Iterable[Change], default: str) -> str:
    """Who answers, given every standing row: the last promoted that was not demoted since, `default` where there is none."""
    return _line(_standing(changes), default)[-1]


def since_ns(changes: Sequence[Change], default: str) -> int:
    """When who is in office took it, UTC ns; 0 where nobody else ever had it. What was compared before is of another champion."""
    now, found = in_office(changes, default), 0
    for instant in sorted(
        {at for change in changes for at in (change.made_ns, change.undone_ns) if at is not None}, reverse=True
    ):
        if _line(_standing(changes, instant), default)[-1] == now:
            found = instant
        else:
            return found
    return found if now != default else 0


def asked(changes: Sequence[Change], challengers: Iterable[str], default: str) -> tuple[str, ...]:
    """Who answers beside the one in office: those named, and everybody who would take over if it had to go.

    Nobody who was retired since it took office is asked, but for the default: whoever was promoted by luck goes by its evidence.
    """
    standing, since = _standing(changes), since_ns(changes, default)
    line = _line(standing, default)
    names = dict.fromkeys([*challengers, *line])
    return tuple(name for name in names if name != line[-1] and (name == default or not _retired(standing, name, since)))


def may_rule(changes: Iterable[Change], predictor: str) -> bool:
    """Whether the rule may decide on this one: not while the last word of an operator on it stands."""
    return not any(change.subject == predictor and change.decided_by != RULE for change in _standing(changes))


def news(changes: Sequence[Change], predictor: str, ruling: Ruling, default: str) -> bool:
    """Whether a ruling changes anything and is to be recorded.

    Holding does not, nor does promoting who already answers. Whom an operator put in office stays until that is withdrawn.
    """
    office = in_office(changes, default)
    if ruling.action is Action.HOLD or predictor == office or not may_rule(changes, predictor):
        return False
    if ruling.action is Action.PROMOTE:
        return may_rule(changes, office)
    return predictor != default and not _retired(_standing(changes), predictor, since_ns(changes, default))


def _standing(changes: Iterable[Change], at_ns: int | None = None) -> list[Change]:
    """Decisions of promotion that stand (at an instant, UTC ns), in the order in which they were made."""
    found = [change for change in changes if change.kind == KIND and _stands(change, at_ns)]
    return sorted(found, key=lambda change: (change.made_ns, change.change_id))


def _stands(change: Change, at_ns: int | None) -> bool:
    if at_ns is None:
        return change.undone_ns is None
    return change.made_ns <= at_ns and (change.undone_ns is None or change.undone_ns > at_ns)


def _line(standing: Iterable[Change], default: str) -> list[str]:
    """Those promoted and not demoted since, the last of them in office; the default is under them all."""
    line = [default]
    for change in standing:
        if change.action != Action.HOLD:
            line = [name for place, name in enumerate(line) if place == 0 or name != change.subject]
        if change.action == Action.PROMOTE:
            line.append(change.subject)
    return line


def _retired(standing: Iterable[Change], predictor: str, since: int) -> bool:
    return any(c.subject == predictor and c.action == Action.RETIRE and c.made_ns > since for c in standing)


def _change(predictor: str, ruling: Ruling, decided_by: str, evidence: dict[str, Any], change_id: str, now_ns: int) -> Change:
    return Change(
        change_id=change_id,
        kind=KIND,
        subject=predictor,
        action=ruling.action.value,
        decided_by=decided_by,
        made_ns=now_ns,
        reason=ruling.reason,
        evidence=orjson.dumps(evidence).decode(),
    )
