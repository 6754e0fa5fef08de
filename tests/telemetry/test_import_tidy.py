from __future__ import annotations

import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from telemetry.errors import BadField
from telemetry.importers.contract import Options
from telemetry.importers.registry import first_bytes
from telemetry.importers.tidy import TIDY
from telemetry.tables import Observation
from telemetry.words import Absence, Ended
from tests.telemetry.imported import attempts, named, phase, read, read_text

HEAD = (
    "dataset,observation_id,attempt,host,device,family,model,phase,mode,state,batch,size_in,size_out,start_s,duration_s,outcome\n"
)
VALUES = "d,run-1,0,n1,gpu,encoder,m,compute,solo,warm,8,128,9,1.145,0.25,completed"
ROW = dict(zip(HEAD.strip().split(","), VALUES.split(","), strict=True))


def line(**cells: str) -> str:
    return ",".join((ROW | cells).values()) + "\n"


def parquet(path: Path, rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> Path:
    pq.write_table(pa.Table.from_pylist(rows, schema), path)
    return path


def test_rows_of_one_key_are_phases_of_one_attempt(tmp_path: Path) -> None:
    found = read_text(
        tmp_path, "t.csv", HEAD + line(phase="load", duration_s="2") + line() + line(phase="total") + line(phase="eval")
    )
    [attempt] = attempts(found)
    assert ("run-1", "n1", "gpu", "encoder", "m", "solo", "warm", 8.0, 128.0) == (
        *(attempt.run_id, attempt.host, attempt.device, attempt.family, attempt.model, attempt.mode),
        *(attempt.state, attempt.batch, attempt.size_in),
    )
    rows = [row for row in found.rows if isinstance(row, Observation)]
    assert ["setup", "service", "completion", "eval"] == [row.phase for row in rows]
    assert {attempt.attempt_id} == {row.attempt_id for row in rows}
    assert (0.25, Ended.COMPLETED, None, None, "1.145") == (
        *(rows[1].duration_s, rows[1].ended, rows[1].assumed, rows[1].started_ns, rows[1].started_text),
    )


def test_repeats_are_attempts_of_one_run_and_datasets_are_apart(tmp_path: Path) -> None:
    found = read_text(tmp_path, "t.csv", HEAD + line() + line(attempt="1") + line(dataset="e"))
    assert (3, {"run-1"}) == (len(attempts(found)), {attempt.run_id for attempt in attempts(found)})


def test_what_one_row_leaves_open_another_may_tell(tmp_path: Path) -> None:
    found = read_text(tmp_path, "t.csv", HEAD + line(phase="load", size_in="") + line())
    assert [128.0] == [attempt.size_in for attempt in attempts(found)]


def test_a_phase_in_another_context_is_an_attempt_of_its_own(tmp_path: Path) -> None:
    found = read_text(tmp_path, "t.csv", HEAD + line() + line(phase="decode", batch="16"))
    assert [("n1", 8.0), ("n1", 16.0)] == [(attempt.host, attempt.batch) for attempt in attempts(found)]
    assert {attempt.attempt_id for attempt in attempts(found)} == {
        row.attempt_id for row in found.rows if isinstance(row, Observation)
    }


@pytest.mark.parametrize(
    ("outcome", "ended"),
    [
        ("completed", Ended.COMPLETED),
        ("failed", Ended.FAILED),
        ("censored", Ended.LOST),
        ("cancelled", Ended.CANCELLED),
        ("timed_out", Ended.TIMED_OUT),
        ("running", Ended.RUNNING),
    ],
)
def test_outcomes_say_how_a_phase_ended(tmp_path: Path, outcome: str, ended: Ended) -> None:
    [row] = phase(read_text(tmp_path, "t.csv", HEAD + line(outcome=outcome)), "service")
    assert (0.25, ended) == (row.duration_s, row.ended)


@pytest.mark.parametrize(
    ("column", "text", "length_s"),
    [
        ("duration_s", "2592000", 2_592_000.0),
        ("duration_s", "2147483.649", 2_147_483.649),
        ("duration_s", "3.6846e-05", 3.6846e-05),
        ("duration_s", "0", 0.0),
        ("duration_ms", "2147483649", 2_147_483.649),
        ("duration_us", "2400000001", 2400.000001),
        ("duration_ns", "2592000000000000", 2_592_000.0),
    ],
)
def test_lengths_are_those_of_the_text_in_the_unit_of_the_column(tmp_path: Path, column: str, text: str, length_s: float) -> None:
    found = read_text(tmp_path, "t.csv", HEAD.replace("duration_s", column) + line(duration_s=text))
    assert [(length_s, None)] == [(row.duration_s, row.assumed) for row in phase(found, "service")]


def test_a_length_without_a_unit_is_read_as_seconds_and_says_so(tmp_path: Path) -> None:
    text = HEAD.replace("duration_s", "duration") + line(duration_s="250")
    found = read_text(tmp_path, "t.csv", text)
    assert [(250.0, "unit=s")] == [(row.duration_s, row.assumed) for row in phase(found, "service")]
    assert "unit=s" in found.notes[0]
    told = read_text(tmp_path, "t.csv", text, Options(unit="ms"))
    assert [(0.25, None)] == [(row.duration_s, row.assumed) for row in phase(told, "service")]


def test_a_table_without_outcomes_is_read_as_completed_and_says_so(tmp_path: Path) -> None:
    found = read_text(tmp_path, "t.csv", "observation_id,phase,duration_s\na,load,1\n", Options(host="n1"))
    assert [(1.0, Ended.COMPLETED, "ended=completed")] == [(r.duration_s, r.ended, r.assumed) for r in phase(found, "setup")]
    assert ["n1"] == [attempt.host for attempt in attempts(found)]


def test_tables_without_a_dataset_are_told_apart_by_their_names(tmp_path: Path) -> None:
    text = "observation_id,phase,duration_s\na,load,1\n"
    one, again, other = (attempts(read_text(tmp_path, file, text))[0] for file in ("a.csv", "a.csv", "b.csv"))
    assert one == again
    assert one.attempt_id != other.attempt_id


def test_unknown_is_not_zero_and_a_failure_without_a_length_keeps_its_cause(tmp_path: Path) -> None:
    found = read_text(tmp_path, "t.csv", HEAD + line(duration_s="", outcome="failed", size_in="", start_s="nan"))
    [row] = phase(found, "service")
    assert (None, None, "failed", Absence.UNOBSERVED, None) == (
        row.duration_s,
        row.ended,
        row.cause,
        row.absence,
        row.started_text,
    )
    assert [None] == [attempt.size_in for attempt in attempts(found)]


def test_rows_that_cannot_be_read_are_refused_and_the_rest_is_kept(tmp_path: Path) -> None:
    rows = [
        *(line(duration_s="-1"), line(outcome="won"), line(outcome=""), line(phase=""), line(observation_id="")),
        *(line(batch="0"), line(attempt="0.5"), "a,b\n", line(duration_s="1e30"), line(), line(duration_s="0.5"), line()),
        line(size_in="1e400"),
    ]
    found = read_text(tmp_path, "t.csv", HEAD + "".join(rows))
    assert (13, 1) == (found.n_read, len(attempts(found)))
    assert [*range(2, 11), 12, 14] == [refusal.line for refusal in found.refused]
    words = [
        "negative",
        "outcome",
        "outcome",
        "phase",
        "observation_id",
        "batch",
        "attempt",
        "2 cells",
        "292 years",
        "line 11",
        "size_in",
    ]
    for word, refusal in zip(words, found.refused, strict=True):
        assert word in refusal.reason


def test_a_wrong_unit_is_suspected(tmp_path: Path) -> None:  # T13: ten seconds of work in a column of us
    rows = [line(observation_id=str(n), start_s=str(n), duration_s="10000000000") for n in range(5)]
    text = HEAD.replace("duration_s", "duration_us") + "".join(rows)
    assert any("--unit" in note for note in read_text(tmp_path, "t.csv", text).notes)
    told = read_text(tmp_path, "t.csv", text, Options(unit="ns"))
    assert ([10.0] * 5, ()) == ([row.duration_s for row in phase(told, "service")], told.notes)


def test_parquet_reads_as_its_csv_does(tmp_path: Path) -> None:
    numbers = {"attempt": 0, "batch": 8, "size_in": 128.0, "size_out": 9.0, "start_s": 1.145, "duration_s": 0.25}
    rows = [ROW | numbers, ROW | numbers | {"phase": "load", "duration_s": float("nan"), "outcome": "failed", "batch": None}]
    table = read(parquet(tmp_path / "t.parquet", rows))
    assert table == read_text(tmp_path, "t.csv", HEAD + line() + line(phase="load", duration_s="", outcome="failed", batch=""))
    packed = io.BytesIO((tmp_path / "t.parquet").read_bytes())
    (tmp_path / "t.parquet.gz").write_bytes(gzip.compress(packed.getvalue()))
    assert table == TIDY.read(tmp_path / "t.parquet.gz", Options())


def test_whole_numbers_of_parquet_keep_all_their_digits(tmp_path: Path) -> None:  # T14
    rows = [{"observation_id": str(n), "phase": "p", "duration_ms": n, "outcome": "completed"} for n in (2**31 - 1, 2**31 + 1)]
    found = read(parquet(tmp_path / "t.parquet", rows))
    assert [2_147_483.647, 2_147_483.649] == [row.duration_s for row in phase(found, "p")]


def test_a_damaged_table_is_told(tmp_path: Path) -> None:
    whole = parquet(tmp_path / "t.parquet", [ROW]).read_bytes()
    (tmp_path / "half.parquet").write_bytes(whole[: len(whole) // 2])
    assert [] == named(tmp_path / "half.parquet", first_bytes(tmp_path / "half.parquet"))
    with pytest.raises(BadField, match="Parquet"):
        TIDY.read(tmp_path / "half.parquet", Options())


def test_a_table_of_other_columns_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n")
    assert "tidy" not in named(tmp_path / "t.csv", first_bytes(tmp_path / "t.csv"))
    with pytest.raises(BadField, match="observation_id"):
        TIDY.read(tmp_path / "t.csv", Options())


def test_a_public_table_with_two_phases(shared_dir: Path) -> None:
    found = read(shared_dir / "datasets" / "model_load.parquet")
    assert (520, 260, ()) == (found.n_read, len(attempts(found)), found.refused)
    [first] = [a for a in attempts(found) if a.run_id == "a5000_2024/facebook_opt-6.7b/phantom/random/0"]
    assert ("A5000", "facebook_opt-6.7b", "phantom", "random", "cold", 1.0) == (
        *(first.device, first.family, first.model, first.mode, first.state, first.batch),
    )
    assert [1.06035] == [row.duration_s for row in phase(found, "setup") if row.attempt_id == first.attempt_id]
    assert (260, 260) == (len(phase(found, "setup")), len(phase(found, "service")))


def test_a_public_table_with_failures_without_a_length(shared_dir: Path) -> None:
    found = read(shared_dir / "datasets" / "llm_providers.parquet")
    assert (8142, 2845, ()) == (found.n_read, len(attempts(found)), found.refused)
    rows = [row for row in found.rows if isinstance(row, Observation)]
    assert {"prefill", "decode", "completion"} == {row.phase for row in rows}
    refused = [row for row in rows if row.duration_s is None]
    assert 786 == len(refused)
    assert {(None, Absence.UNOBSERVED, "failed")} == {(row.ended, row.absence, row.cause) for row in refused}
