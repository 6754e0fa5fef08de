"""What refreshing timings and learning acceptance may cost: shares of ordinary run time, with a cap on credit, and debt.

An account earns share / (1 - share) of the ordinary time that ran validly, up to its cap, and pays for one episode at a time, at
its real length. An episode starts on full credit only, and may run into debt. With O the ordinary time credited, P the time paid
and D the length of the last episode,

    P <= share / (1 - share) O + D,

whatever the order: the balance after an episode is at least cap - D, and what was not earned was not spent. Idle time discards
credit and keeps debt, so a burst can't be paid for by what came hours before it. All times are whole ns, earnings rounded down.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum

from telemetry.errors import BadField


class Kind(StrEnum):
    """What a run was for: one thing, so that no two accounts ever pay for the same."""

    ORDINARY = "ordinary"
    DISCOVERY = "discovery"
    REFRESH = "timing_refresh"
    LEARNING = "acceptance_learning"


@dataclass(frozen=True, slots=True)
class Account:
    """Credit in ns, or debt where the balance is negative; `earned_ns`, `paid_ns` and `discarded_ns` are what led to it."""

    share: float
    cap_ns: int
    balance_ns: int = 0
    earned_ns: int = 0
    paid_ns: int = 0
    discarded_ns: int = 0

    def __post_init__(self) -> None:
        if not (0.0 < self.share < 1.0 and self.cap_ns > 0):
            raise BadField("share, cap_ns", (self.share, self.cap_ns), "give a share in (0, 1) and a cap above 0")

    @property
    def full(self) -> bool:
        """Whether an episode may start."""
        return self.balance_ns >= self.cap_ns

    def earn(self, ordinary_ns: int) -> Account:
        """With ordinary time that ran validly; what would pass the cap is not earned."""
        gain = min(int(ordinary_ns * self.share / (1.0 - self.share)), self.cap_ns - self.balance_ns)
        return replace(self, balance_ns=self.balance_ns + gain, earned_ns=self.earned_ns + gain)

    def pay(self, spent_ns: int) -> Account:
        """With an episode paid at its real length."""
        return replace(self, balance_ns=self.balance_ns - spent_ns, paid_ns=self.paid_ns + spent_ns)

    def idle(self) -> Account:
        """After a time without work: credit goes, debt stays."""
        lost = max(self.balance_ns, 0)
        return replace(self, balance_ns=self.balance_ns - lost, discarded_ns=self.discarded_ns + lost)


@dataclass(frozen=True, slots=True)
class Ran:
    """A run that is over. `measured_ns` is its length by the best clock it had; None or 0 where that told nothing.

    `isolated` says that nothing else was queued, so that its wall time was its own.
    """

    kind: Kind
    wall_ns: int
    measured_ns: int | None = None
    isolated: bool = True

    @property
    def valid(self) -> bool:
        """Whether it measured anything: a missing or zero interval is no measurement."""
        return self.measured_ns is not None and self.measured_ns > 0

    @property
    def charged_ns(self) -> int:
        """What it took: what was measured, and where it was isolated or nothing was measured at least its wall time."""
        measured_ns = self.measured_ns or 0
        return max(measured_ns, self.wall_ns) if self.isolated or not self.valid else measured_ns


@dataclass(frozen=True, slots=True)
class Funds:
    """The two accounts, and the episode that is under way. The defaults are those of one serving engine: settings, no constants.

    A value: each method gives the next one.
    """

    refresh: Account = field(default_factory=lambda: Account(0.002, 5_000_000))
    learning: Account = field(default_factory=lambda: Account(0.01, 5_000_000))
    under_way: Kind | None = None

    @property
    def due(self) -> Kind | None:
        """What may start now; timing comes first, since the gain of learning is reckoned in times."""
        if self.under_way is not None:
            return None
        return Kind.REFRESH if self.refresh.full else Kind.LEARNING if self.learning.full else None

    def begin(self, kind: Kind) -> Funds:
        """Start an episode. Raises BadField without full credit, or while another is under way."""
        account = {Kind.REFRESH: self.refresh, Kind.LEARNING: self.learning}.get(kind)
        if account is None:
            raise BadField("kind", kind, f"only {Kind.REFRESH} and {Kind.LEARNING} are funded")
        if self.under_way is not None:
            raise BadField("kind", kind, f"one episode at a time: {self.under_way} is under way")
        if not account.full:
            raise BadField("kind", kind, f"wait for full credit: {account.balance_ns} of {account.cap_ns} ns")
        return replace(self, under_way=kind)

    def after(self, ran: Ran) -> Funds:
        """With a run that is over: ordinary ones earn for both, an episode is paid by its own account, discovery by none.

        Raises BadField for an episode that was never begun.
        """
        if ran.kind in {Kind.REFRESH, Kind.LEARNING}:
            return self._paid(ran)
        if ran.kind is Kind.DISCOVERY or not ran.valid:
            return self
        return replace(self, refresh=self.refresh.earn(ran.charged_ns), learning=self.learning.earn(ran.charged_ns))

    def _paid(self, ran: Ran) -> Funds:
        if ran.kind is not self.under_way:
            raise BadField("kind", ran.kind, "begin an episode before it is paid")
        if ran.kind is Kind.REFRESH:
            return replace(self, refresh=self.refresh.pay(ran.charged_ns), under_way=None)
        return replace(self, learning=self.learning.pay(ran.charged_ns), under_way=None)

    def idle(self) -> Funds:
        """After a time without work."""
        return replace(self, refresh=self.refresh.idle(), learning=self.learning.idle())
