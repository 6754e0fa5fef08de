"""`phasecast backtest`: the file it writes, what it tells, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from service import backtest_run, backtest_tables
from service.backtest import Answer, Replay
from service.cli.main import app
from telemetry.errors import BadField, PhasecastError, UnknownId
from tests.service.timings import work, write

LEADING = ["observation_id", "phase", "attempt", "at_s"]
FOLLOWING = ["status", "level", "n_eff", "mean", *(f"q{p:02d}" for p in range(1, 100)), "q995", "q999"]


def tell(*arguments: object, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["backtest", *map(str, arguments)], catch_exceptions=False)
    assert code == done.exit_code, done.output
    return done.stdout


def asked(folder: Path, rows: list[tuple[str, float | None]]) -> Path:
    """A table of ages of observations."""
    names, ages = zip(*rows, strict=True)
    columns = {"observation_id": list(names), "phase": ["service"] * len(rows), "attempt": pa.array([0] * len(rows))}
    pq.write_table(pa.table({**columns, "elapsed_s": pa.array(ages, pa.float64())}), folder / "queries.parquet")
    return folder / "queries.parquet"


def test_every_row_is_answered_in_the_columns_that_were_promised(tmp_path: Path) -> None:
    path = write(tmp_path, work(60))
    summary = json.loads(tell(path, "--out", tmp_path / "out.parquet", "--json"))
    out = pq.read_table(tmp_path / "out.parquet")
    assert [*LEADING, *FOLLOWING] == out.column_names
    assert ("calibrated", 60, 60, 0) == (summary["model"], summary["rows"], out.num_rows, summary["left_out"])
    assert sorted(pq.read_table(path)["observation_id"].to_pylist()) == sorted(out["observation_id"].to_pylist())
    assert out["at_s"].to_pylist() == sorted(pq.read_table(path)["start_s"].to_pylist())
    q = np.stack([out[name].to_numpy(zero_copy_only=False) for name in FOLLOWING[4:]], axis=1)
    assert np.all(np.diff(q[summary["unanswered"] :], axis=1) >= 0.0)
    assert summary["fits"] >= 4
    assert 0.0 < summary["seconds"] < 60.0


def test_rows_before_anything_is_known_are_null_and_shadow(tmp_path: Path) -> None:
    given = [{"start_s": 0.0, "duration_s": 5.0}, {"start_s": 1.0, "duration_s": 1.0}, {"start_s": 9.0, "duration_s": 1.0}]
    told = tell(write(tmp_path, [*given, {"duration_s": None}]), "--out", tmp_path / "out.parquet")
    assert "calibrated: 3 rows asked in" in told
    assert "left out, without a usable duration: 1" in told
    assert "unanswered, asked before anything was known: 2" in told
    first, second, third = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert {"shadow"} == {first["status"], second["status"]}
    assert {None} == {row[name] for row in (first, second) for name in FOLLOWING[1:]}
    assert (1.0, "o001", None) == (second["at_s"], second["observation_id"], second["n_eff"])
    assert third["n_eff"] > 0.0
    assert 0.0 < third["q50"] < third["q999"]


def test_remaining_times_come_in_rows_with_their_age(tmp_path: Path) -> None:
    path = write(tmp_path, work(60))
    rows = {row["observation_id"]: row for row in pq.read_table(path).to_pylist() if row["duration_s"] > 2.0}
    name = max(rows)
    queries = asked(tmp_path, [(name, 1.5), (name, 0.5)])
    assert "60 rows and 2 ages asked" in tell(path, "--out", tmp_path / "out.parquet", "--queries", queries)
    out = pq.read_table(tmp_path / "out.parquet")
    assert [*LEADING, "elapsed_s", *FOLLOWING] == out.column_names
    aged = [row for row in out.to_pylist() if row["elapsed_s"] is not None]
    start_s = rows[name]["start_s"]
    assert [(name, 0.5, start_s + 0.5), (name, 1.5, start_s + 1.5)] == [
        (row["observation_id"], row["elapsed_s"], row["at_s"]) for row in aged
    ]
    assert 60 == out["elapsed_s"].null_count


@pytest.mark.parametrize(
    ("age_s", "got", "fix"),
    [
        (4.0, "4 of a/service/0", "it lasted 4 s"),
        (9.0, "9 of a/service/0", "it lasted 4 s"),
        (-1.0, "-1 of a/service/0", "0 or more"),
        (None, "nan of a/service/0", "0 or more"),
        (float("inf"), "inf of a/service/0", "it lasted 4 s"),
    ],
)
def test_an_age_the_row_never_had_is_refused_by_name(tmp_path: Path, age_s: float | None, got: str, fix: str) -> None:
    path = write(tmp_path, [{"observation_id": "a", "start_s": 0.0, "duration_s": 4.0}])
    with pytest.raises(BadField) as refused:
        tell(path, "--out", tmp_path / "out.parquet", "--queries", asked(tmp_path, [("a", age_s)]))
    assert ("elapsed_s", got) == (refused.value.field, refused.value.got)
    assert fix in refused.value.fix
    assert not (tmp_path / "out.parquet").exists()


def test_a_question_about_no_row_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, work(5))
    with pytest.raises(UnknownId, match="nobody/service/0"):
        tell(path, "--out", tmp_path / "out.parquet", "--queries", asked(tmp_path, [("nobody", 1.0)]))
    pq.write_table(pa.table({"observation_id": ["o000"]}), tmp_path / "short.parquet")
    with pytest.raises(BadField, match="phase, attempt, elapsed_s"):
        tell(path, "--out", tmp_path / "out.parquet", "--queries", tmp_path / "short.parquet")
    with pytest.raises(BadField, match="--queries"):
        tell(path, "--out", tmp_path / "out.parquet", "--queries", tmp_path / "absent.parquet")


def test_an_unknown_model_is_refused_with_the_names_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(BadField, match=r"oracle.*calibrated, aggregate, hazards.*kaplan_meier"):
        tell(tmp_path / "absent.parquet", "--out", tmp_path / "out.parquet", "--model", "oracle")


def test_what_is_read_or_can_be_no_file_is_never_written(tmp_path: Path) -> None:
    path = write(tmp_path, work(5))
    before = path.read_bytes()
    queries = asked(tmp_path, [("o000", 0.0)])
    for out in (path, queries, tmp_path, tmp_path / "absent" / "out.parquet"):
        with pytest.raises(BadField, match="--out"):
            tell(path, "--out", out, "--queries", queries)
    assert before == path.read_bytes()


def test_a_run_that_fails_leaves_the_earlier_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = write(tmp_path, work(30)), tmp_path / "out.parquet"
    out.write_bytes(b"earlier")

    class Failing(Replay):
        def answers(self) -> Iterator[Answer]:
            yield from islice(super().answers(), 10)
            raise PhasecastError("disk", "gone", "bring it back")

    monkeypatch.setattr(backtest_run, "Replay", Failing)
    with pytest.raises(PhasecastError, match="disk"):
        tell(path, "--out", out)
    assert b"earlier" == out.read_bytes()
    assert {path.name, out.name} == {file.name for file in tmp_path.iterdir()}


def test_answers_are_written_as_they_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, work(50))
    tell(path, "--out", tmp_path / "whole.parquet")
    monkeypatch.setattr(backtest_tables, "TOGETHER", 7)
    tell(path, "--out", tmp_path / "parts.parquet")
    file = pq.ParquetFile(tmp_path / "parts.parquet")
    assert [7] * 7 + [1] == [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
    assert pq.read_table(tmp_path / "whole.parquet").equals(file.read())
