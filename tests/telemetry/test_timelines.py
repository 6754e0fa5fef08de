from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.errors import BadField
from telemetry.tables import Attempt, Event, Observation
from telemetry.timelines import Timeline, observe
from telemetry.words import EventKind

S = 1_000_000_000
WALL_NS = 1_700_000_000 * S
HERE = "host-a/boot-1"


def event(kind: str, at_s: float, **fields: Any) -> Event:
    """An event of attempt `a` at `at_s` on both clocks of one process."""
    values = {
        "event_id": f"{kind}@{at_s}",
        "attempt_id": "a",
        "kind": kind,
        "wall_ns": WALL_NS + round(at_s * S),
        "monotonic_ns": 5_000 * S + round(at_s * S),
        "clock_id": HERE,
        "source": "recorder@host-a:1",
    }
    return Event(**{**values, **fields})


def wall_only(kind: str, at_s: float, **fields: Any) -> Event:
    return event(kind, at_s, **{"monotonic_ns": None, "clock_id": None, **fields})


def rows(timeline: Timeline) -> dict[str, Observation]:
    """Observations by `phase` or `phase/segment` past the first."""
    return {f"{o.phase}/{o.segment}" if o.segment else o.phase: o for o in timeline.observations}


def lengths(timeline: Timeline) -> dict[str, tuple[float, str]]:
    return {name: (o.duration_s, o.ended) for name, o in rows(timeline).items() if o.duration_s is not None}


def reasons(timeline: Timeline) -> dict[str, str]:
    return {q.phase: q.reason for q in timeline.quarantined}


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


# --- clocks


@pytest.mark.parametrize("end_s", [0.9, 0.0])
@pytest.mark.parametrize("make", [event, wall_only])
def test_end_before_start_is_quarantined_with_its_values_not_clipped(make: Callable[..., Event], end_s: float) -> None:
    """T01, S04: start 1 s, end 0.9 s."""
    timeline = observe(None, [make("compute_start", 1), make("compute_finish", end_s)])
    assert "end_before_start" == reasons(timeline)["service"]
    assert "service" not in rows(timeline)
    assert "ns" in timeline.quarantined[0].detail


def test_reservation_before_eligibility_is_quarantined_not_lost() -> None:
    assert "end_before_start" == reasons(observe(None, [event("reservation_commit", 1), event("eligible", 2)]))["queue"]


def test_zero_stamp_means_not_ended() -> None:
    """T16: ts=5 s, end=0: known to run to the newest event."""
    end = wall_only("compute_finish", 0, wall_ns=0)
    assert (5.0, "running") == lengths(observe(None, [wall_only("compute_start", 5), wall_only("heartbeat", 10), end]))["service"]


def test_zero_length_is_a_legal_length() -> None:
    """S05: an empty queue."""
    assert (0.0, "completed") == lengths(observe(None, [event("eligible", 1), event("reservation_commit", 1)]))["queue"]


def test_wall_clock_serves_within_one_source() -> None:
    service = rows(observe(None, [wall_only("compute_start", 1), wall_only("compute_finish", 3)]))["service"]
    assert (2.0, "wall") == (service.duration_s, service.clock)


@pytest.mark.parametrize(
    "end",
    [
        event("compute_finish", 9, clock_id="host-a/boot-2"),
        event("compute_finish", 9, clock_id="host-b/boot-1", source="recorder@host-b:1"),
        wall_only("compute_finish", 9, source="supervisor@host-a:2"),
    ],
    ids=["another boot", "another host", "another source without a clock"],
)
def test_clocks_are_never_subtracted_from_each_other(end: Event) -> None:
    """T02, T04."""
    timeline = observe(None, [event("compute_start", 1), end])
    assert ("clocks_mixed", False) == (reasons(timeline)["service"], "service" in rows(timeline))


def test_supervisor_on_the_same_host_and_boot_shares_the_monotonic_clock() -> None:
    killed = event("failed", 9, source="supervisor@host-a:2")
    assert (8.0, "failed") == lengths(observe(None, [event("compute_start", 1), killed]))["service"]


def test_device_reading_stands_where_the_marks_come_from_two_hosts() -> None:
    end = event("compute_finish", 9, clock_id="host-b/boot-1", source="recorder@host-b:1", device_elapsed_s=7.0)
    assert (7.0, "completed") == lengths(observe(None, [event("compute_start", 1), end]))["service"]


