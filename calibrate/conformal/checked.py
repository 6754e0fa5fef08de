"""How far answers of a kind have been checked: whether enough outcomes are known of earlier ones to call their levels true."""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.conformal.claims import needs_n
from calibrate.conformal.pit import Recalibration
from predictors.contexts import JUDGED
from predictors.distribution import Checked

LEVEL = 0.9
"""An exact configuration is checked once its own outcomes can back this level."""
LEAST_WIDER = 100.0
"""Outcomes by which a wider node is: they are of other configurations too, so it takes more of them."""


def checked(known: Recalibration, path: Sequence[str]) -> Checked | None:
    """The narrowest node of a path (root first) that is checked, else the narrowest with any outcomes; None where none has."""
    some: Checked | None = None
    for depth in reversed(range(len(path))):
        node = known.nodes.get(path[depth])
        if node is None or node.n <= 0.0:
            continue
        enough = node.n >= (needs_n(LEVEL) if depth == len(path) - 1 else LEAST_WIDER)
        if enough:
            return Checked(JUDGED[depth], node.n, enough=True)
        some = some or Checked(JUDGED[depth], node.n, enough=False)
    return some
