"""The default model: experts, averaged by weights learned online, over one memory of what was asked and what came of it.

A row is asked when it begins; what every expert then said is kept until its outcome is known, and only then is it judged and
learned from. So weights are learned from real questions, and a burst that began at one instant is never judged as if its
members had known each other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from predictors import tails
from predictors.aggregate import RHO, Judged, Weights, crowds, losses, shares
from predictors.causes import Incidence
from predictors.contexts import JUDGED, PLACED, Context, groups_of, judged_path, novelty
from predictors.distribution import GRID, Array, Support
from predictors.experts.asked import Asked, Told
from predictors.experts.forest import Forest
from predictors.experts.histories import HIGH, LAST, LOW, MIDDLE, SPREAD, WIDE, Histories, Learning, speaks_for
from predictors.experts.imputed import beyond
from predictors.experts.lessons import Lessons
from predictors.experts.pace import Pace, Ran
from predictors.grids import Curve, GridHazard
from predictors.hazards import HierarchicalHazards
from predictors.joint.dependence import Dependence
from predictors.model import Change
from telemetry.words import Ended

EXPERTS = ("hazards", "median_of_nine", "moving_average", "configuration", "phase", "forest", "nowcast")
PRIOR: Array = np.array([2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]) / 8.0
"""Weights before any outcome is known: the model of record first, a third of it with hosts as they are just now."""
MEMO = 20_000
"""Answers remembered until something is learned."""
HOST = JUDGED.index("host")
CROWD = 8
"""Running rows from which a group whose outcomes are no more is judged by the model of record, which counts survivors."""
TAIL = 0.95
"""Level past which no answer is wider than its phase."""
SHORTEST = np.log(1e-9)
"""Log of the store's resolution in s."""
APART = 1e-10 * np.arange(len(GRID))
"""Equal quantiles are told apart by this in log time, so that a quantile and its level stay one to one."""


