"""Answers tell where the nearest outcomes come from, and when the newest ended."""

from __future__ import annotations

import pytest

from calibrate.evidence.nearest import newer, newest_ns, provenance
from predictors.contexts import LEVELS, Context, groups_of
from predictors.experts.histories import Histories, Learning
from predictors.layered import Layered
from predictors.model import Change
from telemetry.words import Ended

HERE = Context(host="north", device="gpu", family="encoder", model="small")
S = 1_000_000_000


def knowing(*contexts: Context) -> Histories:
    learning = Learning(Histories())
    for context in contexts:
        learning.take(context, "service", 0.0, 0.0, None)
    return learning.done()


@pytest.mark.parametrize(
    ("known", "word"),
    [
        (Context(host="north", device="gpu", family="encoder", model="other"), "own_host"),
        (Context(host="south", device="cpu", family="encoder", model="small"), "sibling"),
        (Context(host="south", device="gpu", family="encoder", model="other"), "device_class"),
        (Context(host="south", device="cpu", family="encoder", model="other"), "family"),
        (Context(host="north", device="gpu", family="decoder", model="small"), "other_work"),
    ],
)
def test_the_nearest_outcomes_are_named(known: Context, word: str) -> None:
    assert word == provenance(knowing(known), HERE, "service")
    assert "own_host" == provenance(knowing(known, HERE), HERE, "service")


def test_another_phase_is_other_work() -> None:
    assert "other_work" == provenance(knowing(HERE), HERE, "setup")
    assert "service/" == groups_of(HERE, "service")[0]


def test_a_host_placed_by_its_rates_says_so_until_it_has_ended_something() -> None:
    elsewhere = Context(host="south", device="gpu", family="encoder", model="small")
    assert "profile_prior" == provenance(knowing(elsewhere), HERE, "service", rests_on_rates=True)
    assert "sibling" == provenance(knowing(elsewhere), HERE, "service", rests_on_rates=False)
    assert "own_host" == provenance(knowing(elsewhere, HERE), HERE, "service", rests_on_rates=True)


def ended(start_s: int, duration_s: float, how: Ended = Ended.COMPLETED, started: bool = True) -> Change:
    return Change(1, 1, "service", HERE, 0.0, duration_s, how, 1.0, 1, "a/service/0", start_s * S if started else None)


def test_the_newest_end_counts_whatever_the_order() -> None:
    known = newer(newer(Layered(), [ended(100, 20.0)]), [ended(90, 5.0), ended(110, 0.5)])
    assert [120 * S] * len(LEVELS) == [newest_ns(known, HERE, "service", depth) for depth in range(len(LEVELS))]


def test_what_did_not_complete_or_began_at_no_known_time_is_no_news() -> None:
    changes = [ended(100, 20.0, Ended.CANCELLED), ended(100, 20.0, Ended.RUNNING), ended(100, 20.0, started=False)]
    assert newest_ns(newer(Layered(), changes), HERE, "service", 0) is None
