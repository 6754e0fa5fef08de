"""Context: what is known about an attempt before a phase starts, and its path through the hierarchy.

The path is the one definition of strata: hazards shrink along it, later the recalibration and the reports do too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

CATEGORIES = ("host", "device", "family", "model", "runtime", "precision", "mode", "state")
NUMBERS = ("batch", "size_in", "corunners")
LEVELS = ("phase", "state", "family", "host", "model", "configuration")
"""Names of the levels of a path, root first."""


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
        return {k: v for k, v in asdict(self).items() if v is not None}

    def configuration(self) -> str:
        """Exact configuration: every category, and numbers to the nearest power of two (of 1 + x)."""
        words = [getattr(self, name) or "" for name in CATEGORIES]
        return "|".join([*words, *(_octave(getattr(self, name)) for name in NUMBERS)])

    def path(self, phase: str) -> tuple[str, ...]:
        """Node keys from root to leaf, one per name in LEVELS. An unknown value is a value of its own."""
        state, family = f"{phase}/{self.state or ''}", self.family or ""
        host = f"{state}/{family}/{self.host or ''}|{self.device or ''}"
        model = f"{host}/{self.model or ''}|{self.runtime or ''}|{self.precision or ''}|{self.mode or ''}"
        return (phase, state, f"{state}/{family}", host, model, f"{phase}#{self.configuration()}")


def _octave(value: float | None) -> str:
    """Shape to the nearest power of two of 1 + x; unknown stays apart from zero."""
    return "" if value is None else str(round(math.log2(max(value, 0.0) + 1.0)))
