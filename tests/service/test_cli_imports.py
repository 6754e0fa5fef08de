"""`phasecast import`: what it tells of files that can be read, of those that can't, and of those it has read before."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from service.cli.main import app
from service.importing import bring_in
from service.local import local_lineup
from telemetry.errors import BadField, PhasecastError, StoreHeld
from telemetry.importers.contract import Found, Importer, Options
from telemetry.importers.registry import FORMATS
from telemetry.store.file import Store
from telemetry.tables import Attempt

HEAD = "JobID|JobName|State|Elapsed|Start|End|NodeList\n"
DONE = "".join(f"{n}|align|COMPLETED|00:{n}:00|2026-03-01T10:00:00|2026-03-01T10:{n}:00|n1\n" for n in range(10, 16))
RUNNING = "20|align|RUNNING|{elapsed}|2026-03-01T10:00:00|Unknown|n1\n"
ENDED = "20|align|COMPLETED|00:30:00|2026-03-01T10:00:00|2026-03-01T10:30:00|n1\n"


@dataclass
class Shell:
    """Runs the command on one store, in a folder of its own."""

    folder: Path

    @property
    def store(self) -> Path:
        return self.folder / "s.duckdb"

    def file(self, name: str, text: str) -> Path:
        (self.folder / name).write_text(text)
        return self.folder / name

    def tell(self, *arguments: object, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["import", *map(str, arguments), "--store", str(self.store)], catch_exceptions=False)
        assert code == done.exit_code, done.output
        return done.stdout

    def reports(self, *arguments: object, code: int = 0) -> list[dict[str, Any]]:
        return list(json.loads(self.tell(*arguments, "--json", code=code))["files"])

    def stored(self, sql: str) -> list[tuple[Any, ...]]:
        with Store.open(self.store) as store, store.reader() as reader:
            return list(reader.rows(sql))


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_counts_are_told_and_the_second_time_adds_nothing(shell: Shell) -> None:
    file = shell.file("jobs.txt", HEAD + DONE)
    [first], [second] = shell.reports(file), shell.reports(file)
    assert {"attempts": 6, "observations": 6} == first["new_rows"]
    assert ("sacct", 6, 12, 0, 0) == tuple(first[name] for name in ("format", "read", "new", "repeat", "refused"))
    assert ("sacct", 6, 0, 12, 0) == tuple(second[name] for name in ("format", "read", "new", "repeat", "refused"))
    assert [(6, 6)] == shell.stored("SELECT (SELECT count(*) FROM attempts), (SELECT count(*) FROM observations)")


def test_what_was_refused_is_told_with_file_line_and_reason(shell: Shell) -> None:
    file = shell.file("jobs.txt", HEAD + "9|align|DREAMING|00:10:00|||\n" + DONE)
    [report] = shell.reports(file)
    assert (7, 12, 1) == (report["read"], report["new"], report["refused"])
    [refusal] = report["refusals"]
    assert (str(file), 2, "9") == (report["file"], refusal["line"], refusal["item"])
    assert "State" in refusal["reason"]
    told = shell.tell(file)
    assert f"{file} (sacct): 7 records read; 0 rows new, 12 known already, 1 refused" in told
    assert f"refused: {file}:2: 9: State" in told


def test_many_refusals_are_counted_in_text_and_all_in_json(shell: Shell) -> None:
    file = shell.file("jobs.txt", HEAD + DONE + "9|align|DREAMING|00:10:00|||\n" * 25)
    assert "and 5 more; --json tells all" in shell.tell(file)
    assert 25 == len(shell.reports(file)[0]["refusals"])


def test_a_file_nobody_knows_does_not_keep_others_out(shell: Shell) -> None:
    unknown, known = shell.file("notes.txt", "dear diary\n"), shell.file("jobs.txt", HEAD + DONE)
    missing = shell.folder / "gone.swf"
    reports = shell.reports(unknown, missing, known)
    assert [None, None, "sacct"] == [report["format"] for report in reports]
    assert [0, 0, 12] == [report["new"] for report in reports]
    assert "recognised as none" in reports[0]["refusals"][0]["reason"]
    assert str(missing) in reports[1]["refusals"][0]["reason"]


def test_a_packed_file_that_breaks_off_at_once_is_told(shell: Shell) -> None:
    (shell.folder / "jobs.txt.gz").write_bytes(gzip.compress((HEAD + DONE).encode())[:20])
    [report] = shell.reports(shell.folder / "jobs.txt.gz", code=1)
    assert "cannot be read" in report["refusals"][0]["reason"]


def test_where_nothing_can_be_read_it_fails_and_makes_no_store(shell: Shell) -> None:
    assert "no known format" in shell.tell(shell.file("notes.txt", "dear diary\n"), code=1)
    assert not shell.store.exists()


def test_a_named_format_that_does_not_fit_fails(shell: Shell) -> None:
    [report] = shell.reports(shell.file("jobs.txt", HEAD + DONE), "--format", "nextflow", code=1)
    assert ("nextflow", 0, 1) == (report["format"], report["new"], report["refused"])


def test_an_unknown_unit_is_refused_before_anything_is_read(shell: Shell) -> None:
    file = shell.file("jobs.txt", HEAD + DONE)
    with pytest.raises(BadField, match="--unit"):
        shell.tell(file, "--unit", "fortnights")
    assert not shell.store.exists()


def test_host_and_unit_of_the_user_fill_what_a_file_leaves_open(shell: Shell) -> None:
    file = shell.file("t.csv", "observation_id,phase,duration,outcome\na,load,1500,completed\n")
    shell.tell(file, "--unit", "ms", "--host", "n7")
    assert [("n7", 1.5, None)] == shell.stored(
        "SELECT host, duration_s, assumed FROM observations JOIN attempts USING (attempt_id)",
    )


def test_a_running_job_is_replaced_by_its_end_and_never_the_other_way_round(shell: Shell) -> None:
    early = shell.file("early.txt", HEAD + RUNNING.format(elapsed="00:10:00"))
    later = shell.file("later.txt", HEAD + RUNNING.format(elapsed="00:20:00"))
    end = shell.file("end.txt", HEAD + ENDED)
    for file, standing in ((early, 600), (later, 1200), (early, 1200), (end, 1800), (later, 1800)):
        shell.tell(file)
        assert [(standing,)] == shell.stored("SELECT duration_s FROM observations WHERE known_until IS NULL")


def test_an_attempt_that_contradicts_what_is_known_is_told(shell: Shell) -> None:
    shell.tell(shell.file("jobs.txt", HEAD + DONE))
    [report] = shell.reports(shell.file("jobs.txt", HEAD + DONE.replace("n1", "n2")))
    assert (0, 6) == (report["new"], report["refused"])
    assert "different host; the first is kept" in report["refusals"][0]["reason"]


def test_a_store_that_is_held_answers_with_its_holder(shell: Shell) -> None:
    file = shell.file("jobs.txt", HEAD + DONE)
    with Store.open(shell.store, url="http://127.0.0.1:1"), pytest.raises(StoreHeld, match=str(os.getpid())):
        shell.tell(file)


def test_what_was_imported_is_answered_from_at_once(shell: Shell) -> None:
    shell.tell(shell.file("jobs.txt", HEAD + DONE))
    with local_lineup(shell.store) as lineup:
        assert lineup.serving is not None
        assert {"service"} == set(lineup.serving.model.phases)


def test_long_files_are_written_in_batches_attempts_first(tmp_path: Path) -> None:
    rows = tuple(Attempt(attempt_id=f"a{n}") for n in range(25_000))
    importer = Importer("made", lambda _path, _head: True, lambda _path, _options: Found(rows, len(rows)))
    seen: list[tuple[int, int]] = []
    with Store.open(tmp_path / "s.duckdb") as store:
        report = bring_in(store, tmp_path, importer, Options(), lambda done, total: seen.append((done, total)))
        assert 3 == store.last_commit
    assert ([(10_000, 25_000), (20_000, 25_000), (25_000, 25_000)], 25_000) == (seen, report.new)


def test_every_public_example_is_read_and_adds_nothing_the_second_time(shared_dir: Path, shell: Shell) -> None:
    files = sorted(path for path in (shared_dir / "examples").iterdir() if path.name[0] in "FW")
    first, second = shell.reports(*files), shell.reports(*files)
    assert [] == [report["file"] for report in first if report["format"] is None]
    assert [] == [report["file"] for report in first if report["read"] == 0]
    assert [0] * len(files) == [report["new"] for report in second]
    assert [report["read"] for report in first] == [report["read"] for report in second]


@pytest.mark.parametrize("importer", FORMATS, ids=lambda importer: importer.name)
@pytest.mark.parametrize("content", [b"", b"\n", b"\x1f\x8b", b"PAR1", b"\xff\xfe\x00", b"{}", b"[]", b"\x00" * 100, b"<a/>"])
def test_no_format_breaks_on_what_is_nothing(importer: Importer, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert importer.recognises(path, content) in {True, False}
    with contextlib.suppress(PhasecastError, OSError):  # told as the refusal of the file
        assert () == importer.read(path, Options()).rows


def test_formats_are_listed_by_name() -> None:
    names = [importer.name for importer in FORMATS]
    assert sorted(set(names)) == names


TIDY = "observation_id,phase,duration,host\no1,service,1500,h\no2,service,2500,h\n"
LENGTHS = "SELECT duration_s, assumed FROM observations WHERE known_until IS NULL ORDER BY duration_s"


def test_a_unit_told_later_corrects_what_was_assumed_and_stays(shell: Shell) -> None:  # T13
    file = shell.file("t.csv", TIDY.replace(",host", ",outcome,host").replace(",h\n", ",completed,h\n"))
    shell.tell(file)
    assert [(1500.0, "unit=s"), (2500.0, "unit=s")] == shell.stored(LENGTHS)
    [told] = shell.reports(file, "--unit", "ms")
    assert (2, 0) == (told["new"], told["refused"])
    assert [(1.5, None), (2.5, None)] == shell.stored(LENGTHS)
    [again] = shell.reports(file)
    assert (0, 0) == (again["new"], again["refused"])
    assert "2 lengths stay in the unit that was told" in " ".join(again["notes"])
    assert [(1.5, None), (2.5, None)] == shell.stored(LENGTHS)


def test_a_unit_told_later_corrects_a_log_too(shell: Shell) -> None:  # T13
    file = shell.file("a.swf", "".join(f"{n} 0 0 5000 1 -1 -1 1 9000 -1 1 -1 -1 -1 -1 -1 -1 -1\n" for n in range(3)))
    shell.tell(file)
    [told] = shell.reports(file, "--unit", "ms")
    assert 0 == told["refused"]
    assert [(5.0,)] == shell.stored(
        "SELECT DISTINCT duration_s FROM observations WHERE phase = 'service' AND known_until IS NULL"
    )


def test_a_last_line_without_an_end_is_noted(shell: Shell) -> None:
    note = "the last line has no end"
    assert note in shell.tell(shell.file("cut.csv", TIDY.rstrip("h\n") + "h"))
    assert note not in shell.tell(shell.file("whole.csv", TIDY))
