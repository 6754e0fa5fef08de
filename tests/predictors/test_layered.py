"""A layered mapping is a dict that never changes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from predictors.layered import LEAST_RECENT, Layered

steps = st.lists(st.dictionaries(st.integers(0, 300), st.integers(), max_size=40), max_size=12)


@given(steps)
@settings(max_examples=200, deadline=None)
def test_it_holds_what_a_dict_would_hold_at_every_step(changes: list[dict[int, int]]) -> None:
    layered, plain = Layered[int, int](), dict[int, int]()
    kept = []
    for changed in changes:
        layered, plain = layered.having(changed), plain | changed
        kept.append((layered, plain))
    for found, expected in kept:  # each is as it was, whatever came after it
        assert expected == dict(found)
        assert (len(expected), set(expected)) == (len(found), set(found))
        assert [expected.get(key, "none") for key in range(300)] == [found.get(key, "none") for key in range(300)]
        assert [key in expected for key in range(300)] == [key in found for key in range(300)]


def test_two_may_go_on_from_one() -> None:
    common = Layered[str, int]().having({"a": 1})
    left, right = common.having({"a": 2}), common.having({"b": 3})
    assert ({"a": 1}, {"a": 2}, {"a": 1, "b": 3}) == (dict(common), dict(left), dict(right))


def test_steps_copy_far_less_than_they_hold() -> None:
    layered = Layered[int, int]()
    most = 0
    for i in range(10_000):
        layered = layered.having({i: i})
        most = max(most, len(layered._recent))
    assert 10_000 == len(layered)
    assert LEAST_RECENT <= most <= 101
