"""What follows an alarm, as values with a reason, and the rule by which each is undone.

Pure: whoever keeps the standing reactions shows them the answers given since, and asks which may end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from calibrate.evidence.drift import Alarm, Change, Watch
from predictors.distribution import Array
from predictors.scores import binomial_interval


class Score(StrEnum):
    """What a watch looks at: log residuals of durations, or how many fields of a context are new."""

    DURATION = "duration"
    SUPPORT = "support"


class Action(StrEnum):
    """What is done: spread answers, discount the past, answer from the parent, keep answers out of decisions."""

    WIDEN = "widen"
    SHORTEN = "shorten_memory"
    PARENT = "use_parent"
    SHADOW = "shadow_only"


LEVEL = 0.9
"""The advertised level by whose misses a reaction is undone."""
AMOUNT = {Action.WIDEN: 1.5, Action.SHORTEN: 0.1, Action.PARENT: 1.0, Action.SHADOW: 1.0}
"""WIDEN: factor on the log distance from the median. SHORTEN: weight of what started before the change. Others: 1 is all."""
NEEDED = {Action.WIDEN: 60, Action.SHORTEN: 400, Action.PARENT: 60, Action.SHADOW: 100}
"""Outcomes of answers given since, before a reaction may end. The past stays discounted until the present outweighs it."""
QUIET = 0.1
"""Share of an alarm's threshold below which the evidence since the last alarm counts as quiet."""

_FIRST = {
    Change.HIGHER: (Action.WIDEN, Action.SHORTEN, Action.SHADOW),
    Change.WIDER: (Action.WIDEN, Action.SHORTEN, Action.SHADOW),
    Change.LOWER: (Action.SHORTEN, Action.SHADOW),
    Change.NARROWER: (Action.SHORTEN,),
}


@dataclass(frozen=True, slots=True)
class Reaction:
    """What is done at a node. One stands per node and action; a new one takes the place of the old.

    `amount` as in AMOUNT; `since_ns` is the start from which the change reaches, `began_ns` when the reaction did. `outcomes` and
    `misses` count resolved answers given since, and those of them that passed their LEVEL.
    """

    node: str
    action: Action
    amount: float
    since_ns: int
    began_ns: int
    reason: str
    outcomes: int = 0
    misses: int = 0

    def after(self, *, missed: bool) -> Reaction:
        """With one more answer given since, resolved at LEVEL."""
        return replace(self, outcomes=self.outcomes + 1, misses=self.misses + missed)


def follow(node: str, score: Score, alarm: Alarm, began_ns: int, standing: Iterable[Reaction] = ()) -> tuple[Reaction, ...]:
    """Reactions to an alarm. Durations that change again while reactions stand are not to be trusted: the parent answers."""
    actions: tuple[Action, ...] = (Action.SHADOW,)
    if score is Score.DURATION:
        again = any(one.node == node for one in standing)
        actions = (*_FIRST[alarm.change], *((Action.PARENT,) if again else ()))
    elif alarm.change is not Change.HIGHER:
        return ()
    what = "log residuals" if score is Score.DURATION else "counts of new values"
    reason = (
        f"{what} became {alarm.change.value} over the last {alarm.outcomes} outcomes "
        f"(evidence {alarm.evidence:.3g}, threshold {alarm.threshold:.3g})"
    )
    return tuple(Reaction(node, action, AMOUNT[action], alarm.since_ns, began_ns, reason) for action in actions)


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


def widened(quantiles_s: Array, median_s: Array, amount: float) -> Array:
    """Quantiles (n_contexts, n_levels) in s at `amount` times their log distance from the median (n_contexts,): m (q / m)^amount.

    A quantile of 0 stays 0, and so does every quantile of a context whose median is 0: there is no log distance to stretch.
    """
    middle = np.where(median_s > 0.0, median_s, 1.0)[:, None]
    stretched = middle * np.power(quantiles_s / middle, amount)
    return np.where(median_s[:, None] > 0.0, stretched, quantiles_s)
