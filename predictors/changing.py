"""Changes while running: an attempt's context turns into another one, such as when a co-runner joins.

An attempt does work at a pace of 1 under the context it started with, and at median(start) / median(now) under another one. Its
operational age is the work done so far, in seconds of the first context:

    age = sum over stretches of (length x pace),      remaining = residual of the first context's law at that age / present pace

so nothing is assumed beyond medians that were learned from whole runs under either context. Without changes this is the plain
residual.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictors.contexts import CATEGORIES, NUMBERS, Context
from predictors.distribution import Array, Distribution, Support
from telemetry.errors import BadField

Predict = Callable[[Sequence[Context], Sequence[str]], Distribution]
"""Whole durations in s of pairs of a context and a phase, as `Model.predict` answers them."""
FASTEST = 1e6
"""Bound on a pace and on its inverse: what lies beyond is no change of pace."""


@dataclass(frozen=True, slots=True)
class ContextChange:
    """From `at_elapsed_s` after the start on, the context's fields named in `values` have these values."""

    at_elapsed_s: float
    values: Mapping[str, Any]

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> ContextChange:
        """The change a record tells; fields that are None stay as they were."""
        values = {name: value for name, value in record.items() if name != "at_elapsed_s" and value is not None}
        return cls(record["at_elapsed_s"], values)

    def record(self) -> dict[str, Any]:
        """The change as one flat record."""
        return {"at_elapsed_s": self.at_elapsed_s, **self.values}


@dataclass(frozen=True)
class Course:
    """How far a running attempt has come: operational age in s of its first context, present pace, and the time that remains."""

    age_s: float
    pace: float
    remaining: Paced


class Paced(Distribution):
    """Work of `work`, in s at pace 1, done at `pace` (n_contexts,): T = work / pace."""

    def __init__(self, work: Distribution, pace: ArrayLike, support: tuple[Support, ...] | None = None) -> None:
        self.work = work
        self.pace = np.array(np.broadcast_to(np.asarray(pace, dtype=np.float64), (work.n_contexts,)))
        self.support = work.support if support is None else support

    @property
    def n_contexts(self) -> int:
        """Number of contexts answered for."""
        return self.work.n_contexts

    def sf(self, t_s: ArrayLike) -> Array:
        """P(work > pace t)."""
        return self.work.sf(self.pace[:, None] * np.atleast_1d(np.asarray(t_s, dtype=np.float64)))

    def quantile(self, p: ArrayLike) -> Array:
        """That of the work over the pace."""
        return np.asarray(self.work.quantile(p) / self.pace[:, None])

    def residual(self, elapsed_s: ArrayLike) -> Paced:
        """The work that is left after elapsed_s at this pace, at this pace."""
        done = self.pace * np.asarray(elapsed_s, dtype=np.float64)
        return Paced(self.work.residual(done), self.pace, self.support)

    def take(self, index: NDArray[np.intp]) -> Paced:
        """The contexts at `index`."""
        return Paced(self.work.take(index), self.pace[index], tuple(self.support[i] for i in index))


def course(predict: Predict, context: Context, phase: str, elapsed_s: float, changes: Sequence[ContextChange]) -> Course:
    """How far an attempt that has run for elapsed_s has come, and its remaining time.

    The support is that of the context least is known about. BadField where changes are not in order, come after elapsed_s, or
    name what is no field of a context.
    """
    starts_s = [0.0, *(change.at_elapsed_s for change in changes)]
    if starts_s != sorted(starts_s) or not starts_s[-1] <= elapsed_s < np.inf:
        fix = f"give changes in order of at_elapsed_s, from 0 s to the age of {elapsed_s:g} s; give elapsed_s if it is older"
        raise BadField("changes", starts_s[1:], fix)
    contexts = _contexts(context, changes)
    laws = predict(contexts, [phase] * len(contexts))
    pace = _paces(laws.quantile(0.5)[:, 0])
    age_s = float(np.diff([*starts_s, elapsed_s]) @ pace)
    least = min(laws.support, key=lambda support: (support.matched, support.n))
    left = laws.take(np.array([0])).residual(age_s)
    return Course(age_s, float(pace[-1]), Paced(left, pace[-1], (least,)))


def changed(predict: Predict, context: Context, phase: str, elapsed_s: float, changes: Sequence[ContextChange]) -> Distribution:
    """Remaining time in s, one context, of an attempt that started under `context` and saw `changes`; errors as `course`."""
    return course(predict, context, phase, elapsed_s, changes).remaining


def _contexts(context: Context, changes: Sequence[ContextChange]) -> list[Context]:
    """The context at the start and after each change."""
    contexts = [context]
    for change in changes:
        if strange := set(change.values) - {*CATEGORIES, *NUMBERS}:
            raise BadField("changes", sorted(strange), f"change fields of a context: {', '.join((*CATEGORIES, *NUMBERS))}")
        contexts.append(replace(contexts[-1], **change.values))
    return contexts


def _paces(median_s: Array) -> Array:
    """Pace under each context relative to the first; 1 where a median of zero leaves nothing to compare."""
    timed = (median_s > 0.0) & (median_s[0] > 0.0)
    pace = np.divide(median_s[0], median_s, out=np.ones(len(median_s)), where=timed)
    return np.asarray(np.clip(pace, 1.0 / FASTEST, FASTEST))
