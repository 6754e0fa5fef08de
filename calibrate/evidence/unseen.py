"""Support drift: values never seen, and shapes outside the range seen, coming more often than before.

Of every row that begins it is counted how many of its fields are new to a record of earlier rows that is frozen: within its kind
of work the values of VALUES and the range of SHAPES, within its phase the kinds of work themselves. Once a record is frozen such
counts are exchangeable while nothing changes, however many new things keep trickling in. So their randomised ranks are bet on as
those of log times are (`drift`), on getting higher alone: that familiar work comes more often is no news. It takes no outcome.

A record is frozen after FIRST rows, and anew whenever twice as many rows are known and nothing points to a change, so that what
comes in slowly is learned and not told. How many run at once is left out: it follows the load of the moment, from which
nothing is exchangeable.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from calibrate.evidence.drift import Bet, Change, Watch, normal_score
from predictors.contexts import REMEMBERED, Context, judged_path

VALUES, SHAPES = ("host", "device", "model", "runtime", "precision", "mode"), ("batch", "size_in")
WORK = ("state", "family")
FIRST = 50
"""Rows of a node before any value is called new."""
LEAST_RANKED = 5
"""Rows since a record was frozen that are only counted, as those of a configuration are."""
RISING = (Bet(Change.UNSEEN, shift=1.2), Bet(Change.UNSEEN, shift=2.0, share=0.4))
"""Bets that all that begins, or a part of it, has more that is new than before."""
Span = tuple[float, float] | None
"""Least and largest number known; None where none was."""


class Place(NamedTuple):
    """What a row is at one node: `keys` name its values, one per name of `fields`, then come its `shapes`, None where unknown."""

    node: str
    fields: tuple[str, ...]
    keys: tuple[str, ...]
    shapes: tuple[float | None, ...] = ()


class Record(NamedTuple):
    """What `n` rows of a node held: which values is told by which row had each first, and between what their shapes lay."""

    n: int
    spans: tuple[Span, ...]

    def after(self, shapes: Sequence[float | None]) -> Record:
        """With one more row."""
        spans = self.spans
        for place, (number, span) in enumerate(zip(shapes, spans, strict=True)):
            if number is not None and (span is None or not span[0] <= number <= span[1]):
                wider = (number, number) if span is None else (min(span[0], number), max(span[1], number))
                spans = (*spans[:place], wider, *spans[place + 1 :])
        return Record(self.n + 1, spans)

    def new(self, place: Place, firsts: Sequence[int]) -> list[str]:
        """Fields of a row that are new to this record; `firsts` tell which row of the node had each of its values first.

        Rows are counted from 1, and 0 says that none had it. Of shapes a known number outside its span is new.
        """
        n = self.n
        new = [name for name, first in zip(place.fields, firsts, strict=False) if not 0 < first <= n]
        for name, number, span in zip(SHAPES, place.shapes, self.spans, strict=False):
            if number is not None and (span is None or not span[0] <= number <= span[1]):
                new.append(name)
        return new


class Met(NamedTuple):
    """A node's rows so far. Of those since a `record` was frozen, `counts` by number of new fields and `news` by new field.

    `before` is the record before an alarm: answers outside it are not for decisions while a reaction stands.
    """

    seen: Record
    counts: tuple[int, ...]
    news: tuple[int, ...]
    record: Record | None = None
    before: Record | None = None

    @classmethod
    def none_at(cls, place: Place) -> Met:
        """A node that has met nothing."""
        return cls(Record(0, (None,) * len(place.shapes)), (0,) * (len(place.fields) + 1), (0,) * len(place.fields))

    def after(self, place: Place, firsts: Sequence[int], draw: float) -> tuple[Met, float | None]:
        """With the next row, and the normal score of how much of it is new; None while such scores tell nothing.

        `firsts` as for `Record.new`; `draw` in (0, 1) decides among rows with as much that is new.
        """
        seen, counts, news, x = self.seen.after(place.shapes), self.counts, self.news, None
        if self.record is None:
            met = self._replace(seen=seen)
            return (met.refrozen() if seen.n == FIRST else met), None
        new = self.record.new(place, firsts)
        n, k = sum(counts), len(new)
        if n >= LEAST_RANKED:
            x = normal_score((sum(counts[:k]) + draw * (counts[k] + 1)) / (n + 1))
        if new:
            news = tuple([count + (name in new) for count, name in zip(news, place.fields, strict=True)])
        return Met(seen, (*counts[:k], counts[k] + 1, *counts[k + 1 :]), news, self.record, self.before), x

    def due(self, watch: Watch) -> bool:
        """Whether a longer record is to be frozen: there is one twice as long, and nothing points to a change."""
        return self.record is not None and 2 * self.record.n <= self.seen.n and not any(watch.rise)

    def refrozen(self, before: Record | None = None) -> Met:
        """With all rows so far as the record; `before` is the one before an alarm, if there was one."""
        return Met(self.seen, (0,) * len(self.counts), (0,) * len(self.news), self.seen, before or self.before)


def unwatched() -> Watch:
    """The watch of a node as it starts: bets on more that is new alone."""
    return Watch.on(len(RISING))


@lru_cache(maxsize=REMEMBERED)
def places_of(context: Context, phase: str) -> tuple[Place, Place]:
    """Nodes that meet a context: its phase, in which kinds of work are new, and its kind of work, in which all else is."""
    work = f"{judged_path(context, phase, 1)[2]} new values"
    return (
        Place(f"{phase} new work", WORK, _keys(f"{phase} new work", WORK, context)),
        Place(work, (*VALUES, *SHAPES), _keys(work, VALUES, context), tuple(getattr(context, name) for name in SHAPES)),
    )


def _keys(node: str, names: Sequence[str], context: Context) -> tuple[str, ...]:
    return tuple(f"{node}|{name}={getattr(context, name) or ''}" for name in names)
