import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.errors import BadField, TooLarge
from telemetry.ingest import MOST_ITEMS, Prepared, prepare, read, reply
from telemetry.rows import Row
from telemetry.store.batch import Receipt, Result
from telemetry.tables import Attempt, Event
from telemetry.words import EventKind

NOW_NS = 1_780_000_000_123_456_789
GOOD = {"event_id": "e1", "attempt_id": "a1", "kind": "ready", "wall_ns": NOW_NS, "source": "recorder"}


def rows(prepared: Prepared) -> list[Row]:
    """What the batch holds, as rows."""
    return [one.table(**dict(zip(one.values, row, strict=True))) for one in prepared.batch.columns for row in one.tuples()]


def problem(**changed: Any) -> str:
    """Why the good event with these fields changed is refused."""
    prepared = prepare({"events": [GOOD | changed]})
    assert [] == rows(prepared)
    [refusal] = prepared.events
    return refusal.problem


def test_good_items_become_rows_attempts_first() -> None:
    prepared = prepare({"events": [GOOD], "attempts": [{"attempt_id": "a1", "host": "h", "batch": None}]})
    assert [Attempt(attempt_id="a1", host="h"), Event(**GOOD)] == rows(prepared)
    assert ((None,), (None,)) == (prepared.attempts, prepared.events)


def test_a_bad_item_keeps_no_other_out_and_the_reply_follows_the_request() -> None:  # T08, H01
    body = {
        "attempts": [{"attempt_id": "a1"}],
        "events": [GOOD, GOOD | {"event_id": "bad", "kind": "went"}, GOOD | {"event_id": "e3"}],
    }
    prepared = prepare(body)
    receipt = Receipt(7, (Result("a1", "new"), Result("e1", "repeat"), Result("e3", "conflict", "different source")))
    answer = reply(prepared, receipt)
    assert 7 == answer["commit"]
    assert [{"id": "a1", "result": "new", "problem": None}] == answer["attempts"]
    assert ["repeat", "refused", "conflict"] == [result["result"] for result in answer["events"]]
    assert ["e1", "bad", "e3"] == [result["id"] for result in answer["events"]]
    assert [None, "different source"] == [answer["events"][place]["problem"] for place in (0, 2)]


def test_an_unknown_kind_is_told_the_known_ones() -> None:
    text = problem(kind="went")
    assert "kind: got 'went'" in text
    assert all(kind in text for kind in EventKind)


@pytest.mark.parametrize("value", [math.nan, math.inf, "NaN", "Infinity", -1.0])
def test_a_length_that_is_no_finite_non_negative_number_is_refused(value: object) -> None:  # H01, T01
    assert problem(device_elapsed_s=value).startswith(f"device_elapsed_s: got {value!r}; it should be")


@pytest.mark.parametrize(
    ("wall_ns", "advice"),
    [
        (0, "0 is no time; send the event once it has happened"),
        (1_780_000_000, "if it is seconds, multiply by 10^9"),
        (1_780_000_000_123, "if it is milliseconds, multiply by 10^6"),
        (1_780_000_000_123_456, "if it is microseconds, multiply by 1000"),
    ],
)
def test_a_time_in_another_unit_or_of_nothing_yet_is_refused(wall_ns: int, advice: str) -> None:  # T13, T16
    assert advice in problem(wall_ns=wall_ns)


def test_times_are_whole_64_bit_ns() -> None:  # T14
    month_ns = 30 * 86_400 * 10**9
    prepared = prepare({"events": [GOOD | {"wall_ns": NOW_NS + month_ns, "monotonic_ns": 2**31 * 10**6 + 1}]})
    assert [(NOW_NS + month_ns, 2**31 * 10**6 + 1)] == [*prepared.rows[1].tuples("wall_ns", "monotonic_ns")]
    assert "wall_ns" in problem(wall_ns=2**63)
    assert "monotonic_ns" in problem(monotonic_ns=1.5)


