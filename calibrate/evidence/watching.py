"""All watches of the service as one immutable value that is folded over what becomes known, so that a replay meets the same.

Ranks are taken among outcomes of one exact configuration, in order of start: they are independent and uniform while nothing has
changed, whatever work comes in which order, and no scorer has to be frozen, since a log time is its own. Every outcome that can
be ranked is shown to three watches: those of its family of work, of the family on its host, and of its model there. The first of
them that alarms says that something changed, the one whose sum has risen most says where; that one starts anew, and so does all
that shares outcomes with it: one change is told once.

Every row is also shown to two watches of what is new about it (`unseen`) as soon as it is met, and all share one budget.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from calibrate.evidence.drift import N_BINS, Alarm, Ranks, Watch, draw, threshold, winnings
from calibrate.evidence.reactions import Action, Note, Reaction, follow, undone, widening
from calibrate.evidence.turns import Queues, Waiting, in_start_order, told
from calibrate.evidence.unseen import RISING, Met, Place, places_of, unwatched
from predictors.contexts import Context, judged_path
from predictors.layered import Layered
from predictors.model import Change

SEED, NEW_SEED = 11, 12
LEVELS = ("family", "host", "model")
"""What a watch is of, widest first; a family on a host, and a model on a host."""
PLACES = ("phase", "work")
"""Where it is watched what is new: kinds of work in a phase, and all else in a kind of work."""
THRESHOLD = threshold(nodes_per_outcome=len(LEVELS) + len(PLACES))
LEAST_RANKED = 5
"""Outcomes of a configuration that are only counted: a rank among fewer tells next to nothing, and every bet costs."""
MOST_NOTES, MOST_VALUES = 500, 200_000
"""Values past this many stay new for ever: whoever names every run anew in a category brings something new every time."""


@dataclass(frozen=True, slots=True)
class Line:
    """One exact configuration: log times less `zero`, the first of them, counted by bin, and the nodes that watch it."""

    nodes: tuple[str, ...]
    zero: float = 0.0
    counts: NDArray[np.int32] = field(default_factory=lambda: np.zeros(N_BINS, np.int32))
    n: int = 0


class Found(NamedTuple):
    """An alarm at a node, all within it (itself and exact configurations included), and whether what was known is discounted.

    Nodes are named as recalibration names them.
    """

    node: str
    alarm: Alarm
    within: tuple[str, ...]
    forgets: bool


_NONE: Mapping[str, bool] = MappingProxyType({})
_NO_QUEUES: Queues = MappingProxyType({})


@dataclass(frozen=True)
class Watching:
    """What is watched. `queues` are by family, then by row; `passed` are rows that were counted while they still ran.

    `met` tells by node what was new about rows, `firsts` which of its rows had each value first, counted from 1. `standing` are
    reactions in force and `notes` the newest things found and done. `found` is what the last step found.
    """

    lines: Layered[str, Line] = field(default_factory=Layered)
    watches: Layered[str, Watch] = field(default_factory=Layered)
    queues: Queues = field(default_factory=lambda: _NO_QUEUES)
    passed: frozenset[str] = frozenset()
    met: Layered[str, Met] = field(default_factory=Layered)
    firsts: Layered[str, int] = field(default_factory=Layered)
    standing: tuple[Reaction, ...] = ()
    notes: tuple[Note, ...] = ()
    found: tuple[Found, ...] = field(default=(), compare=False)

    def after(
        self, changes: Sequence[Change], commit: int, missed: Mapping[str, bool] = _NONE, silent: Collection[str] = ()
    ) -> Watching:
        """With what became known at `commit`.

        `missed` tells of rows that ended whether they passed the 0.9 quantile, `silent` are those that another speaks for.
        """
        queued, passed, begun = told(self.queues, self.passed, changes, commit, missed, silent)
        turn: list[Waiting] = []
        queues = dict(self.queues)
        for family, queue in queued.items():
            mine, waiting = in_start_order(queue.values())
            turn += mine
            queues[family] = {one.key: one for one in waiting}
            if not waiting:
                del queues[family]
        if not turn and not queued and passed == self.passed:
            return self if not self.found else replace(self, found=())
        step = _Step(self, commit)
        for one in sorted(begun, key=lambda one: (one.start_ns, one.key)):
            step.meet(one)
        step.take(turn)
        passed |= {one.key for one in turn if not one.over}
        return step.done(queues, passed)

    def reactions_at(self, context: Context, phase: str) -> dict[Action, Reaction]:
        """Reactions in force for a context, the narrowest node's where several are of one kind."""
        if not self.standing:
            return {}
        nodes = (*outside(context, phase, self.met.get, self._firsts_of), *nodes_of(context, phase))
        return {one.action: one for node in nodes for one in self.standing if one.node == node}

    def _firsts_of(self, place: Place) -> list[int]:
        return [self.firsts.get(key) or 0 for key in place.keys]


