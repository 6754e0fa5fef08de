"""The demo's schedule: balanced, shuffled by its seed alone, and with every kind of ending in it."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.demo.schedule import LONG_TOKENS, Cancel, Failure, plan
from telemetry.errors import BadField
from telemetry.words import State


def test_six_hundred_attempts_have_the_declared_mix() -> None:
    made = plan(600, seed=1)
    assert Counter(p.state for p in made) == {State.COLD: 240, State.CACHED: 300, State.RESIDENT: 60}
    assert Counter(p.corunners for p in made) == {0: 300, 1: 300}
    assert Counter(p.cancel for p in made) == {None: 570, Cancel.FLAG: 15, Cancel.KILL: 15}
    assert Counter(p.failure for p in made) == {None: 582} | dict.fromkeys(Failure, 6)


def test_every_shape_comes_equally_often() -> None:
    shapes = Counter((p.length, p.batch) for p in plan(600, seed=1))
    assert {(length, batch): 50 for length in (16, 32, 64, 128) for batch in (1, 4, 8)} == shapes


def test_another_seed_gives_another_order_of_the_same_mix() -> None:
    one, other = plan(120, seed=1), plan(120, seed=2)
    assert [p.state for p in one] != [p.state for p in other]
    assert Counter(p.state for p in one) == Counter(p.state for p in other)


def test_too_few_attempts_are_refused() -> None:
    with pytest.raises(BadField, match="at least 20"):
        plan(19, seed=1)


@settings(max_examples=40)
@given(st.integers(20, 700), st.integers(0, 2**32))
def test_every_schedule_holds_its_rules(n: int, seed: int) -> None:
    made = plan(n, seed)
    assert made == plan(n, seed)
    assert [p.index for p in made] == list(range(n))
    assert {p.cancel for p in made} == {None, *Cancel}
    assert {p.failure for p in made} == {None, *Failure}
    assert {p.corunners for p in made} == {0, 1}
    for block in {p.block for p in made}:
        assert len({p.corunners for p in made if p.block == block}) == 1
    for p in made:
        assert not (p.cancel and p.failure)
        assert (p.cancel_after_fraction is None) == (p.cancel is None)
        if p.cancel:
            assert p.block > 0
            assert p.tokens >= LONG_TOKENS
        if p.failure:
            assert p.state is not State.RESIDENT
