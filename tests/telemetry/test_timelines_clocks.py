from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from telemetry.tables import Event
from telemetry.timelines import observe
from tests.telemetry.boundaries import WALL_NS, S, event, lengths, reasons, rows, wall_only


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
