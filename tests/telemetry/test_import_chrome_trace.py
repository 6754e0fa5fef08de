"""Chrome traces: times exact to the ns, device apart from host, spans paired whatever their order, bad records told."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import BadField
from telemetry.importers.chrome_trace import CHROME_TRACE, read, recognises
from telemetry.importers.contract import Found, Options
from telemetry.importers.registry import first_bytes
from telemetry.tables import Attempt, Observation
from telemetry.words import Clock, Ended

EPOCH_US = 1_712_195_495_000_000


def trace(tmp_path: Path, *records: str, head: str = '"displayTimeUnit": "ns"', **options: Any) -> Found:
    """Read a trace of these records, each on a line of its own from line 2 on."""
    path = tmp_path / "trace.json"
    path.write_text(f'{{{head}, "traceEvents": [\n' + ",\n".join(records) + "\n]}\n")
    return read(path, Options(**options))


def x(name: str = "op", ts: object = EPOCH_US, dur: object = 5, cat: str = "cpu_op", **more: Any) -> str:
    return json.dumps({"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": dur, **more})


def b(ph: str, ts: object, name: str = "op", **more: Any) -> str:
    return json.dumps({"ph": ph, "cat": "c", "name": name, "pid": 1, "tid": 2, "ts": ts, **more})


def observed(found: Found) -> list[Observation]:
    return [row for row in found.rows if isinstance(row, Observation)]


def attempts(found: Found) -> list[Attempt]:
    return [row for row in found.rows if isinstance(row, Attempt)]


def lengths(found: Found) -> dict[str, tuple[float | None, Ended | None]]:
    """Length in s and ending by name."""
    return {str(a.node_id): (o.duration_s, o.ended) for a, o in zip(attempts(found), observed(found), strict=True)}


def test_decimal_microseconds_become_nanoseconds_without_losing_a_digit(tmp_path: Path) -> None:
    record = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 1712195495505582.989, "dur": 4.928}'
    [row] = observed(trace(tmp_path, record))
    assert (1_712_195_495_505_582_989, 4.928e-6) == (row.started_ns, row.duration_s)
    assert 1_712_195_495_505_582_989 != int(1712195495505582.989 * 1000)  # what a float would have said


def test_numbers_may_be_text_and_ids_too(tmp_path: Path) -> None:
    found = trace(tmp_path, x(ts=f"{EPOCH_US}.001", dur="0.002", pid="Spans", tid="PyTorch Profiler"))
    assert [(EPOCH_US * 1000 + 1, 2e-9)] == [(row.started_ns, row.duration_s) for row in observed(found)]


def test_a_length_of_zero_is_a_length(tmp_path: Path) -> None:
    assert [0.0] == [row.duration_s for row in observed(trace(tmp_path, x(dur=0)))]


def test_what_a_device_does_is_apart_from_what_its_host_says(tmp_path: Path) -> None:  # T18
    place = {"pid": 0, "tid": 7, "args": {"device": 0, "stream": 7, "bytes": 512}}
    found = trace(
        tmp_path,
        x("aten::mm", cat="cpu_op", args={"bytes": 9}),
        x("cudaLaunchKernel", cat="cuda_runtime"),
        x("gemm", cat="kernel", **place),
        x("Memcpy HtoD", cat="gpu_memcpy", **place),
        x("Event Sync", cat="cuda_sync", pid=0, tid=-1, args={"device": 0, "stream": -1, "wait_on_stream": -1}),
        head='"deviceProperties": [{"id": 0, "name": "Tesla V100"}], "host_name": "node-1"',
    )
    told = [(a.node_id, o.phase, o.clock, a.device, a.size_in) for a, o in zip(attempts(found), observed(found), strict=True)]
    assert [
        ("aten::mm", "host_span", Clock.MONOTONIC, None, None),
        ("cudaLaunchKernel", "host_span", Clock.MONOTONIC, None, None),
        ("gemm", "service", Clock.DEVICE, "Tesla V100 0 stream 7", 512.0),
        ("Memcpy HtoD", "transfer", Clock.DEVICE, "Tesla V100 0 stream 7", 512.0),
        ("Event Sync", "device_wait", Clock.DEVICE, "Tesla V100 0", None),
    ] == told
    assert {"node-1"} == {a.host for a in attempts(found)}


def test_devices_are_known_by_the_names_of_processes_too(tmp_path: Path) -> None:
    def names(kind: str, name: str, **place: Any) -> str:
        return b("M", 0, kind, args={"name": name}, **place)

    found = trace(
        tmp_path,
        json.dumps({"ph": "X", "name": "fusion", "pid": 3, "tid": 14, "ts": 1, "dur": 2}),
        json.dumps({"ph": "X", "name": "MemcpyH2D", "pid": 3, "tid": 15, "ts": 1, "dur": 2}),
        json.dumps({"ph": "X", "name": "jit_step", "pid": 3, "tid": 99, "ts": 1, "dur": 2}),
        json.dumps({"ph": "X", "name": "python", "pid": 4, "tid": 14, "ts": 1, "dur": 2}),
        names("process_name", "/device:GPU:0", pid=3),
        names("process_name", "/host:CPU", pid=4),
        names("thread_name", "Stream #14(Compute)", pid=3, tid=14),
        names("thread_name", "Stream #15(MemcpyH2D)", pid=3, tid=15),
        names("thread_name", "XLA Modules", pid=3, tid=99),
    )
    assert [
        ("service", "GPU:0 Stream #14(Compute)"),
        ("transfer", "GPU:0 Stream #15(MemcpyH2D)"),
        ("annotation", "GPU:0"),
        ("host_span", None),
    ] == [(o.phase, a.device) for a, o in zip(attempts(found), observed(found), strict=True)]


def test_begins_and_ends_pair_by_thread_and_time_whatever_their_order(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        b("E", EPOCH_US + 90),  # of outer
        b("B", EPOCH_US + 10, "inner"),
        b("B", EPOCH_US, "outer"),
        b("B", EPOCH_US + 5, "other thread", tid=3),
        b("E", EPOCH_US + 30),  # of inner
        b("E", EPOCH_US + 7, tid=3),
    )
    completed = Ended.COMPLETED
    assert {"outer": (90e-6, completed), "inner": (20e-6, completed), "other thread": (2e-6, completed)} == lengths(found)


def test_asynchronous_spans_pair_by_id_across_threads(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        b("b", EPOCH_US, "one", id=1),
        b("b", EPOCH_US + 1, "two", id="0x2"),
        b("e", EPOCH_US + 10, "one", id=1, tid=9),
        b("e", EPOCH_US + 21, "two", id="0x2"),
        b("b", EPOCH_US, "mine", id2={"local": 1}),
        b("e", EPOCH_US + 4, "another's", id2={"local": 1}, pid=5),
    )
    assert (10e-6, Ended.COMPLETED) == lengths(found)["one"]
    assert (20e-6, Ended.COMPLETED) == lengths(found)["two"]
    assert Ended.LOST is lengths(found)["mine"][1]  # a local id is one of its process
    assert [(7, "another's")] == [(one.line, one.item) for one in found.refused]


def test_what_had_not_ended_exceeds_the_end_of_the_trace(tmp_path: Path) -> None:  # T16
    no_end = x("zero end", ts=5_000_000_000, dur=-5_000_000_000)
    found = trace(tmp_path, no_end, b("B", 5_000_000_010, "open"), x("last", ts=5_000_000_100, dur=50), x("none", 5e9, None))
    assert (150e-6, Ended.LOST) == lengths(found)["zero end"]
    assert (140e-6, Ended.LOST) == lengths(found)["open"]
    assert (150e-6, Ended.LOST) == lengths(found)["none"]
    assert "3 spans had not ended" in " ".join(found.notes)


def test_bad_records_are_told_by_line_and_the_rest_goes_on(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        x("fine"),
        x("early", dur=-1),
        x("nan", ts=float("nan")),
        x("no time", ts=None),
        '"no object"',
        '{"ph": "X", "name": "broken", "ts": }',
        x("unknown", ph="%"),
        b("E", EPOCH_US),
        x("deep", args=None).replace("null", "[" * 100_000 + "]" * 100_000),
        x("also fine", ts=EPOCH_US + 1),
    )
    assert ["fine", "also fine"] == [a.node_id for a in attempts(found)]
    assert {3, 4, 5, 6, 7, 8, 9, 10} == {one.line for one in found.refused}
    assert 10 == found.n_read
    assert "can't end before it starts" in next(one.reason for one in found.refused if one.line == 3)


def test_records_without_a_length_are_counted_and_passed_over(tmp_path: Path) -> None:
    records = [b(ph, EPOCH_US) for ph in "stfiCMP"]
    found = trace(tmp_path, *records)
    assert ((), 7, ()) == (found.rows, found.n_read, found.refused)
    assert "nothing to learn from" in " ".join(found.notes)


@pytest.mark.parametrize("ms", [2**31 - 1, 2**31, 2**31 + 1, 30 * 86_400_000])
def test_long_spans_pass_whole(tmp_path: Path, ms: int) -> None:  # T14
    assert [ms / 1000] == [row.duration_s for row in observed(trace(tmp_path, x(dur=ms * 1000)))]


def test_a_trace_in_another_unit_is_told_and_can_be_read(tmp_path: Path) -> None:  # T13
    absolute = x(ts=EPOCH_US * 1000, dur=10**10)
    [refused] = trace(tmp_path, absolute).refused
    assert "give --unit" in refused.reason
    [row] = observed(trace(tmp_path, absolute, unit="ns"))
    assert (EPOCH_US * 1000, 10.0, "unit=ns") == (row.started_ns, row.duration_s, row.assumed)
    relative = trace(tmp_path, x(ts=0, dur=10**10), x(ts=10**7, dur=1))
    assert "a span lasts 10000 s, but all begin within 10 s" in " ".join(relative.notes)
    with pytest.raises(BadField, match="--unit"):
        trace(tmp_path, absolute, unit="fortnight")


def test_stamps_from_a_zero_of_their_own_are_no_times(tmp_path: Path) -> None:
    [row] = observed(trace(tmp_path, x(ts=12.5)))
    assert (None, "12.5") == (row.started_ns, row.started_text)
    [row] = observed(trace(tmp_path, x(ts=12.5), head='"baseTimeNanoseconds": 1712195495000000000'))
    assert (1_712_195_495_000_012_500, None) == (row.started_ns, row.started_text)


@pytest.mark.parametrize("end", ["", ",", "\n]", ",\n]"])
def test_a_bare_list_may_lack_its_end(tmp_path: Path, end: str) -> None:
    path = tmp_path / "t.json"
    path.write_text("[\n" + x("a") + ",\n" + x("b") + end)
    assert recognises(path, first_bytes(path))
    found = read(path, Options())
    assert (["a", "b"], ()) == ([a.node_id for a in attempts(found)], found.refused)


def test_a_file_that_breaks_off_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [\n' + x("a") + ",\n" + x("b")[:-20])
    found = read(path, Options())
    assert ["a"] == [a.node_id for a in attempts(found)]
    assert 3 == found.refused[0].line
    packed = gzip.compress(('{"traceEvents": [\n' + ",\n".join(x(f"op {n}", ts=EPOCH_US + n * n) for n in range(5000))).encode())
    path.write_bytes(packed[: len(packed) // 2])
    found = read(path, Options())
    assert 100 < len(attempts(found)) < 5000
    assert "breaks off" in found.refused[-1].reason


def test_reading_again_gives_the_same_ids_also_in_a_longer_trace_and_twins_stay_two(tmp_path: Path) -> None:
    twins = [x("twin"), x("twin"), x("twin", args={"correlation": 3})]
    first = trace(tmp_path, *twins)
    assert 3 == len({a.attempt_id for a in attempts(first)})
    assert first == trace(tmp_path, *twins)
    many = [b("M", 0), *(x(f"op {n}", ts=n) for n in range(3))]
    short, long = trace(tmp_path, *many[:3]), trace(tmp_path, *many)
    assert {a.attempt_id for a in attempts(short)} < {a.attempt_id for a in attempts(long)}


def test_another_trace_from_a_zero_of_its_own_is_another(tmp_path: Path) -> None:
    one, other = (trace(tmp_path, x("main", ts=0, dur=dur), x("op", ts=7)) for dur in (100.001, 100.002))
    assert set() == {a.attempt_id for a in attempts(one)} & {a.attempt_id for a in attempts(other)}


def test_long_names_are_cut_and_kept_apart(tmp_path: Path) -> None:
    names = ["void kernel<" + "int, " * 100 + end for end in ("a>", "b>")]
    assert 2 == len({a.model for a in attempts(trace(tmp_path, *map(x, names)))})


def test_only_traces_are_recognised(tmp_path: Path) -> None:
    for text in ('{"resourceSpans": []}', '{"note": "\\"traceEvents\\": ["}', "[1, 2]", "ph,ts\nX,1\n", ""):
        path = tmp_path / "other"
        path.write_text(text)
        assert not recognises(path, first_bytes(path)), text


def test_a_torch_trace_with_nanoseconds(shared_dir: Path) -> None:
    path = shared_dir / "examples" / "F06-torch-trace-ns.json.gz"
    assert recognises(path, first_bytes(path))
    found = read(path, Options())
    assert (68_692, ()) == (found.n_read, found.refused)
    assert f"{15_928 + 7_306 + 36 + 2} records without a length" in found.notes[0]
    phases = Counter(row.phase for row in observed(found))
    assert {"service": 4350 + 145, "transfer": 1600, "annotation": 15, "host_span": 45_420 - 6_110} == phases
    of_device = [a for a, o in zip(attempts(found), observed(found), strict=True) if o.phase in {"service", "transfer"}]
    assert {("Tesla V100-SXM2-32GB 0 stream 7", "host1.example.org")} == {(a.device, a.host) for a in of_device}
    first = observed(found)[0]  # ts 1712195495519689.047, dur 63.813
    assert (1_712_195_495_519_689_047, 63.813e-6, "host_span") == (first.started_ns, first.duration_s, first.phase)
    assert 68_692 - 15_928 - 7_306 - 38 == len({row.observation_id for row in observed(found)})


def test_a_torch_trace_with_three_streams(shared_dir: Path) -> None:
    path = shared_dir / "examples" / "F06-torch-trace-cuda-event-sync.json.gz"
    found = CHROME_TRACE.read(path, Options())
    assert (149, ()) == (found.n_read, found.refused)
    assert 12 == sum(row.duration_s == 0 for row in observed(found))
    pairs = list(zip(attempts(found), observed(found), strict=True))
    gpu = "NVIDIA A100-PG509-200 0"
    work = Counter(a.device for a, o in pairs if o.phase == "service")
    assert {f"{gpu} stream 20": 2, f"{gpu} stream 24": 2, f"{gpu} stream 28": 2} == work
    assert {gpu: 4, f"{gpu} stream 24": 1} == Counter(a.device for a, o in pairs if o.phase == "device_wait")
    assert [123e-6] * 3 == [o.duration_s for a, o in pairs if a.node_id == "ampere_sgemm_128x64_nn"]


def test_reading_a_trace_again_in_another_unit_means_the_same_spans(tmp_path: Path) -> None:  # T13
    records = (x("one", ts=1000.5, dur=5000), x("two", ts=2000, dur=1))
    plain, told = trace(tmp_path, *records), trace(tmp_path, *records, unit="ns")
    assert attempts(plain) == attempts(told)
    assert [0.005, 5e-6] == [observed(found)[0].duration_s for found in (plain, told)]
