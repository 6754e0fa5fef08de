"""What is watched, in a model file: so that a restart goes on where it was, with the same reactions in force."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from calibrate.evidence.drift import Watch
from calibrate.evidence.reactions import Action, Note, Reaction
from calibrate.evidence.turns import Waiting, family_of
from calibrate.evidence.unseen import Met, Record
from calibrate.evidence.watching import Line, Watching
from predictors import columns
from predictors.contexts import Context
from predictors.ensemblefile import pack_mapping, unpack_mapping
from predictors.layered import Layered

Arrays = dict[str, Any]


def pack(known: Watching, arrays: Arrays) -> dict[str, Any]:
    """Puts the numbers into `arrays`; gives the header's part. What the last step found is no part of it."""
    queue = [one for queue in known.queues.values() for one in queue.values()]
    return {
        "lines": pack_mapping("lines", known.lines, arrays),
        "watches": pack_mapping("watches", known.watches, arrays),
        "queue": columns.pack("queue", queue, arrays),
        "passed": sorted(known.passed),
        "met": dict(known.met),
        "firsts": dict(known.firsts),
        "standing": [_plain(one) for one in known.standing],
        "notes": [_plain(one) for one in known.notes],
    }


def unpack(told: Mapping[str, Any] | None, arrays: Mapping[str, Any]) -> Watching:
    """The value from its part of a header and the arrays; nothing watched where an earlier program wrote none."""
    if told is None:
        return Watching()
    queues: dict[str, dict[str, Waiting]] = {}
    for one in columns.unpack("queue", told["queue"], arrays, Waiting, context=Context):
        queues.setdefault(family_of(one.context, one.phase), {})[one.key] = one
    return Watching(
        lines=Layered(unpack_mapping("lines", told["lines"], arrays, Line)),
        watches=Layered(unpack_mapping("watches", told["watches"], arrays, Watch)),
        queues=queues,
        passed=frozenset(told["passed"]),
        met=Layered({node: _met(*one) for node, one in told.get("met", {}).items()}),
        firsts=Layered(dict(told.get("firsts", {}))),
        standing=tuple(Reaction(**{**one, "action": Action(one["action"])}) for one in told["standing"]),
        notes=tuple(Note(**one) for one in told["notes"]),
    )


def _plain(one: Reaction | Note) -> dict[str, Any]:
    return {f.name: getattr(one, f.name) for f in fields(one)}


def _met(seen: list[Any], counts: list[int], news: list[int], *records: list[Any] | None) -> Met:
    record, before = (None if one is None else _record(*one) for one in records)
    return Met(_record(*seen), tuple(counts), tuple(news), record, before)


def _record(n: int, spans: list[Any]) -> Record:
    return Record(n, tuple(None if span is None else (span[0], span[1]) for span in spans))
