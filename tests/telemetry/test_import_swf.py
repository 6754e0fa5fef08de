from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from telemetry.importers.contract import Options
from telemetry.words import Absence, Ended
from tests.telemetry.imported import attempts, phase, read, read_text

JOBS = """; Computer: Cluster A
; UnixStartTime: 1000000000
; a line that is no header field
  1 10 5 100 4 -1 -1 8 600 -1 1 3 1 7 2 1 -1 -1
2 20.5 0.0 2147483.647 2 -1 -1 2 3000000 -1 0 -1 -1 -1 -1 -1 -1 -1
"""
PLAIN = "{job} 0 0 {ran} 1 -1 -1 1 {asked} -1 {status} -1 -1 -1 -1 -1 -1 -1\n"


def line(job: int = 1, ran: str = "10", asked: str = "-1", status: int = 1) -> str:
    return PLAIN.format(job=job, ran=ran, asked=asked, status=status)


def test_jobs_become_attempts_with_queue_and_service(tmp_path: Path) -> None:
    found = read_text(tmp_path, "log.swf", JOBS)
    assert (2, ()) == (found.n_read, found.refused)
    first, second = attempts(found)
    assert ("Cluster A", "partition-1", "executable-7", "queue-2", 4.0, 600.0) == (
        *(first.host, first.device, first.family, first.mode, first.batch, first.size_in),
    )
    assert (None, None, "job-2") == (second.family, second.mode, second.node_id)
    assert [5.0, 0.0] == [row.duration_s for row in phase(found, "queue")]
    assert [(100.0, Ended.COMPLETED), (2147483.647, Ended.FAILED)] == [(r.duration_s, r.ended) for r in phase(found, "service")]


def test_starts_are_instants_where_the_log_has_an_epoch(tmp_path: Path) -> None:
    found = read_text(tmp_path, "log.swf", JOBS)
    assert [1_000_000_015 * 10**9, 1_000_000_020_500_000_000] == [row.started_ns for row in phase(found, "service")]
    assert [None, None] == [row.started_text for row in phase(found, "service")]


def test_starts_without_an_epoch_stay_relative(tmp_path: Path) -> None:
    found = read_text(tmp_path, "log.swf", JOBS.replace("; UnixStartTime: 1000000000\n", ""))
    assert [(None, "15"), (None, "20.5")] == [(row.started_ns, row.started_text) for row in phase(found, "service")]
    assert "no UnixStartTime" in found.notes[-1]


@pytest.mark.parametrize(("ran", "length_s"), [("2592000", 2_592_000.0), ("2147483.649", 2_147_483.649), ("0.001", 0.001)])
def test_lengths_are_those_of_the_text(tmp_path: Path, ran: str, length_s: float) -> None:  # T14
    assert length_s == phase(read_text(tmp_path, "log.swf", line(ran=ran)), "service")[0].duration_s


def test_unknown_is_not_zero_and_the_row_is_kept(tmp_path: Path) -> None:
    found = read_text(tmp_path, "log.swf", line(ran="-1"))
    [row] = phase(found, "service")
    assert (None, None, Absence.UNOBSERVED) == (row.duration_s, row.ended, row.absence)
    assert None is attempts(found)[0].size_in


def test_a_job_cancelled_before_it_ran_has_a_censored_wait_and_no_service(tmp_path: Path) -> None:
    found = read_text(tmp_path, "log.swf", "1 0 30 -1 -1 -1 -1 4 600 -1 5 1 1 1 1 1 -1 -1\n")
    assert [(30.0, Ended.CANCELLED)] == [(row.duration_s, row.ended) for row in phase(found, "queue")]
    assert [Absence.NOT_APPLICABLE] == [row.absence for row in phase(found, "service")]


@pytest.mark.parametrize("status", [0, 5])
def test_a_job_stopped_at_the_time_it_asked_for_is_censored_there(tmp_path: Path, status: int) -> None:  # P17
    [row] = phase(read_text(tmp_path, "log.swf", line(ran="612", asked="600", status=status)), "service")
    assert (600.0, Ended.TIMED_OUT, "ended=timed_out") == (row.duration_s, row.ended, row.assumed)


def test_a_status_that_says_nothing_is_read_as_completed_and_says_so(tmp_path: Path) -> None:
    [row] = phase(read_text(tmp_path, "log.swf", line(status=-1)), "service")
    assert (Ended.COMPLETED, "ended=completed") == (row.ended, row.assumed)


def test_parts_of_a_checkpointed_job_are_no_jobs(tmp_path: Path) -> None:
    found = read_text(tmp_path, "log.swf", line() + line(status=2) + line(status=3) + line(status=4))
    assert (4, 1, ()) == (found.n_read, len(attempts(found)), found.refused)
    assert "lines that are parts of checkpointed jobs, not jobs: 3" == found.notes[0]


