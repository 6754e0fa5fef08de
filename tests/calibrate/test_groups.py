"""Controllers along a path: the state is a fold over outcomes, and a new node starts as its parent stood."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.conformal.groups import LEAST, Groups, Learned
from calibrate.conformal.levels import ADVERTISED, End
from calibrate.conformal.mixture import CONTROLLED, Known, Levels, Told

P90 = ADVERTISED.index(0.9)
NORTH, SOUTH = ("service", "service/north"), ("service", "service/south")


def taught(groups: Groups, path: tuple[str, ...], values: list[float]) -> Groups:
    for u in values:
        groups = groups.after([Learned(path, Told(u), groups.along(path))])
    return groups


def same(one: Levels, other: Levels) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in ("n", "alpha", "share", "offset"))


def test_without_outcomes_what_is_advertised_is_asked_and_nothing_claimed() -> None:
    asked = Groups().asked(NORTH)
    assert ("", None) == (asked.node, asked.controlled_at)
    assert list(ADVERTISED) == pytest.approx(asked.levels)
    assert ((None,) * 4, 0) == (asked.ends, asked.crossings)


def test_a_node_answers_for_itself_once_it_has_seen_enough() -> None:
    groups = taught(Groups(), NORTH, [0.5] * (LEAST - 1))
    assert "" == groups.asked(NORTH).node
    groups = taught(groups, SOUTH, [0.5])
    assert "service" == groups.asked(NORTH).node
    groups = taught(groups, NORTH, [0.5])
    assert "service/north" == groups.asked(NORTH).node
    assert "service" == groups.asked(SOUTH).node


def test_a_new_node_starts_as_its_parent_stood_when_it_was_first_asked() -> None:
    groups = taught(Groups(), NORTH, [0.95] * 50)
    kept = groups.along(SOUTH)
    assert same(groups.states["service"].child(), kept.row(1))
    later = taught(groups, NORTH, [0.95] * 50).after([Learned(SOUTH, Told(0.2), kept)])
    assert same(kept.row(1).after(Told(0.2)), later.states["service/south"])


def test_hosts_that_miss_differently_end_at_different_levels() -> None:
    rng, groups = np.random.default_rng(7), Groups()
    for _ in range(40):
        batch = [Learned(NORTH, Told(float(u)), groups.along(NORTH)) for u in rng.random(25) ** 0.5]
        batch += [Learned(SOUTH, Told(float(u)), groups.along(SOUTH)) for u in rng.random(25) ** 2.0]
        groups = groups.after(batch)
    # The truth passes the level a with probability 1 - a^2 in the north and 1 - sqrt(a) in the south.
    assert 0.9**0.5 == pytest.approx(groups.asked(NORTH).levels[P90], abs=0.03)
    assert 0.9**2 == pytest.approx(groups.asked(SOUTH).levels[P90], abs=0.04)


def test_the_claim_is_made_once_it_says_something_and_weakens_with_what_is_outstanding() -> None:
    groups = Groups()
    for _ in range(25):
        groups = groups.after([Learned(NORTH, Told(0.5), groups.along(NORTH))] * 100)
    asked = groups.asked(NORTH)
    assert CONTROLLED == asked.controlled_at
    assert asked.within < 1.0 - CONTROLLED < groups.asked(NORTH, outstanding=50).within
    assert groups.asked(NORTH, outstanding=50).controlled_at is None


def test_a_run_of_misses_opens_the_bound_and_says_so() -> None:
    asked = taught(Groups(), NORTH, [1.0] * 400).asked(NORTH)
    assert End.OPEN == asked.ends[P90]
    assert 0.999 == asked.levels[P90]


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from([NORTH, SOUTH]), st.floats(0.0, 1.0), st.sampled_from(list(Known))), min_size=1, max_size=30
    ),
    st.integers(1, 29),
)
def test_however_outcomes_are_cut_into_batches_the_states_are_the_same_to_the_bit(
    told: list[tuple[tuple[str, ...], float, Known]], cut: int
) -> None:
    before = taught(Groups(), NORTH, [0.1, 0.97, 0.4])
    rows = [Learned(path, Told(u, known), before.along(path)) for path, u, known in told]
    whole = before.after(rows)
    parts = before.after(rows[:cut]).after(rows[cut:])
    single = before
    for row in rows:
        single = single.after([row])
    for node, state in whole.states.items():
        assert same(state, parts.states[node])
        assert same(state, single.states[node])


def test_learning_leaves_the_earlier_value_as_it_was() -> None:
    before = taught(Groups(), NORTH, [0.3] * 5)
    state = before.states["service"]
    alpha = state.alpha.copy()
    taught(before, NORTH, [0.99] * 5)
    assert np.array_equal(alpha, state.alpha)
    assert {"service", "service/north"} == set(before.states)
