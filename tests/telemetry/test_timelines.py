from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.errors import BadField
from telemetry.tables import Attempt, Event
from telemetry.timelines import Timeline, observe
from telemetry.words import EventKind
from tests.telemetry.boundaries import WALL_NS, S, event, lengths, rows

PLAIN = [
    event("enqueue", 0),
    event("eligible", 1),
    event("reservation_commit", 3),
    event("phase_start", 3.5),
    event("checkpoint_open", 4),
    event("host_materialized", 6),
    event("transfer_start", 6, stage_index=0),
    event("transfer_finish", 7, stage_index=0, device_elapsed_s=0.75),
    event("warmup_finish", 9),
    event("ready", 10),
    event("compute_start", 11),
    event("first_output", 12),
    event("heartbeat", 14),
    event("compute_finish", 20, device_elapsed_s=8.5),
    event("producer_terminated", 20.5),
    event("resource_released", 21.5),
]


def test_a_plain_attempt_has_every_phase_at_its_length() -> None:
    expected = {
        "eligibility_wait": 1.0,
        "queue": 2.0,
        "owner_wait": 0.5,
        "open": 0.5,
        "read": 2.0,
        "transfer": 0.75,
        "warmup": 2.0,
        "setup": 6.5,
        "time_to_first_output": 1.0,
        "service": 8.5,
        "drain": 0.5,
        "release": 1.0,
        "completion": 19.0,
    }
    assert {name: (s, "completed") for name, s in expected.items()} == lengths(observe(None, PLAIN))


def test_device_reading_belongs_to_service_and_not_to_completion() -> None:
    found = rows(observe(None, PLAIN))
    assert [("device", 8.5), ("monotonic", 19.0)] == [(found[n].clock, found[n].duration_s) for n in ("service", "completion")]


def test_ids_name_attempt_phase_and_segment_and_starts_are_wall_time() -> None:
    service = rows(observe(None, PLAIN))["service"]
    assert ("a/service/0", WALL_NS + 11 * S) == (service.observation_id, service.started_ns)


@given(st.permutations(PLAIN), st.lists(st.sampled_from(PLAIN), max_size=4))
@settings(max_examples=40, deadline=None)
def test_order_and_repetition_of_events_change_nothing(shuffled: list[Event], repeated: list[Event]) -> None:
    assert observe(None, PLAIN) == observe(None, [*shuffled, *repeated])


@given(st.lists(st.tuples(st.sampled_from(EventKind), st.integers(0, 50)), min_size=1, max_size=12), st.randoms())
@settings(max_examples=150, deadline=None)
def test_any_events_give_finite_rows_with_unique_ids_in_any_order(marks: list[tuple[EventKind, int]], random: Random) -> None:
    events = [event(kind, at_s) for kind, at_s in marks]
    timeline = observe(None, events)
    random.shuffle(events)
    assert timeline == observe(None, events)
    ids = [o.observation_id for o in timeline.observations] + [q.quarantine_id for q in timeline.quarantined]
    assert len(set(ids)) == len(ids)
    for row in timeline.observations:
        assert (row.duration_s is None) == (row.absence is not None) == (row.ended is None) == (row.clock is None)


def test_no_events_say_nothing() -> None:
    assert Timeline((), ()) == observe(Attempt(attempt_id="a"), [])


def test_events_of_two_attempts_are_refused() -> None:
    with pytest.raises(BadField, match="one attempt at a time"):
        observe(None, [event("enqueue", 0), event("enqueue", 0, attempt_id="b", event_id="x")])


def test_first_mark_of_a_kind_wins() -> None:
    events = [event("compute_start", 0), event("first_output", 2), event("first_output", 5)]
    assert (2.0, "completed") == lengths(observe(None, events))["time_to_first_output"]


# --- endings


def test_open_phase_is_running_as_long_as_the_newest_event_shows() -> None:
    events = [event("compute_start", 10), event("heartbeat", 12), event("heartbeat", 17.5)]
    assert {"service": (7.5, "running"), "time_to_first_output": (7.5, "running")} == lengths(observe(None, events))


def test_phase_just_begun_is_a_running_row_of_length_zero() -> None:
    assert (0.0, "running") == lengths(observe(None, [event("compute_start", 10)]))["service"]


def test_newest_event_on_another_clock_does_not_lengthen_a_running_phase() -> None:
    other = event("heartbeat", 99, clock_id="host-b/boot-9", source="recorder@host-b:1")
    assert (2.0, "running") == lengths(observe(None, [event("compute_start", 10), event("heartbeat", 12), other]))["service"]


