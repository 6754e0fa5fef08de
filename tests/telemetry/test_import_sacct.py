from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.errors import BadField
from telemetry.importers import slurm
from telemetry.importers.contract import Options
from telemetry.importers.gathered import running_s
from telemetry.importers.registry import importer_for
from telemetry.importers.sacct import SACCT
from telemetry.tables import Quarantine
from telemetry.words import Absence, Ended
from tests.telemetry.imported import attempts, phase, read, read_text

HEAD = "JobID|JobName|Partition|NCPUS|State|ExitCode|Timelimit|Elapsed|Submit|Start|End|NodeList\n"
DONE = "7|align|long|4|COMPLETED|0:0|1-00:00:00|01:02:03|2026-03-01T09:00:00|2026-03-01T10:00:00|2026-03-01T11:02:03|n1\n"
STEPS = "7.batch|batch||4|COMPLETED|0:0||01:02:05|2026-03-01T10:00:00|2026-03-01T10:00:00|2026-03-01T11:02:05|n1\n"
NEVER = "8|align|long|4|CANCELLED by 1001|0:0|01:00:00|00:00:00|2026-03-01T09:00:00|None|2026-03-01T09:30:00|None assigned\n"


def job(**cells: str) -> str:
    """The finished job with some cells changed."""
    names = HEAD.strip().split("|")
    known = dict(zip(names, DONE.strip().split("|"), strict=True)) | cells
    return "|".join(known[name] for name in names) + "\n"


def test_a_job_becomes_an_attempt_with_queue_and_service_and_its_steps_do_not(tmp_path: Path) -> None:
    found = read_text(tmp_path, "jobs.txt", HEAD + DONE + STEPS)
    assert (2, (), ("records that are steps, not jobs: 1",)) == (found.n_read, found.refused, found.notes)
    [attempt], [wait], [run] = attempts(found), phase(found, "queue"), phase(found, "service")
    assert ("n1", "align", "long", 4.0, 86_400.0, "7") == (
        *(attempt.host, attempt.family, attempt.mode, attempt.batch, attempt.size_in, attempt.node_id),
    )
    assert (3723.0, Ended.COMPLETED, None, "2026-03-01T10:00:00") == (run.duration_s, run.ended, run.started_ns, run.started_text)
    assert (3600.0, Ended.COMPLETED, "eligible=submit") == (wait.duration_s, wait.ended, wait.assumed)


@pytest.mark.parametrize(
    ("state", "exit_code", "ended", "cause"),
    [
        ("COMPLETED", "0:0", Ended.COMPLETED, None),
        ("FAILED", "1:0", Ended.FAILED, "failed 1:0"),
        ("NODE_FAIL", "0:0", Ended.FAILED, "node_fail"),
        ("OUT_OF_ME+", "0:125", Ended.FAILED, "out_of_memory 0:125"),
        ("TIMEOUT", "0:0", Ended.TIMED_OUT, None),
        ("CANCELLED by 1001", "0:0", Ended.CANCELLED, "user"),
        ("CANCELLED by 0", "0:0", Ended.CANCELLED, "policy"),
        ("CANCELLED+", "0:0", Ended.CANCELLED, "unknown"),
        ("PREEMPTED", "0:0", Ended.CANCELLED, "policy"),
        ("CD", "0:0", Ended.COMPLETED, None),
        ("RUNNING", "0:0", Ended.RUNNING, None),
    ],
)
def test_states_say_how_the_service_ended(tmp_path: Path, state: str, exit_code: str, ended: Ended, cause: str | None) -> None:
    [row] = phase(read_text(tmp_path, "jobs.txt", HEAD + job(State=state, ExitCode=exit_code)), "service")
    assert (3723.0, ended, cause) == (row.duration_s, row.ended, row.cause)


@pytest.mark.parametrize(
    ("text", "length_s"),
    [
        ("00:15.057", "15.057"),
        ("03:33:25", "12805"),
        ("5-00:00:00", "432000"),
        ("30-00:00:00", "2592000"),
        ("24-20:31:23.649", "2147483.649"),  # 2^31 + 1 ms
        ("1-12:30", "131400"),
    ],
)
def test_lengths_of_slurm_in_all_their_forms(text: str, length_s: str) -> None:  # T14
    assert length_s == str(slurm.length_s("Elapsed", text))


