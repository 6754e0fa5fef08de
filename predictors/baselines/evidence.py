"""What stands behind the answers of a rule of thumb: outcomes counted along the path, zeros, and how many failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from predictors.contexts import LEVELS, Context
from predictors.distribution import Support
from predictors.frames import Frame
from predictors.model import Change
from telemetry.words import Ended

PSEUDO = 5.0
"""Rows that a phase's share of zeros, or of failures, weighs in that of a configuration."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of one node of the path.

    `n` completed outcomes with weight `n_eff`, the newest known from `last_commit`; of the `entered` rows that began under
    observation and did not fail, completed or not, `zeros` took no time; `failed` rows are apart.
    """

    n: int = 0
    n_eff: float = 0.0
    last_commit: int = 0
    entered: int = 0
    zeros: int = 0
    failed: int = 0

    def plus(self, more: Tally) -> Tally:
        """Both together."""
        return Tally(
            self.n + more.n,
            max(self.n_eff + more.n_eff, 0.0),
            max(self.last_commit, more.last_commit),
            self.entered + more.entered,
            self.zeros + more.zeros,
            self.failed + more.failed,
        )


NOTHING = Tally()


@dataclass(frozen=True)
class Evidence:
    """Tallies by node of the path, and the longest duration or bound known of each phase, s."""

    nodes: Mapping[str, Tally]
    longest_s: Mapping[str, float]

    @property
    def phases(self) -> tuple[str, ...]:
        """Phases with a known outcome, sorted."""
        return tuple(sorted(phase for phase in self.longest_s if self.outcomes(phase)))

    def outcomes(self, phase: str) -> int:
        """How many completed outcomes of the phase are known."""
        return self.nodes.get(phase, NOTHING).n

    def positive(self, phase: str) -> bool:
        """Whether any completed outcome of the phase took some time."""
        root = self.nodes.get(phase, NOTHING)
        return root.n > root.zeros

    def support(self, context: Context, phase: str) -> Support:
        """The deepest node of the path with outcomes of its own."""
        depth, found = 0, NOTHING
        for place, key in enumerate(context.path(phase)):
            tally = self.nodes.get(key, NOTHING)
            if tally.n:
                depth, found = place, tally
        matched = depth == len(LEVELS) - 1
        return Support(LEVELS[depth], found.n, found.n_eff, self.longest_s.get(phase, 0.0), found.last_commit, matched)

    def zero_share(self, context: Context, phase: str) -> float:
        """Share of durations that are exactly zero, of the configuration, shrunk to its phase."""
        root, leaf = self._ends(context, phase)
        parent = root.zeros / max(root.entered, 1)
        return min((leaf.zeros + PSEUDO * parent) / (leaf.entered + PSEUDO), 1.0)

    def p_complete(self, context: Context, phase: str) -> float:
        """Share of what ended that completed rather than failed, of the configuration, shrunk to its phase."""
        root, leaf = self._ends(context, phase)
        parent = root.n / max(root.n + root.failed, 1)
        return min((leaf.n + PSEUDO * parent) / (leaf.n + leaf.failed + PSEUDO), 1.0)

    def _ends(self, context: Context, phase: str) -> tuple[Tally, Tally]:
        path = context.path(phase)
        return self.nodes.get(path[0], NOTHING), self.nodes.get(path[-1], NOTHING)

    def after(self, changes: Sequence[Change]) -> Evidence:
        """The evidence once `changes` have come or gone."""
        nodes, longest_s = dict(self.nodes), dict(self.longest_s)
        for change in changes:
            added = _tally_of(change)
            for key in change.context.path(change.phase):
                nodes[key] = nodes.get(key, NOTHING).plus(added)
            longest_s[change.phase] = max(longest_s.get(change.phase, 0.0), change.duration_s)
        return replace(self, nodes=nodes, longest_s=longest_s)


def _tally_of(change: Change) -> Tally:
    """One row, or one taken back."""
    completed, failed = change.ended == Ended.COMPLETED, change.ended == Ended.FAILED
    return Tally(
        n=change.sign * completed,
        n_eff=change.sign * completed * change.weight,
        last_commit=change.known_at if completed else 0,
        entered=change.sign * (not failed and change.entry_s == 0.0),
        zeros=change.sign * (completed and change.duration_s == 0.0),
        failed=change.sign * failed,
    )


def evidence_of(frame: Frame) -> Evidence:
    """The evidence of a frame: counted per pair of context and phase, then summed along the paths of the distinct pairs."""
    pair, group = np.unique(frame.context * len(frame.phases) + frame.phase, return_inverse=True)
    size, done = len(pair), frame.completed
    n = np.bincount(group, done, size)
    n_eff = np.bincount(group, done * frame.weight, size)
    entered = np.bincount(group, ~frame.failed & (frame.entry_s == 0.0), size)
    zeros = np.bincount(group, done & (frame.duration_s == 0.0), size)
    failed = np.bincount(group, frame.failed, size)
    newest = np.zeros(size, dtype=np.int64)
    np.maximum.at(newest, group[done], frame.known_from[done])
    nodes: dict[str, Tally] = {}
    for i, code in enumerate(pair.tolist()):
        context, phase = frame.contexts[code // len(frame.phases)], frame.phases[code % len(frame.phases)]
        added = Tally(int(n[i]), float(n_eff[i]), int(newest[i]), int(entered[i]), int(zeros[i]), int(failed[i]))
        for key in context.path(phase):
            nodes[key] = nodes.get(key, NOTHING).plus(added)
    longest = np.zeros(len(frame.phases))
    np.maximum.at(longest, frame.phase, frame.duration_s)
    return Evidence(nodes, dict(zip(frame.phases, longest.tolist(), strict=True)))