@dataclass(frozen=True)
class Ensemble:
    """The fitted experts and what was learned since. Immutable; `told` are the outcomes that the last `after` took in.

    `pending` are the rows asked and not yet ended, by key.
    """

    record: HierarchicalHazards
    forest: Forest | None = None
    histories: Histories = field(default_factory=Histories)
    weights: Weights = field(default_factory=lambda: Weights(PRIOR))
    lessons: Lessons = field(default_factory=Lessons)
    pace: Pace = field(default_factory=Pace)
    pending: Mapping[str, Asked] = field(default_factory=dict)
    told: tuple[Told, ...] = ()
    memo: dict[tuple[Context, str], Asked] = field(default_factory=dict, repr=False, compare=False)

    @property
    def commit(self) -> int:
        """Commit number up to which outcomes are known."""
        return self.record.commit

    @property
    def fit_commit(self) -> int:
        """Commit number as of which the experts were fitted."""
        return self.record.fit_commit

    @property
    def dependence(self) -> Dependence:
        """What phases of an attempt and attempts on a host have in common."""
        return self.record.dependence

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases with a known outcome, sorted."""
        return self.record.phases

    def knows(self, phase: str) -> bool:
        """Whether any outcome of the phase is known."""
        return self.record.knows(phase)

    def outcomes(self, phase: str) -> int:
        """How many completed outcomes of the phase are known, whatever their context."""
        return self.record.outcomes(phase)

    def p_complete(self, contexts: Sequence[Context], phases: Sequence[str], elapsed_s: Array) -> Array:
        """Probability of completing rather than failing, shape (n_pairs,)."""
        return self.record.p_complete(contexts, phases, elapsed_s)

    def incidence(self, context: Context, phase: str) -> Incidence | None:
        """How and when the context's phase ends, by cause."""
        return self.record.incidence(context, phase)

    def rests_on_rates(self, context: Context, phase: str) -> bool:
        """Whether the place of the context's host rests on its measured rates alone."""
        return self.record.rests_on_rates(context, phase)

    def predict(self, contexts: Sequence[Context], phases: Sequence[str]) -> GridHazard:
        """Time given completion of each pair, in s; NoEvidence names phases without a known outcome."""
        asked = self.ask(contexts, phases)
        known = self.record.predict(contexts, phases)
        return GridHazard(tuple(answer(one.mixed, one.zero, support) for one, support in zip(asked, known.support, strict=True)))

    def ask(self, contexts: Sequence[Context], phases: Sequence[str]) -> list[Asked]:
        """What every expert says of each pair, and their weighted average; NoEvidence names phases without a known outcome."""
        asked = zip(contexts, phases, strict=True)
        pairs = list(dict.fromkeys(pair for pair in asked if pair not in self.memo))
        if pairs:
            made = self._made(pairs)
            if len(self.memo) + len(pairs) <= MEMO:
                self.memo.update(made)
        else:
            made = {}
        return [made[pair] if pair in made else self.memo[pair] for pair in zip(contexts, phases, strict=True)]

    def _made(self, pairs: list[tuple[Context, str]]) -> dict[tuple[Context, str], Asked]:
        """Answers of distinct pairs."""
        curves = self.record.predict([context for context, _ in pairs], [phase for _, phase in pairs]).curves
        zero = [float(-np.expm1(-curve.atom)) for curve in curves]
        record = [_positive(curve, z) for curve, z in zip(curves, zero, strict=True)]
        features = np.stack([self.histories.features(*pair, row) for pair, row in zip(pairs, record, strict=True)])
        grown = self.forest.log_quantiles(features) if self.forest is not None else np.full((len(pairs), len(GRID)), np.nan)
        return {pair: self._asked(pair, zero[i], record[i], features[i], grown[i]) for i, pair in enumerate(pairs)}

    def _asked(self, pair: tuple[Context, str], zero: float, record: Array, features: Array, grown: Array) -> Asked:
        """One pair's answer; an expert that stands aside answers as the model of record: all do while few have ended."""
        groups = groups_of(*pair)
        centre = float(record[MIDDLE])
        centres = self.histories.centres(*pair)
        experts = np.tile(record, (len(EXPERTS), 1))
        early = self._mostly_running(groups[WIDE])
        if centres is not None and not early:
            experts[1] = self.histories.around("median", centres.median, centres.novel, groups)
            experts[2] = self.histories.around("average", centres.average, centres.novel, groups)
        whole, shrunk = self.histories.pooled(groups, self.record.of_host(*pair))
        if whole is not None and shrunk is not None and not early:
            experts[3], experts[4] = shrunk, whole
        if np.isfinite(grown[0]) and not early:
            experts[5] = centre + grown
        if not early:
            experts[6] = self.pace.moved(pair[0].host, record)
        path = self.path(*pair)
        weights = self.weights.at(path)
        kept = experts.astype(np.float32)
        limit = furthest(whole, self.outcomes(pair[1]), float(weights @ kept[:, MIDDLE]))
        mixed = np.maximum.accumulate(np.maximum(np.minimum(weights @ kept, limit), SHORTEST))
        return Asked(*pair, path, limit, kept, weights, mixed, zero, centre, centres, features.astype(np.float32))

    def path(self, context: Context, phase: str) -> tuple[str, ...]:
        """Nodes in which an answer given now is judged."""
        known = self.histories.known(context, phase)
        return judged_path(context, phase, PLACED if not known and self.rests_on_rates(context, phase) else novelty(known))

    def _mostly_running(self, group: str) -> bool:
        """Whether as many rows of a group run as have ended, and no fewer than CROWD: those that ended are the short ones."""
        known = self.histories.means.get(group)
        if known is None or len(self.pending) < max(CROWD, known.n):
            return False
        return self.running[group] >= max(CROWD, known.n)

    @cached_property
    def running(self) -> Counter[str]:
        """Rows asked and not yet ended, by host, family and model."""
        return Counter(groups_of(asked.context, asked.phase)[WIDE] for asked in self.pending.values())

    def after(self, changes: Sequence[Change], commit: int) -> Ensemble:
        """The model that also knows `changes` up to `commit`: new rows are asked first, then outcomes are taken in, in order."""
        corrected = {change.key for change in changes if change.sign < 0 and change.ended != Ended.RUNNING}
        pending = {**self.pending, **self._begun([change for change in changes if change.key not in corrected])}
        learning, judged, lessons, told, ran = Learning(self.histories), [], [], [], []
        for change in changes:
            if change.sign < 0 or change.ended == Ended.RUNNING or change.key in corrected or change.key not in pending:
                continue
            asked = pending.pop(change.key)
            completed = change.ended == Ended.COMPLETED
            told.append(Told(change.key, asked, change.duration_s, completed))
            if change.ended == Ended.FAILED or change.duration_s <= 0.0:
                continue
            if change.started_ns is not None and change.context.host is not None and speaks_for(asked.crowd[HOST], change.key):
                ran.append(_ran(change, asked))  # the last of a crowd to end are its longest, and would make its host look slow
            log_time = float(np.log(change.duration_s)) if completed else beyond(asked.mixed, change.duration_s, change.key)
            if log_time is None:
                continue
            speaks = speaks_for(asked.crowd[-1], change.key)
            learning.take(asked.context, asked.phase, log_time, asked.centre, asked.centres, speaks=speaks)
            crowd = dict(zip(asked.path, asked.crowd, strict=True))
            judged.append(Judged(asked.path, shares(asked.path, crowd, RHO), losses(log_time, asked.experts)))
            lessons.append((asked.features, log_time - asked.centre))
        return replace(
            self,
            record=self.record.after(changes, commit),
            histories=learning.done() if judged else self.histories,
            weights=self.weights.having(judged) if judged else self.weights,
            lessons=self.lessons.having(lessons),
            pace=self.pace.having(ran),
            pending=pending,
            told=tuple(told),
            memo={},
        )

    def _begun(self, changes: Sequence[Change]) -> dict[str, Asked]:
        """Rows not met before, asked as of before the changes; rows whose phase nothing is known of are asked when they end."""
        new: dict[str, Change] = {}
        for change in changes:
            if change.sign > 0 and change.key and change.key not in self.pending and self.knows(change.phase):
                new.setdefault(change.key, change)
        if not new:
            return {}
        asked = self.ask([change.context for change in new.values()], [change.phase for change in new.values()])
        crowd = crowds([one.path for one in asked])
        counted = [replace(one, crowd=tuple(crowd[key] for key in one.path)) for one in asked]
        return dict(zip(new, counted, strict=True))

    def refounded(self, record: HierarchicalHazards, forest: Forest | None) -> Ensemble:
        """The same memory over experts fitted anew."""
        recent = tuple(ran for ran in self.pace.recent if record.knows(ran.phase))  # a phase may have gone from the store
        pace = replace(self.pace, recent=recent).refitted(lambda contexts, phases: _centres(record, contexts, phases))
        return replace(self, record=record, forest=forest if forest is not None else self.forest, pace=pace, told=(), memo={})


