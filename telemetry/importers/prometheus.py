"""Prometheus and OpenMetrics text: histograms of times as interval-censored observations, no finer than their buckets.

A series (one histogram, one set of labels) is one attempt; each of its buckets that holds something is one observation that
stands for its count: known to lie in (lower edge, upper edge]. What lies above the last edge is `lost` there. Such a row has
`resolution_s` 0, not null: models read rows without a resolution as single exact outcomes, and the tail of a histogram without
its body would tell them that everything is long.

Only histograms whose unit is a time become rows: by the end of the name, `# UNIT`, or the help text; where the name speaks of
a time without a unit, seconds are assumed. Counters, gauges, summaries and other histograms are told of in the notes.
A later scrape of the same process replaces the counts of an earlier one; the start of the process or series tells runs apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers.cells import length, name, reason
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.decimals import SECONDS_PER, unit_told
from telemetry.importers.prometheus_text import Exposition, Series, looks_like, read_text
from telemetry.importers.prometheus_units import Timed, timed
from telemetry.importers.texts import decoded, whole
from telemetry.rows import Row
from telemetry.tables import Attempt, Observation
from telemetry.words import Ended

_MODEL_LABELS = ("model_name", "model_id", "model")
_HOST_LABELS = ("hostname", "host", "node", "instance")
_MOST_NAMED = 12


def recognises(path: Path, head: bytes) -> bool:  # noqa: ARG001  the name says nothing
    """Whether the beginning declares a metric's type, or holds nothing but comments and samples."""
    return looks_like(decoded(head))


def read(path: Path, options: Options) -> Found:
    """Time histograms as attempts and observations; everything else is told in the notes."""
    told = unit_told(options.unit)
    text, broken = whole(path)
    exposition = read_text(text)
    refused: list[Refused] = [*broken, *exposition.refused]
    rows: list[Row] = []
    notes: list[str] = []
    left_out: list[str] = []
    counted: dict[str, int] = defaultdict(int)
    for series in exposition.series:
        meaning = timed(series.family, exposition.units.get(series.family), exposition.helps.get(series.family, ""), told)
        if meaning is None:
            left_out.append(series.family)
            continue
        buckets = _buckets(series)
        if isinstance(buckets, Refused):
            refused.append(buckets)
            continue
        try:
            rows += _rows(series, buckets, meaning, exposition, options.host)
        except (BadField, ValidationError) as error:
            refused.append(Refused(series.line, series.text(), reason(error)))
            continue
        counted[series.family] += sum(n for _, _, n in buckets)
        notes += _doubts(series, buckets, meaning)
    notes += _summary(exposition, rows, left_out, counted)
    return Found(tuple(rows), exposition.n_samples, tuple(refused), tuple(notes))


Bucket = tuple[Decimal, Decimal | None, int]
"""Lower edge, upper edge (None where there is none) and how many lie between, as a number of its own."""


def _buckets(series: Series) -> list[Bucket] | Refused:
    """Counts of the single buckets, empty ones too, from those up to each edge; why not, where they contradict themselves."""
    item = series.text()
    edges = sorted((edge, n) for edge, n in series.below.items() if edge is not None)
    found: list[Bucket] = []
    lower, before = Decimal(0), 0
    for edge, n in edges:
        if n < before:
            return Refused(series.line, item, f"{n} are at most {edge}, but {before} at most {lower}: counts must not fall")
        if edge < 0 and n:
            return Refused(series.line, item, f"{n} are at most {edge}: not lengths of time")
        upper = max(edge, Decimal(0))
        found.append((lower, upper, n - before))
        lower, before = upper, n
    total = series.below.get(None, series.count)
    if total is not None:
        if total < before:
            return Refused(series.line, item, f"{total} in all, but {before} at most {lower}: counts must not fall")
        found.append((lower, None, total - before))
    return found


