"""Samples of a host and its devices as rows of the store."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import psutil
import pynvml
import pytest

from telemetry import sampler
from telemetry.nvml import Nvml
from telemetry.sampler import Sampler
from telemetry.samples import Cgroup, read_cgroup
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.tables import ResourceSample
from tests.telemetry.recorded_nvml import MIB, from_xml

CARDS = """<nvidia_smi_log><gpu id="00000000:01:00.0"><uuid>GPU-a</uuid><mig_mode><current_mig>N/A</current_mig></mig_mode>
<fb_memory_usage><total>1000 MiB</total><used>0 MiB</used></fb_memory_usage></gpu></nvidia_smi_log>"""


@pytest.fixture
def here(tmp_path: Path) -> Sampler:
    """A sampler of a host with one card that tells little."""
    return Sampler("node-1", Nvml(from_xml(CARDS), pci_devices=tmp_path / "none"))


def test_a_host_and_its_device_are_one_row_each(here: Sampler) -> None:
    host, device = here.sample()
    assert ("node-1", "sampler@node-1", None, "{}") == (host.host, host.source, host.device, host.absent)
    assert host.sampled_ns == device.sampled_ns
    assert 0 < host.effective_cpus <= len(os.sched_getaffinity(0))
    assert 0 < host.memory_used_bytes < psutil.virtual_memory().total
    assert 0 < host.memory_limit_bytes <= psutil.virtual_memory().total
    assert host.load_1min >= 0
    assert (None, None, None) == (host.gpu_memory_total_bytes, host.corunners, host.throttle_reasons)
    assert ("GPU-a", 1000 * MIB, 0, None) == (
        device.device,
        device.gpu_memory_total_bytes,
        device.gpu_memory_used_bytes,
        device.effective_cpus,
    )


def test_what_a_device_does_not_tell_is_null_with_its_reason(here: Sampler) -> None:
    device = here.sample()[1]
    absent = dict.fromkeys(("gpu_utilization", "power_w", "sm_clock_hz", "temperature_c", "throttle_reasons"), "Not Supported")
    assert absent == json.loads(device.absent)
    assert [None] * 5 == [getattr(device, name) for name in absent]
    assert 0 == device.corunners


def test_a_container_of_one_and_a_half_processors_is_seen_as_such(
    here: Sampler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """T27: 24 processors, a quota of 1.5, 1 GiB."""
    (tmp_path / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    (tmp_path / "memory.max").write_text(f"{2**30}\n")
    (tmp_path / "membership").write_text("0::/\n")
    monkeypatch.setattr(sampler, "read_cgroup", lambda: read_cgroup(tmp_path, tmp_path / "membership"))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(24), raising=False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(total=64 * 2**30, used=8 * 2**30))
    host = here.sample()[0]
    assert (1.5, 2**30, 8 * 2**30) == (host.effective_cpus, host.memory_limit_bytes, host.memory_used_bytes)


def test_what_a_system_does_not_tell_of_the_host_is_null_with_its_reason(here: Sampler, monkeypatch: pytest.MonkeyPatch) -> None:
    """T28 for load: some systems have none."""
    monkeypatch.delattr(os, "getloadavg")
    monkeypatch.setattr(sampler, "read_cgroup", lambda: Cgroup("neither", None, None))
    host = here.sample()[0]
    assert (None, ["load_1min"]) == (host.load_1min, list(json.loads(host.absent)))


def test_without_a_driver_the_host_is_sampled_and_says_so() -> None:
    def init() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    library = SimpleNamespace(NVMLError=pynvml.NVMLError, nvmlInit=init)
    [host] = Sampler("node-1", Nvml(library, pci_devices=Path("/nowhere"))).sample()
    assert {"devices": "NVML: NVML Shared Library Not Found"} == json.loads(host.absent)
    assert host.effective_cpus is not None


def test_this_machine_is_sampled() -> None:
    host, *devices = Sampler("here").sample()
    assert bool(devices) or "devices" in json.loads(host.absent)


def test_samples_are_rows_that_the_store_keeps(here: Sampler, tmp_path: Path) -> None:
    samples = here.sample()
    with Store.open(tmp_path / "s.duckdb") as store:
        store.write(Batch(tuple(samples)))
        with store.reader() as reader:
            columns = list(ResourceSample.model_fields)
            kept = reader.rows(f"SELECT {', '.join(columns)} FROM resource_samples ORDER BY sample_id")
    assert samples == [ResourceSample(**dict(zip(columns, row, strict=True))) for row in kept]
