"""How far answers of a kind have been checked: whether enough outcomes are known of earlier ones to call their levels true.

An exact configuration backs its answers by what its own outcomes prove of them (`claims`), a wider node by many outcomes. Before
any node has that many, answers are widened to what the configuration's own outcomes prove: there is nothing better to go by.
"""

from __future__ import annotations

from collections.abc import Sequence

from calibrate.conformal.pit import Recalibration
from predictors.contexts import JUDGED, judges_from
from predictors.distribution import Checked

LEVEL = 0.9
"""An exact configuration is checked where its own outcomes prove this level."""
LEAST_WIDER = 100.0
"""Outcomes by which a wider node is: they are of other configurations too, so it takes more of them."""


def checked(known: Recalibration, path: Sequence[str], claimed: float) -> Checked | None:
    """The narrowest node of a path (root first) that is checked, else the narrowest with any outcomes; None where none has.

    `claimed` is the level up to which the exact configuration's outcomes prove the answer.
    """
    some: Checked | None = None
    for depth in reversed(range(judges_from(path), len(path))):
        node = known.nodes.get(path[depth])
        if node is None or node.n <= 0.0:
            continue
        enough = claimed >= LEVEL if depth == len(path) - 1 else node.n >= LEAST_WIDER
        if enough:
            return Checked(JUDGED[depth], node.n, enough=True)
        some = some or Checked(JUDGED[depth], node.n, enough=False)
    return some


def few(known: Recalibration, path: Sequence[str]) -> bool:
    """Whether no node of a path has outcomes enough to check answers by."""
    return not any(node is not None and node.n >= LEAST_WIDER for node in map(known.nodes.get, path))