def _rows(series: Series, buckets: Sequence[Bucket], meaning: Timed, exposition: Exposition, host: str | None) -> list[Row]:
    """The attempt of a series and an observation per bucket that holds something; none where nothing does."""
    host = host or _first(series.labels, _HOST_LABELS)
    edges = ",".join(str(float(upper)) for _, upper, _ in buckets if upper is not None)
    born = series.created or exposition.started
    attempt_id = row_id("prometheus", host, born, series.family, sorted(series.labels.items()), edges)
    namespace = series.family.partition(":")[0] if ":" in series.family else ""
    attempt = Attempt(
        attempt_id=attempt_id,
        node_id=name(series.text()),
        host=name(host),
        family=name(namespace),
        model=name(_first(series.labels, _MODEL_LABELS)),
    )
    found: list[Row] = []
    for segment, (lower, upper, n) in enumerate(buckets):
        if n == 0 or (upper is None and lower == 0):
            continue  # nothing in it, or known to be longer than nothing
        found.append(
            Observation(
                observation_id=f"{attempt_id}/{meaning.phase}/{segment}",
                attempt_id=attempt_id,
                phase=meaning.phase,
                segment=segment,
                duration_s=_length(lower if upper is None else upper, meaning),
                ended=Ended.LOST if upper is None else Ended.COMPLETED,
                outcomes=n,
                resolution_s=0.0 if upper is None else _length(upper - lower, meaning),
                assumed=f"unit={meaning.unit}" if meaning.assumed else None,
            )
        )
    return [attempt, *found] if found else []


def _length(value: Decimal, meaning: Timed) -> float:
    return length("le", value * SECONDS_PER[meaning.unit])


def _first(labels: Mapping[str, str], names: Sequence[str]) -> str | None:
    """Value of the first of these labels that has one."""
    return next((labels[label] for label in names if labels.get(label)), None)


def _doubts(series: Series, buckets: Sequence[Bucket], meaning: Timed) -> list[str]:
    """Where the sum of a histogram does not fit its buckets, or only by another unit; and a total that differs."""
    found = []
    total = sum(n for _, _, n in buckets)
    if series.count is not None and series.count != total:
        found.append(f"{series.family}: _count says {series.count}, the buckets {total}; the buckets are taken")
    if series.total is None or not total:
        return found
    mean, last = series.total / total, max(lower for lower, _, _ in buckets)
    above = sum(n for _, upper, n in buckets if upper is None)
    least = sum((lower * n for lower, _, n in buckets), Decimal(0)) / total
    most = sum(((upper or Decimal(0)) * n for _, upper, n in buckets), Decimal(0)) / total
    slack = Decimal("1e-6") * max(last, Decimal(1))
    if 2 * above > total and mean > 100 * last:
        told = f"most lie above the last edge, {last}, and the mean is {mean:.6g}"
        found.append(f"{series.family}: {told}: are they in a unit smaller by 1000 than {meaning.unit}? say --unit")
    elif mean < least - slack or (not above and mean > most + slack):
        found.append(f"{series.family}: the mean by _sum, {mean:.6g}, lies outside what the buckets allow")
    return found


def _summary(exposition: Exposition, rows: Sequence[Row], left_out: Sequence[str], counted: Mapping[str, int]) -> list[str]:
    """What was not read and why, what must not be added up, and what tells this process from another."""
    notes = []
    if left_out:
        names = sorted(set(left_out))
        notes.append(f"{len(names)} histograms are of no time and were left out: {_listed(names)}")
    if exposition.others:
        kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(exposition.others.items()))
        notes.append(f"no lengths of single pieces of work in samples of other kinds: {kinds}")
    told = {name: n for name, n in counted.items() if n}
    if len(set(told.values())) > 1:
        which = _listed([f"{name} {n}" for name, n in sorted(told.items())])
        notes.append(f"families count different things and do not add up: {which}")
    nameless = any(isinstance(row, Attempt) and row.host is None for row in rows)
    if any(isinstance(row, Observation) and row.assumed for row in rows):
        notes.append("a name speaks of a time but of no unit: seconds assumed; say --unit to decide")
    if not rows:
        notes.append("no time histogram with anything in it: nothing to learn from")
    elif exposition.started is None and nameless and not any(series.created for series in exposition.series):
        notes.append("nothing tells this process from others with the same labels: say --host, or a later file replaces it")
    return notes


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


PROMETHEUS = Importer("prometheus", recognises, read, by_line=True)
