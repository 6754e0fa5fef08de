"""Columns are taken whole only where every row by itself would be, and then say the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.columns import Columns, read
from telemetry.tables import Attempt, Event
from telemetry.words import EventKind

GOOD: dict[str, Any] = {
    "event_id": "e1",
    "attempt_id": "a1",
    "kind": "ready",
    "wall_ns": 1_780_000_000_123_456_789,
    "source": "s",
}
RIGHT: list[dict[str, Any]] = [
    {},
    {"monotonic_ns": 2**63 - 1, "device_elapsed_s": 0.1 + 0.2, "launch_only": True, "tokens": None},
    {"device_elapsed_s": 2**60 + 1},
    {"device_elapsed_s": 10**30},
    {"source": "\u00fc\u2028 \U0001f600"},
    {"source": "s" * 200, "reason": "r" * 2000},
    {"wall_ns": 0, "stage_index": 0},
]
WRONG: list[dict[str, Any]] = [
    {"monotonic_ns": 2**63},
    {"monotonic_ns": -1},
    {"wall_ns": "1780000000123456789"},
    {"wall_ns": True},
    {"wall_ns": 1.5},
    {"wall_ns": None},
    {"launch_only": None},
    {"launch_only": 1},
    {"device_elapsed_s": -0.5},
    {"device_elapsed_s": float("inf")},
    {"device_elapsed_s": 10**400},
    {"device_elapsed_s": float("nan")},
    {"source": ""},
    {"source": "s" * 201},
    {"reason": "r" * 2001},
    {"kind": "went"},
    {"unknown": 1},
    {"attributes": {"nested": [1]}},
]


@pytest.mark.parametrize("changed", RIGHT)
def test_right_items_are_read_as_their_rows(changed: dict[str, Any]) -> None:
    items = [GOOD, GOOD | {"event_id": "e2"} | changed]
    assert Columns.of(Event, [Event(**item) for item in items]) == read(Event, items)


@pytest.mark.parametrize("changed", WRONG)
def test_a_single_wrong_value_leaves_all_to_the_rows(changed: dict[str, Any]) -> None:
    assert read(Event, [GOOD | {"device_elapsed_s": 1.5}, GOOD | changed, GOOD | {"device_elapsed_s": 1}]) is None


def test_a_missing_value_that_must_be_there_and_what_is_no_object_are_left_to_the_row() -> None:
    assert read(Event, [GOOD, {name: GOOD[name] for name in GOOD if name != "source"}]) is None
    assert read(Event, [GOOD, None]) is None
    assert read(Event, [GOOD, [GOOD]]) is None


def test_attempts_are_read_too_with_what_they_leave_out() -> None:
    items = [{"attempt_id": "a1", "batch": 4}, {"attempt_id": "a2", "purpose": "calibration", "host": None}]
    assert Columns.of(Attempt, [Attempt(**item) for item in items]) == read(Attempt, items)
    assert read(Attempt, [{"attempt_id": "a1", "batch": 0}]) is None


def test_nothing_is_no_rows() -> None:
    assert read(Event, []) == Columns.of(Event, [])


def test_some_rows_can_be_kept() -> None:
    found = read(Event, [GOOD, GOOD | {"event_id": "e2"}, GOOD | {"event_id": "e3"}])
    assert found is not None
    assert [("e1", "ready"), ("e3", "ready")] == [*found.only([True, False, True]).tuples("event_id", "kind")]


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(EventKind)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from([*Event.model_fields, "other"]), VALUES, max_size=4), max_size=3))
def test_whatever_columns_take_each_row_takes_with_the_same_values(changes: list[dict[str, Any]]) -> None:
    items = [GOOD | {"event_id": str(place)} | changed for place, changed in enumerate(changes)]
    found = read(Event, items)
    if found is not None:
        assert found == Columns.of(Event, [Event(**item) for item in items])
