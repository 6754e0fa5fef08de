"""StarPU performance models: the history of a codelet per device and implementation, as means with their counts.

Read are versions 42 to 45 of the text files below `sampling/codelets`, with tabs or padded columns, with seven columns (no
flops) or eight. The codelet and the host stand only in the file's name, `codelet.host`. An entry becomes one observation of
`service` that stands for its n executions: mean, and the spread that its sums give. Regressions are left alone: what they
were fitted to are the entries. Models of energy hold joules and nothing to learn from.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from statistics import median

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers.cells import length, name, reason
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.decimals import SECONDS_PER, in_seconds, unit_told
from telemetry.importers.starpu_places import Place, read_places
from telemetry.importers.texts import decoded, whole
from telemetry.rows import Row
from telemetry.tables import Attempt, Observation
from telemetry.words import Ended

_HEADER = re.compile(r"#\s*performance\s+model\s+version\b", re.IGNORECASE)
_ENDINGS = {".gz", ".txt", ".dat", ".model"}
_DIVERGES = 10
"""Times the median of its siblings, either way, at which a device is reported: equal devices are not that unequal."""
_LEAST = Decimal("1e-12")
_MOST_ALIKE = 10
"""Notes of one kind that are told in full."""
_IMPOSSIBLE_FLOPS_PER_S = 1e16
"""More than any single device does, so the unit must be another one."""


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001  the name says nothing
    """Whether the first comment that is not a rule is the header of a performance model."""
    for line in decoded(head[:400]).splitlines():
        if line.strip("# \t"):
            return _HEADER.match(line.strip()) is not None
    return False


def read(path: Path, options: Options) -> Found:
    """Entries as attempts and observations; what contradicts itself, was copied or diverges is told in the notes."""
    told = unit_told(options.unit) if options.unit != "J" else "J"
    text, broken = whole(path)
    contents = read_places(text)
    places, refused, notes = contents.places, [*broken, *contents.refused], list(contents.notes)
    n_read = len(places) + sum(refusal.item == "entry" for refusal in refused)
    codelet, host = _named(path)
    undecided = any(" or " in place.unit for place in places)
    if told == "J" or (told is None and undecided and "energy" in re.split(r"[_.-]", codelet.lower())):
        note = "an energy model: joules, no durations; nothing to learn from (say --unit us if these are times)"
        return Found((), n_read, tuple(refused), (*notes, note))
    if told is None and undecided:
        notes.append("the header says 'us or J': taken for us and marked as assumed; say --unit to decide")
    elif told is not None and any(place.unit != told for place in places):
        notes.append(f"lengths read in {told}, as told; the file says {places[0].unit}")
    single = _once(places, refused, notes)
    rows: list[Row] = []
    for place in single:
        try:
            rows += _rows(place, codelet, options.host or host, told)
        except (BadField, ValidationError) as error:
            refused.append(Refused(place.line, "entry", reason(error)))
    notes += [*_few(_contradictions(single)), *_few(_diverging(single)), *_impossible(single, told or "us")]
    return Found(tuple(rows), n_read, tuple(refused), tuple(notes))


def _named(path: Path) -> tuple[str, str | None]:
    """Codelet and host from a file's name; no host where it has no ending, or only one of documents."""
    stem = path.name
    while Path(stem).suffix.lower() in _ENDINGS:
        stem = Path(stem).stem
    codelet, dot, host = stem.rpartition(".")
    return (codelet, host) if dot and codelet and host else (stem, None)


def _once(places: Sequence[Place], refused: list[Refused], notes: list[str]) -> list[Place]:
    """Each measurement once: of entries with the same figures on several devices all but the first are copies."""
    kept: dict[tuple[str, ...], Place] = {}
    seen: dict[tuple[str, str, str], Place] = {}
    for place in sorted(places, key=lambda p: (p.kind, len(p.device), p.device, p.line)):
        original = kept.get(place.entry.figures) if place.entry.n and place.entry.total else None
        where = (place.device, place.implementation, place.entry.footprint)
        if original is not None:
            notes.append(f"{place} has the figures of {original}: copied, counted once")
        elif where in seen:
            refused.append(Refused(place.line, "entry", f"{place} stands in line {seen[where].line} with other figures"))
        else:
            kept[place.entry.figures] = seen[where] = place
    unmeasured = [place for place in seen.values() if not place.entry.n]
    if unmeasured:
        notes.append(f"never measured (n = 0), no observation: {', '.join(map(str, unmeasured[:5]))}")
    return sorted((place for place in seen.values() if place.entry.n), key=lambda p: p.line)


def _rows(place: Place, codelet: str, host: str | None, told: str | None) -> tuple[Row, Row]:
    """The attempt that holds the context of an entry, and its observation."""
    entry, unit = place.entry, told or "us"
    attempt_id = row_id("starpu", host, codelet, place.device, place.implementation, entry.footprint)
    attempt = Attempt(
        attempt_id=attempt_id,
        node_id=name(f"{codelet}/{entry.footprint}"),
        host=name(host),
        device=name(place.device),
        family=name(codelet),
        runtime="starpu",
        mode=f"impl{place.implementation}",
        size_in=float(entry.size),
    )
    observation = Observation(
        observation_id=f"{attempt_id}/service/0",
        attempt_id=attempt_id,
        phase="service",
        duration_s=length("mean", entry.mean * SECONDS_PER[unit]),
        ended=Ended.COMPLETED,
        outcomes=entry.n,
        spread_s=None if entry.spread is None else length("dev", entry.spread * SECONDS_PER[unit]),
        assumed="unit=us" if told is None and " or " in place.unit else None,
    )
    return attempt, observation


def _contradictions(places: Sequence[Place]) -> list[str]:
    """Entries whose own deviation is not the one their sums give."""
    return [
        f"{place}: dev {place.entry.deviation} contradicts sum, sum2 and n, which give "
        + ("none; left unknown" if place.entry.spread is None else f"{place.entry.spread:.3g}; recomputed")
        for place in places
        if place.entry.contradicts
    ]


def _diverging(places: Sequence[Place]) -> list[str]:
    """Devices that differ from equal ones by a factor: a few stalled samples in a small n look like a slow device."""
    siblings: dict[tuple[str, str, str], list[Place]] = defaultdict(list)
    for place in places:
        siblings[place.kind, place.implementation, place.entry.footprint].append(place)
    found = []
    for group in siblings.values():
        middle = median(place.entry.mean for place in group)
        for place in group if len(group) > 2 else ():
            ratio = max(place.entry.mean, middle) / max(min(place.entry.mean, middle), _LEAST)
            if ratio >= _DIVERGES:
                found.append(f"{place}: mean {place.entry.mean} (n = {place.entry.n}), its siblings' median is {middle}")
    return found


def _impossible(places: Sequence[Place], unit: str) -> list[str]:
    """A unit that would make a device faster than any."""
    most = {p: _IMPOSSIBLE_FLOPS_PER_S * in_seconds(p.entry.mean, unit) for p in places if p.entry.flops is not None}
    fast = [place for place, flops in most.items() if float(place.entry.flops or 0) > flops]
    return [f"{fast[0]}: impossibly many flop/s with lengths in {unit}; is the unit larger by 1000? say --unit"] if fast else []


def _few(notes: list[str]) -> list[str]:
    """The first notes of a kind, and how many more there are."""
    return notes[:_MOST_ALIKE] + ([f"... and {len(notes) - _MOST_ALIKE} more like it"] if len(notes) > _MOST_ALIKE else [])


STARPU = Importer("starpu", recognises, read)
