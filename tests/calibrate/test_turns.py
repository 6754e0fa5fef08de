"""Outcomes are looked at in order of start, and nobody holds the others up for ever."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.evidence.turns import Waiting, in_start_order
from predictors.contexts import Context


def waiting(start_ns: int, key: str, *, over: bool = True) -> Waiting:
    return Waiting(start_ns, key, "service", Context(), 0.0, over, over, 1)


def test_an_attempt_waits_for_those_that_started_before_it() -> None:
    first, second, third = waiting(1, "a"), waiting(2, "b", over=False), waiting(3, "c")
    assert ([first], [second, third]) == in_start_order([third, second, first])
    assert ([first, waiting(2, "b"), third], []) == in_start_order([third, waiting(2, "b"), first])


def test_one_that_hangs_holds_the_others_up_for_so_long_only() -> None:
    hangs = waiting(1, "a", over=False)
    later = [waiting(2 + place, f"b{place}") for place in range(3)]
    assert ([], [hangs, *later]) == in_start_order([hangs, *later], patience=4)
    assert ([hangs, *later], []) == in_start_order([hangs, *later], patience=3)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=30), st.integers(0, 10))
def test_turns_come_in_order_and_nobody_is_lost(rows: list[tuple[int, bool]], patience: int) -> None:
    queue = [waiting(start, str(place), over=over) for place, (start, over) in enumerate(rows)]
    turn, wait = in_start_order(queue, patience)
    assert sorted(queue, key=lambda one: (one.start_ns, one.key)) == turn + wait
    assert not wait or not wait[0].over
