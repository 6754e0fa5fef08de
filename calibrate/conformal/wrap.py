"""The calibrated model: the ensemble's answers, read at the levels that have come true before.

Every outcome is placed in the answer that was given when its row was asked, and moves the recalibration of its nodes. What is
answered obeys the same laws as any other distribution: levels are mapped by one increasing curve, so none cross.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.special import ndtri

from calibrate.conformal.ages import Ages, Lasted, groups_aged
from calibrate.conformal.checked import checked, few
from calibrate.conformal.claims import CLAIMED, claimed_to, outlasted, proven
from calibrate.conformal.controlled import Controlled
from calibrate.conformal.pit import EDGES, Placed, Recalibration, Seen, passed_in, place_in
from calibrate.conformal.reacting import discounted, restarted, spread, trusted
from calibrate.conformal.remaining import Aging
from calibrate.evidence.nearest import newer, newest_ns, provenance
from calibrate.evidence.reactions import LEVEL, Action
from calibrate.evidence.watching import Watching
from predictors.aggregate import shares
from predictors.causes import Incidence
from predictors.contexts import JUDGED, LEVELS, Context, groups_of
from predictors.distribution import GRID, Array, Support
from predictors.ensemble import Ensemble, answer, speaks_for_all
from predictors.experts.asked import Asked, Told
from predictors.experts.forest import Forest
from predictors.experts.histories import EXACT
from predictors.grids import Curve
from predictors.hazards import HierarchicalHazards
from predictors.joint.dependence import Dependence
from predictors.joint.streams import keys_of, stream, uniforms
from predictors.layered import Layered
from predictors.model import Change
from telemetry.words import Ended

SEED = 5
RHO = 1.0
"""Rows asked at one instant count once together."""
MEMO = 20_000
"""Answers remembered until the next outcome."""
SCORES: Array = ndtri(GRID)
AGED = tuple(JUDGED.index(name) for name in ("phase", "family", "host"))
"""Nodes of a judged path that stand for the groups of `groups_aged`."""
OUTERMOST = 1e-4
"""No level nearer to 0 or 1 than this is asked of the model."""


@dataclass(frozen=True)
class Calibrated:
    """An ensemble and how its answers came true. Immutable, but for a memo of answers."""

    inner: Ensemble
    recalibration: Recalibration = field(default_factory=Recalibration)
    watching: Watching = field(default_factory=Watching)
    ages: Ages = field(default_factory=Ages)
    newest: Layered[str, int] = field(default_factory=Layered)
    controlled: Controlled = field(default_factory=Controlled)
    curves: dict[tuple[Context, str], Curve] = field(default_factory=dict, repr=False, compare=False)

    @property
    def commit(self) -> int:
        """Commit number up to which outcomes are known."""
        return self.inner.commit

    @property
    def fit_commit(self) -> int:
        """Commit number as of which the experts were fitted."""
        return self.inner.fit_commit

    @property
    def dependence(self) -> Dependence:
        """What phases of an attempt and attempts on a host have in common."""
        return self.inner.dependence

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases with a known outcome, sorted."""
        return self.inner.phases

    def knows(self, phase: str) -> bool:
        """Whether any outcome of the phase is known."""
        return self.inner.knows(phase)

    def outcomes(self, phase: str) -> int:
        """How many completed outcomes of the phase are known, whatever their context."""
        return self.inner.outcomes(phase)

    def p_complete(self, contexts: Sequence[Context], phases: Sequence[str], elapsed_s: Array) -> Array:
        """Probability of completing rather than failing, shape (n_pairs,)."""
        return self.inner.p_complete(contexts, phases, elapsed_s)

    def incidence(self, context: Context, phase: str) -> Incidence | None:
        """How and when the context's phase ends, by cause."""
        return self.inner.incidence(context, phase)

    def predict(self, contexts: Sequence[Context], phases: Sequence[str]) -> Aging:
        """Time given completion of each pair, in s; NoEvidence names phases without a known outcome."""
        pairs = list(zip(contexts, phases, strict=True))
        new = list(dict.fromkeys(pair for pair in pairs if pair not in self.curves))
        made = dict(zip(new, self._curves(new), strict=True)) if new else {}
        if len(self.curves) + len(made) <= MEMO:
            self.curves.update(made)
        curves = tuple(made[pair] if pair in made else self.curves[pair] for pair in pairs)
        return Aging(curves, self.ages, tuple(groups_aged(*pair) for pair in pairs))

    def _curves(self, pairs: Sequence[tuple[Context, str]]) -> list[Curve]:
        contexts, phases = [context for context, _ in pairs], [phase for _, phase in pairs]
        known = self.inner.record.predict(contexts, phases)
        asked = self.inner.ask(contexts, phases)
        return [self._answered(one, support) for one, support in zip(asked, known.support, strict=True)]

    def _answered(self, asked: Asked, support: Support) -> Curve:
        """One pair's answer. While nothing has checked answers like it, it is as wide as the configuration's outcomes demand."""
        told, node = self.calibrated(asked), self.recalibration.nodes.get(asked.path[-1])
        window = self.inner.histories.windows.get(groups_of(asked.context, asked.phase)[EXACT])
        lasted = window.values if window is not None else ()
        if few(self.recalibration, asked.path):
            by = outlasted(lasted, node, GRID)
            told = np.maximum.accumulate(np.where((CLAIMED[0] <= GRID) & np.isfinite(by), np.maximum(told, by), told))
        at = (CLAIMED - asked.zero) / (1.0 - asked.zero)  # what holds of those that take time at all holds of all
        by = np.minimum(outlasted(lasted, node, CLAIMED), reached(proven(node, CLAIMED), asked))
        claimed = claimed_to(by, np.interp(at, GRID, told))
        return answer(told, asked.zero, self._evidence(asked, support, claimed))

    def _evidence(self, asked: Asked, support: Support, claimed: float) -> Support:
        """What stands behind an answer, with how answers like it came true, whence its outcomes are and how new."""
        context, phase = asked.context, asked.phase
        reactions = self.watching.reactions_at(context, phase)
        controlled_at, within = (
            (None, 1.0) if reactions else self.controlled.claim(asked.path)
        )  # a reaction moves bounds past them
        return replace(
            support,
            controlled_at=controlled_at,
            controlled_within=within if controlled_at is not None else None,
            checked=checked(self.recalibration, asked.path, claimed),
            claimed=claimed,
            changed=Action.SHADOW in reactions,
            unfamiliar=Action.APART in reactions and claimed < LEVEL,  # its own outcomes may have proven it meanwhile
            provenance=provenance(self.inner.histories, context, phase, rests_on_rates=self.inner.rests_on_rates(context, phase)),
            newest_ns=newest_ns(self.newest, context, phase, LEVELS.index(support.level)),
        )

    def calibrated(self, asked: Asked) -> Array:
        """Recalibrated log quantiles at GRID of the positive part, shape (len(GRID),)."""
        whole = asked.zero + (1.0 - asked.zero) * GRID
        reactions = self.watching.reactions_at(asked.context, asked.phase)
        wanted = self.controlled.levels(asked.path, whole)
        levels = (self.recalibration.asked(trusted(asked.path, reactions), wanted) - asked.zero) / (1.0 - asked.zero)
        read = np.minimum(spread(read_at(asked.mixed, levels), reactions), asked.limit)  # widened or not, no wider than the phase
        return np.maximum.accumulate(read)  # the limit begins past the median, which it may lie below

    def after(self, changes: Sequence[Change], commit: int) -> Calibrated:
        """The model that also knows `changes` up to `commit`."""
        inner = self.inner.after(changes, commit)
        failed = {change.key for change in changes if change.ended == Ended.FAILED}
        ended = [one for one in inner.told if one.key not in failed]
        told = list(zip(ended, placed_of(ended), strict=True))
        placed = [*self._seen_running(inner, changes), *(where for _, where in told)]
        recalibration = self.recalibration.having(placed) if placed else self.recalibration
        missed = self._missed(told) if self.watching.standing else {}
        silent = {one.key for one in ended if one.key in missed and not speaks_for_all(one.asked, one.key)}
        watching = self.watching.after(changes, commit, missed, silent)
        outcomes = [(one.key, one.asked, where.u) for one, where in told]
        return Calibrated(
            inner,
            discounted(recalibration, watching.found),
            watching,
            self.ages.having([self._lasted(*one) for one in told]),
            newer(self.newest, changes),
            restarted(self.controlled.after(changes, inner.pending, outcomes, self._curve), watching.found),
        )

    def _curve(self, asked: Asked) -> Array:
        """Cumulative share of outcomes at EDGES where a row is answered now."""
        return self.recalibration.at(trusted(asked.path, self.watching.reactions_at(asked.context, asked.phase)))

    def _lasted(self, told: Told, placed: Placed) -> Lasted:
        """At which levels of what was answered for it a row ended, given that it had reached each age that it did."""
        asked, groups = told.asked, groups_aged(told.asked.context, told.asked.phase)
        reached = self.ages.reached(groups, told.duration_s)
        if not reached:
            return Lasted(groups, told.duration_s, told.ended)
        waited = self.controlled.waiting.get(told.key)
        curve = waited.curve if waited is not None else self._curve(asked)
        at = [placed.u, *(passed_in(asked.mixed, asked.zero, age_s) for age_s in reached)]
        ended, *used = self.controlled.answered(asked.path, np.interp(at, EDGES, curve)).tolist()
        u = [max(ended - by, 0.0) / max(1.0 - by, 1e-9) for by in used]
        share = weighed(asked)
        return Lasted(groups, told.duration_s, told.ended, used, u, tuple(share[place] for place in AGED))

    def _missed(self, told: Sequence[tuple[Told, Placed]]) -> dict[str, bool]:
        """Whether outcomes just told passed the quantile at LEVEL, by row; a bound below it tells nothing."""
        missed: dict[str, bool] = {}
        for one, placed in told:
            asked = float(self.recalibration.asked(trusted(one.asked.path, {}), np.array([LEVEL]))[0])
            if one.ended or placed.u > asked:
                missed[one.key] = placed.u > asked
        return missed

    def _seen_running(self, inner: Ensemble, changes: Sequence[Change]) -> list[Placed]:
        """Rows asked that run at an age now, and what is taken back of those that ran; `inner` also knows the changes."""
        placed: list[Placed] = []
        ended, met = {told.key: told.asked for told in inner.told}, dict[str, Asked]()
        for change in changes:
            if change.ended != Ended.RUNNING or change.duration_s <= 0.0:
                continue
            asked = met.get(change.key) or self.inner.pending.get(change.key)
            if asked is None and change.sign > 0:  # asked only now: nothing of it was counted before
                asked = inner.pending.get(change.key) or ended.get(change.key)
            if asked is not None:
                met[change.key] = asked
                placed.append(running_at(asked, change.duration_s, change.sign))
        return placed

    def refounded(self, record: HierarchicalHazards, forest: Forest | None) -> Calibrated:
        """The same memory over experts fitted anew."""
        return replace(self, inner=self.inner.refounded(record, forest), curves={})