def nodes_of(context: Context, phase: str) -> tuple[str, ...]:
    """The nodes that watch a context's outcomes, one per name in LEVELS, named as recalibration names them."""
    return judged_path(context, phase, 1)[2:5]


def line_of(context: Context, phase: str) -> str:
    """The exact configuration among whose outcomes a context's are ranked, named as recalibration names it."""
    return judged_path(context, phase, 1)[5]


def outside(
    context: Context, phase: str, met: Callable[[str], Met | None], firsts: Callable[[Place], list[int]]
) -> Iterator[str]:
    """The places at which a context lies outside the record from before an alarm."""
    for place in places_of(context, phase):
        node = met(place.node)
        if node is not None and node.before is not None and node.before.new(place, firsts(place)):
            yield place.node


class _Step:
    """Outcomes being shown, one after the other; `done` gives the value that knows them."""

    def __init__(self, known: Watching, commit: int) -> None:
        self._known, self._commit = known, commit
        self._lines: dict[str, Line] = {}
        self._watches: dict[str, Watch] = {}
        self._found: list[Found] = []
        self._met: dict[str, Met] = {}
        self._firsts: dict[str, int] = {}
        self._standing, self._notes = list(known.standing), known.notes

    def meet(self, one: Waiting) -> None:
        """A row that begins, shown to the watches of what is new about rows, in order of start within a commit."""
        drawn = draw(NEW_SEED, one.key)
        for level, place, mine in zip(PLACES, places_of(one.context, one.phase), drawn, strict=True):
            node, watch = self._at(place.node) or Met.none_at(place), self._watch(place.node) or unwatched()
            firsts = self._firsts_of(place)
            after, x = node.after(place, firsts, mine)
            if not all(firsts) and len(self._known.firsts) + len(self._firsts) < MOST_VALUES:
                self._firsts |= {key: after.seen.n for key, first in zip(place.keys, firsts, strict=True) if not first}
            if x is not None:
                watch = watch.after(winnings(x, RISING), one.start_ns)
            if watch.evidence >= THRESHOLD:
                self._alarmed_new(one, level, place, after, watch)
                continue
            if after.due(watch):
                after, watch = after.refrozen(), unwatched()
            self._met[place.node] = after
            self._watches[place.node] = watch

    def _alarmed_new(self, one: Waiting, level: str, place: Place, node: Met, watch: Watch) -> None:
        """What is new is told; until enough answers about what lies outside the record have come true, none is for decisions."""
        alarm = watch.told(THRESHOLD, RISING)
        fields = {name: n for name, n in zip(place.fields, node.news, strict=True) if n}
        values = {"phase": one.phase, "level": level, "new": fields} | (_told(one.context, 0) if level == "work" else {})
        self._note(Note.drift(place.node, alarm, self._commit, values))
        stands = any(reaction.node == place.node for reaction in self._standing)
        self._met[place.node] = node.refrozen(None if stands else node.record)
        self._watches[place.node] = unwatched()
        for reaction in follow(place.node, alarm, self._commit):
            self._begin(reaction)

    def _at(self, node: str) -> Met | None:
        return self._met.get(node) or self._known.met.get(node)

    def _firsts_of(self, place: Place) -> list[int]:
        return [self._firsts.get(key) or self._known.firsts.get(key) or 0 for key in place.keys]

    def _watch(self, node: str) -> Watch | None:
        return self._watches.get(node) or self._known.watches.get(node)

    def take(self, turn: Sequence[Waiting]) -> None:
        """Outcomes whose turn has come, in order of start within each family."""
        for one in turn:
            x = self._ranked(one)
            if x is not None:
                self._shown(one, x)
            if self._standing and one.missed is not None:
                self._answered(one, missed=one.missed, speaks=one.speaks)

    def _ranked(self, one: Waiting) -> float | None:
        """The normal score of an outcome among those of its configuration; None where they are too few."""
        key = line_of(one.context, one.phase)
        line = self._lines.get(key) or self._known.lines.get(key) or Line(nodes_of(one.context, one.phase))
        if not line.n and not one.ended:
            return None  # a bound with nothing above it that could be drawn
        zero = line.zero if line.n else one.log_time
        ranks, x = Ranks(line.counts, line.n).after(one.log_time - zero, draw(SEED, one.key), ended=one.ended)
        self._lines[key] = Line(line.nodes, zero, ranks.counts, ranks.n)
        return x if line.n >= LEAST_RANKED else None

    def _shown(self, one: Waiting, x: float) -> None:
        """A normal score shown to the watches of an outcome; where one alarms, the node whose change it is is told."""
        won = winnings(x)
        nodes = nodes_of(one.context, one.phase)
        for node in nodes:
            self._watches[node] = (self._watch(node) or Watch()).after(won, one.start_ns)
        watches = [self._watches[node] for node in nodes]
        if any(watch.evidence >= THRESHOLD for watch in watches):
            # A change of one host alone tells on its family as well, but less since it began: the sums say whose it is.
            rises = [max(watch.rise) for watch in watches]
            depth = rises.index(max(rises))
            self._alarmed(one, depth, watches[depth].told(THRESHOLD))

    def _alarmed(self, one: Waiting, depth: int, alarm: Alarm) -> None:
        """A node starts anew, with all that shares outcomes with it, and reactions follow."""
        nodes = nodes_of(one.context, one.phase)
        node = nodes[depth]
        lines = {**self._known.lines, **self._lines}
        mine = {key: line for key, line in lines.items() if node in line.nodes}
        within = dict.fromkeys(name for line in mine.values() for name in line.nodes[depth:])
        for key, line in mine.items():
            self._lines[key] = Line(line.nodes)
        for name in (*nodes[:depth], *within):
            self._watches[name] = Watch()
        new = () if depth else (judged_path(one.context, one.phase, 0)[2],)
        values = {"phase": one.phase, "level": LEVELS[depth]} | _told(one.context, depth)
        self._note(Note.drift(node, alarm, self._commit, values))
        again = any(reaction.node in (*nodes[:depth], *within) for reaction in self._standing)
        reactions = follow(node, alarm, self._commit, again=again)
        forgets = any(reaction.action is Action.SHORTEN for reaction in reactions)
        self._found.append(Found(node, alarm, (*within, *new, *mine), forgets))
        for reaction in reactions:
            self._begin(reaction)

    def _begin(self, reaction: Reaction) -> None:
        self._end([one for one in self._standing if (one.node, one.action) == (reaction.node, reaction.action)], "found again")
        self._standing.append(reaction)
        self._note(Note.of(reaction))

    def _answered(self, one: Waiting, *, missed: bool, speaks: bool) -> None:
        """An outcome of an answer given since reactions began counts for them; they may end, and answers may be widened."""
        nodes = (*nodes_of(one.context, one.phase), *outside(one.context, one.phase, self._at, self._firsts_of))
        for place, reaction in enumerate(self._standing):
            if reaction.node in nodes and one.met > reaction.began:
                self._standing[place] = reaction.after(missed=missed, speaks=speaks)
        mine = [reaction for reaction in self._standing if reaction.node in nodes]
        widened = {reaction.node for reaction in mine if reaction.action is Action.WIDEN}
        for reaction in mine:
            watch = self._watch(reaction.node) or Watch()
            why, wider = undone(reaction, watch, THRESHOLD), widening(reaction, self._commit)
            if why is not None:
                self._end([reaction], why)
            elif wider is not None and reaction.node not in widened:
                self._begin(wider)

    def _end(self, reactions: Iterable[Reaction], why: str) -> None:
        for reaction in reactions:
            self._standing.remove(reaction)
            note = Note.of(reaction)
            self._notes = tuple(one.undone_at(self._commit, why) if one.same(note) else one for one in self._notes)

    def _note(self, note: Note) -> None:
        self._notes = _newest((*self._notes, note))

    def done(self, queues: Queues, passed: frozenset[str]) -> Watching:
        """The value that knows what was shown."""
        lines = self._known.lines.having(self._lines) if self._lines else self._known.lines
        watches = self._known.watches.having(self._watches) if self._watches else self._known.watches
        met = self._known.met.having(self._met) if self._met else self._known.met
        firsts = self._known.firsts.having(self._firsts) if self._firsts else self._known.firsts
        return Watching(lines, watches, queues, passed, met, firsts, tuple(self._standing), self._notes, tuple(self._found))


def _told(context: Context, depth: int) -> dict[str, str | None]:
    """The values of a context that a node at this depth stands for."""
    names = ("state", "family", *(("host", "device") if depth else ()))
    if depth > 1:
        names = (*names, "model", "runtime", "precision", "mode")
    return {name: getattr(context, name) for name in names if getattr(context, name) is not None}


def _newest(notes: Sequence[Note]) -> tuple[Note, ...]:
    """The newest notes; of older ones only those that stand."""
    beyond = len(notes) - MOST_NOTES
    if beyond <= 0:
        return tuple(notes)
    return (*(one for one in notes[:beyond] if one.stands), *notes[beyond:])
