"""What may be used: limits from every kind of control group, and unknown never told as zero."""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from telemetry import samples
from telemetry.samples import Cgroup, Processors

GIB = 1 << 30


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return root


def membership(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "membership"
    path.write_text(text)
    return path


def test_quota_of_one_and_a_half_on_24_cores_counts_as_one_and_a_half() -> None:
    assert Processors(affinity=24, quota=1.5).effective == 1.5


def test_affinity_counts_where_it_is_below_the_quota() -> None:
    assert Processors(affinity=2, quota=8.0).effective == 2.0


def test_no_quota_leaves_the_affinity() -> None:
    assert Processors(affinity=24, quota=None).effective == 24.0


def test_version_2_limits_are_read(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "cg", {"cgroup.controllers": "cpu memory", "app/cpu.max": "150000 100000\n", "app/memory.max": f"{GIB}\n"}
    )
    found = samples.read_cgroup(root, membership(tmp_path, "0::/app\n"))
    assert found == Cgroup("v2", 1.5, GIB)


def test_version_2_without_limits_has_none(tmp_path: Path) -> None:
    root = tree(tmp_path / "cg", {"cgroup.controllers": "cpu memory", "app/cpu.max": "max 100000\n", "app/memory.max": "max\n"})
    assert samples.read_cgroup(root, membership(tmp_path, "0::/app\n")) == Cgroup("v2", None, None)


def test_limit_of_a_parent_group_binds_too(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "cg",
        {"cgroup.controllers": "cpu", "pod/cpu.max": "100000 100000\n", "pod/app/cpu.max": "400000 100000\n"},
    )
    assert samples.read_cgroup(root, membership(tmp_path, "0::/pod/app\n")).cpu_quota == 1.0


def test_path_of_the_host_that_a_container_does_not_see_falls_back_to_its_root(tmp_path: Path) -> None:
    root = tree(tmp_path / "cg", {"cgroup.controllers": "cpu", "cpu.max": "50000 100000\n"})
    assert samples.read_cgroup(root, membership(tmp_path, "0::/docker/abc/unseen\n")).cpu_quota == 0.5


def test_version_1_limits_are_read(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "cg",
        {
            "cpu/app/cpu.cfs_quota_us": "250000\n",
            "cpu/app/cpu.cfs_period_us": "100000\n",
            "memory/app/memory.limit_in_bytes": f"{2 * GIB}\n",
        },
    )
    found = samples.read_cgroup(root, membership(tmp_path, "4:memory:/app\n1:cpu:/app\n0::/\n"))
    assert found == Cgroup("v1", 2.5, 2 * GIB)


def test_version_1_controllers_mounted_together_are_found(tmp_path: Path) -> None:
    root = tree(tmp_path / "cg", {"cpu,cpuacct/cpu.cfs_quota_us": "50000\n", "cpu,cpuacct/cpu.cfs_period_us": "100000\n"})
    assert samples.read_cgroup(root, membership(tmp_path, "3:cpu,cpuacct:/\n")).cpu_quota == 0.5


def test_version_1_writes_its_absence_of_limits_as_numbers(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "cg",
        {
            "cpu/cpu.cfs_quota_us": "-1\n",
            "cpu/cpu.cfs_period_us": "100000\n",
            "memory/memory.limit_in_bytes": "9223372036854771712\n",
        },
    )
    assert samples.read_cgroup(root, membership(tmp_path, "4:memory:/\n1:cpu:/\n")) == Cgroup("v1", None, None)


def test_no_control_groups_is_neither(tmp_path: Path) -> None:
    assert samples.read_cgroup(tmp_path / "none", tmp_path / "missing") == Cgroup("neither", None, None)


def test_memory_is_the_smaller_of_machine_and_limit() -> None:
    assert samples.memory_bytes(Cgroup("v2", None, 12_345)) == 12_345
    assert samples.memory_bytes(Cgroup("v2", None, None)) == psutil.virtual_memory().total


def test_affinity_of_this_process_is_respected() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert samples.processors(Cgroup("v2", 8.0, None)).effective == 1.0
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("told", [None, SimpleNamespace(current=0.0, min=0.0, max=0.0)])
def test_frequency_that_is_none_or_zero_is_unknown(monkeypatch: pytest.MonkeyPatch, told: object) -> None:
    monkeypatch.setattr(psutil, "cpu_freq", lambda: told)
    assert samples.frequency_hz() is None


def test_frequency_is_in_hz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "cpu_freq", lambda: SimpleNamespace(current=2500.0))
    assert samples.frequency_hz() == 2.5e9


class FakeNvmlError(Exception):
    pass


def fake_nvml(*, start: Exception | None = None, uuids: tuple[object, ...] = ()) -> SimpleNamespace:
    def init() -> None:
        if start:
            raise start

    def uuid(handle: int) -> object:
        if isinstance(uuids[handle], Exception):
            raise uuids[handle]
        return uuids[handle]

    return SimpleNamespace(
        NVMLError=FakeNvmlError,
        nvmlInit=init,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: len(uuids),
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=uuid,
    )


def test_no_driver_is_a_status_and_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(start=FakeNvmlError("library not found")))
    assert samples.gpus() == samples.Gpus((), "NVML: library not found")


def test_one_device_that_does_not_answer_does_not_hide_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(uuids=("GPU-a", FakeNvmlError("gone"), "GPU-c")))
    assert samples.gpus() == samples.Gpus(("GPU-a", "GPU-c"), "3 device(s)")


def test_package_that_is_not_installed_is_a_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert samples.gpus().status == "nvidia-ml-py is not installed"


def test_this_machine_answers_without_error() -> None:
    assert samples.processor_name()
    assert 0 < samples.monotonic_resolution_s() < 1
    assert samples.runnable_tasks() is None or samples.runnable_tasks() >= 1
    assert samples.read_cgroup().version in {"v1", "v2", "neither"}