def test_what_is_no_job_is_refused_with_its_line_and_the_rest_is_read(tmp_path: Path) -> None:
    bad = "2 0 0 -5" + " -1" * 14 + "\n" + "3 0 0 abc" + " -1" * 14 + "\n" + "4 0\n" + line(job=5, status=9) + line(job=6)
    found = read_text(tmp_path, "log.swf", line() + bad)
    assert (6, 2) == (found.n_read, len(attempts(found)))
    assert [(2, "job 2"), (3, "job 3"), (4, "job 4"), (5, "job 5")] == [(r.line, r.item) for r in found.refused]
    for words, refusal in zip(("negative", "decimal number", "18", "status"), found.refused, strict=True):
        assert words in refusal.reason


def test_fields_missing_at_the_end_are_unknown(tmp_path: Path) -> None:
    found = read_text(tmp_path, "log.swf", line(1) + line(2) + "3\t0 0 7 2\r\n")
    assert [10.0, 10.0, 7.0] == [row.duration_s for row in phase(found, "service")]
    assert 2.0 == attempts(found)[-1].batch


def test_the_same_job_has_the_same_id_however_its_numbers_are_written(tmp_path: Path) -> None:
    once, again = (read_text(tmp_path, "log.swf", line(ran=ran)) for ran in ("10", "10.00"))
    assert attempts(once) == attempts(again)
    longer = read_text(tmp_path, "log.swf", line(job=9) + line())
    assert attempts(once)[0] in attempts(longer)


def test_two_logs_of_one_workload_are_kept_apart(tmp_path: Path) -> None:
    one, other = (attempts(read_text(tmp_path, "log.swf", line(ran=ran)))[0] for ran in ("10", "11"))
    assert one.attempt_id != other.attempt_id


def test_a_wrong_unit_is_suspected_and_can_be_told(tmp_path: Path) -> None:  # T13
    text = "".join(line(job, ran="500000", asked="600") for job in range(3)).replace(" 0 0 ", " 0 9000 ")
    assert any("--unit" in note for note in read_text(tmp_path, "log.swf", text).notes)
    told = read_text(tmp_path, "log.swf", text, Options(unit="ms"))
    assert [500.0] * 3 == [row.duration_s for row in phase(told, "service")]
    assert [9.0] * 3 == [row.duration_s for row in phase(told, "queue")]


def test_a_packed_log_that_breaks_off_keeps_what_came_before(tmp_path: Path) -> None:
    text = "".join(line(job, ran=str(7 * job % 1009)) for job in range(1, 5_000)).encode()
    packed = gzip.compress(text)
    (tmp_path / "log.swf.gz").write_bytes(packed)
    assert 4_999 == read(tmp_path / "log.swf.gz").n_read
    (tmp_path / "log.swf.gz").write_bytes(packed[: len(packed) // 2])
    found = read(tmp_path / "log.swf.gz")
    assert 1_000 < len(attempts(found)) < 4_999
    assert "breaks off" in found.refused[-1].reason


def test_the_public_log_reads_as_counted_by_hand(shared_dir: Path) -> None:
    found = read(shared_dir / "examples" / "F12-swf-easy_mediumWL_smallPF.swf")
    assert (800, ()) == (found.n_read, found.refused)
    waits, runs = phase(found, "queue"), phase(found, "service")
    assert {0.0} == {row.duration_s for row in waits}
    assert {"0.0"} == {str(row.duration_s) for row in waits}  # 32 are written -0.0
    assert 28 == len({row.duration_s for row in runs})
    assert 60 <= min(attempt.size_in - row.duration_s for attempt, row in zip(attempts(found), runs, strict=True))
    assert (88.51, "0", None) == (runs[0].duration_s, runs[0].started_text, runs[0].started_ns)
    assert (6.609, "2739.599152") == (runs[1].duration_s, runs[1].started_text)
    assert (265.8, 399.0, 2.0) == (runs[4].duration_s, attempts(found)[4].size_in, attempts(found)[4].batch)
    assert {Ended.COMPLETED} == {row.ended for row in runs}
    assert found == read(shared_dir / "examples" / "F12-swf-easy_mediumWL_smallPF.swf")


def test_reading_a_log_again_in_another_unit_means_the_same_jobs(tmp_path: Path) -> None:  # T13
    text = line(ran="500000", asked="600000")
    plain, told = read_text(tmp_path, "log.swf", text), read_text(tmp_path, "log.swf", text, Options(unit="ms"))
    assert attempts(plain) == attempts(told)
    assert [500_000.0, 500.0] == [phase(found, "service")[0].duration_s for found in (plain, told)]


def test_a_last_line_that_breaks_off_is_refused_where_that_shows(tmp_path: Path) -> None:
    whole = line(1) + line(2) + line(3)
    found = read_text(tmp_path, "log.swf", whole.rstrip("\n")[:-10])
    assert [(3, "the file breaks off here")] == [(one.line, one.reason.split("; ")[1].split(":")[0]) for one in found.refused]
    assert 2 == len(attempts(found))
    assert 3 == len(attempts(read_text(tmp_path, "log.swf", whole.rstrip("\n"))))
    shorter = "".join(" ".join(one.split()[:12]) + "\n" for one in whole.splitlines())
    assert () == read_text(tmp_path, "log.swf", line(4) + line(5) + line(6) + line(7) + shorter).refused
