"""The text exposition format, Prometheus 0.0.4 and OpenMetrics 1.0: samples gathered to histogram series."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from telemetry.importers.contract import Refused
from telemetry.importers.decimals import count, number

_KINDS = "counter|gauge|histogram|summary|untyped|unknown|info|stateset|gaugehistogram"
_TYPE = re.compile(rf"^# TYPE [a-zA-Z_:][\w:]* (?:{_KINDS})\s*$", re.MULTILINE | re.ASCII)
_NAME = re.compile(r"[a-zA-Z_:][\w:]*", re.ASCII)
_LABEL = re.compile(r'\s*([a-zA-Z_]\w*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|(?=\}))', re.ASCII)
_VALUE = re.compile(r"\s*(\S+)(?:\s+-?[\d.]+)?\s*(?:#.*)?$", re.ASCII)
_ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}
_STARTED = "process_start_time_seconds"


@dataclass
class Series:
    """One histogram with one set of labels: how many lie at or below each edge (None: in all), and its own total.

    `line` is where it begins, `created` its time of birth as written.
    """

    family: str
    labels: dict[str, str]
    line: int
    below: dict[Decimal | None, int] = field(default_factory=dict)
    count: int | None = None
    total: Decimal | None = None
    created: str | None = None

    def text(self) -> str:
        """Name and labels, as a person writes them."""
        inside = ",".join(f'{name}="{value}"' for name, value in self.labels.items())
        return f"{self.family}{{{inside}}}" if inside else self.family


@dataclass
class Exposition:
    """What a scrape held: histogram series in order, samples (count), those of other kinds, and what it says of names."""

    series: list[Series] = field(default_factory=list)
    n_samples: int = 0
    refused: list[Refused] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, str] = field(default_factory=dict)
    helps: dict[str, str] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    started: str | None = None


def looks_like(head: str) -> bool:
    """Whether text declares the type of a metric, or consists of comments and samples with a bucket among them."""
    if _TYPE.search(head):
        return True
    complete = head.splitlines()[:200]
    samples = [line for line in complete[: -1 if len(complete) > 1 else None] if line.strip() and not line.startswith("#")]
    return any("_bucket{" in line for line in samples) and all(_sample(line) is not None for line in samples)


def read_text(text: str) -> Exposition:
    """All samples of a text. A series with a bucket that can't be read is left out whole and refused, never halved."""
    found = Exposition()
    series: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
    spoilt: set[int] = set()
    for line_number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            _declare(found, line)
        elif line.strip():
            found.n_samples += 1
            sample = _sample(line)
            if sample is None:
                found.refused.append(Refused(line_number, "sample", "neither name, labels and value nor a comment"))
                continue
            _gather(found, series, spoilt, line_number, *sample)
    found.series = [one for one in series.values() if id(one) not in spoilt]
    return found


def _declare(found: Exposition, line: str) -> None:
    """Type, help or unit of a name."""
    words = line.split(maxsplit=3)
    if len(words) == 4 and words[0] == "#":
        told = {"TYPE": found.kinds, "HELP": found.helps, "UNIT": found.units}.get(words[1])
        if told is not None:
            told[words[2]] = words[3].strip()


def _sample(line: str) -> tuple[str, dict[str, str], str] | None:
    """Name, labels and value of a line; time stamp and exemplar after it are passed over."""
    name = _NAME.match(line)
    if name is None:
        return None
    at, labels = name.end(), dict[str, str]()
    if line[at : at + 1] == "{":
        at += 1
        while label := _LABEL.match(line, at):
            labels[label[1]] = re.sub(r"\\.", lambda found: _ESCAPED.get(found[0], found[0]), label[2])
            at = label.end()
        closing = line[at:].lstrip()
        if not closing.startswith("}"):
            return None
        at = len(line) - len(closing) + 1
    value = _VALUE.match(line, at)
    return (name[0], labels, value[1]) if value else None


def _gather(
    found: Exposition,
    series: dict[tuple[str, tuple[tuple[str, str], ...]], Series],
    spoilt: set[int],
    line_number: int,
    name: str,
    labels: dict[str, str],
    value: str,
) -> None:
    """Put a sample where it belongs: into its histogram, or among the others."""
    family, part = _family(found, name, labels)
    if part is None:
        if name == _STARTED and not labels:
            found.started = value
        declared = found.kinds.get(family) or found.kinds.get(family.removesuffix("_total"))  # OpenMetrics leaves it off
        found.others[declared or "untyped"] += 1
        return
    edge = labels.pop("le", "") if part == "bucket" else ""
    one = series.setdefault((family, tuple(sorted(labels.items()))), Series(family, labels, line_number))
    problem = _put(one, part, edge, value)
    if problem and id(one) not in spoilt:
        spoilt.add(id(one))
        found.refused.append(Refused(line_number, one.text(), problem))


def _family(found: Exposition, name: str, labels: dict[str, str]) -> tuple[str, str | None]:
    """The family a name belongs to, and which part of a histogram it is; None if it is of no histogram."""
    for family, part in _splits(name):
        kind = found.kinds.get(family)
        if kind == "histogram" or (kind is None and part == "bucket" and "le" in labels):
            found.kinds[family] = "histogram"  # undeclared, but a bucket with an edge is one
            return family, part
        if kind is not None:
            return family, None
    return name, None


def _splits(name: str) -> Iterator[tuple[str, str]]:
    for part in ("bucket", "count", "sum", "created"):
        if name.endswith(f"_{part}"):
            yield name.removesuffix(f"_{part}"), part


def _put(one: Series, part: str, edge_text: str, value: str) -> str | None:
    """Add a part to its series; why not, if it can't be."""
    if part == "sum":
        one.total = number(value)
    elif part == "created":
        one.created = value
    elif (n := count(value)) is None:
        return f"{value} is no count"
    elif part == "count":
        one.count = n
    else:
        edge = None if edge_text in {"+Inf", "inf", "Inf", "+inf"} else number(edge_text)
        if edge is None and edge_text.lstrip("+").lower() != "inf":
            return f"le={edge_text!r} is no edge"
        if edge in one.below:
            return f"le={edge_text!r} stands twice: two series with the same labels"
        one.below[edge] = n
    return None
