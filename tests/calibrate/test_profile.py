"""Probes: how samples are taken, when a result is not to be trusted, and the profile they make."""

import json
import os
import socket
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from calibrate.hosts import loops
from calibrate.hosts.grants import demo_grant
from calibrate.hosts.loops import Samples, sampled
from calibrate.hosts.pagecache import evict, fill
from calibrate.hosts.probes.storage import read_rates
from calibrate.hosts.profile import condition, profile, rates
from calibrate.hosts.run import Probe, ProbeRun, complaints, measure, probes, read_run
from telemetry.errors import BadField, NotGranted
from telemetry.tables import Grant

STEADY = ProbeRun(Probe("memory_copy", "memory_copy", "unused"), "bytes_per_s", Samples((9.0, 10.0, 11.0), (5.0,), 4), runnable=1)


def grant(threads: int = 1) -> Grant:
    return demo_grant(user="ada", host=socket.gethostname(), now_ns=time.time_ns(), threads=threads)


class Clock:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def work(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(loops.time, "perf_counter", lambda: made.now_s)
    return made


def test_loops_double_until_a_sample_lasts_twenty_milliseconds(clock: Clock) -> None:
    taken = sampled(lambda: clock.work(0.003), work=6.0, budget_s=1.0)
    assert taken.loops == 8
    assert taken.rates == pytest.approx([2000.0] * len(taken.rates))


def test_slow_start_stays_in_the_warm_ups(clock: Clock) -> None:
    calls = 0

    def once() -> None:
        nonlocal calls
        calls += 1
        clock.work(0.2 if calls == 1 else 0.05)

    taken = sampled(once, work=1.0, budget_s=2.0)
    assert taken.warmups[0] == pytest.approx(5.0)
    assert taken.rates == pytest.approx([20.0] * loops.MOST_SAMPLES)


def test_work_longer_than_its_budget_still_gives_two_samples(clock: Clock) -> None:
    assert len(sampled(lambda: clock.work(3.0), work=1.0, budget_s=1.0).rates) == 2


def test_median_and_spread_are_those_of_the_samples_without_warm_ups() -> None:
    assert STEADY.median == 10.0
    assert STEADY.spread == pytest.approx(0.1)
    assert STEADY.rate_name == "memory_copy_bytes_per_s"


def test_steady_run_on_an_idle_host_gives_no_complaint() -> None:
    assert complaints(STEADY, effective_cpus=2.0) == []


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (replace(STEADY, samples=Samples((5.0, 10.0, 15.0), (), 1)), "spread 50%"),
        (replace(STEADY, samples=Samples((10.0, 10.0), (), 1)), "2 samples"),
        (replace(STEADY, samples=Samples((10.0, 10.0, 10.0), (), 1, unproved=2)), "2 samples left out"),
        (replace(STEADY, runnable=61), "contended: 60 other tasks"),
    ],
)
def test_complaint_says_what_and_how_much(run: ProbeRun, said: str) -> None:
    (found,) = complaints(run, effective_cpus=2.0)
    assert said in found


def test_one_other_task_does_not_disturb_a_probe_that_leaves_it_a_processor() -> None:
    assert complaints(replace(STEADY, runnable=2), effective_cpus=2.0) == []


def test_rates_keep_warm_ups_and_complaints_apart() -> None:
    told = rates([STEADY], 2.0)["memory_copy_bytes_per_s"]
    assert told == {
        "median": 10.0,
        "spread": pytest.approx(0.1),
        "samples": 3,
        "loops": 4,
        "warmups": [5.0],
        "complaints": [],
    }


def test_output_without_a_proved_sample_is_no_result() -> None:
    printed = json.dumps({"unit": "bytes_per_s", "rates": [], "warmups": [], "loops": 1, "unproved": 3})
    assert read_run(STEADY.probe, printed, None) is None


def test_reads_that_are_not_proved_cold_are_never_samples(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(1 << 20))
    assert read_rates(path, lambda _: False, 0.1) == Samples((), (), 1, unproved=3)


def test_each_cold_read_follows_a_proved_drop(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20))
    if not evict(path):
        pytest.skip("this file system does not drop pages")
    proofs = []

    def prepare(file: Path) -> bool:
        proofs.append(evict(file))
        return proofs[-1]

    taken = read_rates(path, prepare, 0.05)
    assert len(taken.rates) + len(taken.warmups) == proofs.count(True)
    assert len(taken.warmups) == 1
    assert fill(path)


def test_probe_beyond_the_grant_is_not_started(tmp_path: Path) -> None:
    (wide,) = [p for p in probes(64, tmp_path) if p.threads == 64]
    with pytest.raises(NotGranted):
        measure(grant(threads=1), wide, 0.1)
    assert psutil.Process().children() == []


def test_probe_without_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadField):
        measure(grant(), probes(1, tmp_path)[0], 0.0)


def test_probe_that_fails_leaves_no_result(capfd: pytest.CaptureFixture[str]) -> None:
    assert measure(grant(), Probe("broken", "matmul", "calibrate.hosts.probes.missing"), 0.1) is None
    assert "calibrate.hosts.probes.missing" in capfd.readouterr().err


def test_condition_names_what_rates_depend_on() -> None:
    told = condition()
    assert {
        "processor",
        "affinity",
        "quota",
        "effective_processors",
        "governor",
        "frequency_hz",
        "numpy",
        "blas",
        "kernel",
    } <= set(told)
    assert told["frequency_hz"] is None or told["frequency_hz"] > 0


def test_profile_of_this_host_has_every_rate_and_leaves_nothing_behind(tmp_path: Path) -> None:
    given = grant(threads=1)
    told: list[str] = []
    row = profile(given, tmp_path, seconds=0.15, on_probe=told.append)
    measured = json.loads(row.rates)
    always = {"matmul_threads_1_flop_per_s", "memory_copy_bytes_per_s", "file_read_cached_bytes_per_s"}
    assert always <= set(measured) <= always | {"file_read_cold_bytes_per_s"}
    assert all(rate["median"] > 0 and rate["samples"] >= 2 for rate in measured.values())
    assert row.partial == ("file_read_cold_bytes_per_s" not in measured)
    assert given.grant_id == row.grant_id
    assert told == ["matmul_threads_1", "memory_copy", "file_read_cold", "file_read_cached"]
    assert list(tmp_path.iterdir()) == []
    assert psutil.Process().children() == []


@pytest.mark.parametrize("threads", [1, 2, 192])
def test_demo_grant_has_room_for_every_probe_on_a_host_of_any_size(tmp_path: Path, threads: int) -> None:
    given = grant(threads)
    for probe in probes(threads, tmp_path):
        assert probe.threads <= given.max_threads
        assert probe.memory_bytes <= given.max_memory_bytes
        assert probe.disk_bytes <= given.max_disk_bytes
        assert probe.granted_as in given.probes
