import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from service.hosting import _rate_out
from telemetry.importers.contract import Found, Options
from telemetry.importers.fio import FIO
from telemetry.tables import HostProfile

IDLE = {"bw": 0, "iops": 0.0, "runtime": 0, "total_ios": 0, "clat_ns": {"mean": 0.0, "max": 0, "percentile": {"50.000000": 0}}}
READ = {
    "bw": 1024,  # KiB/s
    "iops": 1000.0,
    "runtime": 60001,
    "total_ios": 60001,
    "slat_ns": {"min": 1, "max": 900, "mean": 400.0, "stddev": 0.0},
    "clat_ns": {
        "min": 1,
        "max": 999999,
        "mean": 900000.0,
        "stddev": 80000.0,
        "percentile": {"50.000000": 800000, "99.900000": 950000},
    },
    "lat_ns": {"min": 1, "max": 999999, "mean": 900400.0, "stddev": 90040.0},
    "bw_mean": 1000.0,
    "bw_dev": 100.0,
    "bw_samples": 119,
    "iops_mean": 1000.0,
    "iops_stddev": 10.0,
    "iops_samples": 119,
}
JOB = {
    "jobname": "probe",
    "groupid": 0,
    "error": 0,
    "elapsed": 61,
    "job options": {"rw": "randread", "bs": "4k", "iodepth": "1", "direct": "1"},
    "read": READ,
    "write": IDLE,
}


def report(*jobs: Any, **fields: Any) -> dict[str, Any]:
    return {"fio version": "fio-3.1", "timestamp": 1564907970, "timestamp_ms": 1564907970022, "jobs": list(jobs), **fields}


def found(folder: Path, given: Any, **options: str) -> Found:
    path = folder / "fio.json"
    path.write_text(given if isinstance(given, str) else json.dumps(given, indent=2))
    assert FIO.recognises(path, path.read_bytes())
    return FIO.read(path, Options(**options))


def rates(read: Found) -> dict[str, Any]:
    [row] = read.rows
    assert isinstance(row, HostProfile)
    return dict(json.loads(row.rates))


def test_a_job_becomes_a_profile_in_si_units(tmp_path: Path) -> None:
    read = found(tmp_path, report(JOB), host="n1")
    [row] = read.rows
    assert isinstance(row, HostProfile)
    assert ("n1", "imported", 1564907970022000000, False) == (row.host, row.grant_id, row.measured_ns, row.partial)
    condition = json.loads(row.condition)
    assert ("fio-3.1", "randread", "4k", "1") == (*(condition[key] for key in ("fio", "rw", "bs", "direct")),)
    told = rates(read)
    assert {"bytes_per_s", "requests_per_s", "slat_s", "clat_s", "lat_s"} == {name.removeprefix("fio_read_") for name in told}
    bandwidth, clat, lat = told["fio_read_bytes_per_s"], told["fio_read_clat_s"], told["fio_read_lat_s"]
    assert (1048576.0, 0.1, 119, 60.001) == (*(bandwidth[key] for key in ("median", "spread", "samples", "run_s")),)
    assert (8e-4, "median", 9e-4, 0.1, 60001) == (*(clat[key] for key in ("median", "statistic", "mean_s", "spread", "samples")),)
    assert {"50": 8e-4, "99.9": 9.5e-4} == clat["percentiles_s"]
    assert (9.004e-4, "mean") == (lat["median"], lat["statistic"])
    assert (1, ()) == (read.n_read, read.refused)


def test_rates_have_the_form_that_the_api_gives_of_any_profile(tmp_path: Path) -> None:
    for name, told in rates(found(tmp_path, report(JOB))).items():
        assert told["median"] == _rate_out(name, told, None).median


def test_what_was_not_done_was_not_measured(tmp_path: Path) -> None:
    read = found(tmp_path, report(JOB | {"trim": IDLE}))
    assert not any(name.startswith(("fio_write", "fio_trim")) for name in rates(read))
    assert "write, trim: nothing was done, so not measured (not a speed of 0)" in read.notes


def test_unused_slots_of_percentiles_are_left_out(tmp_path: Path) -> None:
    slots = '"99.900000": 950000, "0.00": 0, "0.00": 0, "0.00": 0'
    text = json.dumps(report(JOB), indent=2).replace('"99.900000": 950000', slots)
    assert {"50": 8e-4, "99.9": 9.5e-4} == rates(found(tmp_path, text))["fio_read_clat_s"]["percentiles_s"]


def test_parts_that_do_not_add_up_and_units_off_by_1000_are_complained_of(tmp_path: Path) -> None:  # T13
    def complaints(mean_ns: float) -> list[str]:
        section = READ | {"lat_ns": {"min": 1, "max": 999999999, "mean": mean_ns, "stddev": 1.0}}
        return list(rates(found(tmp_path, report(JOB | {"read": section})))["fio_read_lat_s"]["complaints"])

    assert [] == complaints(900400.0)
    assert ["mean slat + mean clat is 10 us less than mean lat"] == complaints(910400.0)
    assert any("off by 1000" in text for text in complaints(900400000.0))