@pytest.mark.parametrize("text", ["", "12", "1:2:3:4", "-00:01:00", "UNLIMITED", "00:00:1x"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(BadField):
        slurm.length_s("Elapsed", text)


@pytest.mark.parametrize("limit", ["UNLIMITED", "Partition_Limit", "", "None", "Unknown"])
def test_words_for_a_limit_are_unknown_not_zero(tmp_path: Path, limit: str) -> None:  # P15
    found = read_text(tmp_path, "jobs.txt", HEAD + job(Timelimit=limit))
    assert ([None], ()) == ([attempt.size_in for attempt in attempts(found)], found.refused)
    assert [3723.0] == [row.duration_s for row in phase(found, "service")]


def test_an_end_that_is_unknown_leaves_elapsed(tmp_path: Path) -> None:  # P15
    found = read_text(tmp_path, "jobs.txt", HEAD + job(End="Unknown", State="RUNNING", Elapsed="00:00:17"))
    assert [(17.0, Ended.RUNNING)] == [(row.duration_s, row.ended) for row in phase(found, "service")]


def test_a_timeout_is_censored_at_its_limit(tmp_path: Path) -> None:  # P17
    found = read_text(tmp_path, "jobs.txt", HEAD + job(State="TIMEOUT", Timelimit="00:10:00", Elapsed="00:10:12"))
    assert [(600.0, Ended.TIMED_OUT)] == [(row.duration_s, row.ended) for row in phase(found, "service")]


def test_a_job_that_never_began_has_a_censored_wait_and_no_service(tmp_path: Path) -> None:
    found = read_text(tmp_path, "jobs.txt", HEAD + NEVER)
    assert [(1800.0, Ended.CANCELLED, "user")] == [(r.duration_s, r.ended, r.cause) for r in phase(found, "queue")]
    assert [(None, Absence.NOT_APPLICABLE)] == [(row.duration_s, row.absence) for row in phase(found, "service")]
    assert None is attempts(found)[0].host


def test_a_job_that_waits_is_nothing_yet(tmp_path: Path) -> None:
    found = read_text(tmp_path, "jobs.txt", HEAD + job(State="PENDING", Start="Unknown", End="Unknown", Elapsed="00:00:00"))
    assert (1, (), ()) == (found.n_read, found.rows, found.refused)
    assert "jobs that wait" in found.notes[0]


def test_an_end_before_the_start_is_set_aside_not_clipped(tmp_path: Path) -> None:  # T01
    early = job(Elapsed="", Start="2026-03-01T10:00:00", End="2026-03-01T09:59:00")
    [row] = [row for row in read_text(tmp_path, "jobs.txt", HEAD + early).rows if isinstance(row, Quarantine)]
    assert ("service", "end_before_start") == (row.phase, row.reason)
    assert "2026-03-01T09:59:00" in row.detail


def test_elapsed_counts_where_it_differs_from_the_times(tmp_path: Path) -> None:
    found = read_text(tmp_path, "jobs.txt", HEAD + job(Elapsed="00:30:00"))
    assert [1800.0] == [row.duration_s for row in phase(found, "service")]
    assert "suspended" in found.notes[0]


def test_a_job_that_ran_again_is_another_attempt(tmp_path: Path) -> None:  # T10
    first = job(State="NODE_FAIL", Elapsed="00:00:30", Start="2026-03-01T10:00:00", End="2026-03-01T10:00:30")
    second = job(Elapsed="00:01:30", Start="2026-03-01T10:05:00", End="2026-03-01T10:06:30")
    found = read_text(tmp_path, "jobs.txt", HEAD + first + second)
    one, two = attempts(found)
    assert (None, one.attempt_id) == (one.retry_of, two.retry_of)
    assert [(30.0, Ended.FAILED), (90.0, Ended.COMPLETED)] == [(row.duration_s, row.ended) for row in phase(found, "service")]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_job_listed_as_running_and_as_ended_has_ended(tmp_path: Path, order: tuple[int, int]) -> None:
    reports = [job(State="RUNNING", Elapsed="00:10:00", End="Unknown"), DONE]
    found = read_text(tmp_path, "jobs.txt", HEAD + reports[order[0]] + HEAD + reports[order[1]])
    assert (2, 1, ()) == (found.n_read, len(attempts(found)), found.refused)
    assert [3723.0] == [row.duration_s for row in phase(found, "service")]
    assert {None} == set(map(running_s, found.rows))


def test_array_tasks_move_together(tmp_path: Path) -> None:
    found = read_text(tmp_path, "jobs.txt", HEAD + job(JobID="9_1") + job(JobID="9_2") + job(JobID="9_[3-8]", State="PENDING"))
    assert [("9", "9_1"), ("9", "9_2")] == [(attempt.run_id, attempt.node_id) for attempt in attempts(found)]


def test_records_that_cannot_be_read_are_refused_and_the_rest_is_kept(tmp_path: Path) -> None:
    rows = (
        job(Elapsed="soon"),
        job(JobID="8", State="DREAMING"),
        job(JobID="9", JobName="a|b"),
        job(JobID="10", Start="today"),
        DONE,
    )
    found = read_text(tmp_path, "jobs.txt", HEAD + "".join(rows))
    assert (5, 1) == (found.n_read, len(attempts(found)))
    assert [(2, "7"), (3, "8"), (4, "9"), (5, "10")] == [(refusal.line, refusal.item) for refusal in found.refused]
    for words, refusal in zip(("Elapsed", "State", "13 cells", "Start"), found.refused, strict=True):
        assert words in refusal.reason


@pytest.mark.parametrize("delimiter", ["|", ";|;", ",", "\t", ";"])
def test_any_delimiter_is_found(tmp_path: Path, delimiter: str) -> None:
    plain = attempts(read_text(tmp_path, "plain.txt", HEAD + DONE))
    assert plain == attempts(read_text(tmp_path, "jobs.txt", (HEAD + DONE).replace("|", delimiter)))


def test_commas_may_be_quoted(tmp_path: Path) -> None:
    text = (HEAD + job(NodeList="n[1,2]", JobName='say "hi"')).replace("|", ",")
    quoted = text.replace("n[1,2]", '"n[1,2]"').replace('say "hi"', '"say ""hi"""')
    [attempt] = attempts(read_text(tmp_path, "jobs.csv", quoted))
    assert ("n[1,2]", 'say "hi"') == (attempt.host, attempt.family)


def test_a_report_without_lengths_says_so(tmp_path: Path) -> None:
    found = read_text(tmp_path, "jobs.txt", "JobID|JobName|State|ExitCode\n1|a|COMPLETED|0:0\n")
    assert (1, [Absence.UNOBSERVED]) == (found.n_read, [row.absence for row in phase(found, "service")])
    assert "nothing to learn from" in found.notes[0]


def test_lines_may_end_in_a_delimiter(tmp_path: Path) -> None:
    text = (HEAD + DONE + STEPS).replace("\n", "|\n")
    assert [3723.0] == [row.duration_s for row in phase(read_text(tmp_path, "jobs.txt", text), "service")]


FIXED = """
       JobID    JobName      State    Elapsed ExitCode
------------ ---------- ---------- ---------- --------
123             my+prog  COMPLETED   00:00:10      0:0
123.extern       extern  COMPLETED   00:00:10      0:0
124              longer CANCELLED+ 1-00:00:00      0:0
"""


def test_fixed_width_is_cut_at_the_rule(tmp_path: Path) -> None:
    found = read_text(tmp_path, "jobs.txt", FIXED)
    assert [(10.0, Ended.COMPLETED), (86_400.0, Ended.CANCELLED)] == [(r.duration_s, r.ended) for r in phase(found, "service")]
    assert ["my+prog", "longer"] == [attempt.family for attempt in attempts(found)]


def test_raw_columns_and_epoch_times(tmp_path: Path) -> None:
    text = "JobIDRaw|State|ElapsedRaw|TimelimitRaw|Eligible|Start|End\n5|COMPLETED|2592000|60|1500000000|1500000005|1502592005\n"
    found = read_text(tmp_path, "jobs.txt", text, Options(host="cluster-a"))
    [attempt], [wait], [run] = attempts(found), phase(found, "queue"), phase(found, "service")
    assert (3600.0, "cluster-a") == (attempt.size_in, attempt.host)
    assert (5.0, None, 1_500_000_000 * 10**9) == (wait.duration_s, wait.assumed, wait.started_ns)
    assert (2_592_000.0, 1_500_000_005 * 10**9) == (run.duration_s, run.started_ns)


def test_a_wrong_unit_is_suspected_and_can_be_told(tmp_path: Path) -> None:  # T13
    text = "JobIDRaw|State|ElapsedRaw|Start|End\n5|COMPLETED|10000|2026-03-01T10:00:00|2026-03-01T10:00:10\n"
    assert any("--unit" in note for note in read_text(tmp_path, "jobs.txt", text).notes)
    told = read_text(tmp_path, "jobs.txt", text, Options(unit="ms"))
    assert ([10.0], ()) == ([row.duration_s for row in phase(told, "service")], told.notes)


def test_a_report_without_a_header_is_not_guessed_at(tmp_path: Path) -> None:
    (tmp_path / "jobs.txt").write_text(DONE)
    with pytest.raises(BadField):
        importer_for(tmp_path / "jobs.txt", None)
    with pytest.raises(BadField, match="noheader"):
        SACCT.read(tmp_path / "jobs.txt", Options())


def test_the_public_report_reads_as_worked_out_by_hand(shared_dir: Path) -> None:
    found = read(shared_dir / "examples" / "F14-sacct-test-data1.txt")
    assert (5, ()) == (found.n_read, found.refused)
    assert "records that are steps, not jobs: 3" in found.notes
    first, second = attempts(found)
    assert ("pe2", "spawner-jupyterhub", "jupyter-long", 2.0, 432_000.0) == (
        *(first.host, first.family, first.mode, first.batch, first.size_in),
    )
    assert ("_interactive", 1.0, 60.0) == (second.family, second.batch, second.size_in)
    runs = [(row.duration_s, row.ended, row.cause, row.started_text) for row in phase(found, "service")]
    assert [
        (12_805.0, Ended.CANCELLED, "user", "2019-07-31T22:29:14"),
        (17.0, Ended.CANCELLED, "user", "2019-08-01T00:35:27"),
    ] == runs
    assert [1.0, 1.0] == [row.duration_s for row in phase(found, "queue")]


@pytest.mark.parametrize("text", ["25:61:99", "00:60:00", "00:00:60", "1-24:00:00", "1-00:60", "10:60"])
def test_a_length_no_clock_shows_is_refused(tmp_path: Path, text: str) -> None:
    [refused] = read_text(tmp_path, "jobs.txt", HEAD + job(Elapsed=text) + DONE).refused
    assert "minutes and seconds go to 59, hours beside days to 23" in refused.reason


@pytest.mark.parametrize(("text", "length_s"), [("25:00:00", 90_000.0), ("90:59", 5459.0), ("1-23:59:59", 172_799.0)])
def test_lengths_past_a_day_or_an_hour_without_a_place_for_it_pass(tmp_path: Path, text: str, length_s: float) -> None:
    [row] = phase(read_text(tmp_path, "jobs.txt", HEAD + job(Elapsed=text)), "service")
    assert length_s == row.duration_s


def test_a_last_line_that_breaks_off_before_its_last_column_is_refused(tmp_path: Path) -> None:
    table = "JobID    State      Elapsed\n-------- ---------- ----------\n"
    whole = f"{'7':9}{'COMPLETED':11}01:02:03\n"
    assert () == read_text(tmp_path, "jobs.txt", table + whole + whole.replace("7", "8", 1)).refused
    [refused] = read_text(tmp_path, "jobs.txt", table + whole + "8        COMPL").refused
    assert "the file breaks off here" in refused.reason
