"""Context: what is known about an attempt before a phase starts, and its path through the hierarchy.

The path is the one definition of strata: hazards shrink along it, later the recalibration and the reports do too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

CATEGORIES = ("host", "device", "family", "model", "runtime", "precision", "mode", "state")
NUMBERS = ("batch", "size_in", "corunners")
LEVELS = ("phase", "state", "family", "host", "model", "configuration")
"""Names of the levels of a path, root first."""
GROUPS = (
    "phase",
    "host",
    "device",
    "family",
    "model",
    "family+model",
    "host+family",
    "host+model",
    "host+family+model",
    "device+family",
    "fleet",
    "fleet+family+model",
    "configuration",
)
"""Names of the crossed groups of a context, in the order of `groups_of`."""
JUDGED = ("phase", "novelty", "family", "host", "model", "configuration")
"""Names of the nodes of a judged path, root first."""
NOVELTY = (1, 5, 20)
"""Known outcomes of an exact configuration from which it is one class less novel."""
PLACED = -1
"""Stands for the novelty of a configuration never seen on a host that nothing but its measured rates places."""
_WORD = re.compile(r"[^\W\d_]{2}")
"""Two letters together: a letter and a number are a model, not a name."""
_DIGITS = "0123456789"
REMEMBERED = 100_000
"""Contexts whose keys are remembered."""


@dataclass(frozen=True, slots=True)
class Context:
    """What is known before a phase starts; None is unknown, never 0.

    Fields mean what the columns of the attempts table say.
    """

    host: str | None = None
    device: str | None = None
    family: str | None = None
    model: str | None = None
    runtime: str | None = None
    precision: str | None = None
    mode: str | None = None
    state: str | None = None
    batch: float | None = None
    size_in: float | None = None
    corunners: float | None = None

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Context:
        """The context within a wider record, such as a row of attempts; other keys are passed over."""
        return cls(**{name: values.get(name) for name in (*CATEGORIES, *NUMBERS)})

    def known(self) -> dict[str, Any]:
        """Known fields only, in the order of definition."""
        values = ((name, getattr(self, name)) for name in (*CATEGORIES, *NUMBERS))
        return {name: value for name, value in values if value is not None}

    def configuration(self) -> str:
        """Exact configuration: every category, and numbers to the nearest power of two (of 1 + x)."""
        return _configuration(self)

    def path(self, phase: str) -> tuple[str, ...]:
        """Node keys from root to leaf, one per name in LEVELS. An unknown value is a value of its own."""
        state, family = f"{phase}/{self.state or ''}", self.family or ""
        host = f"{state}/{family}/{self.host or ''}|{self.device or ''}"
        model = f"{host}/{self.model or ''}|{self.runtime or ''}|{self.precision or ''}|{self.mode or ''}"
        return (phase, state, f"{state}/{family}", host, model, f"{phase}#{self.configuration()}")


def fleet_of(host: str) -> str:
    """What the names of hosts have in common that differ by a number alone: `gpu-a` of `gpu-a-07` and `gpu-a-12`.

    What follows the first dot is kept, for it names a site. Empty where no number ends what comes before it, or no two letters
    stand together there.
    """
    first, dot, site = host.partition(".")
    stem = first.rstrip(_DIGITS)
    if stem == first or not _WORD.search(first) or (dot and not site[:1].isalpha()):
        return ""
    return stem.rstrip("-_") + dot + site


@lru_cache(maxsize=REMEMBERED)
def _configuration(context: Context) -> str:
    words = [getattr(context, name) or "" for name in CATEGORIES]
    return "|".join([*words, *(_octave(getattr(context, name)) for name in NUMBERS)])


def novelty(n: int) -> int:
    """Class of an exact configuration with n known outcomes: 0 for never seen, up to 3."""
    return sum(n >= least for least in NOVELTY)


@lru_cache(maxsize=REMEMBERED)
def groups_of(context: Context, phase: str) -> tuple[str, ...]:
    """Keys of the crossed groups a context belongs to, one per name in GROUPS."""
    at = f"{phase}/{context.state or ''}"
    host, device, family = context.host or "", context.device or "", context.family or ""
    model = f"{context.model or ''}|{context.runtime or ''}|{context.precision or ''}|{context.mode or ''}"
    fleet = fleet_of(host)
    return (
        at,
        f"{at} h {host}",
        f"{at} d {device}",
        f"{at} f {family}",
        f"{at} m {model}",
        f"{at} fm {family}|{model}",
        f"{at} hf {host}|{family}",
        f"{at} hm {host}|{model}",
        f"{at} hfm {host}|{family}|{model}",
        f"{at} df {device}|{family}",
        f"{at} F {fleet}",
        f"{at} Ffm {fleet}|{family}|{model}",
        f"{phase}#{context.configuration()}",
    )


@lru_cache(maxsize=REMEMBERED)
def judged_path(context: Context, phase: str, novel: int) -> tuple[str, ...]:
    """Nodes, root to leaf, in which it is learned who answers best and how true answers are.

    Novelty comes first: what to do for things never seen is learned from earlier things never seen. `novel` PLACED learns from
    earlier hosts that were placed by their rates; who answers best, from all work of the phase while there were none.
    """
    kind, seen = f"novelty {novel}", "seen" if novel else "new"
    if novel == PLACED:
        kind = seen = "placed"
    at = f"{phase}/{context.state or ''}"
    host = f"{at} {context.family or ''}|{context.host or ''}|{context.device or ''}"
    model = f"{context.model or ''}|{context.runtime or ''}|{context.precision or ''}|{context.mode or ''}"
    return (
        at,
        f"{at} {kind}",
        f"{at} {seen} {context.family or ''}",
        host,
        f"{host} {model}",
        f"{phase}#{context.configuration()}",
    )


def judges_from(path: Sequence[str]) -> int:
    """Depth of the first node of a judged path by which levels are recalibrated: 0, but 1 for a host that its rates place.

    The phase as a whole has learned by how much answers miss that rest on history. How far a placed host may lie from its place
    is part of its answer, measured on hosts left out: made up for once more it would be answered too long.
    """
    return 1 if path[1] == f"{path[0]} placed" else 0


def settled_nodes(path: Sequence[str]) -> Sequence[str]:
    """Nodes of a judged path in which answers do not get better as more of other work is known.

    They are those of what was never seen, since there will always be more of that, and the exact configuration.
    """
    new = path[1:3] if len(path) > 1 and path[1] == f"{path[0]} novelty 0" else ()
    return (*new, *path[len(JUDGED) - 1 :])


def _octave(value: float | None) -> str:
    """Shape to the nearest power of two of 1 + x; unknown stays apart from zero."""
    return "" if value is None else str(round(math.log2(max(value, 0.0) + 1.0)))
