"""How likely a proposed prefix is to be accepted whole, by its depth: means with aged weights, and an optimistic bound.

Depth d starts at a mean of 0.5^d that weighs START_WEIGHT observations. Every observation weighs one; weights halve with every
HALF_LIFE tokens generated since, and never pass CAP. With w the aged weight, min(1, mean + sqrt(ln 20 / (2 w))) is Hoeffding's
upper bound for w observations at 95 %: what survival may be, and trying would tell.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from predictors.distribution import Array
from telemetry.errors import BadField

START_WEIGHT = 2.0
CAP = 128.0
HALF_LIFE = 128.0
"""Generated tokens in which evidence comes to weigh half."""


@dataclass(frozen=True)
class Prefixes:
    """Mean survival and its weight by depth, shape (max_depth,) each: entry d - 1 is of the first d proposed tokens together."""

    mean: Array
    weight: Array

    @property
    def optimistic(self) -> Array:
        """Upper bound of survival by depth."""
        return np.minimum(1.0, self.mean + np.sqrt(math.log(20.0) / (2.0 * self.weight)))

    def expected_tokens(self, width: int) -> float:
        """Tokens that a round of this width yields: the pending one and every prefix of width - 1 that survives."""
        if not 1 <= width <= len(self.mean) + 1:
            raise BadField("width", width, f"give a number from 1 to {len(self.mean) + 1}")
        return 1.0 + float(self.mean[: width - 1].sum())

    def aged(self, tokens: float) -> Prefixes:
        """The same after so many more generated tokens: means stay, weights fade."""
        if not 0.0 <= tokens < math.inf:
            raise BadField("tokens", tokens, "give a finite number of 0 or more")
        return Prefixes(self.mean, self.weight * 0.5 ** (tokens / HALF_LIFE))

    def after(self, offered: int, accepted: int, tokens: float, *, ended: bool = False) -> Prefixes:
        """These after a round that offered so many tokens, accepted a prefix of them and generated `tokens`.

        Accepted prefixes survived, longer offered ones did not; where the output `ended` after the accepted ones nothing is known
        of longer ones. Depths that were not seen keep their means.
        """
        if not 0 <= accepted <= offered <= len(self.mean):
            raise BadField("accepted", (accepted, offered), f"accept at most what is offered, and offer at most {len(self.mean)}")
        old = self.aged(tokens)
        seen = np.arange(len(self.mean)) < (accepted if ended else offered)
        survived = np.arange(len(self.mean)) < accepted
        mean = np.where(seen, (old.mean * old.weight + survived) / (old.weight + 1.0), old.mean)
        return Prefixes(mean, np.where(seen, np.minimum(old.weight + 1.0, CAP), old.weight))


def unseen(max_depth: int) -> Prefixes:
    """What is believed before anything was offered."""
    if max_depth < 1:
        raise BadField("max_depth", max_depth, "give at least 1")
    return Prefixes(0.5 ** np.arange(1.0, max_depth + 1.0), np.full(max_depth, START_WEIGHT))
