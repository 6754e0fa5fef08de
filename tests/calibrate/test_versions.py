"""Versions of a profile: what opens a new one, what is said of the difference, and what may be a baseline."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from calibrate.hosts.versions import baseline, changes, numbered, rates_of_hosts
from telemetry.tables import HostProfile
from telemetry.words import IMPORTED_GRANT

ROOT = Path(__file__).resolve().parents[2]
CONDITION = {"processor": "x", "quota": None, "driver": "550.54", "microcode": "0x1", "frequency_hz": 2e9, "torch": "2.13.0"}


def rate(median: float, *, contended: bool = False, width: float = 0.1) -> dict[str, Any]:
    return {"median": median, "low": median * (1 - width), "high": median * (1 + width), "contended": contended}


def row(at: int, condition: dict[str, Any] | None = None, **rates: dict[str, Any]) -> HostProfile:
    return HostProfile(
        profile_id=f"p-{at}",
        host="h",
        grant_id="g",
        measured_ns=at,
        condition=json.dumps(CONDITION | (condition or {})),
        rates=json.dumps(rates),
    )


@pytest.mark.parametrize("change", [{"driver": "560.1"}, {"quota": 1.5}, {"microcode": "0x2"}, {"torch": "2.14.0"}])
def test_a_change_of_driver_quota_microcode_or_backend_opens_a_new_version(change: dict[str, Any]) -> None:
    assert {"p-1": 1, "p-2": 1, "p-3": 2} == numbered([row(3, change), row(1), row(2)])


def test_what_passes_opens_none_and_a_condition_that_comes_back_has_its_number() -> None:
    passing = {"frequency_hz": 3e9, "temperature_c": 60.0, "not_measured": "gpu: none"}
    assert {"p-1": 1, "p-2": 1} == numbered([row(1), row(2, passing)])
    assert {"p-1": 1, "p-2": 2, "p-3": 1} == numbered([row(1), row(2, {"quota": 1.0}), row(3)])


def test_a_field_that_is_newly_known_as_unknown_opens_no_version() -> None:
    assert {"p-1": 1, "p-2": 1} == numbered([row(1), row(2, {"on_battery": None})])


def test_changes_are_told_in_words() -> None:
    before = row(1, copy=rate(10.0), read=rate(5.0), gone=rate(1.0))
    after = row(
        2, {"driver": "560.1", "quota": 1.5, "torch": None, "frequency_hz": 1.0}, copy=rate(10.5), read=rate(2.5), new=rate(1)
    )
    assert [
        "GPU driver: 550.54 before, 560.1 now",
        "processor quota: now 1.5, none told before",
        "torch: 2.13.0 before, none told now",
        "gone: not measured any more",
        "new: measured for the first time",
        "read: 0.50 times what it was",
    ] == changes(before, after)
    assert [] == changes(before, before)


def test_a_rate_that_was_measured_beside_other_work_is_told_so() -> None:
    assert ["copy: contended, 0.50 times what it was"] == changes(row(1, copy=rate(10)), row(2, copy=rate(5, contended=True)))


MEASURE = """
import os, socket, sys, time
from pathlib import Path
from calibrate.hosts.grants import MIB, Terms, give
from calibrate.hosts.profile import UNASKED, carried_out, planned, profiled
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[1])])
terms = Terms(("image_like",), 600.0, 60.0, 2, 2048 * MIB, 0)
grant = give(terms, user="ada", host=socket.gethostname(), now_ns=time.time_ns())
plan = planned(grant, Path(), seconds=0.2)
print(profiled(plan, carried_out(plan, UNASKED)).model_dump_json())
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="takes two processors")
def test_a_host_limited_to_one_of_its_processors_is_another_version_that_says_so() -> None:
    told = [
        subprocess.run(
            [sys.executable, "-c", MEASURE, n], capture_output=True, text=True, check=True, timeout=120, cwd=ROOT
        ).stdout
        for n in ("2", "1")
    ]
    whole, limited = map(HostProfile.model_validate_json, told)
    assert {whole.profile_id: 1, limited.profile_id: 2} == numbered([whole, limited])
    said = changes(whole, limited)
    assert "processors of the affinity mask: 2 before, 1 now" in said
    assert "usable processors: 2.0 before, 1.0 now" in said
    assert "image_like_threads_2_flop_per_s: not measured any more" in said
    assert "image_like_threads_1_flop_per_s" in json.loads(limited.rates)


def test_the_baseline_is_the_newest_uncontended_median_under_the_newest_condition() -> None:
    rows = [
        row(1, copy=rate(10.0), read=rate(5.0)),
        row(2, {"quota": 1.0}, copy=rate(4.0)),
        row(3, {"quota": 1.0}, copy=rate(4.2), read=rate(2.0)),
        row(4, {"quota": 1.0}, copy=rate(1.0, contended=True)),
    ]
    assert {"copy": 4.2, "read": 2.0} == baseline(rows)
    assert {"copy": 10.0, "read": 5.0} == baseline(rows[:1])


def test_a_contended_run_is_never_the_baseline() -> None:
    older = {"median": 3.0, "complaints": ["contended: 4 other tasks wanted 2 processors; measure when idle"]}
    assert {} == baseline([row(1, copy=rate(10.0, contended=True), read=older)])
    assert {} == baseline([])


def test_a_run_that_was_stopped_is_never_the_baseline() -> None:
    stopped = row(2, copy=rate(2.0)).model_copy(update={"partial": True})
    assert {"copy": 4.2} == baseline([row(1, copy=rate(4.2)), stopped])
    assert {} == baseline([stopped])


def test_rates_of_hosts_are_baselines_of_what_was_measured_here() -> None:
    here, busy = row(1, copy=rate(4.2)), row(2, copy=rate(3.0, contended=True)).model_copy(update={"host": "busy"})
    read = row(3, copy=rate(9.0)).model_copy(update={"host": "told of", "grant_id": IMPORTED_GRANT})
    assert {"h": {"copy": 4.2}} == rates_of_hosts([read, busy, here])