def test_a_missing_or_unknown_field_is_named() -> None:
    [refusal] = prepare({"events": [{"event_id": "e9", "kind": "ready", "wall_ns": NOW_NS, "source": "s"}]}).events
    assert ("e9", "attempt_id: missing; every one of events needs it") == (refusal.id, refusal.problem)
    assert problem(wall_time=1).startswith("wall_time: got 1; unknown field; events have event_id, attempt_id, kind")


def test_an_item_that_is_no_object_or_has_no_id_is_refused_without_one() -> None:
    prepared = prepare({"attempts": [3, None, [], {"host": "h"}, {"attempt_id": 5}]})
    assert [""] * 5 == [refusal.id for refusal in prepared.attempts]
    assert [] == rows(prepared)


def test_text_that_no_file_can_hold_is_refused_and_the_reply_can_be_sent() -> None:
    prepared = prepare({"events": [GOOD | {"event_id": "\ud800", "\udfff": 1}]})
    [refusal] = reply(prepared, Receipt(0, ()))["events"]
    assert "refused" == refusal["result"]
    assert json.dumps(refusal, ensure_ascii=False).encode()


def test_a_wrong_body_or_too_large_a_one_is_refused_whole() -> None:  # H08
    with pytest.raises(BadField, match="spans"):
        prepare({"spans": []})
    with pytest.raises(BadField, match="give a list of events"):
        prepare({"events": {"e1": GOOD}})
    with pytest.raises(TooLarge, match=f"{MOST_ITEMS + 1}"):
        prepare({"events": [GOOD] * MOST_ITEMS, "attempts": [{}]})
    assert [] == rows(prepare({}))


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda s: st.lists(s) | st.dictionaries(st.text(), s)
    )
)
def test_whatever_is_sent_as_an_item_gets_one_result(item: object) -> None:
    answer = reply(prepare({"events": [item, GOOD]}), Receipt(1, (Result("e1", "new"),)))
    assert ["refused", "new"] == [result["result"] for result in answer["events"]]
    assert json.dumps(answer, allow_nan=False)


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("wall_ns", str(NOW_NS), "wall_ns: got '1780000000123456789'; it should be a whole number, unquoted"),
        ("stage_index", True, "stage_index: got True; it should be a whole number, unquoted"),
        ("device_elapsed_s", "0.5", "device_elapsed_s: got '0.5'; it should be a number, unquoted"),
        ("device_elapsed_s", False, "device_elapsed_s: got False; it should be a number, unquoted"),
        ("launch_only", "yes", "launch_only: got 'yes'; it should be true or false, unquoted"),
        ("launch_only", 1, "launch_only: got 1; it should be true or false, unquoted"),
    ],
)
def test_a_number_sent_as_text_or_truth_value_is_refused_by_name(field: str, value: object, told: str) -> None:
    assert told == problem(**{field: value})


def test_every_wrong_field_of_an_item_is_told() -> None:
    assert ["tokens", "wall_time"] == [part.split(":")[0] for part in problem(tokens="5", wall_time=1).split("; ")[::2]][:2]


WRONG = ["", "[]", "7", "null", '{"events": {}}', '{"events": null}', '{"spans": []}', '{"events": [}', "[" * 100_000]
WRONG += ['{"events": [{"device_elapsed_s": NaN}]}', '{"events": [{"source": "\\ud800"}]}', '{"events": 1e999}']


@pytest.mark.parametrize("body", [*(text.encode() for text in WRONG), b'{"events": ["\xff"]}'])
def test_a_body_that_is_none_is_refused_as_a_whole(body: bytes) -> None:  # H01
    with pytest.raises(BadField):
        read(body)


def test_a_body_past_the_bound_is_refused_as_a_whole_however_good() -> None:  # H08
    many = json.dumps({"events": [GOOD] * (MOST_ITEMS + 1)}).encode()
    with pytest.raises(TooLarge):
        read(many)