def furthest(whole: Array | None, n: int, middle: float) -> Array:
    """Log times at GRID that no quantile may pass, shape (len(GRID),): those of the whole phase, moved up to the answer's median.

    Whatever is known of a context narrows what is known of its phase: a tail wider than the phase's is not evidence. Only levels
    past TAIL are held to it: of two modes far apart a context may have both where its phase, all contexts together, has a slope.
    Levels that the phase's n outcomes do not reach stay open.
    """
    if whole is None:
        return np.full(len(GRID), np.inf)
    reached = (GRID > TAIL) & (n / (n + 1.0) >= GRID)
    return np.where(reached, whole + max(middle - float(whole[MIDDLE]), 0.0), np.inf)


def speaks_for_all(asked: Asked, key: str) -> bool:
    """Whether a row speaks for those of its family on its host that were asked at its instant: on average one of them does."""
    return speaks_for(asked.crowd[HOST], key, 1)


def _ran(change: Change, asked: Asked) -> tuple[Ran, float, float]:
    """An outcome as it bears on its host's pace, with the median and the spread that the model of record had given."""
    at_s = (change.started_ns or 0) / 1e9 + change.duration_s
    weight = 1.0 / min(asked.crowd[HOST], LAST)
    ran = Ran(change.context, change.phase, float(np.log(change.duration_s)), at_s, change.ended == Ended.COMPLETED, weight)
    return ran, asked.centre, float(asked.features[SPREAD])


def _centres(record: HierarchicalHazards, contexts: Sequence[Context], phases: Sequence[str]) -> tuple[Array, Array]:
    """Median, and distance from the tenth to the ninetieth percentile, of each pair's log time: shape (n,) both."""
    places: dict[tuple[Context, str], int] = {}
    index = [places.setdefault(pair, len(places)) for pair in zip(contexts, phases, strict=True)]
    curves = record.predict([context for context, _ in places], [phase for _, phase in places]).curves
    found = np.array([_positive(curve, float(-np.expm1(-curve.atom)))[[LOW, MIDDLE, HIGH]] for curve in curves])[index]
    return found[:, 1], found[:, 2] - found[:, 0]


def _positive(curve: Curve, zero: float) -> Array:
    """Log quantiles at GRID of the positive part of a curve."""
    at = -np.log1p(-(zero + (1.0 - zero) * GRID))
    return np.log(np.maximum(curve.time_at(at), 1e-9))


def answer(log_quantiles: Array, zero: float, support: Support) -> Curve:
    """The curve through log quantiles at GRID of the positive part, its tail bounded by the longest duration known."""
    level = zero + (1.0 - zero) * GRID
    longest = max(float(np.log(max(support.largest_s, 1e-300))), float(log_quantiles[MIDDLE]))
    knots = tails.bounded(log_quantiles, longest) + APART
    return Curve(knots, -np.log1p(-level), float(-np.log1p(-zero)), tails.SLOPE, support)
