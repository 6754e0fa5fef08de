"""Service of work that comes in pieces: how many are left, times how long a piece takes at the occupancy expected.

T = R W with R pieces and W the mean time of a piece over all of them, independent of R. W is one draw per attempt: what makes a
host slow lasts longer than a piece, so times of pieces are not averaged as if each were drawn anew. P(T > t) = E[S_W(t / R)], by
cells of R that are equally likely between its 1 % and 99 % quantiles and ever finer beyond.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from predictors.contexts import Context
from predictors.discrete import Lengths
from predictors.distribution import Array, Distribution, Support
from predictors.grids import Curve, GridHazard
from predictors.model import Model
from predictors.tails import SLOPE
from telemetry.errors import BadField

FINE: Array = 0.01 * 0.5 ** (np.arange(48) / 4.0)
BOUNDS: Array = np.concatenate([[0.0], FINE[:0:-1], np.linspace(0.01, 0.99, 393), 1.0 - FINE[1:], [1.0]])
MIDDLES: Array = (BOUNDS[1:] + BOUNDS[:-1]) / 2.0
N_KNOTS = 200
LEAST_SURVIVAL = 1e-6
MARGIN = 1.001
"""Factor by which knots reach past the law at both ends, so that an atom there is a steep rise and not a ramp."""
APART = 1e-12
"""What keeps hazards of neighbouring knots distinct where nothing ends between them."""
TINY_S = 1e-12


def service(
    model: Model, step: str, lengths: Lengths, contexts: Sequence[Context], so_far: Array, occupancy: Array
) -> GridHazard:
    """Remaining service in s of attempts that have made so_far pieces and go on, at occupancies (n_contexts,) of their batch.

    `step` is the phase of one piece, whose `batch` is the occupancy. NoEvidence where either is unknown.
    """
    at = [replace(context, batch=float(batch)) for context, batch in zip(contexts, occupancy, strict=True)]
    return service_time(lengths.remaining(contexts, so_far), model.predict(at, [step] * len(at)))


def service_time(pieces: Distribution, step: Distribution) -> GridHazard:
    """Law of the product in s; `pieces` counts, `step` is in s, with as many contexts each."""
    if pieces.n_contexts != step.n_contexts:
        raise BadField("step", step.n_contexts, f"give one law of a step for each of {pieces.n_contexts} laws of pieces")
    numbers = pieces.quantile(MIDDLES)
    each = range(pieces.n_contexts)
    return GridHazard(tuple(_product(numbers[i], step.take(np.array([i])), _thinner(pieces, step, i)) for i in each))


def _thinner(pieces: Distribution, step: Distribution, i: int) -> Support:
    """The weaker of the two evidences; its longest is of its own kind."""
    return min(pieces.support[i], step.support[i], key=lambda support: (support.matched, support.n))


def _product(numbers: Array, step: Distribution, support: Support) -> Curve:
    """The law of one context on N_KNOTS times, evenly spaced in log time over all of it that is likely enough."""
    numbers = np.append(numbers[:-1], max(numbers[-1], 1.0))  # where nothing is left for certain, a piece with the last chance
    some = numbers > 0.0
    numbers, weight = numbers[some], np.diff(BOUNDS)[some]
    low, high = step.quantile([LEAST_SURVIVAL, 1.0 - LEAST_SURVIVAL])[0]
    first, last = max(low, TINY_S) * numbers[0] / MARGIN, max(high, TINY_S) * numbers[-1] * MARGIN
    t_s = np.geomspace(first, last, N_KNOTS)
    survival = _survival(np.append(0.0, t_s), numbers, weight, step)
    survival = np.minimum.accumulate(survival)
    kept = int(np.searchsorted(-survival[1:], -LEAST_SURVIVAL)) + 1
    hazard = -np.log(np.maximum(survival, LEAST_SURVIVAL)) + APART * np.arange(len(survival))
    return Curve(np.log(t_s[:kept]), hazard[1 : kept + 1], float(hazard[0]), SLOPE, support)


def _survival(t_s: Array, numbers: Array, weight: Array, step: Distribution) -> Array:
    """P(T > t) = sum of weight times S_W(t / number), shape (n_times,)."""
    per_piece = step.sf((t_s[:, None] / numbers).ravel())[0].reshape(len(t_s), len(numbers))
    return np.asarray(per_piece @ weight)
