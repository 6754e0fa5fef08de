"""Only rows that say something pass the gate, and nothing impossible does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from predictors.contexts import CATEGORIES, NUMBERS, Context
from predictors.frames import frame_of
from predictors.model import changes_of
from telemetry.errors import BadField
from telemetry.words import Ended


def observed(*rows: dict[str, Any]) -> pa.Table:
    """Observations as `telemetry.asof` gives them, from what differs between rows."""
    plain = {
        "phase": "setup", "entry_s": 0.0, "duration_s": 1.0, "ended": "completed", "clock": "monotonic", "known_from": 1,
        "change": 1, "known_at": 1, "attempt_id": "a", "started_ns": None, "segment": 0,
    } | dict.fromkeys((*CATEGORIES, *NUMBERS))  # fmt: skip
    types = {name: pa.string() for name in (*CATEGORIES, "phase", "ended", "clock", "attempt_id")}
    types |= {name: pa.float64() for name in NUMBERS} | {"started_ns": pa.int64()}
    return pa.table({name: pa.array([(plain | row)[name] for row in rows], types.get(name)) for name in plain})


def test_rows_with_one_context_share_it() -> None:
    frame = frame_of(observed({"host": "a"}, {"host": "b", "batch": 2.0}, {"host": "a"}, {"host": "b"}))
    assert frame.context[0] == frame.context[2]
    expected = [Context(host="a"), Context(host="b", batch=2.0), Context(host="a"), Context(host="b")]
    assert expected == [frame.contexts[i] for i in frame.context]


def test_phases_of_one_attempt_share_its_number() -> None:
    frame = frame_of(observed({"attempt_id": "a"}, {"attempt_id": "b"}, {"attempt_id": "a", "phase": "service"}))
    assert [True, False] == [frame.attempt[0] == frame.attempt[i] for i in (2, 1)]


def test_phases_keep_their_names() -> None:
    frame = frame_of(observed({"phase": "setup"}, {"phase": "epoch"}, {"phase": "setup"}))
    assert ["setup", "epoch", "setup"] == [frame.phases[i] for i in frame.phase]


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("field", ["duration_s", "entry_s"])
def test_an_impossible_time_is_refused_by_name(field: str, wrong: float) -> None:
    with pytest.raises(BadField) as caught:
        frame_of(observed({}, {field: wrong}, {"duration_s": 3.0}))
    assert field == caught.value.field


def test_an_absent_duration_is_refused_not_taken_for_zero() -> None:
    with pytest.raises(BadField):
        frame_of(observed({"duration_s": None, "ended": None}))


def test_a_row_whose_entry_reaches_its_exit_is_left_out_and_counted() -> None:
    frame = frame_of(observed({"entry_s": 1.0, "duration_s": 1.0}, {"duration_s": 2.0, "ended": "timed_out"}))
    assert (1, 1) == (len(frame), frame.uninformative)


def test_an_instant_is_an_outcome_but_a_start_is_none() -> None:
    frame = frame_of(observed({"duration_s": 0.0}, {"duration_s": 0.0, "ended": "running"}))
    assert ([0.0], 1) == (frame.duration_s.tolist(), frame.uninformative)


def test_endings_are_told_apart_and_wall_clocks_count_half() -> None:
    ended = ["completed", "failed", "cancelled", "timed_out", "running"]
    frame = frame_of(observed(*({"ended": how, "clock": "wall" if how == "failed" else None} for how in ended)))
    assert [1, 0, 0, 0, 0] == frame.completed.astype(int).tolist()
    assert [0, 1, 0, 0, 0] == frame.failed.astype(int).tolist()
    assert [0, 0, 0, 0, 1] == frame.running.astype(int).tolist()
    assert [1.0, 0.5, 1.0, 1.0, 1.0] == frame.weight.tolist()


def test_many_distinct_values_do_not_run_out_of_codes() -> None:
    rows = [dict.fromkeys(CATEGORIES, str(i)) | dict.fromkeys(NUMBERS, float(i)) for i in range(200)]
    frame = frame_of(observed(*rows, *rows))
    assert 200 == len(frame.contexts)
    np.testing.assert_array_equal(frame.context[:200], frame.context[200:])


def test_changes_keep_order_sign_and_context() -> None:
    rows = {"ended": "running", "change": -1, "known_at": 7, "host": "a"}, {"known_at": 7, "known_from": 7, "clock": "wall"}
    went, came = changes_of(observed(*rows))
    assert (-1, Ended.RUNNING, Context(host="a"), 1) == (went.sign, went.ended, went.context, went.known_from)
    assert (1, Ended.COMPLETED, 0.5, 7) == (came.sign, came.ended, came.weight, came.known_at)


def test_changes_that_say_nothing_are_left_out() -> None:
    assert [] == changes_of(observed({"duration_s": 0.0, "ended": "cancelled"}))


def test_a_phase_that_has_just_begun_is_a_change_of_no_time_at_risk() -> None:
    (begun,) = changes_of(observed({"duration_s": 0.0, "ended": "running"}))
    assert (1, Ended.RUNNING, 0.0) == (begun.sign, begun.ended, begun.duration_s)
