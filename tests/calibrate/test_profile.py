"""A plan within its grant, a run of it, and the profile it makes; refusals start nothing."""

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from calibrate.hosts.catalogue import Probe, catalogue, first_probes
from calibrate.hosts.condition import condition, microcode
from calibrate.hosts.grants import MIB, PROBES, Terms, demo_grant, give
from calibrate.hosts.guard import Attended
from calibrate.hosts.profile import UNASKED, Plan, absences, carried_out, planned, profile, profiled, rates
from calibrate.hosts.run import Care, ProbeRun, complaints, measure
from calibrate.hosts.series import Series, Told
from calibrate.hosts.telling import rows_of
from calibrate.hosts.vitals import Rules, Vitals
from telemetry.errors import BadField, CeilingTooSmall, NotGranted, NotInForce, OtherHost, ProbeNotNamed
from telemetry.tables import Attempt, Event, Grant
from telemetry.timelines import observe
from telemetry.words import Ended, Purpose

PROBE = Probe("memory_copy", "memory_copy", "calibrate.hosts.probes.dram")
STEADY = Series("memory_copy", "bytes_per_s", (9.0, 10.0, 11.0), (5.0,), 4)
RUN = ProbeRun(PROBE, Told((STEADY,), done=True), runnable=1)


def grant(threads: int = 1) -> Grant:
    return demo_grant(user="ada", host=socket.gethostname(), now_ns=time.time_ns(), threads=threads)


def granted(probes: tuple[str, ...] = PROBES, **changes: Any) -> Grant:
    terms = Terms(probes, 600.0, 120.0, 1, 9216 * MIB, 512 * MIB, 1.0)
    made = give(terms, user="ada", host=socket.gethostname(), now_ns=time.time_ns())
    return made.model_copy(update=changes)


@contextmanager
def no_process_left() -> Iterator[None]:
    """All processes of ours that are there afterwards, those of other tests, were there before."""
    before = psutil.Process().children(recursive=True)
    yield
    assert [] == [process for process in psutil.Process().children(recursive=True) if process not in before]


