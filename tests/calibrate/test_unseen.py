"""What is new about a row is counted against a frozen record, and ranked; what comes in slowly is learned."""

from __future__ import annotations

import pytest

from calibrate.evidence.drift import winnings
from calibrate.evidence.unseen import FIRST, LEAST_RANKED, RISING, SHAPES, VALUES, Met, Record, places_of, unwatched
from predictors.contexts import Context

KNOWN = Context(host="north", family="encoder", model="small", batch=4.0)
WORK = places_of(KNOWN, "service")[1]


def firsts(context: Context, *earlier: Context) -> list[int]:
    """Which of the earlier rows had each value of a context first; 0 where none had."""
    before = [places_of(one, "service")[1].keys for one in earlier]
    keys = places_of(context, "service")[1].keys
    return [next((row for row, theirs in enumerate(before, 1) if theirs[at] == key), 0) for at, key in enumerate(keys)]


def new(context: Context, *, n: int = 2) -> list[str]:
    """What is new about a context to the record of the first n of two rows."""
    earlier = (KNOWN, Context(host="south", family="encoder", model="small", batch=8.0))
    record = Record(0, (None, None))
    for one in earlier[:n]:
        record = record.after(places_of(one, "service")[1].shapes)
    return record.new(places_of(context, "service")[1], firsts(context, *earlier))


def test_a_value_never_seen_and_a_shape_out_of_range_are_named() -> None:
    assert [] == new(Context(host="south", family="encoder", model="small", batch=4.0))
    assert ["host"] == new(Context(host="west", family="encoder", model="small", batch=8.0))
    assert ["model", "batch"] == new(Context(host="north", family="encoder", model="large", batch=8.5))
    assert ["batch"] == new(Context(host="north", family="encoder", model="small", batch=0.5))


def test_a_value_that_came_after_the_record_is_new_to_it() -> None:
    assert ["host", "batch"] == new(Context(host="south", family="encoder", model="small", batch=8.0), n=1)


def test_unknown_is_a_value_of_its_own_and_no_number() -> None:
    assert ["host"] == new(Context(family="encoder", model="small"))
    assert [] == new(Context(host="north", family="encoder", model="small"))
    assert ["size_in"] == new(Context(host="north", family="encoder", model="small", size_in=0.0))


def test_to_nothing_seen_all_is_new() -> None:
    assert [*VALUES, "batch"] == new(KNOWN, n=0)
    assert {*VALUES, *SHAPES} >= set(new(KNOWN, n=0))


def test_kinds_of_work_are_told_apart_in_a_phase_and_all_else_within_them() -> None:
    phase, work = places_of(KNOWN, "service")
    other = places_of(Context(host="north", family="decoder", model="small", batch=4.0), "service")
    assert (phase.node, work.node == other[1].node) == (other[0].node, False)
    assert (True, False) == tuple(mine == its for mine, its in zip(phase.keys, other[0].keys, strict=True))
    assert phase.node != places_of(KNOWN, "setup")[0].node


def met(n: int) -> Met:
    """A node that has met the same row n times."""
    node = Met.none_at(WORK)
    for row in range(n):
        node, _ = node.after(WORK, [min(row, 1)] * len(VALUES), 0.5)
    return node


def test_nothing_is_new_before_a_record_is_frozen_nor_ranked_before_a_few_were_counted() -> None:
    node = met(FIRST - 1)
    assert (None, FIRST - 1) == (node.record, node.seen.n)
    node = met(FIRST)
    assert (Record(FIRST, ((4.0, 4.0), None)), 0) == (node.record, sum(node.counts))
    for row in range(LEAST_RANKED):
        node, x = node.after(WORK, [1] * len(VALUES), 0.5)
        assert (None, row + 1) == (x, node.counts[0])


def test_a_rank_is_worked_by_hand() -> None:
    node, x = met(FIRST + LEAST_RANKED).after(WORK, [1] * len(VALUES), 0.5)
    assert 0.0 == x  # 0.5 * (5 + 1) / 6
    node, x = node.after(WORK, [0, *[1] * 5], 0.25)
    assert 1.2419 == pytest.approx(x, abs=1e-4)  # one new field: above all six, (6 + 0.25 * 1) / 7
    assert (6, 1, 1) == (*node.counts[:2], node.news[0])


def test_what_comes_in_slowly_is_learned_once_twice_as_much_is_known() -> None:
    node = met(FIRST)
    assert not node.due(unwatched())
    for _ in range(FIRST):
        node, _ = node.after(WORK, [1] * len(VALUES), 0.5)
    assert node.due(unwatched())
    assert not node.due(unwatched().after(winnings(2.0, RISING), 1))  # something rises: it is not to be learned before it is told
    assert (2 * FIRST, 0) == ((again := node.refrozen()).seen.n, sum(again.counts))
    assert again.record == again.seen
