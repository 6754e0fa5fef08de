"""Recorded rows come in the order in which they began, and each becomes known when the protocol of the scorer says."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.recorded import BLOCKS, TRAINING_STEPS, Recorded, recorded
from telemetry.errors import BadField
from telemetry.words import Ended
from tests.service.timings import table, work, write


def keys(rows: Recorded) -> list[str]:
    return [rows.key(row) for row in range(len(rows))]


@pytest.fixture
def protocol(shared_dir: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(shared_dir / "bench"))
    yield importlib.import_module("protocol")
    sys.modules.pop("protocol", None)


def test_rows_come_as_they_began_and_are_known_when_they_end(tmp_path: Path) -> None:
    late = {"observation_id": "b", "start_s": 5.0, "duration_s": 0.5}
    rows = recorded(
        write(tmp_path, [late, {"observation_id": "c", "start_s": 1.0, "duration_s": 9.0}, {**late, "observation_id": "a"}])
    )
    assert ["c/service/0", "a/service/0", "b/service/0"] == keys(rows)
    assert ([1.0, 5.0, 5.0], [10.0, 5.5, 5.5], True) == (rows.begun_s.tolist(), rows.known_s.tolist(), rows.timed)


def test_ties_are_broken_by_observation_phase_and_attempt(tmp_path: Path) -> None:
    at = {"start_s": 2.0, "duration_s": 1.0, "observation_id": "x"}
    given = [{**at, "attempt": 1}, {**at, "phase": "setup", "attempt": 2}, {**at, "attempt": 0}, {**at, "observation_id": "X"}]
    assert ["X/service/0", "x/service/0", "x/service/1", "x/setup/2"] == keys(recorded(write(tmp_path, given)))


def test_without_every_start_outcomes_are_known_when_their_step_is_over(tmp_path: Path) -> None:
    given = [{**row, "start_s": None if i == 7 else row["start_s"]} for i, row in enumerate(work(200))]
    rows = recorded(write(tmp_path, given))
    assert not rows.timed
    assert np.all(np.diff(rows.begun_s) >= 0.0)
    assert set(range(TRAINING_STEPS + BLOCKS)) == set(rows.begun_s.tolist())
    assert [10] * 12 + [10] * 8 == np.bincount(rows.begun_s.astype(int)).tolist()
    assert (rows.begun_s + 0.5).tolist() == rows.known_s.tolist()


def test_phases_of_a_run_stay_in_one_step(tmp_path: Path) -> None:
    given = [
        {"observation_id": f"r{i}", "phase": phase, "duration_s": 1.0}
        for i in range(31)
        for phase in ("setup", "service", "drain")
    ]
    rows = recorded(write(tmp_path, given))
    steps: dict[str, set[float]] = {}
    for observation, step in zip(rows.observation_id, rows.begun_s.tolist(), strict=True):
        steps.setdefault(observation, set()).add(step)
    assert {1} == {len(found) for found in steps.values()}
    assert 93 == len(rows)
    assert 31 == len(set(rows.run.tolist()))


@pytest.mark.parametrize("timed", [True, False])
def test_order_and_blocks_are_those_of_the_protocol(tmp_path: Path, protocol: ModuleType, *, timed: bool) -> None:
    given = [{**row, "observation_id": f"o{i // 2}", "attempt": i % 2} for i, row in enumerate(work(151))]
    given = [{**row, "start_s": row["start_s"] // 20.0} if timed else {**row, "start_s": None} for row in given]
    path = write(tmp_path, given)
    rows, frame = recorded(path), protocol.load(str(path))
    assert [f"{r.observation_id}/{r.phase}/{r.attempt}" for r in frame.itertuples()] == keys(rows)
    for block in range(1, protocol.BLOCKS + 1):
        asked = frame[frame["block"] == block]
        if not timed:
            assert asked.index.tolist() == np.flatnonzero(rows.begun_s == TRAINING_STEPS + block - 1).tolist()
        now_s = rows.begun_s[asked.index[0]]
        past = protocol.visible(frame, block)
        ended = past[past["outcome"] != "censored"] if timed else past
        assert ended.index.tolist() == np.flatnonzero((rows.begun_s < now_s) & (rows.known_s <= now_s)).tolist()


def test_rows_without_a_usable_duration_are_left_out_and_counted(tmp_path: Path) -> None:
    durations = [None, float("nan"), -1.0, float("inf"), 0.0, 2.0]
    rows = recorded(write(tmp_path, [{"start_s": float(i), "duration_s": d} for i, d in enumerate(durations)]))
    assert ([0.0, 2.0], 4) == (rows.duration_s.tolist(), rows.left_out)


def test_endings_are_read_and_silence_means_completed(tmp_path: Path) -> None:
    told = ["completed", "failed", "censored", "cancelled", "timed_out", None]
    rows = recorded(write(tmp_path, [{"start_s": float(i), "duration_s": 1.0, "outcome": o} for i, o in enumerate(told)]))
    assert [Ended.COMPLETED, Ended.FAILED, Ended.LOST, Ended.CANCELLED, Ended.TIMED_OUT, Ended.COMPLETED] == rows.ended


def test_what_a_run_produced_is_no_part_of_its_context(tmp_path: Path) -> None:
    alike = {"start_s": 0.0, "duration_s": 1.0, "host": "h", "family": "", "size_in": float("nan")}
    first, second = recorded(write(tmp_path, [{**alike, "size_out": 1.0}, {**alike, "size_out": 900.0}])).contexts
    assert first is second
    assert {"host": "h"} == first.known()


def test_categories_may_be_numbers_or_dictionaries_and_columns_absent(tmp_path: Path) -> None:
    given = pa.table(
        {
            "observation_id": pa.array([7, 8]),
            "phase": pa.array(["load", "load"]).dictionary_encode(),
            "duration_s": pa.array(["1.5", "2"]),
            "start_s": pa.array([0, 1]),
        }
    )
    pq.write_table(given, tmp_path / "in.parquet")
    rows = recorded(tmp_path / "in.parquet")
    assert (["7/load/0", "8/load/0"], [1.5, 2.0]) == (keys(rows), rows.duration_s.tolist())


ROW = {"start_s": 0.0, "duration_s": 1.0}


@pytest.mark.parametrize(
    ("given", "field", "got"),
    [
        ([{**ROW, "observation_id": "a"}, {**ROW, "observation_id": "a"}], "row", "a/service/0"),
        ([{**ROW, "outcome": "exploded"}], "outcome", "exploded"),
        ([{**ROW, "duration_s": None}], "duration_s", "no usable value"),
    ],
)
def test_tables_that_say_nothing_certain_are_refused(tmp_path: Path, given: list[dict[str, Any]], field: str, got: str) -> None:
    with pytest.raises(BadField) as refused:
        recorded(write(tmp_path, given))
    assert (field, got) == (refused.value.field, refused.value.got)


def test_a_column_that_is_missing_or_no_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pq.write_table(table([ROW]).drop_columns(["duration_s", "phase"]), path)
    with pytest.raises(BadField, match="phase, duration_s"):
        recorded(path)
    pq.write_table(table([ROW]).drop_columns("start_s").append_column("start_s", pa.array(["noon"])), path)
    with pytest.raises(BadField, match="start_s"):
        recorded(path)


def test_what_is_no_parquet_is_refused_under_its_option(tmp_path: Path) -> None:
    (tmp_path / "in.parquet").write_text("start_s,duration_s\n0,1\n")
    for path in (tmp_path / "in.parquet", tmp_path / "absent.parquet"):
        with pytest.raises(BadField) as refused:
            recorded(path)
        assert ("IN", str(path)) == (refused.value.field, refused.value.got)
