"""WfCommons: two lists joined by id, several versions, no start made up, and bad tasks told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from telemetry.errors import BadField
from telemetry.importers.contract import Found, Options
from telemetry.importers.registry import first_bytes
from telemetry.importers.wfcommons import read, recognises
from telemetry.tables import Attempt, Observation
from telemetry.words import Ended


def instance(**changed: Any) -> dict[str, Any]:
    """A small instance of 1.5; the first task executed takes no time and has an input of unknown size."""
    specification = {
        "tasks": [
            {"name": "NF.MAIN.ALIGN", "id": "NF.MAIN.ALIGN_1", "inputFiles": ["a", "b"]},
            {"name": "sort_ID0000002", "id": "sort_ID0000002", "inputFiles": ["a", "unknown"]},
            {"name": "never", "id": "never_3"},
        ],
        "files": [{"id": "a", "sizeInBytes": 3_700_000_000}, {"id": "b", "sizeInBytes": 1}],
    }
    tasks = [
        {
            "id": "sort_ID0000002",
            "runtimeInSeconds": 0.0,
            "machines": ["w-1"],
            "coreCount": 4,
            "command": {"program": "rm -rf /"},
        },
        {"id": "NF.MAIN.ALIGN_1", "runtimeInSeconds": 7.287, "machines": ["w-2"], "executedAt": "2024-01-01T00:00:00+01:00"},
    ]
    machines = [{"nodeName": "w-1", "cpu": {"vendor": "GenuineIntel", "coreCount": 48}}, {"nodeName": "w-2"}]
    execution = {"makespanInSeconds": 8, "executedAt": "12-19-20T21:31:53Z", "tasks": tasks, "machines": machines, **changed}
    return {
        "name": "flow",
        "schemaVersion": "1.5",
        "createdAt": "2020-12-19T23:38:32",
        "workflow": {"specification": specification, "execution": execution},
        "runtimeSystem": {"name": "Pegasus", "version": "5.0"},
    }


def imported(tmp_path: Path, document: object, **options: Any) -> Found:
    path = tmp_path / "instance.json"
    path.write_text(json.dumps(document))
    assert recognises(path, first_bytes(path))
    return read(path, Options(**options))


def by_node(found: Found) -> dict[str | None, tuple[Attempt, Observation]]:
    attempts = {row.attempt_id: row for row in found.rows if isinstance(row, Attempt)}
    rows = [row for row in found.rows if isinstance(row, Observation)]
    return {attempts[row.attempt_id].node_id: (attempts[row.attempt_id], row) for row in rows}


def test_what_was_measured_meets_what_was_specified_by_id(tmp_path: Path) -> None:
    found = by_node(imported(tmp_path, instance()))
    align, row = found["NF.MAIN.ALIGN_1"]
    assert ("ALIGN", "flow", "w-2", 3_700_000_001.0, None) == (align.model, align.family, align.host, align.size_in, align.batch)
    assert (7.287, Ended.COMPLETED, "service") == (row.duration_s, row.ended, row.phase)
    sort, row = found["sort_ID0000002"]
    assert ("sort", "w-1", "GenuineIntel 48c", None, 4.0) == (sort.model, sort.host, sort.device, sort.size_in, sort.batch)
    assert (0.0, "Pegasus-5.0") == (row.duration_s, sort.runtime)  # a measured 0


def test_only_starts_that_are_told_are_kept(tmp_path: Path) -> None:
    found = by_node(imported(tmp_path, instance()))
    assert (None, None) == (found["sort_ID0000002"][1].started_ns, found["sort_ID0000002"][1].started_text)
    assert 1_704_063_600_000_000_000 == found["NF.MAIN.ALIGN_1"][1].started_ns
    run = found[None][1]
    assert ("makespan", 8.0, None, "12-19-20T21:31:53Z") == (run.phase, run.duration_s, run.started_ns, run.started_text)


def test_a_start_without_a_zone_is_kept_as_text(tmp_path: Path) -> None:
    run = by_node(imported(tmp_path, instance(executedAt="2024-01-01T00:00:00")))[None][1]
    assert (None, "2024-01-01T00:00:00") == (run.started_ns, run.started_text)


def test_tasks_without_a_partner_are_told(tmp_path: Path) -> None:
    found = imported(tmp_path, instance())
    assert ("tasks specified but not executed: 1",) == found.notes
    assert 2 == found.n_read


@pytest.mark.parametrize("listed", ["tasks", "jobs"])
def test_older_versions_have_one_list(tmp_path: Path, listed: str) -> None:
    tasks = [
        {"name": "mProject_ID01", "runtime": 12.5, "machine": "w-1", "cores": 2, "files": [{"link": "input", "size": 10}]},
        {"name": "mDiff_ID02", "runtimeInSeconds": "1.5", "category": "diff", "files": [{"link": "output", "sizeInBytes": 3}]},
    ]
    workflow = {"makespan": 14, "executedAt": "20190101T000000Z", "machines": [{"nodeName": "w-1"}], listed: tasks}
    found = by_node(imported(tmp_path, {"name": "montage", "schemaVersion": "1.3", "wms": {"name": "P"}, "workflow": workflow}))
    first, second = found["mProject_ID01"], found["mDiff_ID02"]
    assert ("mProject", "w-1", 2.0, 10.0, 12.5) == (
        first[0].model,
        first[0].host,
        first[0].batch,
        first[0].size_in,
        first[1].duration_s,
    )
    assert ("diff", None, 1.5) == (second[0].model, second[0].size_in, second[1].duration_s)
    assert (None, "host is the only machine listed") == (first[1].assumed, second[1].assumed)
    assert "20190101T000000Z" == found[None][1].started_text


def test_bad_tasks_are_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    tasks = [
        {"id": "fine", "runtimeInSeconds": 1},
        {"id": "negative", "runtimeInSeconds": -1},
        {"id": "nan", "runtimeInSeconds": "NaN"},
        {"id": "none"},
        {"id": "fine", "runtimeInSeconds": 2},
        "no object",
    ]
    found = imported(tmp_path, instance(tasks=tasks))
    assert [1.0] == [row.duration_s for row in found.rows if isinstance(row, Observation) and row.phase == "service"]
    assert ["task negative", "task nan", "task none", "task fine", "task task 5"] == [one.item for one in found.refused]
    assert 6 == found.n_read


@pytest.mark.parametrize("ms", [2**31 - 1, 2**31 + 1, 30 * 86_400_000])
def test_long_tasks_pass_whole(tmp_path: Path, ms: int) -> None:  # T14
    tasks = [{"id": "long", "runtimeInSeconds": ms / 1000}]
    assert ms / 1000 == by_node(imported(tmp_path, instance(tasks=tasks, makespanInSeconds=10**7)))["long"][1].duration_s


def test_tasks_in_ms_are_noticed_and_can_be_read(tmp_path: Path) -> None:  # T13
    tasks = [{"id": "a", "runtimeInSeconds": 7287}]
    assert "tasks last some 1000 times longer" in " ".join(imported(tmp_path, instance(tasks=tasks)).notes)
    row = by_node(imported(tmp_path, instance(tasks=tasks), unit="ms"))["a"][1]
    assert (7.287, "unit=ms") == (row.duration_s, row.assumed)


def test_reading_again_gives_the_same_rows_and_another_run_others(tmp_path: Path) -> None:
    first = imported(tmp_path, instance())
    assert first == imported(tmp_path, instance())
    other = imported(tmp_path, instance(executedAt="12-20-20T21:31:53Z"))
    ids = [{row.attempt_id for row in found.rows if isinstance(row, Attempt)} for found in (first, other)]
    assert set() == ids[0] & ids[1]


def test_json_that_is_broken_or_deep_is_an_error_and_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    for text in ('{"workflow": {"tasks": [', '{"workflow": ' + "[" * 200_000, '{"workflow": {"tasks": []}}'):
        path.write_text(text)
        with pytest.raises(BadField):
            read(path, Options())


def test_only_instances_are_recognised(tmp_path: Path) -> None:
    for text in ('{"schemaVersion": 1, "traceEvents": []}', '{"workflow": "a name"}', '[{"workflow": {"tasks": []}}]', ""):
        path = tmp_path / "other.json"
        path.write_text(text)
        assert not recognises(path, first_bytes(path)), text


def test_the_nextflow_instance(shared_dir: Path) -> None:
    found = read(shared_dir / "examples" / "W01-wfinstance-nextflow-bacass.json", Options())
    assert (11, (), ()) == (found.n_read, found.refused, found.notes)
    nodes = by_node(found)
    lasted = [row.duration_s or 0.0 for _, row in nodes.values() if row.phase == "service"]
    assert 3961.87 == pytest.approx(sum(lasted), abs=1e-9)
    assert 0.0 == nodes["NFCORE_BACASS.BACASS.GET_SOFTWARE_VERSIONS_10"][1].duration_s
    fastqc, row = nodes["NFCORE_BACASS.BACASS.FASTQC_2"]
    assert ("FASTQC", "bacass", 57_604_034.0 + 59_494_461) == (fastqc.model, fastqc.family, fastqc.size_in)
    assert (37.0, None, None, "host is the only machine listed") == (
        row.duration_s,
        row.started_ns,
        row.started_text,
        row.assumed,
    )
    # 2023-03-29T10:02:36-10:00 is 20:02:36 UTC
    assert (4243.0, 1_680_120_156_000_000_000) == (nodes[None][1].duration_s, nodes[None][1].started_ns)


def test_the_pegasus_instance(shared_dir: Path) -> None:
    found = read(shared_dir / "examples" / "W02-wfinstance-pegasus-srasearch.json", Options())
    nodes = by_node(found)
    assert (22, ()) == (found.n_read, found.refused)
    assert 0.115 == nodes["merge_ID0000022"][1].duration_s
    assert 921.24 == nodes["fasterq-dump_ID0000020"][1].duration_s
    assert {"worker-4"} == {a.host for node, (a, _) in nodes.items() if node}
    run = nodes[None][1]
    assert (3488.0, None, "12-19-20T21:31:53Z") == (run.duration_s, run.started_ns, run.started_text)
    assert 6997 == pytest.approx(sum(row.duration_s or 0 for node, (_, row) in nodes.items() if node), abs=1)