@contextmanager
def nothing_started() -> Iterator[None]:
    """Neither a process of ours is there that was not, nor has one been that used any processor time."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with no_process_left():
        yield
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert (before.ru_utime, before.ru_stime, before.ru_minflt) == (after.ru_utime, after.ru_stime, after.ru_minflt)


@pytest.mark.parametrize(
    ("kind", "changes", "asked"),
    [
        (NotInForce, {"expires_ns": 1}, {}),
        (NotInForce, {"revoked_ns": 1}, {}),
        (OtherHost, {"host": "elsewhere"}, {}),
        (ProbeNotNamed, {"probes": ["matmul"]}, {"names": ["network"]}),
        (CeilingTooSmall, {"max_threads": 1}, {"threads": 2}),
        (CeilingTooSmall, {"max_run_s": 5.0}, {}),
        (CeilingTooSmall, {"max_run_s": 60.0}, {"seconds": 30.0, "names": ["memory_copy", "network", "file_read"]}),
        (CeilingTooSmall, {"max_memory_bytes": 4096}, {}),
        (CeilingTooSmall, {"max_disk_bytes": 0}, {"names": ["file_read"]}),
        (CeilingTooSmall, {"max_gpu_fraction": 0.0}, {"names": ["device_copy"]}),
    ],
)
def test_what_is_not_granted_is_refused_and_nothing_is_started(
    tmp_path: Path, kind: type[NotGranted], changes: dict[str, Any], asked: dict[str, Any]
) -> None:
    with nothing_started(), pytest.raises(kind):
        planned(granted(**changes), tmp_path, **({"seconds": 0.1} | asked))


def test_a_probe_is_held_to_its_grant_even_where_no_plan_was_made(tmp_path: Path) -> None:
    (wide,) = [probe for probe in catalogue(64, tmp_path) if probe.name == "matmul_threads_64"]
    with nothing_started(), pytest.raises(CeilingTooSmall):
        measure(grant(threads=1), wide, 0.1)


def test_a_plan_names_every_probe_with_what_it_takes_and_touches(tmp_path: Path) -> None:
    plan = planned(granted(), tmp_path, seconds=2.0)
    assert set(PROBES) == {probe.granted_as for probe in plan.probes}
    assert 2.0 * len(plan.probes) == plan.run_s
    assert all(probe.touches and probe.memory_bytes > 0 for probe in plan.probes)
    assert {str(tmp_path) in probe.touches for probe in plan.probes if probe.disk_bytes} == {True}
    assert ["network"] == [probe.name for probe in planned(granted(), tmp_path, seconds=1.0, names=["network"]).probes]


@pytest.mark.parametrize("asked", [{"names": ["everything"]}, {"seconds": 0.0}])
def test_a_plan_of_nonsense_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    with pytest.raises(BadField):
        planned(granted(), tmp_path, **({"seconds": 1.0} | asked))


@pytest.mark.parametrize("threads", [1, 2, 192])
def test_demo_grant_has_room_for_every_first_probe_on_a_host_of_any_size(tmp_path: Path, threads: int) -> None:
    given = grant(threads)
    for probe in first_probes(threads, tmp_path):
        assert probe.threads <= given.max_threads
        assert probe.memory_bytes <= given.max_memory_bytes
        assert probe.disk_bytes <= given.max_disk_bytes


def test_a_steady_run_on_an_idle_host_gives_no_complaint() -> None:
    assert complaints(RUN, STEADY, effective_cpus=2.0) == []
    assert complaints(replace(RUN, attended=Attended(waited=0.01)), STEADY, effective_cpus=2.0) == []


@pytest.mark.parametrize(
    ("run", "series", "said"),
    [
        (RUN, replace(STEADY, values=(5.0, 10.0, 15.0)), "spread 50%"),
        (RUN, replace(STEADY, values=(10.0, 10.0)), "2 samples"),
        (RUN, replace(STEADY, unproved=2), "2 samples left out"),
        (RUN, replace(STEADY, interrupted=3), "3 samples left out"),
        (RUN, replace(STEADY, name="file_read_cache_unknown"), "cache_unknown"),
        (replace(RUN, throttled=("sw_power_cap",)), STEADY, "throttled: sw_power_cap"),
        (replace(RUN, runnable=61), STEADY, "contended: 60 other tasks"),
        (replace(RUN, attended=Attended(waited=0.4)), STEADY, "contended: waited for 40%"),
        (replace(RUN, attended=Attended(waited=0.0, ended_by="battery")), STEADY, "partial: stopped (battery)"),
    ],
)
def test_a_complaint_says_what_and_how_much(run: ProbeRun, series: Series, said: str) -> None:
    (found,) = complaints(run, series, effective_cpus=2.0)
    assert said in found


def test_one_other_task_does_not_disturb_a_probe_that_leaves_it_a_processor() -> None:
    assert complaints(replace(RUN, runnable=2), STEADY, effective_cpus=2.0) == []


def test_the_first_call_of_a_shape_is_one_sample_by_nature() -> None:
    assert complaints(RUN, Series("matmul_threads_1_first", "s", (0.1,)), effective_cpus=2.0) == []


def test_rates_keep_warm_ups_and_complaints_apart() -> None:
    told = rates([replace(RUN, told=replace(RUN.told, facts={"backend": "numpy 2"}))], 2.0)["memory_copy_bytes_per_s"]
    assert told == {
        "median": 10.0,
        "low": 9.0,
        "high": 11.0,
        "spread": pytest.approx(0.1),
        "samples": 3,
        "loops": 4,
        "warmups": [5.0],
        "backend": "numpy 2",
        "device": None,
        "contended": False,
        "complaints": [],
    }


def test_condition_names_what_rates_depend_on() -> None:
    told = condition()
    assert {"processor", "affinity", "quota", "governor", "numpy", "blas", "torch", "driver", "microcode"} <= set(told)
    assert told["frequency_hz"] is None or told["frequency_hz"] > 0


def test_microcode_is_read_where_it_is_told(tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nmicrocode\t: 0x1000065\nprocessor\t: 1\nmicrocode\t: 0x7\n")
    assert "0x1000065" == microcode(cpuinfo)
    assert microcode(tmp_path / "absent") is None


def test_profile_of_this_host_has_every_rate_and_leaves_nothing_behind(tmp_path: Path) -> None:
    given = grant(threads=1)
    told: list[str] = []
    with no_process_left():
        row = profile(given, tmp_path, seconds=0.15, on_probe=told.append)
    measured = json.loads(row.rates)
    always = {f"matmul_threads_1_{unit}" for unit in ("flop_per_s", "single_s", "first_s")}
    always |= {"memory_copy_bytes_per_s", "file_read_cached_bytes_per_s"}
    either = {"file_read_cold_bytes_per_s", "file_read_cache_unknown_bytes_per_s"}
    assert always <= set(measured) <= always | either
    assert set(measured) & either
    assert all(rate["low"] <= rate["median"] <= rate["high"] and rate["median"] > 0 for rate in measured.values())
    assert not row.partial
    assert given.grant_id == row.grant_id
    assert told == ["matmul_threads_1", "memory_copy", "file_read_cold", "file_read_cached"]
    assert list(tmp_path.iterdir()) == []


SLOW = """
import time
from calibrate.hosts.series import telling
for n in range(600):
    telling("memory_copy", "bytes_per_s")("sample" if n else "warmup", 1e9, 0.05, 1)
    time.sleep(0.05)
