"""What follows an alarm, as values with a reason, and the rule by which each is undone.

Pure: whoever keeps the standing reactions shows them the answers given since, and asks which may end. What was found and done is
kept as notes, of which the store makes rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from calibrate.evidence.drift import Alarm, Change, Watch
from predictors.scores import binomial_interval


class Action(StrEnum):
    """What is done: spread answers, discount the past, answer from the parent, keep answers out of decisions, or those apart."""

    WIDEN = "widen"
    SHORTEN = "shorten_memory"
    PARENT = "use_parent"
    SHADOW = "shadow_only"
    APART = "shadow_unseen"


LEVEL = 0.9
"""The advertised level by whose misses a reaction is undone."""
AMOUNT = {Action.WIDEN: 1.5, Action.SHORTEN: 0.5, Action.PARENT: 1.0, Action.SHADOW: 1.0, Action.APART: 1.0}
"""WIDEN: factor on the log distance from the median. SHORTEN: weight of what was known before. Others: 1 is all."""
NEEDED = {Action.WIDEN: 60, Action.SHORTEN: 400, Action.PARENT: 60, Action.SHADOW: 100, Action.APART: 100}
"""Outcomes of answers given since, before a reaction may end. The past counts as discounted until the present outweighs it."""
QUIET = 0.1
"""Share of an alarm's threshold below which the evidence since the last alarm counts as quiet."""

FEW, SUSPECT = 10, 0.2
"""Answers since, and the share of them that passed their LEVEL, from which it is asked whether answers are to be widened."""


@dataclass(frozen=True, slots=True)
class Reaction:
    """What is done at a node. One stands per node and action; a new one takes the place of the old.

    `amount` as in AMOUNT; `since_ns` is the start from which the change reaches, `began` the commit at which the reaction did.
    `outcomes` and `misses` count resolved answers given since, and those of them that passed their LEVEL; `spoken` and
    `spoken_misses` only those that speak for all asked at their instant, for rows of one slow run pass together.
    """

    node: str
    action: Action
    amount: float
    since_ns: int
    began: int
    reason: str
    outcomes: int = 0
    misses: int = 0
    spoken: int = 0
    spoken_misses: int = 0

    def after(self, *, missed: bool, speaks: bool = True) -> Reaction:
        """With one more answer given since, resolved at LEVEL."""
        spoken, passed = self.spoken + speaks, self.spoken_misses + (speaks and missed)
        return replace(self, outcomes=self.outcomes + 1, misses=self.misses + missed, spoken=spoken, spoken_misses=passed)


@dataclass(frozen=True, slots=True)
class Note:
    """Drift that was found or a reaction that began at commit `began`, and why; of one that was undone, when (0: stands) and why.

    `evidence` holds the numbers behind it, as JSON.
    """

    kind: str
    node: str
    action: str
    began: int
    reason: str
    evidence: str
    ended: int = 0
    ended_reason: str = ""

    @classmethod
    def drift(cls, node: str, alarm: Alarm, began: int, told: Mapping[str, Any]) -> Note:
        """A change that was found; `told` says of what."""
        numbers = {
            "since_ns": alarm.since_ns,
            "outcomes": alarm.outcomes,
            "evidence": round(alarm.evidence, 3),
            "threshold": alarm.threshold,
        }
        return cls("drift", node, alarm.change.value, began, _reason(alarm), json.dumps({**told, **numbers}))

    @classmethod
    def of(cls, reaction: Reaction) -> Note:
        """A reaction that begins."""
        numbers = {"amount": reaction.amount, "since_ns": reaction.since_ns, "needs_outcomes": NEEDED[reaction.action]}
        return cls("reaction", reaction.node, reaction.action.value, reaction.began, reaction.reason, json.dumps(numbers))

    @property
    def stands(self) -> bool:
        """Whether a reaction is in force."""
        return self.kind == "reaction" and not self.ended

    def same(self, other: Note) -> bool:
        """Whether both tell of one thing."""
        mine, its = ((one.kind, one.node, one.action, one.began) for one in (self, other))
        return mine == its

    def undone_at(self, commit: int, why: str) -> Note:
        """The reaction undone at a commit."""
        return replace(self, ended=commit, ended_reason=why)


def follow(node: str, alarm: Alarm, began: int, *, again: bool = False) -> tuple[Reaction, ...]:
    """Reactions to an alarm: the past is discounted, and answers are not for decisions until later ones have come true.

    Durations that only became less spread out keep every promise. What is new says nothing against what is known of the rest: it
    alone stays out of decisions. Where durations change `again` while reactions stand, to change is
    their nature: the past is kept, and the wider parent, which has seen such changes, says how true answers are.
    """
    actions: tuple[Action, ...]
    if alarm.change is Change.UNSEEN:
        actions = (Action.APART,)
    elif again:
        actions = (Action.PARENT, Action.SHADOW)
    else:
        actions = (Action.SHORTEN,) if alarm.change is Change.NARROWER else (Action.SHORTEN, Action.SHADOW)
    return tuple(Reaction(node, action, AMOUNT[action], alarm.since_ns, began, _reason(alarm)) for action in actions)


def _reason(alarm: Alarm) -> str:
    if alarm.change is Change.UNSEEN:
        return (
            f"values or shapes never seen came more often over the last {alarm.outcomes} that began "
            f"(evidence {alarm.evidence:.3g}, threshold {alarm.threshold:.3g})"
        )
    return (
        f"log times became {alarm.change.value} over the last {alarm.outcomes} outcomes "
        f"(evidence {alarm.evidence:.3g}, threshold {alarm.threshold:.3g})"
    )


def widening(shadow: Reaction, began: int) -> Reaction | None:
    """Wider answers where those given since a change are passed too often: the exact 95 % interval lies above 1 - LEVEL.

    Experts follow most changes faster than they are found, so that to widen at once would be to answer too wide for long. What
    lies outside the record has nodes of its own, which learn how wide answers to the new must be. Of rows asked at one instant
    one counts.
    """
    n, misses = shadow.spoken, shadow.spoken_misses
    if shadow.action is not Action.SHADOW or n < FEW or misses <= SUSPECT * n:
        return None
    share = binomial_interval(misses, n)
    if share.low <= 1.0 - LEVEL:
        return None
    reason = f"{misses} of {n} answers since a change passed their p{100 * LEVEL:.0f}"
    return Reaction(shadow.node, Action.WIDEN, AMOUNT[Action.WIDEN], shadow.since_ns, began, reason)


def undone(reaction: Reaction, watch: Watch, threshold: float) -> str | None:
    """Why a reaction may end, or None while it must stand; `watch` is the node's since its last alarm.

    Enough outcomes, quiet evidence, and no more misses than promised: the exact 95 % interval of their share reaches down to
    1 - LEVEL. Fewer misses are no reason to stay: widened answers have few.
    """
    needed = NEEDED[reaction.action]
    if min(reaction.outcomes, watch.n) < needed or watch.evidence >= QUIET * threshold:
        return None
    share = binomial_interval(reaction.misses, reaction.outcomes)
    if share.low > 1.0 - LEVEL:
        return None
    return (
        f"quiet for {watch.n} outcomes (evidence {watch.evidence:.3g}); {reaction.misses} of {reaction.outcomes} answers passed "
        f"their p{100 * LEVEL:.0f}, interval {share.low:.3f} to {share.high:.3f}"
    )
