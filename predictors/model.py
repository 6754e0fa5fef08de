"""What every model does: answer from what is known, and become a new value when more is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from predictors.causes import Incidence
from predictors.contexts import CATEGORIES, NUMBERS, Context
from predictors.distribution import Array, Distribution
from predictors.frames import clock_weight, informative, seconds
from predictors.joint.dependence import Dependence
from telemetry.words import Ended


@dataclass(frozen=True, slots=True)
class Change:
    """One version of an observation that came (`sign` 1) or went (-1) at commit `known_at`.

    `known_from` is the commit at which that version came; `weight` is that of its clock. `key` names the row whose version it
    is: one phase of one attempt; empty where that is not known. A running row of duration 0 only says that it was asked for.
    `started_ns` (UTC) is when the phase began, None where that was not seen.
    """

    sign: int
    known_at: int
    phase: str
    context: Context
    entry_s: float
    duration_s: float
    ended: Ended
    weight: float
    known_from: int
    key: str = ""
    started_ns: int | None = None


class Model(Protocol):
    """A fitted model. Values are immutable: threads may read one while `after` makes the next."""

    @property
    def commit(self) -> int:
        """Commit number up to which outcomes are known to it."""

    @property
    def fit_commit(self) -> int:
        """Commit number as of which it was fitted."""

    @property
    def dependence(self) -> Dependence:
        """What phases of an attempt and attempts on a host have in common."""

    def knows(self, phase: str) -> bool:
        """Whether any outcome of the phase is known."""

    def outcomes(self, phase: str) -> int:
        """How many completed outcomes of the phase are known, whatever their context."""

    def predict(self, contexts: Sequence[Context], phases: Sequence[str]) -> Distribution:
        """Time given completion of each pair, in s; NoEvidence names phases without a known outcome."""

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases with a known outcome, sorted."""

    def p_complete(self, contexts: Sequence[Context], phases: Sequence[str], elapsed_s: Array) -> Array:
        """Probability of completing rather than failing, shape (n_pairs,), of phases that have lasted elapsed_s (n_pairs,)."""

    def incidence(self, context: Context, phase: str) -> Incidence | None:
        """How and when the phase ends, by cause; None where the fit told nothing of cancellations. NoEvidence as `predict`."""

    def after(self, changes: Sequence[Change], commit: int) -> Model:
        """The model that also knows `changes`, in their order, up to `commit`; self is untouched."""


def changes_of(table: pa.Table) -> list[Change]:
    """The changes of `telemetry.asof.changes`, in its order; rows that say nothing are left out."""
    entry_s, duration_s, weight = seconds(table, "entry_s"), seconds(table, "duration_s"), clock_weight(table)
    made = []
    told = ["change", "known_at", "attempt_id", "phase", "segment", "ended", "known_from", "started_ns"]
    columns = table.select([*told, *CATEGORIES, *NUMBERS])
    event = [row in {Ended.COMPLETED, Ended.FAILED} for row in table["ended"].to_pylist()]
    keep = informative(entry_s, duration_s, pa.array(event, pa.bool_()).to_numpy(zero_copy_only=False))
    running = [row == Ended.RUNNING for row in table["ended"].to_pylist()]
    for i, row in enumerate(columns.to_pylist()):
        if keep[i] or running[i]:
            made.append(
                Change(
                    sign=int(row["change"]),
                    known_at=row["known_at"],
                    phase=row["phase"],
                    context=Context.of(row),
                    entry_s=float(entry_s[i]),
                    duration_s=float(duration_s[i]),
                    ended=Ended(row["ended"]),
                    weight=float(weight[i]),
                    known_from=row["known_from"],
                    key=f"{row['attempt_id']}/{row['phase']}/{row['segment']}",
                    started_ns=row["started_ns"],
                )
            )
    return made
