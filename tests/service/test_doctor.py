"""The doctor tells what is there and what is not, and never fails for an absence."""

import importlib.metadata
import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from service import doctor
from service.doctor import Finding, examine
from telemetry import samples
from telemetry.samples import Cgroup, Gpus
from telemetry.store.lock import Holder


def found(name: str, store: Path | None = None) -> Finding:
    return {finding.name: finding for finding in examine(store)}[name]


def test_everything_asked_for_is_examined_and_fits_json(tmp_path: Path) -> None:
    findings = examine(tmp_path / "p.duckdb")
    asked = {
        "python",
        "torch",
        "cuda",
        "nvml",
        "cgroup",
        "processors",
        "memory",
        "monotonic_clock",
        "boot_id",
        "page_cache",
        "disk",
        "duckdb",
    }
    assert asked <= {f.name for f in findings}
    assert json.loads(json.dumps([asdict(f) for f in findings]))
    assert all(f.value and f.note for f in findings)


def test_machine_with_nothing_is_still_described(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(package: str) -> str:
        raise importlib.metadata.PackageNotFoundError(package)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    monkeypatch.setattr(samples, "gpus", lambda: Gpus((), "NVML: library not found"))
    monkeypatch.setattr(samples, "read_cgroup", lambda: Cgroup("neither", None, None))
    monkeypatch.setattr(samples, "frequency_hz", lambda: None)
    monkeypatch.setattr(samples, "governor", lambda: None)
    monkeypatch.setattr(samples, "boot_id", lambda: None)
    absent = {f.name for f in examine(None) if f.state == "absent"}
    assert absent == {"torch", "cuda", "nvml", "cgroup", "processor_frequency", "boot_id", "duckdb", "store"}


def test_device_without_torch_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "gpus", lambda: Gpus(("GPU-a",), "1 device(s)"))
    monkeypatch.setattr(doctor, "_installed", lambda package: None)
    assert found("cuda").state == "limited"
    assert found("nvml") == Finding("nvml", "ok", "1 device(s)", "GPU-a")


def test_limits_of_the_group_are_told_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "read_cgroup", lambda: Cgroup("v2", 1.5, 1 << 30))
    assert found("cgroup") == Finding("cgroup", "ok", "v2", "quota of 1.5 processors, memory limit 1.00 GiB")
    assert found("memory").value == "1.00 GiB"


def test_page_cache_is_really_tried_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Path] = []

    def refuse(path: Path) -> bool:
        tried.append(path)
        return False

    monkeypatch.setattr(doctor, "evict", refuse)
    assert found("page_cache", tmp_path / "p.duckdb").state == "limited"
    assert [path.parent for path in tried] == [tmp_path]
    assert list(tmp_path.iterdir()) == []


def test_tmpfs_is_named_where_it_keeps_pages() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("no tmpfs here")
    finding = found("page_cache", Path("/dev/shm/p.duckdb"))
    assert (finding.state, finding.value) == ("limited", "no proof on tmpfs")


def test_folder_that_is_not_there_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    assert str(tmp_path) in found("disk", tmp_path / "not" / "yet" / "p.duckdb").note


def test_store_is_absent_then_there_then_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = tmp_path / "p.duckdb"
    assert found("store", store).state == "absent"
    store.write_bytes(b"")
    assert found("store", store).state == "ok"
    monkeypatch.setattr(doctor, "holder", lambda path: Holder(4242, "http://127.0.0.1:8000", 0, "phasecast serve"))
    finding = found("store", store)
    assert finding.state == "limited"
    assert "process 4242 since 1970-01-01 00:00:00Z, serving http://127.0.0.1:8000" in finding.note
