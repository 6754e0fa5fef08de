"""Nothing runs on a host that was not permitted there, then, and within the ceilings."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.hosts.grants import MIB, Request, demo_grant, describe, permits
from telemetry.errors import NotGranted
from telemetry.tables import Grant

NOW_NS = 1_700_000_000_000_000_000
GRANT = demo_grant(user="ada", host="gpu-7", now_ns=NOW_NS, threads=2)
ASKED = Request("matmul", threads=2, memory_bytes=64 * MIB, disk_bytes=0, run_s=5.0)


def refused(grant: Grant = GRANT, asked: Request = ASKED, *, host: str = "gpu-7", now_ns: int = NOW_NS) -> str:
    with pytest.raises(NotGranted) as caught:
        permits(grant, asked, host=host, now_ns=now_ns)
    assert caught.value.fix
    return caught.value.field


def test_request_within_the_grant_passes() -> None:
    permits(GRANT, ASKED, host="gpu-7", now_ns=NOW_NS)


def test_demo_grant_lasts_fifteen_minutes_to_the_nanosecond() -> None:
    last_ns = NOW_NS + 15 * 60 * 1_000_000_000
    permits(GRANT, ASKED, host="gpu-7", now_ns=last_ns - 1)
    assert refused(now_ns=last_ns) == "expires_ns"


def test_grant_is_not_in_force_before_its_window() -> None:
    assert refused(now_ns=NOW_NS - 1) == "not_before_ns"


def test_grant_is_for_one_host() -> None:
    assert refused(host="gpu-8") == "host"


def test_probe_that_is_not_named_is_refused() -> None:
    assert refused(asked=replace(ASKED, probe="network")) == "probes"


def test_revoked_grant_is_refused_from_that_moment() -> None:
    revoked = GRANT.model_copy(update={"revoked_ns": NOW_NS + 10})
    permits(revoked, ASKED, host="gpu-7", now_ns=NOW_NS + 9)
    assert refused(revoked, now_ns=NOW_NS + 10) == "revoked_ns"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"threads": 3}, "max_threads"),
        ({"memory_bytes": 2048 * MIB + 1}, "max_memory_bytes"),
        ({"disk_bytes": 512 * MIB + 1}, "max_disk_bytes"),
        ({"run_s": 600.1}, "max_run_s"),
    ],
)
def test_request_over_a_ceiling_names_that_ceiling(change: dict[str, Any], field: str) -> None:
    assert refused(asked=replace(ASKED, **change)) == field


@settings(max_examples=200)
@given(st.integers(1, 4), st.integers(0, 4096), st.integers(0, 1024), st.floats(0, 1200), st.integers(-(10**12), 2 * 10**12))
def test_whatever_passes_is_inside_every_ceiling(
    threads: int, memory_mib: int, disk_mib: int, run_s: float, after_ns: int
) -> None:
    asked = Request("matmul", threads, memory_mib * MIB, disk_mib * MIB, run_s)
    inside = threads <= 2 and memory_mib <= 2048 and disk_mib <= 512 and run_s <= 600 and 0 <= after_ns < 900 * 10**9
    try:
        permits(GRANT, asked, host="gpu-7", now_ns=NOW_NS + after_ns)
        passed = True
    except NotGranted:
        passed = False
    assert inside == passed


def test_description_names_user_probes_limits_and_end() -> None:
    text = describe(GRANT, NOW_NS)
    for part in ("ada", "matmul", "demo_encoder", "gpu-7", "600 s", "2 threads", "2048 MiB", "512 MiB", "15 min 0 s"):
        assert part in text