def test_version_2_counts_latencies_in_microseconds_and_jobs_have_global_options(tmp_path: Path) -> None:
    section = {"bw": 2, "iops": 1.5, "runtime": 1000, "total_ios": 3, "clat": {"min": 1, "max": 9, "mean": 7.5, "stddev": 0.0}}
    read = found(tmp_path, report(JOB | {"read": section}, **{"fio version": "fio-2.2.10", "global options": {"size": "1G"}}))
    told = rates(read)
    assert (7.5e-6, 2048.0) == (told["fio_read_clat_s"]["median"], told["fio_read_bytes_per_s"]["median"])
    assert ["one run without samples of its course: the spread is not known"] == told["fio_read_bytes_per_s"]["complaints"]
    [row] = read.rows
    assert isinstance(row, HostProfile)
    assert "1G" == json.loads(row.condition)["size"]


def test_exact_bytes_count_before_rounded_kib(tmp_path: Path) -> None:
    exact = rates(found(tmp_path, report(JOB | {"read": READ | {"bw_bytes": 1048999}})))
    assert 1048999.0 == exact["fio_read_bytes_per_s"]["median"]


def test_every_job_is_a_profile_and_a_failed_one_is_partial_or_refused(tmp_path: Path) -> None:
    jobs = (JOB, JOB | {"jobname": "failed", "error": 5}, JOB | {"jobname": "dead", "error": 5, "read": IDLE}, "no job")
    read = found(tmp_path, report(*jobs))
    assert [False, True] == [row.partial for row in read.rows if isinstance(row, HostProfile)]
    assert 2 == len({row.profile_id for row in read.rows if isinstance(row, HostProfile)})
    [refusal] = read.refused
    assert ("job 2 dead", True) == (refusal.item, "error 5" in refusal.reason)
    assert 3 == read.n_read


def test_clients_name_their_hosts_and_their_sum_is_left_out(tmp_path: Path) -> None:
    clients = [JOB | {"hostname": "n1"}, JOB | {"hostname": "n2"}, JOB | {"jobname": "All clients"}]
    read = found(tmp_path, report(client_stats=clients))
    assert ["n1", "n2"] == [row.host for row in read.rows if isinstance(row, HostProfile)]


def test_reading_again_gives_the_same_ids_and_a_host_is_asked_for(tmp_path: Path) -> None:
    first = found(tmp_path, report(JOB))
    assert first == found(tmp_path, report(JOB))
    assert "the file names no host: stored as 'unknown'; say --host" in first.notes
    packed = tmp_path / "fio.json.gz"
    packed.write_bytes(gzip.compress((tmp_path / "fio.json").read_bytes()))
    assert first == FIO.read(packed, Options())


def test_chatter_around_the_report_is_passed_over(tmp_path: Path) -> None:
    text = "note: queue depth will be capped at 1\n" + json.dumps(report(JOB), indent=2) + "\nfio: done\n"
    assert found(tmp_path, report(JOB)) == found(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (json.dumps(report(JOB), indent=2)[:-30], "no JSON"),
        (json.dumps(report(JOB), indent=2).replace("1000.0", "NaN"), "NaN is no number"),
        (json.dumps(report(JOB, deep=0), indent=2).replace('"deep": 0', '"deep": ' + "[" * 100_000), "no JSON"),
        (json.dumps(report(JOB, timestamp=0, timestamp_ms="soon"), indent=2), "seconds since 1970"),
    ],
)
def test_a_report_that_cannot_be_read_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    read = found(tmp_path, text)
    assert () == read.rows
    assert reason in read.refused[0].reason


def test_other_json_is_not_recognised() -> None:
    for text in ('{"jobs": []}', '{"traceEvents": []}', '["fio version"]', ""):
        assert not FIO.recognises(Path("x.json"), text.encode())


def test_crucial_mx200_reads_at_random(shared_dir: Path) -> None:
    read = FIO.read(shared_dir / "examples/F16-fio-randread-1-1.json", Options(host="hp"))
    assert (1, ()) == (read.n_read, read.refused)
    told = rates(read)
    assert 26456 * 1024 == told["fio_read_bytes_per_s"]["median"]
    assert (6614.073099, 60.001) == (told["fio_read_requests_per_s"]["median"], told["fio_read_requests_per_s"]["run_s"])
    clat = told["fio_read_clat_s"]
    assert (134144e-9, 135557.025488e-9, 396851) == (clat["median"], clat["mean_s"], clat["samples"])
    assert 17 == len(clat["percentiles_s"])
    assert (569344e-9, 126464e-9) == (clat["percentiles_s"]["99.99"], clat["percentiles_s"]["1"])
    # 147792.395919 - (11676.079662 + 135557.025488) ns
    assert ["mean slat + mean clat is 0.559 us less than mean lat"] == told["fio_read_lat_s"]["complaints"]
    assert "write, trim: nothing was done, so not measured (not a speed of 0)" in read.notes
    [row] = read.rows
    assert isinstance(row, HostProfile)
    assert ("1", "4k", 1564907970022000000) == (
        json.loads(row.condition)["direct"],
        json.loads(row.condition)["bs"],
        row.measured_ns,
    )
