"""What a probe tells line by line, and how much of it survives being held or killed."""

import itertools
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.hosts.copyfit import fit, fitted_copies
from calibrate.hosts.series import Series, collected, tell_absent, tell_done, tell_facts, telling


def line(value: float, at_ns: int = 0, kind: str = "sample", **more: Any) -> str:
    said = {"series": "copy", "unit": "bytes_per_s", "kind": kind, "value": value, "loops": 4, "at_ns": at_ns, "took_s": 1e-9}
    return json.dumps(said | more)


def test_what_is_told_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    telling("copy", "bytes_per_s")("warmup", 5.0, 0.1, 2)
    telling("copy", "bytes_per_s")("sample", 9.0, 0.1, 4)
    telling("copy_single", "s")("unproved", 0.0, 0.0, 1)
    tell_facts(backend="numpy 2.4.6")
    tell_absent("gpu", "no device")
    tell_done()
    told = collected(capsys.readouterr().out.splitlines())
    assert (Series("copy", "bytes_per_s", (9.0,), (5.0,), 4), Series("copy_single", "s", (), unproved=1)) == told.series
    assert ({"backend": "numpy 2.4.6"}, {"gpu": "no device"}, True) == (told.facts, told.absent, told.done)


def test_a_run_cut_off_in_the_middle_of_a_line_keeps_what_came_before() -> None:
    told = collected([line(8.0), line(9.0), line(10.0)[:30]])
    assert (8.0, 9.0) == told.series[0].values
    assert not told.done


def test_samples_that_a_pause_fell_into_are_no_samples() -> None:
    lines = [line(float(at), at_ns=at * 10, took_s=10e-9) for at in range(1, 7)]
    told = collected(lines, [(25, 28), (41, 42)])
    assert (1.0, 2.0, 4.0, 6.0) == told.series[0].values
    assert 2 == told.series[0].interrupted


def test_median_spread_and_name_with_unit() -> None:
    series = Series("memory_copy", "bytes_per_s", (9.0, 10.0, 11.0))
    assert (10.0, "memory_copy_bytes_per_s") == (series.median, series.rate_name)
    assert series.spread == pytest.approx(0.1)
    assert 0.0 == Series("a", "s", (3.0,)).spread


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60))
def test_interval_of_the_median_holds_it_with_95_percent_from_six_samples_on(n: int) -> None:
    low, high = Series("a", "s", tuple(map(float, range(n)))).interval
    rank = int(low)
    assert n - 1 - rank == high
    misses = 2 * sum(math.comb(n, k) for k in range(rank + 1)) / 2**n
    if n < 6:
        assert 0 == rank
    else:
        assert misses <= 0.05 < misses + 2 * math.comb(n, rank + 1) / 2**n


def test_copies_give_back_the_latency_and_rate_they_were_made_of() -> None:
    sizes = [4096.0, 65536.0, 1048576.0, 67108864.0]
    latency_s, bytes_per_s = fit(sizes, [10e-6 + size / 12e9 for size in sizes])
    assert latency_s == pytest.approx(10e-6)
    assert bytes_per_s == pytest.approx(12e9)


def test_a_latency_is_never_negative() -> None:
    assert 0.0 == fit([1e3, 1e6, 1e9], [1e-9, 2e-3, 3.0])[0]


def test_each_direction_and_kind_of_memory_has_its_own_latency_and_rate() -> None:
    ways, sizes = ("pinned_{}_host_to_device", "pageable_{}_device_to_host"), (4096, 1 << 20, 64 << 20)
    copied = [
        Series(f"copy_{way.format(size)}", "bytes_per_s", (size / (n * 1e-5 + size / (n * 1e9)),))
        for (n, way), size in itertools.product(enumerate(ways, 1), sizes)
    ]
    found = {one.rate_name: one.median for one in fitted_copies([*copied, Series("memory_copy", "bytes_per_s", (1.0,))])}
    assert found == pytest.approx(
        {
            "copy_pinned_host_to_device_latency_s": 1e-5,
            "copy_pinned_host_to_device_bytes_per_s": 1e9,
            "copy_pageable_device_to_host_latency_s": 2e-5,
            "copy_pageable_device_to_host_bytes_per_s": 2e9,
        }
    )
    assert [] == fitted_copies(copied[:2]), "two sizes are too few"
