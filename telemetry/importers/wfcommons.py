"""WfCommons instances (WfFormat 1.2 to 1.5): every task of a workflow run an attempt with a `service` time.

Taken: 1.5, where `specification` and `execution` list the tasks twice, joined by id; 1.2 to 1.4, where one list (`tasks`, or
`jobs`) has both. Times are in s. There is no start per task in most files, so none is made up; where one is told it is kept,
as text if it is no ISO time with a zone. The run as a whole is one more attempt, of phase `makespan`, with the start of the
run. size_in is the bytes of the declared input files where all are known; batch the cores given. Commands are data.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers.cells import far_apart, name, reason, seconds
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.decimals import count, number, unit_told
from telemetry.importers.instants import Instant, written
from telemetry.importers.texts import whole
from telemetry.rows import Row
from telemetry.tables import Attempt, Observation
from telemetry.words import Ended

_WORKFLOW = re.compile(rb'"workflow"\s*:\s*\{')
_SCHEMA = re.compile(rb'"schemaVersion"\s*:\s*"1\.\d+"')
_TASKS = re.compile(rb'"(?:specification"\s*:\s*\{|(?:tasks|jobs)"\s*:\s*\[)')
_NUMBERED = re.compile(r"_(?:ID)?\d+$")
_MODULES = re.compile(r"^(?:[A-Z0-9_]+[.:])+")
_ONLY_MACHINE = "host is the only machine listed"

Object = Mapping[str, Any]


@dataclass(frozen=True)
class _Run:
    """One run of a workflow, as far as it concerns all tasks. `execution` holds what was measured of the whole."""

    about: Object
    execution: Object
    run_id: str
    unit: str
    host: str | None
    machines: Mapping[str, Object]
    sizes: Mapping[str, int | None]
    assumed: str | None


def recognises(_path: Path, head: bytes) -> bool:
    """Whether it is a JSON object with a workflow in it, and the version of the format or its tasks."""
    if not head.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"{"):
        return False
    found = _WORKFLOW.search(head)
    return found is not None and bool(_SCHEMA.search(head) or _TASKS.search(head, found.end()))


def read(path: Path, options: Options) -> Found:
    """Rows of a run. Raises BadField where it is no such JSON, TooLarge where it is too large to be held whole."""
    text, broken = whole(path)
    try:
        document = json.loads(text, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise BadField("file", f"{path.name}: {str(error)[:120]}", "mend the JSON, or give a whole copy") from error
    workflow = _object(document, "workflow")
    tasks, specified, notes = _joined(workflow)
    run = _run(document, workflow, options)
    rows: list[Row] = []
    refused, seen = list(broken), set[str]()
    for position, task in enumerate(tasks):
        item = str(task.get("id") or task.get("name") or f"task {position}")
        try:
            rows.extend(_task(task, specified.get(item, task), item, run, seen))
        except (BadField, ValidationError, UnicodeEncodeError) as error:
            why = "its name is no text" if isinstance(error, UnicodeEncodeError) else reason(error)
            refused.append(Refused(None, f"task {item}"[:200], why))
    try:
        rows.extend(_whole_run(run, len(rows) > 0))
    except (BadField, ValidationError) as error:
        refused.append(Refused(None, "makespan", reason(error)))
    return Found(tuple(rows), len(tasks), tuple(refused), (*notes, *_notes(run, rows)))


def _joined(workflow: Object) -> tuple[list[Object], dict[str, Object], list[str]]:
    """Tasks that were measured, what was specified of each by id, and what does not meet."""
    if "execution" in workflow or "specification" in workflow:
        tasks = _objects(_object(workflow, "execution"), "tasks")
        specified = {str(one.get("id")): one for one in _objects(_object(workflow, "specification"), "tasks")}
        ids = {str(one.get("id")) for one in tasks}
        lone = [(len(specified.keys() - ids), "specified but not executed"), (len(ids - specified.keys()), "not specified")]
        return tasks, specified, [f"tasks {what}: {n}" for n, what in lone if n]
    tasks = _objects(workflow, "tasks") or _objects(workflow, "jobs")
    if not tasks:
        raise BadField("workflow.tasks", "missing", "a workflow with tasks was expected")
    return tasks, {}, []


def _run(document: Object, workflow: Object, options: Options) -> _Run:
    """What concerns all tasks of the run."""
    execution = _object(workflow, "execution") or workflow
    machines = {str(one.get("nodeName")): one for one in _objects(execution, "machines") if one.get("nodeName")}
    files = _objects(_object(workflow, "specification"), "files")
    told = [document.get("name"), workflow.get("runName"), execution.get("executedAt"), document.get("createdAt")]
    unit = unit_told(options.unit)
    return _Run(
        document,
        execution,
        row_id("wfcommons", repr(told)),
        unit or "s",
        options.host,
        machines,
        {str(one.get("id")): count(str(one.get("sizeInBytes"))) for one in files},
        f"unit={unit}" if unit else None,
    )


def _task(task: Object, specified: Object, item: str, run: _Run, seen: set[str]) -> tuple[Attempt, Observation]:
    """The attempt and the observation of one task."""
    if item in seen:
        raise BadField("id", item, "each task is listed once; the first is kept")
    lasted_s = seconds("runtimeInSeconds", _first(task, "runtimeInSeconds", "runtime"), run.unit)
    seen.add(item)
    named = _named_machine(task)
    only = next(iter(run.machines)) if len(run.machines) == 1 else None
    host = run.host or named or only
    cores = number(str(_first(task, "coreCount", "cores")))
    attempt_id = row_id("wfcommons", run.run_id, item)
    attempt = Attempt(
        attempt_id=attempt_id,
        workflow_id=name(run.about.get("name")),
        run_id=run.run_id,
        node_id=name(item),
        host=name(host),
        device=name(_processor(run.machines.get(host or ""))),
        family=name(run.about.get("name")),
        model=name(_program(task, specified, item)),
        runtime=name(_engine(run.about)),
        batch=float(cores) if cores else None,
        size_in=_bytes_in(specified, run.sizes),
    )
    assumed = [run.assumed, _ONLY_MACHINE if host and host not in {run.host, named} else None]
    told = "; ".join(one for one in assumed if one) or None
    return attempt, _observation(attempt_id, "service", lasted_s, task.get("executedAt"), told)


def _whole_run(run: _Run, has_tasks: bool) -> Iterator[Row]:
    """The run as one attempt that lasts its makespan; nothing where that is not told, or 0 although tasks took time."""
    makespan = _first(run.execution, "makespanInSeconds", "makespan")
    lasted_s = 0.0 if makespan is None else seconds("makespanInSeconds", makespan, run.unit)
    if lasted_s > 0 and has_tasks:
        attempt_id = row_id("wfcommons", run.run_id)
        workflow, engine = name(run.about.get("name")), name(_engine(run.about))
        yield Attempt(attempt_id=attempt_id, workflow_id=workflow, run_id=run.run_id, family=workflow, runtime=engine)
        yield _observation(attempt_id, "makespan", lasted_s, run.execution.get("executedAt"), run.assumed)


def _observation(attempt_id: str, phase: str, lasted_s: float, executed_at: object, assumed: str | None) -> Observation:
    """A completed length; which clock it was read from is not told."""
    started_ns, started_text = None, None
    if executed_at:
        started_text = str(executed_at).encode(errors="replace").decode()
        try:
            start: Instant = written("executedAt", started_text)
            started_ns, started_text = start.started_ns, start.started_text
        except BadField:
            pass  # such as month first with a year of two digits: kept as it is written
    return Observation(
        observation_id=f"{attempt_id}/{phase}/0",
        attempt_id=attempt_id,
        phase=phase,
        started_ns=started_ns,
        started_text=started_text,
        duration_s=lasted_s,
        ended=Ended.COMPLETED,
        assumed=assumed,
    )


def _named_machine(task: Object) -> str | None:
    """The machine a task names; None where it names none or several."""
    machines = task.get("machines")
    names = machines if isinstance(machines, list) else [task.get("machine")]
    return str(names[0]) if len(names) == 1 and names[0] else None


def _processor(machine: Object | None) -> str | None:
    """The processor's vendor and cores, such as `GenuineIntel 48c`."""
    cpu = _object(machine or {}, "cpu")
    cores = _first(cpu, "coreCount", "count")
    return " ".join(str(part) for part in (cpu.get("vendor"), f"{cores}c" if cores else None) if part) or None


