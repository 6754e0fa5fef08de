"""Advice on exploring: which other alternative to try, how likely, and what that may cost in missed promises.

Unknown speed may be explored, unknown memory safety never. An alternative is left out unless its caller marked it resource safe,
permits it, and knows it to be supported; work with a protected deadline is never explored with. What is left shares a chance so
small that the expected number of extra misses stays within an account that earns a share of a miss per decision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from telemetry.errors import BadField


@dataclass(frozen=True, slots=True)
class Alternative:
    """One feasible alternative. `resource_safe` is None where nobody said.

    `misses` is the chance of missing what was promised if it is taken, from the upper end; None where its speed is unknown.
    """

    name: str
    resource_safe: bool | None = None
    permitted: bool = False
    supported: bool = False
    misses: float | None = None


@dataclass(frozen=True, slots=True)
class RiskAccount:
    """Expected extra misses that exploring may cause: `share` of one per decision, at most `cap` saved up."""

    share: float = 0.001
    cap: float = 0.05
    balance: float = 0.0

    def __post_init__(self) -> None:
        if not (0.0 < self.share < 1.0 and self.cap > 0.0):
            raise BadField("share, cap", (self.share, self.cap), "give a share in (0, 1) and a cap above 0")

    def earn(self) -> RiskAccount:
        """With one more decision."""
        return replace(self, balance=min(self.balance + self.share, self.cap))

    def spend(self, misses: float) -> RiskAccount:
        """With so many expected misses more."""
        return replace(self, balance=self.balance - misses)


@dataclass(frozen=True)
class Advice:
    """What to do: propensities by name (they sum to 1), why the others are out, and the expected extra misses that this costs."""

    choice: str
    propensities: Mapping[str, float]
    excluded: Mapping[str, str]
    extra_misses: float
    account: RiskAccount
    reasons: tuple[str, ...] = field(default=())


def advise(
    ordinary: str,
    alternatives: Sequence[Alternative],
    account: RiskAccount,
    draw: float,
    *,
    protected: bool = False,
    most: float = 0.05,
) -> Advice:
    """Advise on one decision whose ordinary choice is given by name; `draw` is a uniform in [0, 1) of this decision's own.

    Those that may be explored share at most the probability `most`, equally. Raises BadField if `ordinary` is not among them.
    """
    named = {one.name: one for one in alternatives}
    if ordinary not in named or len(named) < len(alternatives):
        raise BadField("alternatives", [one.name for one in alternatives], f"list each once, {ordinary!r} among them")
    earned = account.earn()
    others = [one for one in alternatives if one.name != ordinary]
    excluded = {one.name: why for one in others if (why := _excluded(one, protected=protected))}
    open_to = [one for one in others if one.name not in excluded]
    extra = _extra_misses(named[ordinary], open_to)
    chance = _chance(extra, earned.balance, most) if open_to else 0.0
    spent = chance * extra
    each = {one.name: chance / len(open_to) for one in open_to} if chance > 0.0 else {}
    reasons = ("risk_budget_spent",) if open_to and chance == 0.0 else ("protected_deadline",) if protected else ()
    likely = {ordinary: 1.0 - chance, **each}
    return Advice(_drawn(likely, draw), likely, excluded, spent, earned.spend(spent), reasons)


def _excluded(one: Alternative, *, protected: bool) -> str | None:
    """Why an alternative may not be explored."""
    rules = (
        (protected, "protected_deadline"),
        (one.resource_safe is None, "resource_safety_unmarked"),
        (one.resource_safe is False, "not_resource_safe"),
        (not one.permitted, "not_permitted"),
        (not one.supported, "unsupported_mode"),
    )
    return next((why for holds, why in rules if holds), None)


def _extra_misses(ordinary: Alternative, open_to: Sequence[Alternative]) -> float:
    """Expected misses more, if one of these is taken at random; what is of unknown speed may miss for certain."""
    base = ordinary.misses or 0.0
    worse = [max((1.0 if one.misses is None else one.misses) - base, 0.0) for one in open_to]
    return sum(worse) / len(worse) if worse else 0.0


def _chance(extra: float, balance: float, most: float) -> float:
    """Probability of exploring: `most`, or what the account pays for."""
    if balance <= 0.0:
        return 0.0 if extra > 0.0 else most
    return min(most, balance / extra) if extra > 0.0 else most


def _drawn(likely: Mapping[str, float], draw: float) -> str:
    """The alternative in whose part of [0, 1) the draw lies, in the order given."""
    upto = 0.0
    for name, p in likely.items():
        upto += p
        if draw < upto:
            return name
    return list(likely)[-1]
