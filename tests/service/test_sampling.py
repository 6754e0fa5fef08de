"""Samples kept beside the API: at intervals, through a full disk, and only where they were asked for."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service.client.sync import http_client
from service.sampling import Sampling
from telemetry.errors import DiskFull
from telemetry.nvml import Nvml
from telemetry.sampler import Sampler
from telemetry.store.batch import Batch, Receipt
from telemetry.store.file import Store
from tests.service.living import until


@pytest.fixture
def sampler() -> Sampler:
    return Sampler("node-1", Nvml(None, pci_devices=Path("/nowhere")))


def kept(store: Store) -> list[str]:
    with store.reader() as reader:
        return [host for (host,) in reader.rows("SELECT host FROM resource_samples")]


def test_samples_are_kept_until_it_is_stopped(tmp_path: Path, sampler: Sampler) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        sampling = Sampling(store, sampler, every_s=0.01)
        sampling.start()
        until(lambda: len(kept(store)) >= 3)
        sampling.stop()
        n = len(kept(store))
        assert {"node-1"} == set(kept(store))
        assert n == len(kept(store))


def test_it_ends_at_once_though_the_next_sample_is_far(tmp_path: Path, sampler: Sampler) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        sampling = Sampling(store, sampler, every_s=3600.0)
        sampling.start()
        until(lambda: kept(store))
        sampling.stop()
        sampling.stop()
        assert 1 == len(kept(store))


def test_a_full_disk_costs_its_samples_and_no_more(
    tmp_path: Path, sampler: Sampler, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Store.open(tmp_path / "s.duckdb") as store:
        write: Callable[[Batch], Receipt] = store.write
        refused: list[Batch] = []

        def full_at_first(batch: Batch) -> Receipt:
            if not refused:
                refused.append(batch)
                raise DiskFull("store", "no room", "make room")
            return write(batch)

        monkeypatch.setattr(store, "write", full_at_first)
        sampling = Sampling(store, sampler, every_s=0.01)
        sampling.start()
        until(lambda: kept(store))
        sampling.stop()
    assert "a sample of resources was not kept: store: got 'no room'; make room" in caplog.text


def test_serve_samples_this_machine_where_it_is_asked_to(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "service.cli.main", "serve", "--store", str(tmp_path / "s.duckdb"), "--port", "0"]
    with subprocess.Popen([*command, "--sample", "3600", "--sample-host", "node-1"], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        url = server.stdout.readline().rsplit(" at ", 1)[1].strip()
        try:
            with http_client(url) as http:
                assert 200 == http.get("/healthz").status_code
        finally:
            server.send_signal(signal.SIGTERM)
        assert 0 == server.wait(timeout=20)
    with Store.open(tmp_path / "s.duckdb") as store:
        assert "node-1" in kept(store)