def test_failure_ends_open_phases_with_its_cause_and_leaves_finished_ones() -> None:
    events = [
        event("phase_start", 0),
        event("ready", 4),
        event("compute_start", 5),
        event("failed", 9, reason="OutOfMemory: 2 GiB"),
    ]
    timeline = observe(None, events)
    assert ((4.0, "completed"), (4.0, "failed")) == (lengths(timeline)["setup"], lengths(timeline)["service"])
    assert "OutOfMemory: 2 GiB" == rows(timeline)["service"].cause


def test_phase_that_completed_stays_completed_whatever_follows() -> None:
    events = [
        event("compute_start", 0),
        event("compute_finish", 5),
        event("failed", 6),
        event("timed_out", 7),
        event("cancelled", 8),
    ]
    assert (5.0, "completed") == lengths(observe(None, events))["service"]


def test_timeout_censors_at_its_time() -> None:
    assert (9.0, "timed_out") == lengths(observe(None, [event("compute_start", 1), event("timed_out", 10)]))["service"]


def test_confirmed_cancellation_censors_at_its_request() -> None:
    events = [event("compute_start", 0), event("cancel_requested", 3, reason="policy"), event("cancelled", 5)]
    timeline = observe(None, events)
    assert ((3.0, "cancelled"), "policy") == (lengths(timeline)["service"], rows(timeline)["service"].cause)


def test_confirmed_cancellation_censors_at_its_request_even_if_the_work_ended_between() -> None:
    events = [event("compute_start", 0), event("cancel_requested", 3), event("compute_finish", 4), event("cancelled", 5)]
    assert (3.0, "cancelled") == lengths(observe(None, events))["service"]


def test_unconfirmed_request_censors_until_the_phase_completes_at_full_length() -> None:
    events = [event("compute_start", 0), event("cancel_requested", 3), event("heartbeat", 4)]
    assert (3.0, "cancelled") == lengths(observe(None, events))["service"]
    assert (6.0, "completed") == lengths(observe(None, [*events, event("compute_finish", 6)]))["service"]


def test_phase_finished_before_the_request_stays_completed() -> None:
    events = [
        event("phase_start", 0),
        event("ready", 2),
        event("compute_start", 3),
        event("cancel_requested", 4),
        event("cancelled", 5),
    ]
    assert (2.0, "completed") == lengths(observe(None, events))["setup"]


def test_cancellation_without_a_request_counts_from_itself_with_reason_unknown() -> None:
    timeline = observe(None, [event("compute_start", 0), event("cancelled", 5)])
    assert ((5.0, "cancelled"), "unknown") == (lengths(timeline)["service"], rows(timeline)["service"].cause)


def test_failure_after_an_unconfirmed_request_is_a_failure() -> None:
    events = [event("compute_start", 0), event("cancel_requested", 3), event("failed", 4, reason="killed")]
    assert (4.0, "failed") == lengths(observe(None, events))["service"]


def test_phase_begun_after_a_request_that_was_confirmed_is_unobserved() -> None:
    events = [event("cancel_requested", 3), event("compute_start", 4), event("cancelled", 5)]
    assert "unobserved" == rows(observe(None, events))["service"].absence


def test_release_after_a_kill_is_still_measured() -> None:
    events = [event("compute_start", 0), event("cancelled", 5), event("producer_terminated", 6), event("resource_released", 8)]
    assert ((5.0, "cancelled"), (2.0, "completed")) == tuple(lengths(observe(None, events))[n] for n in ("service", "release"))


def test_each_attempt_keeps_its_own_outcome() -> None:
    """T10: attempt 1 fails at 30 s, attempt 2 succeeds at 90 s."""
    first = [event("compute_start", 0), event("failed", 30)]
    again = [event("compute_start", 0, attempt_id="b"), event("compute_finish", 90, attempt_id="b")]
    assert (30.0, "failed") == lengths(observe(None, first))["service"]
    assert (90.0, "completed") == lengths(observe(None, again))["service"]


# --- absences


def test_later_boundary_makes_a_phase_without_end_unobserved_not_running() -> None:
    timeline = observe(None, [event("checkpoint_open", 0), event("ready", 5), event("heartbeat", 6)])
    assert ("unobserved", None) == (rows(timeline)["read"].absence, rows(timeline)["read"].duration_s)


def test_failure_does_not_lengthen_a_phase_that_was_already_over_unseen() -> None:
    events = [event("checkpoint_open", 0), event("ready", 5), event("compute_start", 6), event("failed", 9)]
    assert "unobserved" == rows(observe(None, events))["read"].absence


