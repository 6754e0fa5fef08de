"""Work on devices: launches that tell nothing of the work, results carried out after computing, tokens on the way."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.timelines import observe
from telemetry.words import Absence, EventKind
from tests.telemetry.boundaries import event, lengths, reasons, rows

LAUNCHED = [event("compute_start", 1), event("compute_finish", 1.02, launch_only=True, event_id="launched")]


# --- launch_only


def test_a_launch_is_not_the_work_it_launches() -> None:
    """T18: 100 products timed on the host's clock without waiting for the device."""
    found = rows(observe(None, LAUNCHED))
    assert (Absence.LAUNCH_ONLY, None, None) == (
        found["service"].absence,
        found["service"].duration_s,
        found["service"].ended,
    )
    assert (pytest.approx(0.02), "completed", "monotonic") == (
        found["launch"].duration_s,
        found["launch"].ended,
        found["launch"].clock,
    )


def test_a_launch_has_no_length_of_the_device() -> None:
    launched = event("compute_finish", 3, launch_only=True, device_elapsed_s=1.5)
    found = rows(observe(None, [event("compute_start", 1), launched]))
    assert (2.0, "monotonic", "launch_only") == (found["launch"].duration_s, found["launch"].clock, found["service"].absence)


def test_phases_that_begin_or_end_at_a_launch_are_absent_too() -> None:
    found = rows(observe(None, [event("eligible", 0), *LAUNCHED, event("producer_terminated", 2), event("failed", 3)]))
    assert {"completion", "service", "drain"} == {name for name, row in found.items() if row.absence == "launch_only"}


def test_warmup_and_transfer_may_be_launches_and_setup_is_honest() -> None:
    events = [
        event("phase_start", 0),
        event("transfer_start", 1),
        event("transfer_finish", 2, launch_only=True),
        event("warmup_finish", 3),
        event("ready", 4),
    ]
    timeline = observe(None, events)
    assert {"setup": (4.0, "completed")} == lengths(timeline)
    assert ("launch_only", "launch_only") == (rows(timeline)["transfer"].absence, rows(timeline)["warmup"].absence)


def test_an_honest_end_counts_wherever_it_comes() -> None:
    for at_s in (0.5, 9.0):
        told = lengths(observe(None, [event("compute_start", 0), *LAUNCHED[1:], event("compute_finish", at_s)]))
        assert ((at_s, "completed"), (1.02, "completed")) == (told["service"], told["launch"])


def test_what_was_open_at_a_request_to_cancel_is_censored_there_though_its_launch_ended() -> None:
    events = [event("compute_start", 0), event("cancel_requested", 2), event("compute_finish", 3, launch_only=True)]
    assert (2.0, "cancelled") == lengths(observe(None, [*events, event("cancelled", 4)]))["service"]


def test_a_launch_read_from_two_clocks_is_quarantined() -> None:
    launched = event("compute_finish", 3, launch_only=True, clock_id="host-b/boot-1", source="recorder@host-b:1")
    timeline = observe(None, [event("compute_start", 1), launched])
    assert ({"launch": "clocks_mixed"}, "launch_only") == (reasons(timeline), rows(timeline)["service"].absence)


@given(st.lists(st.tuples(st.sampled_from(EventKind), st.integers(0, 50), st.booleans()), min_size=1, max_size=12), st.randoms())
@settings(max_examples=120, deadline=None)
def test_launches_among_any_events_give_one_row_a_span_in_any_order(
    marks: list[tuple[EventKind, int, bool]], random: Random
) -> None:
    events = [
        event(kind, at_s, launch_only=only, stage_index=at_s % 3, event_id=f"{kind}{at_s}{only}") for kind, at_s, only in marks
    ]
    timeline = observe(None, events)
    random.shuffle(events)
    assert timeline == observe(None, [*events, events[0]])
    ids = [row.observation_id for row in timeline.observations] + [one.quarantine_id for one in timeline.quarantined]
    assert sorted(set(ids)) == sorted(ids)
    for row in timeline.observations:
        assert (row.duration_s is None) == (row.absence is not None) == (row.ended is None) == (row.clock is None)


# --- output transfers

SERVED = [event("eligible", 0), event("compute_start", 1), event("compute_finish", 5, device_elapsed_s=3.5)]


def test_completion_lasts_until_the_last_result_is_out() -> None:
    events = [
        event("transfer_start", 0.1, stage_index=0),
        event("transfer_finish", 0.9, stage_index=0),
        *SERVED,
        event("transfer_start", 4, stage_index=1),
        event("transfer_finish", 6, stage_index=1, device_elapsed_s=1.5),
        event("transfer_start", 6, stage_index=2),
        event("transfer_finish", 7.5, stage_index=2),
    ]
    told = lengths(observe(None, events))
    assert ((7.5, "completed"), (3.5, "completed"), (1.5, "completed")) == (
        told["completion"],
        told["service"],
        told["transfer/1"],
    )


def test_completion_runs_on_while_a_result_is_on_its_way() -> None:
    told = lengths(observe(None, [*SERVED, event("transfer_start", 5), event("heartbeat", 8)]))
    assert ((8.0, "running"), (3.5, "completed")) == (told["completion"], told["service"])


def test_failure_on_the_way_out_fails_the_completion_and_not_the_service() -> None:
    told = lengths(observe(None, [*SERVED, event("transfer_start", 5), event("failed", 6, reason="link down")]))
    assert ((6.0, "failed"), (6.0 - 5.0, "failed"), "completed") == (told["completion"], told["transfer"], told["service"][1])


@pytest.mark.parametrize(
    "brought",
    [
        [event("transfer_start", 0.5), event("transfer_finish", 6)],
        [event("transfer_start", 0.5)],
        [event("transfer_start", 4), event("transfer_finish", 4.5)],
        [event("transfer_start", 2, direction="host_to_device"), event("transfer_finish", 6)],
    ],
    ids=["begun before computing", "its end never seen", "over before computing ended", "into the device"],
)
def test_what_brings_the_input_does_not_lengthen_completion(brought: list[object]) -> None:
    assert (5.0, "completed") == lengths(observe(None, [*SERVED, *brought]))["completion"]


def test_a_result_that_is_out_completes_what_was_only_launched() -> None:
    events = [event("eligible", 0), *LAUNCHED, event("transfer_start", 1.1), event("transfer_finish", 4)]
    timeline = observe(None, events)
    assert ((4.0, "completed"), "launch_only") == (lengths(timeline)["completion"], rows(timeline)["service"].absence)


def test_a_result_carried_out_does_not_begin_a_warmup() -> None:
    events = [
        event("host_materialized", 0),
        event("ready", 0.5),
        *SERVED,
        event("transfer_start", 5),
        event("transfer_finish", 6),
        event("heartbeat", 9),
    ]
    assert "unobserved" == rows(observe(None, events))["warmup"].absence


# --- iterations


def test_an_iteration_is_a_proof_of_life_at_its_time() -> None:
    events = [event("compute_start", 0), event("iteration_finish", 2, tokens=1), event("iteration_finish", 3.5, tokens=17)]
    assert (3.5, "running") == lengths(observe(None, events))["service"]
