"""Refresh and acceptance learning stay within their shares, whatever happens in which order."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.explore.budget import Account, Funds, Kind, Ran
from telemetry.errors import BadField

MS = 1_000_000


def ordinary(length_ns: int) -> Ran:
    return Ran(Kind.ORDINARY, length_ns, length_ns)


def full(funds: Funds = Funds()) -> Funds:  # noqa: B008  a frozen value
    """After enough ordinary work for both accounts."""
    return funds.after(ordinary(10**12))


def test_the_first_refresh_is_funded_by_2495_ms_of_ordinary_work() -> None:
    assert Funds().after(ordinary(2494 * MS)).refresh.balance_ns < 5 * MS
    assert Kind.REFRESH is Funds().after(ordinary(2495 * MS)).due


def test_the_first_acceptance_probe_is_funded_by_495_ms_of_ordinary_work() -> None:
    assert None is Funds().after(ordinary(494 * MS)).due
    assert Kind.LEARNING is Funds().after(ordinary(495 * MS)).due


def test_credit_stops_at_the_cap() -> None:
    assert (5 * MS, 5 * MS) == (full().refresh.balance_ns, full(full()).refresh.earned_ns)


def test_timing_comes_before_learning_and_one_episode_runs_at_a_time() -> None:
    assert Kind.REFRESH is full().due
    begun = full().begin(Kind.REFRESH)
    assert None is begun.due
    with pytest.raises(BadField, match="one episode at a time"):
        begun.begin(Kind.LEARNING)


def test_an_episode_is_paid_by_its_own_account_alone() -> None:
    after = full().begin(Kind.REFRESH).after(Ran(Kind.REFRESH, 12 * MS, 12 * MS))
    assert (-7 * MS, 5 * MS) == (after.refresh.balance_ns, after.learning.balance_ns)
    assert Kind.LEARNING is after.due
    after = after.begin(Kind.LEARNING).after(Ran(Kind.LEARNING, 6 * MS, 6 * MS))
    assert (-7 * MS, -1 * MS) == (after.refresh.balance_ns, after.learning.balance_ns)


def test_idle_clears_credit_and_keeps_debt() -> None:
    in_debt = full().begin(Kind.REFRESH).after(Ran(Kind.REFRESH, 12 * MS, 12 * MS)).idle()
    assert (-7 * MS, 0) == (in_debt.refresh.balance_ns, in_debt.learning.balance_ns)
    assert 5 * MS == in_debt.learning.discarded_ns


def test_an_invalid_interval_earns_nothing_and_an_invalid_episode_costs_its_wall_time() -> None:
    assert 0 == Funds().after(Ran(Kind.ORDINARY, 10**12, 0)).refresh.earned_ns
    assert 0 == Funds().after(Ran(Kind.ORDINARY, 10**12, None)).refresh.earned_ns
    after = full().begin(Kind.REFRESH).after(Ran(Kind.REFRESH, 9 * MS, None))
    assert 9 * MS == after.refresh.paid_ns


def test_a_queued_run_is_charged_what_was_measured_and_an_isolated_one_the_longer_of_both() -> None:
    assert 3 * MS == Ran(Kind.ORDINARY, 8 * MS, 3 * MS, isolated=False).charged_ns
    assert 8 * MS == Ran(Kind.ORDINARY, 8 * MS, 3 * MS).charged_ns


def test_discovery_neither_earns_nor_pays() -> None:
    assert Funds() == Funds().after(Ran(Kind.DISCOVERY, 10**12, 10**12))


def test_an_episode_needs_full_credit_and_a_beginning() -> None:
    with pytest.raises(BadField, match="wait for full credit: 0 of 5000000 ns"):
        Funds().begin(Kind.REFRESH)
    with pytest.raises(BadField, match="begin an episode"):
        full().after(Ran(Kind.REFRESH, 1, 1))
    with pytest.raises(BadField, match="are funded"):
        full().begin(Kind.ORDINARY)


@pytest.mark.parametrize(("share", "cap_ns"), [(0.0, 5), (1.0, 5), (0.1, 0)])
def test_an_account_without_share_or_cap_is_refused(share: float, cap_ns: int) -> None:
    with pytest.raises(BadField, match="share in"):
        Account(share, cap_ns)


class Witness:
    """Keeps its own books of one life, in exact fractions."""

    def __init__(self, funds: Funds) -> None:
        self.funds = funds
        self.ordinary_ns = 0
        self.paid_ns = {Kind.REFRESH: 0, Kind.LEARNING: 0}
        self.last_ns = {Kind.REFRESH: 0, Kind.LEARNING: 0}
        self.episodes = 0
        self.rate = {
            account.share: Fraction(account.share) / (1 - Fraction(account.share)) for account in (funds.refresh, funds.learning)
        }

    def live(self, what: int, length_ns: int) -> None:
        """An ordinary run (0 to 5), an invalid one (6), idle time (7), or an episode if one is due (8, 9)."""
        if what <= 6:
            valid = what <= 5
            self.ordinary_ns += length_ns if valid else 0
            self.funds = self.funds.after(Ran(Kind.ORDINARY, length_ns, length_ns if valid else None))
        elif what == 7:
            before = self.funds
            self.funds = self.funds.idle()
            assert min(before.refresh.balance_ns, 0) == self.funds.refresh.balance_ns
        elif (kind := self.funds.due) is not None:
            self.funds = self.funds.begin(kind).after(Ran(kind, length_ns, length_ns))
            self.paid_ns[kind] += length_ns
            self.last_ns[kind] = length_ns
            self.episodes += 1
            self.hold()

    def hold(self) -> None:
        for kind, account in ((Kind.REFRESH, self.funds.refresh), (Kind.LEARNING, self.funds.learning)):
            rate = self.rate[account.share]
            over_ns = self.paid_ns[kind] - self.last_ns[kind]
            assert over_ns * rate.denominator <= rate.numerator * self.ordinary_ns
            assert account.balance_ns == account.earned_ns - account.paid_ns - account.discarded_ns
            assert account.balance_ns <= account.cap_ns


def test_the_inequality_holds_over_a_hundred_thousand_episodes() -> None:
    rng, episodes = random.Random(4), 0
    while episodes < 100_000:
        one = Witness(Funds(*(Account(rng.uniform(0.001, 0.3), rng.randint(1, 10**7)) for _ in range(2))))
        for what in rng.choices(range(10), weights=(1, 1, 1, 0, 0, 0, 1, 1, 3, 3), k=3000):
            one.live(what, int(10.0 ** rng.uniform(0, 9)))
        episodes += one.episodes


@settings(max_examples=200, deadline=None)
@given(
    share=st.floats(0.0001, 0.9),
    cap_ns=st.integers(1, 10**9),
    steps=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**12)), max_size=40),
)
def test_the_inequality_holds_for_any_share_cap_and_order(share: float, cap_ns: int, steps: list[tuple[int, int]]) -> None:
    one = Witness(Funds(Account(share, cap_ns), Account(share / 2, cap_ns)))
    for what, length_ns in steps:
        one.live(what, length_ns)
    one.hold()
