"""Nothing runs on a host that was not permitted there, then, and within the ceilings."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calibrate.hosts.grants import MIB, Request, Terms, chosen, demo_grant, describe, give, in_force, permits
from telemetry.errors import BadField, CeilingTooSmall, NoGrant, NotGranted, NotInForce, OtherHost, ProbeNotNamed
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


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (OtherHost, {"host": "gpu-8"}),
        (NotInForce, {"now_ns": NOW_NS + 10**13}),
        (ProbeNotNamed, {"asked": replace(ASKED, probe="network")}),
        (CeilingTooSmall, {"asked": replace(ASKED, gpu_fraction=0.5)}),
    ],
)
def test_each_refusal_is_an_error_of_its_own(kind: type[NotGranted], told: dict[str, Any]) -> None:
    asked = told.pop("asked", ASKED)
    with pytest.raises(kind):
        permits(GRANT, asked, **({"host": "gpu-7", "now_ns": NOW_NS} | told))


def test_without_a_grant_nothing_is_permitted() -> None:
    with pytest.raises(NoGrant, match="gpu-7"):
        chosen([], None, host="gpu-7", now_ns=NOW_NS)
    with pytest.raises(NoGrant, match="gpu-8"):
        chosen([GRANT], None, host="gpu-8", now_ns=NOW_NS)
    with pytest.raises(NoGrant, match="another"):
        chosen([GRANT], "another", host="gpu-7", now_ns=NOW_NS)


def test_the_grant_in_force_that_lasts_longest_is_chosen_and_one_by_id_whatever_its_state() -> None:
    terms = Terms(("matmul",), 3600.0, 60.0, 1, MIB, 0)
    longer = give(terms, user="ada", host="gpu-7", now_ns=NOW_NS)
    withdrawn = longer.model_copy(update={"grant_id": "w", "revoked_ns": NOW_NS, "expires_ns": longer.expires_ns + 1})
    known = [withdrawn, longer, GRANT]
    assert longer == chosen(known, None, host="gpu-7", now_ns=NOW_NS + 1)
    assert GRANT == chosen(known, GRANT.grant_id, host="gpu-7", now_ns=NOW_NS + 1)
    assert not in_force(withdrawn, NOW_NS)
    assert withdrawn == chosen([withdrawn], None, host="gpu-7", now_ns=NOW_NS), "the refusal then says what became of it"


@pytest.mark.parametrize(
    ("probes", "valid_s"), [(("matmul", "everything"), 60.0), ((), 60.0), (("matmul",), 0.0), (("matmul",), 1e9)]
)
def test_a_grant_names_known_probes_for_a_window_that_ends(probes: tuple[str, ...], valid_s: float) -> None:
    with pytest.raises(BadField):
        give(Terms(probes, valid_s, 60.0, 1, MIB, 0), user="ada", host="gpu-7", now_ns=NOW_NS)


def test_description_names_user_probes_limits_and_end() -> None:
    text = describe(GRANT, NOW_NS)
    for part in ("ada", "matmul", "demo_encoder", "gpu-7", "600 s", "2 threads", "2048 MiB", "512 MiB", "15 min 0 s"):
        assert part in text
    assert "25% of a GPU" in describe(GRANT.model_copy(update={"max_gpu_fraction": 0.25}), NOW_NS)