@pytest.mark.parametrize("device_s", [10_000.0 * 1.001, 0.009])
def test_device_and_host_a_thousandfold_apart_are_in_different_units(device_s: float) -> None:
    """T13: 10 s of work, written a thousand times too long or too short."""
    events = [event("compute_start", 0), event("compute_finish", 10, device_elapsed_s=device_s)]
    assert "unit_mismatch" == reasons(observe(None, events))["service"]


def test_short_kernel_may_wait_long_for_its_host() -> None:
    events = [event("compute_start", 0), event("compute_finish", 0.5, device_elapsed_s=20e-6)]
    assert 20e-6 == rows(observe(None, events))["service"].duration_s


@pytest.mark.parametrize("wall_shift_s", [60, -60])
def test_suspend_or_clock_step_is_quarantined(wall_shift_s: int) -> None:
    """T31: 10 s of work with 60 s of suspend in the middle."""
    end = event("compute_finish", 10, wall_ns=WALL_NS + (10 + wall_shift_s) * S)
    assert "suspended_or_stepped" == reasons(observe(None, [event("compute_start", 0), end]))["service"]


def test_small_correction_of_the_wall_clock_is_tolerated() -> None:
    end = event("compute_finish", 10, wall_ns=WALL_NS + round(10.9 * S))
    assert (10.0, "completed") == lengths(observe(None, [event("compute_start", 0), end]))["service"]


@pytest.mark.parametrize("length_ns", [30 * 86_400 * S, 2_147_483_647_000_000, 2_147_483_649_000_000])
def test_long_spans_do_not_overflow(length_ns: int) -> None:
    """T14: 30 days, and 2^31 ms give or take one."""
    start = event("compute_start", 0)
    end = event("compute_finish", 0, wall_ns=start.wall_ns + length_ns, monotonic_ns=start.monotonic_ns + length_ns)
    assert (length_ns / S, "completed") == lengths(observe(None, [start, end]))["service"]


def test_order_is_that_of_the_one_monotonic_clock_when_the_wall_was_set_back() -> None:
    request = event("cancel_requested", 5.1, wall_ns=WALL_NS + round(4.9 * S))
    events = [event("compute_start", 0), event("compute_finish", 5), request, event("cancelled", 5.2)]
    assert (5.0, "completed") == lengths(observe(None, events))["service"]


# --- delayed entry


def late(kind: str, at_s: float, age_s: object) -> Event:
    return event(kind, at_s, attributes=json.dumps({"phase_age_s": age_s}))


def test_collector_that_joins_mid_phase_gives_a_delayed_entry() -> None:
    service = rows(observe(None, [late("compute_start", 12, 12.0), event("compute_finish", 20)]))["service"]
    assert (12.0, 20.0, "completed", WALL_NS) == (service.entry_s, service.duration_s, service.ended, service.started_ns)


def test_delayed_entry_that_just_began_says_nothing_beyond_its_entry() -> None:
    """S09: a row whose entry equals its exit is legal and carries no information."""
    service = rows(observe(None, [late("compute_start", 12, 12.0)]))["service"]
    assert (12.0, 12.0, "running") == (service.entry_s, service.duration_s, service.ended)


def test_device_reading_covers_the_whole_phase_of_a_delayed_entry() -> None:
    end = event("compute_finish", 20, device_elapsed_s=19.0)
    service = rows(observe(None, [late("compute_start", 12, 12.0), end]))["service"]
    assert (12.0, 19.0) == (service.entry_s, service.duration_s)
    short = event("compute_finish", 20, device_elapsed_s=11.0)
    assert "end_before_entry" == reasons(observe(None, [late("compute_start", 12, 12.0), short]))["service"]


def test_age_at_entry_counts_when_device_and_host_are_compared() -> None:
    events = [late("compute_start", 5_000, 5_000.0), event("compute_finish", 5_001, device_elapsed_s=5_001.0)]
    assert (5_001.0, "completed") == lengths(observe(None, events))["service"]


@pytest.mark.parametrize("age_s", [-1.0, "soon", True, None, float("nan"), float("inf"), 10**400])
def test_age_that_is_no_length_is_quarantined(age_s: object) -> None:
    assert "bad_phase_age" == reasons(observe(None, [late("compute_start", 12, age_s), event("compute_finish", 20)]))["service"]


@pytest.mark.parametrize("attributes", ["phase_age_s", '["phase_age_s"]', '{"other": "phase_age_s"}'])
def test_other_attributes_say_nothing_about_age(attributes: str) -> None:
    events = [event("compute_start", 12, attributes=attributes), event("compute_finish", 20)]
    assert (8.0, "completed") == lengths(observe(None, events))["service"]