"""


def test_a_run_that_is_stopped_keeps_what_it_measured_and_is_partial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "slow_probe.py").write_text(SLOW)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    plan = Plan(granted(), (replace(PROBE, module="slow_probe"), PROBE), 30.0)
    seen: list[float] = []

    def look() -> Vitals:
        seen.append(time.monotonic())
        return Vitals(on_battery=bool(seen[0] + 1.5 < seen[-1]))

    with no_process_left():
        runs = carried_out(plan, Care(look=look))
    row = profiled(plan, runs)
    assert 1 == len(runs), "the rest never begins"
    assert row.partial
    rate = json.loads(row.rates)["memory_copy_bytes_per_s"]
    assert (1e9, 1) == (rate["median"], len(rate["warmups"]))
    assert rate["samples"] > 1
    assert "partial: stopped (battery: the host runs on it)" in rate["complaints"]


def test_after_its_permission_has_ended_no_further_probe_begins() -> None:
    plan = Plan(granted(), (PROBE,), 1.0)
    with nothing_started():
        (run,) = carried_out(plan, Care(withdrawn=lambda: "grant: it was withdrawn"), on_probe=pytest.fail)
    assert "grant: it was withdrawn" == run.attended.ended_by
    assert profiled(plan, [run]).partial
    assert [] == rows_of([run], "g-1"), "there was no attempt"


@pytest.mark.parametrize("patience_s", [0.3])
def test_beside_busy_processes_a_run_stops_or_is_marked_contended(patience_s: float) -> None:
    processors = len(os.sched_getaffinity(0))
    # Each in a session of its own, since some schedulers share processors out by session.
    command = [sys.executable, "-c", "while True: pass"]
    busy = [subprocess.Popen(command, start_new_session=True) for _ in range(2 * processors)]
    try:
        time.sleep(0.5)
        stopped = measure(granted(), PROBE, 20.0, Care(Rules(patience_s=patience_s)))
        measured = measure(granted(), PROBE, 1.0, UNASKED)
    finally:
        for one in busy:
            one.kill()
            one.wait()
    assert stopped.attended.ended_by is not None
    assert "load: others use" in stopped.attended.ended_by
    assert measured.contended(2.0) is not None
    assert all(rate["contended"] for rate in rates([measured], 2.0).values())


def test_a_gpu_that_is_not_there_is_absent_with_its_reason_and_no_part_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    (probe,) = [probe for probe in catalogue(1, Path()) if probe.name == "device_copy"]
    monkeypatch.setattr("calibrate.hosts.devices._library", lambda: None)
    with nothing_started():
        run = measure(granted(), probe, 0.1)
    assert "device_copy: nvidia-ml-py is not installed" == absences([run])
    assert not profiled(Plan(granted(), (probe,), 0.1), [run]).partial


def test_a_probe_that_fails_makes_the_profile_partial_and_its_reason_is_in_it(capfd: pytest.CaptureFixture[str]) -> None:
    broken = Probe("broken", "matmul", "calibrate.hosts.probes.missing")
    run = measure(granted(), broken, 0.1, UNASKED)
    assert () == run.series
    made = profiled(Plan(granted(), (broken,), 0.1), [run])
    assert made.partial
    told = "broken: failed, ImportError: No module named calibrate.hosts.probes.missing"
    assert told == json.loads(made.condition)["not_measured"]
    assert "" == capfd.readouterr().err, "no trace on the screen"


def test_a_probe_that_is_killed_from_elsewhere_has_failed_without_a_reason_of_its_own() -> None:
    assert "its process ended without a result" == replace(RUN, told=Told((STEADY,)), ended_ns=1).failed
    assert RUN.failed is None
    assert replace(RUN, told=Told(), attended=Attended(ended_by="asked to stop"), ended_ns=1).failed is None


@pytest.mark.parametrize(
    ("made", "ended"),
    [
        (lambda run: run, Ended.COMPLETED),
        (lambda run: replace(run, attended=Attended(ended_by="load: ...")), Ended.CANCELLED),
        (lambda run: replace(run, told=Told()), Ended.FAILED),
    ],
)
def test_a_run_is_an_attempt_marked_calibration(made: Callable[[ProbeRun], ProbeRun], ended: Ended) -> None:
    run = made(replace(RUN, wall_ns=1_700_000_000_000_000_000, began_ns=5_000_000_000, ended_ns=7_000_000_000))
    attempt, *events = rows_of([run, replace(RUN, ended_ns=0)], "g-1")
    assert isinstance(attempt, Attempt)
    assert (Purpose.CALIBRATION, "memory_copy", "g-1") == (attempt.purpose, attempt.node_id, attempt.run_id)
    timeline = observe(attempt, [event for event in events if isinstance(event, Event)])
    (service,) = [one for one in timeline.observations if one.phase == "service"]
    assert (2.0, ended) == (service.duration_s, service.ended)