def _program(task: Object, specified: Object, item: str) -> str:
    """What kind of task it is: its category, else its name without the path of modules and the number."""
    told = task.get("category") or specified.get("category") or specified.get("name") or item
    return _MODULES.sub("", _NUMBERED.sub("", str(told)))


def _engine(document: Object) -> str | None:
    """The engine with its version, such as `Nextflow-23.04.1`."""
    engine = _object(document, "runtimeSystem") or _object(document, "wms")
    return "-".join(str(engine[key]) for key in ("name", "version") if engine.get(key)) or None


def _bytes_in(specified: Object, sizes: Mapping[str, int | None]) -> int | None:
    """Bytes of the declared input files; None where none is declared or the size of one is not known."""
    inputs = specified.get("inputFiles")
    if isinstance(inputs, list):
        found = [sizes.get(str(one)) for one in inputs]
    else:
        files = [one for one in _objects(specified, "files") if one.get("link") == "input"]
        found = [count(str(_first(one, "sizeInBytes", "size"))) for one in files]
    known = [size for size in found if size is not None]
    return sum(known) if found and len(known) == len(found) else None


def _notes(run: _Run, rows: list[Row]) -> Iterator[str]:
    """Times that look like another unit: a task can't outlast its run."""
    lasted_s = [row.duration_s for row in rows if isinstance(row, Observation) and row.phase == "service"]
    makespan = number(str(_first(run.execution, "makespanInSeconds", "makespan")))
    if makespan and run.unit == "s" and far_apart([(one or 0.0, float(makespan)) for one in lasted_s], only_longer=True):
        yield "tasks last some 1000 times longer than their run: are they in ms? See --unit"


def _first(found: Object, *keys: str) -> Any:
    """The first of these members that is there."""
    return next((found[key] for key in keys if found.get(key) is not None), None)


def _object(found: object, key: str) -> Object:
    inner = found.get(key) if isinstance(found, dict) else None
    return inner if isinstance(inner, dict) else {}


def _objects(found: Object, key: str) -> list[Object]:
    """A list of objects; what is none in it counts as an empty one, so that it is refused and not lost."""
    inner = found.get(key)
    return [one if isinstance(one, dict) else {} for one in inner] if isinstance(inner, list) else []


WFCOMMONS = Importer("wfcommons", recognises, read)
