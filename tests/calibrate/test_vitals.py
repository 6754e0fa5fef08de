"""When a run gives way: GPU, battery and temperature by injected readings, load and foreground work by the real host's."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from calibrate.hosts.devices import free_device
from calibrate.hosts.grants import MIB
from calibrate.hosts.vitals import Device, Rules, Vitals, Watch, _family_s, judged, waited_share
from telemetry.nvml import Readings
from telemetry.nvml_fields import Reading, silent

WELL = Vitals(others=0.3, available_bytes=4096 * MIB, temperature_c=55.0, on_battery=False)


def action(vitals: Vitals, rules: Rules = Rules(), threads: int = 1) -> str:  # noqa: B008  frozen
    return judged(vitals, rules, threads=threads, processors=2).action


def gone() -> int:
    """Id of a process that is over."""
    with subprocess.Popen([sys.executable, "-c", ""]) as done:
        return done.pid


@pytest.fixture
def two_busy() -> Iterator[list[int]]:
    """Two processes that take all they can get."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    until = time.monotonic() + 20
    while time.monotonic() < until and not all(sum(psutil.Process(one.pid).cpu_times()[:2]) > 0.3 for one in busy):
        time.sleep(0.05)
    yield [one.pid for one in busy]
    for one in busy:
        one.kill()
        one.wait()


def test_a_host_that_does_well_lets_the_run_go_on_and_what_is_not_told_never_speaks_against_it() -> None:
    assert "go" == action(WELL)
    assert "go" == action(Vitals())


@pytest.mark.parametrize(
    ("change", "asked", "said"),
    [
        ({"available_bytes": 100 * MIB}, "end", "memory: 100 MiB"),
        ({"on_battery": True}, "end", "battery"),
        ({"device": Device(others=1)}, "end", "gpu: 1 other"),
        ({"temperature_c": 91.0}, "hold", "temperature: 91"),
        ({"device": Device(temperature_c=84.0)}, "hold", "gpu temperature: 84"),
        ({"foreground": "editor"}, "hold", "foreground: editor"),
        ({"others": 1.6}, "hold", "load: others use 1.6 of 2"),
    ],
)
def test_each_disturbance_asks_for_what_it_needs_and_says_why(change: dict[str, Any], asked: str, said: str) -> None:
    verdict = judged(Vitals(**{**vars(WELL), **change}), Rules(), threads=1, processors=2)
    assert asked == verdict.action
    assert verdict.why.startswith(said)


def test_load_holds_a_probe_only_where_it_would_take_what_others_use() -> None:
    assert "go" == action(Vitals(others=1.4))
    assert "hold" == action(Vitals(others=0.6), threads=2)
    assert "go" == action(Vitals(others=2.0), Rules(busy="measure"))


def test_two_busy_processes_are_seen_as_load(two_busy: list[int]) -> None:
    watch = Watch(gone())
    time.sleep(0.5)
    others = watch.look().others
    assert others is not None
    assert others > 1.0
    assert "hold" == action(Vitals(others=max(others, 1.6)))


@pytest.mark.parametrize("by", ["name", "id"])
def test_work_in_the_foreground_is_seen_while_it_works(two_busy: list[int], by: str) -> None:
    named = psutil.Process(two_busy[0]).name() if by == "name" else str(two_busy[0])
    watch = Watch(gone(), (named,))
    time.sleep(0.5)
    assert psutil.Process(two_busy[0]).name() == watch.look().foreground


def test_work_that_begins_in_the_foreground_meanwhile_is_seen_too_and_forgotten_once_it_is_over(tmp_path: Path) -> None:
    editor = tmp_path / "an-editor"
    editor.symlink_to(sys.executable)
    watch = Watch(gone(), (editor.name,))
    assert watch.look().foreground is None
    program = "import time; time.sleep(0.2)\nwhile True: pass"
    with subprocess.Popen([editor, "-S", "-c", program]) as begun:
        assert editor.name == seen(watch, lambda name: name is not None)
        begun.kill()
    assert seen(watch, lambda name: name is None) is None


def test_a_probe_is_never_left_alone_from_itself_whatever_it_is_called(tmp_path: Path) -> None:
    named = tmp_path / "a-namesake"
    named.symlink_to(sys.executable)
    with subprocess.Popen([named, "-S", "-c", "while True: pass"], start_new_session=True) as probe:
        watch = Watch(probe.pid, (named.name,))
        time.sleep(0.5)
        assert watch.look().foreground is None
        watch = Watch(gone(), (named.name,))
        time.sleep(0.5)
        assert named.name == watch.look().foreground
        probe.kill()


