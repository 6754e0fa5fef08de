"""Probes: what each tells, and that a killed run leaves neither a process nor a file."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pytest

from calibrate.hosts import operators
from calibrate.hosts.loops import sampled, singly
from calibrate.hosts.pagecache import evict, fill, resident_fraction
from calibrate.hosts.probes import network, warmup
from calibrate.hosts.probes.storage import told_rates
from calibrate.hosts.scratch import scratch_file
from calibrate.hosts.series import Told, collected

ROOT = Path(__file__).resolve().parents[2]
KINDS = ["numpy", pytest.param("torch", marks=pytest.mark.torch)]


class Clock:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def work(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("calibrate.hosts.loops.time.perf_counter", lambda: made.now_s)
    return made


def told_by(module: str, *arguments: object) -> Told:
    """What a probe tells when it is run by itself."""
    command = [sys.executable, "-m", f"calibrate.hosts.probes.{module}", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert 0 == done.returncode, done.stderr
    return collected(done.stdout.splitlines())


def names(told: Told) -> set[str]:
    assert told.done
    assert all(value > 0 for series in told.series for value in series.values)
    return {series.rate_name for series in told.series if series.values}


def test_loops_double_until_a_sample_lasts_twenty_milliseconds(clock: Clock) -> None:
    taken = sampled(lambda: clock.work(0.003), work=6.0, budget_s=1.0)
    assert taken.loops == 8
    assert taken.rates == pytest.approx([2000.0] * len(taken.rates))


def test_slow_start_stays_in_the_warm_ups(clock: Clock) -> None:
    calls = iter([0.2])
    taken = sampled(lambda: clock.work(next(calls, 0.05)), work=1.0, budget_s=2.0)
    assert taken.warmups[0] == pytest.approx(5.0)
    assert taken.rates == pytest.approx([20.0] * 25)


def test_work_longer_than_its_budget_still_gives_two_samples(clock: Clock) -> None:
    assert len(sampled(lambda: clock.work(3.0), work=1.0, budget_s=1.0).rates) == 2


def test_a_single_request_comes_after_a_rest_that_is_not_counted(clock: Clock) -> None:
    said: list[tuple[str, float]] = []
    singly(lambda: clock.work(0.004), budget_s=0.05, tell=lambda kind, value, *_: said.append((kind, value)), rest=clock.work)
    assert [("warmup", pytest.approx(0.004)), *[("sample", pytest.approx(0.004))] * 3] == said


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["matmul", "memory_bound", "image_like", "decode_like"])
def test_an_operator_counts_the_same_work_on_either_backend(name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "VECTOR_BYTES", 1 << 20)
    work = {
        "matmul": (2.0 * 128**3, "flop_per_s"),
        "memory_bound": (3.0 * (1 << 18), "bytes_per_s"),
        "image_like": (2.0 * 24 * 24 * 16 * 16 * 9, "flop_per_s"),
        "decode_like": (4.0 * 1024 * 1024, "bytes_per_s"),
    }
    built = operators.build(name, kind, threads=1, shrink=4)
    built.once()
    assert work[name] == (built.work, built.unit)


@pytest.mark.parametrize("kind", KINDS)
def test_a_triad_adds_a_scaled_vector_to_every_element(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operators, "VECTOR_BYTES", 4 * (2 * operators.BLOCK + 5))
    built = operators.build("memory_bound", kind, threads=1)
    built.once()
    (out,) = [cell.cell_contents for cell in built.once.__closure__ or () if cell.cell_contents is not None and _is_sum(cell)]
    np.testing.assert_array_equal(np.full(2 * operators.BLOCK + 5, 4.0, np.float32), np.asarray(out))


def _is_sum(cell: object) -> bool:
    found = getattr(cell, "cell_contents", None)
    return hasattr(found, "shape") and float(found[0]) == 4.0


@pytest.mark.torch
def test_the_convolution_of_numpy_is_that_of_torch() -> None:
    import torch

    image, kernel = operators._random(8, 8, 16), operators._random(3, 3, 16, 16)
    out = np.zeros((6, 6, 16), np.float32)
    for i in range(3):
        for j in range(3):
            out += image[i : i + 6, j : j + 6] @ kernel[i, j]
    laid = torch.from_numpy(image).permute(2, 0, 1)[None], torch.from_numpy(kernel).permute(3, 2, 0, 1)
    expected = torch.nn.functional.conv2d(*laid)[0].permute(1, 2, 0).numpy()
    np.testing.assert_allclose(expected, out, rtol=1e-3, atol=1e-4)


def test_an_operator_is_told_sustained_alone_and_at_first_apart() -> None:
    told = told_by("cpu", 0.2, "decode_like", 1)
    assert {f"decode_like_threads_1_{unit}" for unit in ("bytes_per_s", "single_s", "first_s")} == names(told)
    assert told.facts["backend"].split()[0] == operators.backend()


def test_a_checkpoint_is_decoded_to_its_last_byte(tmp_path: Path) -> None:
    (name,) = names(told_by("checkpoint", 0.2, "cached", tmp_path))
    assert "checkpoint_decode_cached_bytes_per_s" == name
    assert [] == list(tmp_path.iterdir())


def test_a_file_on_tmpfs_can_not_be_proved_cold_and_is_told_as_unknown() -> None:
    if not Path("/dev/shm").is_dir():
        pytest.skip("no tmpfs here")
    told = told_by("storage", 0.1, "cold", "/dev/shm")
    assert {"file_read_cache_unknown_bytes_per_s"} == names(told)
    assert [3] == [one.unproved for one in told.series if one.name == "file_read_cold"]


def test_a_cold_read_is_slower_than_a_cached_one(tmp_path: Path) -> None:
    cold, cached = (told_by("storage", 0.3, state, tmp_path) for state in ("cold", "cached"))
    if "file_read_cold_bytes_per_s" not in names(cold):
        pytest.skip("this file system does not drop pages")
    slow, fast = (max(told.series[0].values) for told in (cold, cached))
    assert slow < fast


def test_each_cold_read_follows_a_proved_drop(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20))
    if not evict(path):
        pytest.skip("this file system does not drop pages")
    proofs: list[bool] = []
    said: list[str] = []

    def prepare(file: Path) -> bool:
        proofs.append(evict(file))
        return proofs[-1]

    assert told_rates(path, Path.read_bytes, prepare, 0.05, lambda kind, *_: said.append(kind))
    assert said.count("sample") + said.count("warmup") == proofs.count(True)
    assert 1 == said.count("warmup")


def test_a_cached_file_lies_as_reading_brought_it_in_and_not_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(os.urandom(1 << 20))
    if not evict(path):
        pytest.skip("this file system does not drop pages")
    path.write_bytes(os.urandom(1 << 20))
    resident: list[float | None] = []

    def prepare(file: Path) -> bool:
        resident.append(resident_fraction(file))
        return fill(file)

    assert told_rates(path, Path.read_bytes, prepare, 0.05, lambda *_: None)
    assert [0.0, 1.0] == resident[:2]


def test_reads_that_are_not_proved_are_never_samples(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(bytes(1 << 20))
    said: list[str] = []
    assert not told_rates(path, Path.read_bytes, lambda _: False, 0.1, lambda kind, *_: said.append(kind))
    assert ["unproved"] * 3 == said


def test_a_scratch_file_has_no_name_that_could_be_left_behind(tmp_path: Path) -> None:
    with scratch_file(tmp_path, b"weights") as path:
        assert b"weights" == path.read_bytes()
        if Path("/proc/self/fd").is_dir():
            assert [] == list(tmp_path.iterdir())
        assert fill(path)
    assert [] == list(tmp_path.iterdir())


def test_a_process_begins_faster_the_second_time_it_computes() -> None:
    begun = warmup.begun()
    assert {"backend", "first_operator", "second_operator"} == begun.keys()
    assert all(value >= 0 for value in begun.values())


def test_a_gpu_probe_without_a_gpu_says_why() -> None:
    told = told_by("gpu", 0.1, "copies")
    if told.absent:
        assert "torch" in told.absent["gpu"]
        assert told.done
    else:
        assert any(name.startswith("copy_pinned") for name in names(told))


def test_latency_and_rate_between_two_processes_of_ours() -> None:
    told = told_by("network", 0.3)
    assert {"network_bytes_per_s", "network_round_trip_s"} == names(told)


@pytest.mark.parametrize(
    ("address", "parts"),
    [("node-2:80", ("node-2", 80)), ("[fe80::1]:80", ("fe80::1", 80)), ("10.0.0.7:65535", ("10.0.0.7", 65535))],
)
def test_an_address_is_taken_apart(address: str, parts: tuple[str, int]) -> None:
    assert parts == network.host_and_port(address)


def test_a_peer_of_the_sixth_version_is_measured_to_by_its_address_in_brackets() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this host has no IPv6")
    command = [sys.executable, "-m", "calibrate.hosts.probes.network", "peer", "::1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as peer:
        assert peer.stdout is not None
        told = told_by("network", 0.2, f"[::1]:{int(peer.stdout.readline())}")
        peer.wait(timeout=20)
    assert {"network_bytes_per_s", "network_round_trip_s"} == names(told)


@contextmanager
def proxy(target: int, bytes_per_s: float, delay_s: float) -> Iterator[int]:
    """A port whose bytes reach `target` after a delay and at a limited rate; what comes back passes untouched."""

    def forth(source: socket.socket, sink: socket.socket) -> None:
        free_s = time.monotonic()
        while part := source.recv(1 << 16):
            now_s = time.monotonic()
            if now_s - free_s > delay_s / 4:  # what follows at once is on its way already
                free_s = now_s + delay_s
            free_s += len(part) / bytes_per_s
            time.sleep(max(0.0, free_s - now_s))
            sink.sendall(part)

    def back(source: socket.socket, sink: socket.socket) -> None:
        while part := source.recv(1 << 16):
            sink.sendall(part)

    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(("127.0.0.1", target)) as far:
        far.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def carry() -> None:
            near, _ = listening.accept()
            with near:
                near.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                returning = threading.Thread(target=_until_closed(back), args=(far, near), daemon=True)
                returning.start()
                forth(near, far)
                far.shutdown(socket.SHUT_RDWR)
                returning.join()

        carrying = threading.Thread(target=_until_closed(carry), daemon=True)
        carrying.start()
        yield listening.getsockname()[1]
        carrying.join(timeout=5)


def _until_closed(act: Callable[..., None]) -> Callable[..., None]:
    def run(*given: socket.socket) -> None:
        try:
            act(*given)
        except OSError:
            return

    return run


def test_a_limited_link_is_measured_at_its_limit_and_with_its_delay(capsys: pytest.CaptureFixture[str]) -> None:
    limit_bytes_per_s, delay_s = 4e6, 0.02
    command = [sys.executable, "-m", "calibrate.hosts.probes.network", "peer", "127.0.0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as peer:
        assert peer.stdout is not None
        with proxy(int(peer.stdout.readline()), limit_bytes_per_s, delay_s) as port:
            began_s = time.perf_counter()
            network.measure(("127.0.0.1", port), 1.0, bulk_bytes=1 << 20)
            whole_s = time.perf_counter() - began_s
        peer.kill()
    told = {one.name: one for one in collected(capsys.readouterr().out.splitlines()).series}
    trips, rates = told["network_round_trip"], told["network"]
    assert delay_s <= min(trips.values)
    assert max(rates.values) <= 1.02 * limit_bytes_per_s
    sent_s = [rates.loops * (1 << 20) / rate for rate in (*rates.warmups, *rates.values)]
    assert sum(sent_s) + sum((*trips.warmups, *trips.values)) <= whole_s  # one after the other, however busy the machine is


RUN = """
import sys, time
from pathlib import Path
from calibrate.hosts.grants import demo_grant
from calibrate.hosts.catalogue import named, catalogue
from calibrate.hosts.profile import UNASKED
from calibrate.hosts.run import measure
import socket
grant = demo_grant(user="ada", host=socket.gethostname(), now_ns=time.time_ns(), threads=1)
measure(grant, named(catalogue(1, Path(sys.argv[1])), ["file_read"])[0], 30.0, UNASKED)
"""


@pytest.mark.parametrize("held", [False, True])
def test_a_run_killed_in_the_middle_leaves_no_file_and_no_process(tmp_path: Path, held: bool) -> None:
    with subprocess.Popen([sys.executable, "-c", RUN, str(tmp_path)], cwd=ROOT) as run:
        probe = _child_at_work(psutil.Process(run.pid), tmp_path)
        if held:
            probe.suspend()
        os.kill(run.pid, signal.SIGKILL)
    until = time.monotonic() + 5
    while probe.is_running() and probe.status() != psutil.STATUS_ZOMBIE and time.monotonic() < until:
        time.sleep(0.02)
    assert not probe.is_running() or probe.status() == psutil.STATUS_ZOMBIE
    assert [] == list(tmp_path.iterdir())


def _child_at_work(run: psutil.Process, folder: Path) -> psutil.Process:
    """The probe's process, once it has its file open."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for child in run.children():
            opened = [os.readlink(fd) for fd in Path(f"/proc/{child.pid}/fd").iterdir() if fd.is_symlink()]  # noqa: PTH115
            if any(name.startswith(str(folder)) for name in opened):
                return child
        time.sleep(0.05)
    raise AssertionError("the probe never opened its file")
