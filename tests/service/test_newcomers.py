"""Hosts that the last fit knew no outcome of: ten of theirs make the next one due, those of hosts it knew never do."""

from __future__ import annotations

from predictors.contexts import GROUPS, Context, groups_of
from service.newcomers import ENOUGH, HOST, Newcomers

NEW, OLD = Context("new", family="a"), Context("old", family="a")


def counted(*contexts: Context, known: frozenset[str] = frozenset()) -> Newcomers:
    newcomers = Newcomers()
    for context in contexts:
        newcomers.ended(context, "service", known)
    return newcomers


def test_so_many_outcomes_of_hosts_not_met_make_a_fit_due_and_one_fewer_does_not() -> None:
    assert counted(*[NEW] * ENOUGH).due
    assert not counted(*[NEW] * (ENOUGH - 1)).due
    assert counted(*[Context(f"pod-{i}") for i in range(ENOUGH)]).due


def test_hosts_with_outcomes_from_before_do_not_count() -> None:
    known = frozenset({groups_of(OLD, "service")[GROUPS.index("host")]})
    assert counted(*[OLD] * 100, known=known).outcomes == 0
    assert counted(*[Context()] * 100).outcomes == 0  # no host was told


def test_a_host_goes_on_counting_once_the_model_has_learned_of_its_first_outcomes() -> None:
    newcomers = Newcomers()
    newcomers.ended(NEW, "service", frozenset())
    newcomers.ended(NEW, "service", frozenset({groups_of(NEW, "service")[HOST]}))
    assert newcomers.outcomes == 2


def test_after_a_fit_only_hosts_that_it_did_not_know_count() -> None:
    newcomers = counted(*[NEW] * ENOUGH)
    newcomers.fitted()
    newcomers.ended(NEW, "service")
    assert (0, False) == (newcomers.outcomes, newcomers.due)
    newcomers.ended(NEW, "load")
    assert newcomers.outcomes == 1
