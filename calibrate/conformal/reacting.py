"""What a change that was found does to answers: what was known before it is discounted, and answers may be spread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from calibrate.conformal.controlled import Controlled
from calibrate.conformal.pit import Recalibration
from calibrate.evidence.reactions import AMOUNT, Action, Reaction
from calibrate.evidence.watching import Found
from predictors.contexts import judges_from
from predictors.distribution import GRID, Array

MIDDLE = int(np.flatnonzero(GRID == 0.5)[0])


def discounted(known: Recalibration, found: Sequence[Found]) -> Recalibration:
    """The recalibration in which what came before each change weighs less at the nodes it reaches.

    Wider nodes keep their memory: what they say weighs ever less as the changed ones learn.
    """
    for one in found:
        if one.forgets:
            known = known.forgetting(one.within, AMOUNT[Action.SHORTEN])
    return known


def restarted(known: Controlled, found: Sequence[Found]) -> Controlled:
    """Controllers that start anew at every node where a change was found."""
    for one in found:
        known = known.restarted(one.within)
    return known


def spread(log_quantiles: Array, reactions: Mapping[Action, Reaction]) -> Array:
    """Log quantiles at GRID, farther from the median while answers are widened: m (q / m)^amount in time."""
    widen = reactions.get(Action.WIDEN)
    if widen is None:
        return log_quantiles
    middle = log_quantiles[MIDDLE]
    return np.asarray(middle + widen.amount * (log_quantiles - middle))


def trusted(path: Sequence[str], reactions: Mapping[Action, Reaction]) -> Sequence[str]:
    """The part of a judged path whose recalibration is used: down to the parent of a node that keeps changing."""
    parent, first = reactions.get(Action.PARENT), judges_from(path)
    return path[first:] if parent is None or parent.node not in path else path[first : path.index(parent.node)]