def seen(watch: Watch, awaited: Callable[[str | None], bool]) -> str | None:
    """What is at work in the foreground once it is as awaited, or at last."""
    until, name = time.monotonic() + 20, watch.look().foreground
    while not awaited(name) and time.monotonic() < until:
        time.sleep(0.2)
        name = watch.look().foreground
    return name


def test_what_a_probe_has_started_is_not_others_work() -> None:
    program = "import subprocess, sys, time; p = subprocess.Popen([sys.executable, '-c', 'while True: pass']); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", program]) as probe:
        until = time.monotonic() + 20
        while time.monotonic() < until and _family_s(probe.pid) < 0.5:
            time.sleep(0.05)
        before = _family_s(probe.pid)
        time.sleep(0.5)
        assert 0.5 <= before < _family_s(probe.pid)
        for child in psutil.Process(probe.pid).children():
            child.kill()
        probe.kill()
    assert 0.0 == _family_s(probe.pid)


def test_a_process_to_be_left_alone_that_does_nothing_holds_nobody() -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as idle:
        time.sleep(0.5)
        watch = Watch(os.getpid(), (str(idle.pid),))
        time.sleep(0.3)
        assert watch.look().foreground is None
        idle.kill()


def test_attempts_that_the_caller_knows_of_are_foreground_work() -> None:
    assert "attempt a-1" == Watch(os.getpid(), foreground=lambda: "attempt a-1").look().foreground


def test_a_process_beside_others_waits_for_its_processor(two_busy: list[int]) -> None:
    affinity = os.sched_getaffinity(0)
    one = {min(affinity)}
    os.sched_setaffinity(two_busy[0], one)
    os.sched_setaffinity(two_busy[1], one)
    time.sleep(0.5)
    waited = waited_share(two_busy[0])
    if waited is None:
        pytest.skip("this kernel does not tell how long tasks wait")
    assert 0.1 < waited < 1.0


def test_of_a_process_that_is_gone_nothing_is_known() -> None:
    pid = gone()
    assert waited_share(pid) is None
    assert Watch(pid).look().others is not None


class Cards:
    """A driver that answers the same again and again."""

    def __init__(self, *devices: Reading) -> None:
        self.devices = devices

    def read(self) -> Readings:
        return Readings(self.devices)


def test_a_gpu_is_watched_for_heat_company_and_held_clocks() -> None:
    other = Reading("GPU-b", values={"corunners": 7})
    values = {"corunners": 3, "temperature_c": 71.0, "throttle_reasons": ["gpu_idle", "sw_power_cap"]}
    watch = Watch(gone(), device="GPU-a", nvml=Cards(other, Reading("GPU-a", values=values)))
    assert Device(71.0, 2) == watch.look().device
    assert {"sw_power_cap"} == watch.throttled
    assert Device() == Watch(gone(), device="GPU-a", nvml=Cards(other)).look().device, "a driver gone mid-run says nothing"
    assert Device() == Watch(gone(), nvml=Cards(other)).look().device, "a probe that uses none is watched on none"


def test_only_a_gpu_that_is_awake_and_idle_is_chosen() -> None:
    busy = Reading("GPU-a", values={"corunners": 2, "gpu_utilization": 0.9})
    loaded = Reading("GPU-b", values={"corunners": 0, "gpu_utilization": 0.5})
    asleep = silent("GPU-c", "asleep")
    idle = Reading("GPU-d", values={"corunners": 0, "gpu_utilization": 0.0})
    assert "GPU-d" == free_device(Readings((busy, loaded, asleep, idle))).uuid
    chosen = free_device(Readings((busy, loaded, asleep)))
    assert chosen.uuid is None
    for said in ("GPU-a: 2 process(es) compute on it", "GPU-b: 50% busy", "GPU-c: asleep"):
        assert said in chosen.why
    assert "no driver" == free_device(Readings((), "no driver")).why


def test_a_slice_that_does_not_tell_its_load_is_chosen_by_its_processes_alone() -> None:
    assert "MIG-a" == free_device(Readings((Reading("MIG-a", values={"corunners": 0}),))).uuid
    assert free_device(Readings((Reading("MIG-a", values={"temperature_c": 40.0}),))).uuid is None
