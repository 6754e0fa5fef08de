"""Files with odd values anywhere: what can't be read is told by our own errors and refusals, and rows can always be stored."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.errors import PhasecastError
from telemetry.importers.chrome_trace import CHROME_TRACE
from telemetry.importers.contract import Importer, Options
from telemetry.importers.otlp import OTLP
from telemetry.importers.wfcommons import WFCOMMONS

ODD = [None, True, "", -1, 0, 2**70, 1e308, float("nan"), "NaN", "\ud800", "x" * 500, [], {}, [[1]], {"a": 1}, "1e999", "-5"]
SPAN = {
    "traceId": "5b8efff798038103d269b633813fc60c",
    "spanId": "eee19b7ec3c1b174",
    "name": "generate",
    "startTimeUnixNano": "1764400000000000000",
    "endTimeUnixNano": "1764400001000000000",
    "attributes": [
        {"key": "gen_ai.latency.time_in_queue", "value": {"doubleValue": 0.5}},
        {"key": "gen_ai.usage.completion_tokens", "value": {"intValue": "7"}},
    ],
    "status": {"code": 2, "message": "cause"},
    "events": [{"name": "first_output", "timeUnixNano": "1764400000500000000"}],
}
PLACE = {"pid": 1, "tid": 2, "cat": "kernel", "name": "k"}
DOCUMENTS: dict[str, tuple[Importer, dict[str, Any]]] = {
    "otlp": (OTLP, {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"spans": [SPAN, SPAN]}]}]}),
    "chrome_trace": (
        CHROME_TRACE,
        {
            "baseTimeNanoseconds": 1_712_195_495_000_000_000,
            "deviceProperties": [{"id": 0, "name": "gpu"}],
            "traceEvents": [
                {"ph": "X", "ts": 1.5, "dur": 2, "args": {"device": 0, "stream": 7, "bytes": 4}, **PLACE},
                {"ph": "B", "ts": 1, **PLACE},
                {"ph": "E", "ts": 3, "args": {"correlation": 4}, **PLACE},
                {"ph": "b", "ts": 3, "id2": {"local": 1}, **PLACE},
            ],
        },
    ),
    "wfcommons": (
        WFCOMMONS,
        {
            "name": "flow",
            "runtimeSystem": {"name": "engine"},
            "workflow": {
                "specification": {
                    "tasks": [{"id": "a_1", "name": "a", "inputFiles": ["f"]}],
                    "files": [{"id": "f", "sizeInBytes": 3}],
                },
                "execution": {
                    "makespanInSeconds": 5,
                    "executedAt": "12-19-20T21:31:53Z",
                    "tasks": [{"id": "a_1", "runtimeInSeconds": 2.5, "coreCount": 2, "machines": ["m"]}],
                    "machines": [{"nodeName": "m", "cpu": {"coreCount": 4}}],
                },
            },
        },
    ),
}


def places(inside: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value in a document."""
    members = inside.items() if isinstance(inside, dict) else enumerate(inside) if isinstance(inside, list) else ()
    for key, value in members:
        yield (*at, key)
        yield from places(value, (*at, key))


@pytest.mark.parametrize("name", DOCUMENTS)
@given(data=st.data())
@settings(max_examples=80)
def test_an_odd_value_anywhere_is_refused_or_read_and_never_a_crash(name: str, data: st.DataObject) -> None:
    importer, document = DOCUMENTS[name]
    changed = copy.deepcopy(document)
    *way, last = data.draw(st.sampled_from(list(places(document))))
    inside = changed
    for key in way:
        inside = inside[key]
    inside[last] = data.draw(st.sampled_from(ODD))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "odd.json"
        path.write_text(json.dumps(changed))
        try:
            found = importer.read(path, Options())
        except PhasecastError:
            return
    for row in found.rows:
        row.model_dump_json()  # neither half characters nor infinities


@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_documents_without_odd_values_are_read_whole(name: str, tmp_path: Path) -> None:
    importer, document = DOCUMENTS[name]
    path = tmp_path / "even.json"
    path.write_text(json.dumps(document))
    found = importer.read(path, Options())
    assert found.rows
    assert () == found.refused
