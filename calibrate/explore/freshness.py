"""How old a measured cost may be, configuration by configuration, and which stale one to measure next.

A cost is the median of the last nine samples that came while it was fresh. Age alone never makes it unknown: it goes on being
used, and the first valid sample after that replaces it whole. An invalid sample changes nothing and makes nothing fresh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from telemetry.errors import BadField

LAST = 9


@dataclass(frozen=True)
class Limits:
    """How long a cost is fresh, s: `default_s`, or what `by_configuration` says of one."""

    default_s: float = 30.0
    by_configuration: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, limit_s in [("default_s", self.default_s), *self.by_configuration.items()]:
            if not limit_s > 0.0:
                raise BadField(name, limit_s, "give a time above 0 s")

    def limit_ns(self, configuration: str) -> int:
        """The limit of a configuration, ns."""
        return round(self.by_configuration.get(configuration, self.default_s) * 1e9)


@dataclass(frozen=True, slots=True)
class Cost:
    """What is known of one configuration's time: its samples in s, when the last valid one came, when it was last tried (ns)."""

    samples_s: tuple[float, ...] = ()
    valid_ns: int | None = None
    tried_ns: int = 0

    @property
    def cost_s(self) -> float | None:
        """Median of the samples in s; None while nothing was ever measured."""
        return median(self.samples_s) if self.samples_s else None

    def fresh(self, now_ns: int, limit_ns: int) -> bool:
        """Whether the last valid sample is recent enough."""
        return self.valid_ns is not None and now_ns - self.valid_ns <= limit_ns

    def after(self, sample_s: float | None, now_ns: int, limit_ns: int) -> Cost:
        """With a run that was carried out; a sample that is missing, or not above 0 s, measured nothing."""
        if sample_s is None or not sample_s > 0.0:
            return replace(self, tried_ns=now_ns)
        kept = self.samples_s[-(LAST - 1) :] if self.fresh(now_ns, limit_ns) else ()
        return Cost((*kept, sample_s), now_ns, now_ns)


def stalest(candidates: Sequence[str], costs: Mapping[str, Cost], now_ns: int, limits: Limits) -> str | None:
    """Which of these to measure again: the one valid or tried longest ago, the first given of equals; None if all are fresh.

    `candidates` are feasible and measured before, the most useful first; what was never measured is discovered, not refreshed.
    """
    known = [name for name in candidates if costs.get(name, Cost()).valid_ns is not None]
    stale = [name for name in known if not costs[name].fresh(now_ns, limits.limit_ns(name))]
    return min(stale, key=lambda name: max(costs[name].valid_ns or 0, costs[name].tried_ns), default=None)
