from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.errors import BadField
from telemetry.importers.contract import Options
from telemetry.importers.nextflow import NEXTFLOW
from telemetry.words import Ended
from tests.telemetry.imported import attempts, phase, read, read_text

HEAD = "task_id\thash\tnative_id\tname\tstatus\texit\tsubmit\tduration\trealtime\t%cpu\tpeak_rss\trchar\n"
DONE = "1\taa/000001\t11\talign (x)\tCOMPLETED\t0\t2026-03-01 10:00:00.500\t4m 19s\t1.8s\t106.3%\t3.1 MB\t3700000000\n"


def task(**cells: str) -> str:
    """The finished task with some cells changed."""
    names = HEAD.strip().split("\t")
    known = dict(zip(names, DONE.strip().split("\t"), strict=True)) | cells
    return "\t".join(known[name] for name in names) + "\n"


def test_a_task_has_a_service_and_a_completion_which_are_different_lengths(tmp_path: Path) -> None:
    found = read_text(tmp_path, "trace.txt", HEAD + DONE)
    assert (1, ()) == (found.n_read, found.refused)
    [run], [whole], [attempt] = phase(found, "service"), phase(found, "completion"), attempts(found)
    assert (1.8, Ended.COMPLETED) == (run.duration_s, run.ended)
    assert (259.0, None, "2026-03-01 10:00:00.500") == (whole.duration_s, whole.started_ns, whole.started_text)
    assert ("align", "align (x)", None, None) == (attempt.family, attempt.node_id, attempt.host, attempt.batch)


@pytest.mark.parametrize(
    ("text", "length_s"),
    [
        ("259ms", 0.259),
        ("0ms", 0.0),
        ("1m 47s", 107.0),
        ("1h 2m 3.5s", 3723.5),
        ("30d", 2_592_000.0),
        ("24d 20h 31m 23.649s", 2_147_483.649),
        ("2147483647", 2_147_483.647),
        ("105000", 105.0),
    ],
)
def test_lengths_as_text_and_as_numbers_of_ms(tmp_path: Path, text: str, length_s: float) -> None:  # T14
    assert [length_s] == [row.duration_s for row in phase(read_text(tmp_path, "t.txt", HEAD + task(realtime=text)), "service")]


def test_a_column_that_comes_twice_is_read_from_the_number(tmp_path: Path) -> None:
    text = "task_id\tname\tstatus\tduration\trealtime\tduration\trealtime\n1\ta\tCOMPLETED\t4m 19s\t1.8s\t259123\t1789\n"
    found = read_text(tmp_path, "trace.csv", text)
    assert ([1.789], [259.123], ()) == (
        [row.duration_s for row in phase(found, "service")],
        [row.duration_s for row in phase(found, "completion")],
        found.notes,
    )


def test_cached_tasks_are_no_observations(tmp_path: Path) -> None:  # T11
    found = read_text(tmp_path, "trace.txt", HEAD + task(status="CACHED", realtime="105000"))
    assert (1, (), ()) == (found.n_read, found.rows, found.refused)
    assert "cached tasks" in found.notes[0]


def test_a_dash_is_missing_and_the_row_still_counts(tmp_path: Path) -> None:  # T12
    found = read_text(tmp_path, "trace.txt", HEAD + task(duration="-", **{"%cpu": "-", "peak_rss": "-", "exit": "-"}))
    assert [(1.8, Ended.COMPLETED)] == [(row.duration_s, row.ended) for row in phase(found, "service")]
    assert [None] == [row.duration_s for row in phase(found, "completion")]


def test_running_tasks_last_at_least_until_the_newest_time_of_the_file(tmp_path: Path) -> None:  # T11, T12
    head = HEAD.replace("submit", "submit\tstart")
    rows = [
        task(status="RUNNING", exit="-", duration="-", realtime="-", submit="2026-03-01 10:00:00\t2026-03-01 10:00:04"),
        task(hash="aa/000002", submit="2026-03-01 10:01:00\t2026-03-01 10:01:30.250"),
    ]
    found = read_text(tmp_path, "trace.txt", head + "".join(rows))
    assert [(86.25, Ended.RUNNING), (1.8, Ended.COMPLETED)] == [(row.duration_s, row.ended) for row in phase(found, "service")]
    assert (90.25, Ended.RUNNING) == (phase(found, "completion")[0].duration_s, phase(found, "completion")[0].ended)
    assert [4.0, 30.25] == [row.duration_s for row in phase(found, "queue")]