def read_at(log_quantiles: Array, levels: Array) -> Array:
    """Log quantiles at `levels` from those at GRID: linear in normal scores, continued by the slopes of the outer ones."""
    scores = ndtri(np.clip(levels, OUTERMOST, 1.0 - OUTERMOST))
    read = np.interp(scores, SCORES, log_quantiles)
    low, high = scores < SCORES[0], scores > SCORES[-1]
    lower = (log_quantiles[4] - log_quantiles[0]) / (SCORES[4] - SCORES[0])
    upper = (log_quantiles[-1] - log_quantiles[-3]) / (SCORES[-1] - SCORES[-3])
    read[low] = log_quantiles[0] + lower * (scores[low] - SCORES[0])
    read[high] = log_quantiles[-1] + upper * (scores[high] - SCORES[-1])
    return np.asarray(np.maximum.accumulate(read))


def reached(levels: Array, asked: Asked) -> Array:
    """Log times of the positive part at levels of an answer, same shape; inf at inf."""
    read = read_at(asked.mixed, (np.minimum(levels, 1.0) - asked.zero) / (1.0 - asked.zero))
    return np.where(np.isfinite(levels), read, np.inf)


def placed_of(told: Sequence[Told]) -> list[Placed]:
    """Where outcomes lay in the answers given when they were asked; the draws are keyed by the rows."""
    draws = uniforms(stream(SEED, "pit", keys_of([one.key for one in told])), 1)[:, 0].tolist() if told else []
    return [_placed(one, draw) for one, draw in zip(told, draws, strict=True)]


def _placed(told: Told, draw: float) -> Placed:
    asked = told.asked
    if not told.ended:
        return Placed(asked.path, weighed(asked), passed_in(asked.mixed, asked.zero, told.duration_s), Seen.LOST)
    return Placed(asked.path, weighed(asked), place_in(asked.mixed, asked.zero, told.duration_s, draw))


def running_at(asked: Asked, age_s: float, sign: int) -> Placed:
    """A row seen to run at an age (`sign` 1), or the same taken back (-1)."""
    seen = Seen.RUNNING if sign > 0 else Seen.NOT_RUNNING
    return Placed(asked.path, weighed(asked), passed_in(asked.mixed, asked.zero, age_s), seen)


def weighed(asked: Asked) -> tuple[float, ...]:
    """What a row weighs at each node of its path: rows asked at one instant count once together."""
    return shares(asked.path, dict(zip(asked.path, asked.crowd, strict=True)), RHO)