def test_end_without_start_is_unobserved() -> None:
    assert "unobserved" == rows(observe(None, [event("ready", 5)]))["setup"].absence


def test_finished_attempt_names_every_phase_it_did_not_show_and_none_is_zero() -> None:
    timeline = observe(Attempt(attempt_id="a", state="cold"), [event("compute_start", 0), event("compute_finish", 2)])
    absent = {name for name, o in rows(timeline).items() if o.absence == "unobserved" and o.duration_s is None}
    assert {"eligibility_wait", "queue", "owner_wait", "open", "read", "warmup", "setup", "release", "completion"} <= absent
    assert "transfer" not in rows(timeline)


def test_resident_model_has_no_setup_rather_than_an_unseen_one() -> None:
    events = [event("phase_start", 0), event("compute_start", 0.1), event("compute_finish", 2)]
    found = rows(observe(Attempt(attempt_id="a", state="resident"), events))
    assert {"not_applicable"} == {found[name].absence for name in ("open", "read", "warmup", "setup")}
    assert (1.9, "unobserved") == (found["service"].duration_s, found["queue"].absence)


def test_nothing_is_absent_while_the_attempt_may_still_show_it() -> None:
    assert {"eligibility_wait"} == set(rows(observe(None, [event("enqueue", 0)])))


# --- repeats


def test_requeueing_opens_a_segment_and_leaves_the_first_wait() -> None:
    """T06: queued 1, scheduled 2, queued again 50, finished 60."""
    events = [event("eligible", 1), event("reservation_commit", 2), event("eligible", 50)]
    assert {"queue": (1.0, "completed"), "queue/1": (0.0, "running")}.items() <= lengths(observe(None, events)).items()
    again = [*events, event("reservation_commit", 58), event("phase_start", 59)]
    assert (8.0, "completed") == lengths(observe(None, again))["queue/1"]
    assert (1.0, "completed") == lengths(observe(None, again))["owner_wait"]


def test_second_mark_while_waiting_does_not_restart_the_wait() -> None:
    events = [event("eligible", 1), event("eligible", 4), event("reservation_commit", 6)]
    assert {"queue": (5.0, "completed")}.items() <= lengths(observe(None, events)).items()


def test_going_back_to_the_queue_ends_the_wait_for_an_owner() -> None:
    events = [event("eligible", 1), event("reservation_commit", 2), event("eligible", 5)]
    assert "unobserved" == rows(observe(None, events))["owner_wait"].absence


def test_transfers_are_told_apart_by_stage_and_warmup_starts_after_the_last() -> None:
    events = [
        event("host_materialized", 0),
        event("transfer_start", 1, stage_index=0),
        event("transfer_start", 2, stage_index=1),
        event("transfer_finish", 3, stage_index=0),
        event("transfer_finish", 7, stage_index=1),
        event("warmup_finish", 8),
        event("transfer_start", 20, stage_index=2),
    ]
    expected = {"transfer": (2.0, "completed"), "transfer/1": (5.0, "completed"), "warmup": (1.0, "completed")}
    assert expected | {"transfer/2": (0.0, "running")} == lengths(observe(None, events))


def test_output_transfer_may_outlast_the_computation() -> None:
    events = [event("compute_start", 0), event("transfer_start", 1), event("compute_finish", 5), event("heartbeat", 6)]
    assert (5.0, "running") == lengths(observe(None, events))["transfer"]


def test_warmup_has_not_begun_while_a_transfer_is_under_way() -> None:
    events = [event("host_materialized", 0), event("transfer_start", 1), event("heartbeat", 4)]
    assert {"transfer": (3.0, "running")} == lengths(observe(None, events))


def test_warmup_starts_at_host_materialisation_where_nothing_is_transferred() -> None:
    assert (3.0, "completed") == lengths(observe(None, [event("host_materialized", 0), event("warmup_finish", 3)]))["warmup"]


@pytest.mark.parametrize("end", ["compute_finish", "failed"])
def test_an_attempt_that_is_over_has_nothing_running_but_what_follows_the_work(end: str) -> None:
    for late in ("phase_start", "compute_start", "eligible"):
        ended = observe(None, [event(end, 1), event(late, 2)])
        assert not [o.phase for o in ended.observations if o.ended == "running" and o.phase not in {"drain", "completion"}]
    carried_out = [event("compute_start", 0), event("compute_finish", 1), event("transfer_start", 2, direction="device_to_host")]
    assert "running" == rows(observe(None, carried_out))["transfer"].ended