@pytest.mark.parametrize(
    ("status", "exit_status", "ended", "cause"),
    [
        ("FAILED", "137", Ended.FAILED, "exit 137"),
        ("FAILED", "-", Ended.FAILED, "failed"),
        ("FAILED", "2147483647", Ended.FAILED, "failed"),
        ("COMPLETED", "1", Ended.FAILED, "exit 1"),  # T10
        ("ABORTED", "-", Ended.CANCELLED, "policy"),
    ],
)
def test_how_a_task_ended(tmp_path: Path, status: str, exit_status: str, ended: Ended, cause: str) -> None:
    found = read_text(tmp_path, "trace.txt", HEAD + task(status=status, exit=exit_status))
    assert [(ended, cause)] * 2 == [(row.ended, row.cause) for name in ("service", "completion") for row in phase(found, name)]


def test_each_try_is_an_attempt_with_its_own_end(tmp_path: Path) -> None:  # T10
    text = "task_id,hash,name,status,exit,attempt,realtime\n1,a/1,x,FAILED,1,1,30000\n2,b/2,x,COMPLETED,0,2,90000\n"
    found = read_text(tmp_path, "trace.csv", text)
    one, two = attempts(found)
    assert (None, one.attempt_id) == (one.retry_of, two.retry_of)
    assert [(30.0, Ended.FAILED), (90.0, Ended.COMPLETED)] == [(row.duration_s, row.ended) for row in phase(found, "service")]


def test_tasks_that_have_not_begun_are_nothing_yet(tmp_path: Path) -> None:
    found = read_text(tmp_path, "trace.txt", HEAD + task(status="SUBMITTED") + task(status="NEW"))
    assert (2, ()) == (found.n_read, found.rows)


def test_raw_times_are_instants_and_context_is_filled(tmp_path: Path) -> None:
    text = (
        "task_id;hash;process;name;status;submit;start;complete;duration;realtime;cpus;queue;container;hostname\n"
        "1;a/1;ALIGN;ALIGN (1);COMPLETED;1700000000123;1700000001123;1700000011123;11000;9500;4;short;img:1;n1\n"
    )
    found = read_text(tmp_path, "trace.txt", text)
    [attempt], [run], [wait] = attempts(found), phase(found, "service"), phase(found, "queue")
    assert ("n1", "ALIGN", "img:1", "short", 4.0) == (
        *(attempt.host, attempt.family, attempt.runtime, attempt.mode, attempt.batch),
    )
    assert (9.5, 1_700_000_001_123_000_000) == (run.duration_s, run.started_ns)
    assert (1.0, 1_700_000_000_123_000_000) == (wait.duration_s, wait.started_ns)


def test_a_wrong_unit_is_suspected_and_can_be_told(tmp_path: Path) -> None:  # T13
    text = "task_id\tname\tstatus\tsubmit\tcomplete\tduration\n1\ta\tCOMPLETED\t1700000000000\t1700000010000\t10000000\n"
    assert any("--unit" in note for note in read_text(tmp_path, "trace.txt", text).notes)
    told = read_text(tmp_path, "trace.txt", text, Options(unit="us"))
    assert ([10.0], ()) == ([row.duration_s for row in phase(told, "completion")], told.notes)


def test_records_that_cannot_be_read_are_refused_and_the_rest_is_kept(tmp_path: Path) -> None:
    rows = [task(realtime="soon"), task(status="ASLEEP"), "1\ttoo\tshort\n", task(submit="yesterday"), task(duration="-5"), DONE]
    found = read_text(tmp_path, "trace.txt", HEAD + "".join(rows))
    assert (6, 1) == (found.n_read, len(attempts(found)))
    assert [2, 3, 4, 5, 6] == sorted(refusal.line or 0 for refusal in found.refused)
    for words in ("realtime", "status", "3 cells", "submit", "duration"):
        assert 1 == sum(words in refusal.reason for refusal in found.refused), words


def test_a_file_that_is_no_trace_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    with pytest.raises(BadField, match="status"):
        NEXTFLOW.read(tmp_path / "x.csv", Options())


def test_the_public_trace_reads_as_worked_out_by_hand(shared_dir: Path) -> None:
    found = read(shared_dir / "examples" / "F13b-nextflow-execution-trace.txt")
    assert (6, ()) == (found.n_read, found.refused)
    families = ["make_ot_config", "get_software_versions", "output_documentation", "remap_to_hla", "multiqc", "run_optitype"]
    assert families == [attempt.family for attempt in attempts(found)]
    assert [1.8, 7.3, 1.1, 53.3, 14.0, 105.0] == [row.duration_s for row in phase(found, "service")]
    assert [259.0, 19.0, 3.2, 54.8, 17.4, 107.0] == [row.duration_s for row in phase(found, "completion")]
    assert ("2021-03-29 19:50:21.822", None) == (
        phase(found, "completion")[0].started_text,
        phase(found, "completion")[0].started_ns,
    )
    assert {(Ended.COMPLETED, None)} == {(row.ended, row.cause) for row in phase(found, "service")}
    assert "lengths in realtime that are text, rounded by Nextflow: 6" in found.notes
