"""OTLP traces: one row per boundary and part, the same from JSON and protobuf, running and failed spans, bad spans told."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from telemetry.errors import BadField
from telemetry.importers.contract import Found, Options
from telemetry.importers.otlp import OTLP, read, recognises
from telemetry.importers.otlp_wire import from_json
from telemetry.importers.registry import first_bytes
from telemetry.tables import Attempt, Event, Observation
from telemetry.timelines import Timeline, observe
from telemetry.words import Clock, Ended, EventKind

START_NS = 1_764_400_000_000_000_001
TRACE, SPAN = "5b8efff798038103d269b633813fc60c", "eee19b7ec3c1b174"
LATENCIES = {
    "time_in_queue": 0.05,
    "time_to_first_token": 0.2,
    "time_in_model_prefill": 0.15,
    "time_in_model_decode": 1.0,
    "time_in_model_inference": 1.15,
    "e2e": 1.2,
}


def value(plain: object) -> dict[str, Any]:
    if isinstance(plain, bool):
        return {"boolValue": plain}
    if isinstance(plain, int):
        return {"intValue": str(plain)}
    return {"doubleValue": plain} if isinstance(plain, float) else {"stringValue": plain}


def told(**attributes: object) -> list[dict[str, Any]]:
    return [{"key": key.replace("__", "."), "value": value(plain)} for key, plain in attributes.items()]


def span(length_ns: int | None = 1_200_000_000, *, latencies: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    attributes = told(gen_ai__request__model="m-7b", gen_ai__usage__prompt_tokens=64, gen_ai__usage__completion_tokens=11)
    given = {f"gen_ai__latency__{name}": length_s for name, length_s in (latencies or {}).items()}
    ids = {"traceId": TRACE, "spanId": SPAN, "name": "llm_request", "startTimeUnixNano": str(START_NS)}
    end = {} if length_ns is None else {"endTimeUnixNano": str(START_NS + length_ns)}
    return {**ids, **end, "attributes": [*attributes, *told(**given)], **more}


def request(*spans: object, **resource: object) -> dict[str, Any]:
    who = resource or {"host__name": "node-1", "service__name": "vllm", "service__version": "0.29.0"}
    return {"resourceSpans": [{"resource": {"attributes": told(**who)}, "scopeSpans": [{"spans": list(spans)}]}]}


def imported(tmp_path: Path, document: object, **options: Any) -> Found:
    path = tmp_path / "traces.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    assert recognises(path, first_bytes(path))
    return read(path, Options(**options))


def events(found: Found) -> dict[EventKind, Event]:
    return {row.kind: row for row in found.rows if isinstance(row, Event)}


def parts(found: Found) -> dict[str, Observation]:
    return {row.phase: row for row in found.rows if isinstance(row, Observation)}


def attempt(found: Found) -> Attempt:
    [only] = [row for row in found.rows if isinstance(row, Attempt)]
    return only


def timeline(found: Found) -> Timeline:
    return observe(attempt(found), [row for row in found.rows if isinstance(row, Event)])


def derived(found: Found) -> dict[str, Observation]:
    return {row.phase: row for row in timeline(found).observations if row.duration_s is not None}


def test_a_plain_span_is_a_service_time(tmp_path: Path) -> None:
    found = imported(tmp_path, request(span()))
    row = derived(found)["service"]
    assert (1.2, START_NS, Ended.COMPLETED, Clock.WALL) == (row.duration_s, row.started_ns, row.ended, row.clock)
    told = attempt(found)
    assert ("node-1", "llm_request", "m-7b", "vllm-0.29.0") == (told.host, told.family, told.model, told.runtime)
    assert (64.0, TRACE) == (told.size_in, told.run_id)


def test_latencies_give_the_boundaries_inside_and_the_parts(tmp_path: Path) -> None:
    found = imported(tmp_path, request(span(latencies=LATENCIES)))
    phases = derived(found)
    assert {"queue": 0.05, "completion": 1.2, "service": 1.15, "time_to_first_output": 0.15} == {
        name: phases[name].duration_s for name in phases
    }
    assert {"time_to_first_token": 0.2, "prefill": 0.15, "decode": 1.0, "inference": 1.15} == {
        name: row.duration_s for name, row in parts(found).items()
    }
    assert START_NS + 50_000_000 == parts(found)["prefill"].started_ns
    assert START_NS + 200_000_000 == parts(found)["decode"].started_ns
    assert {Clock.WALL} == {row.clock for row in parts(found).values()}
    assert not any(row.ended is Ended.RUNNING for row in phases.values())
    assert 11 == events(found)[EventKind.ITERATION_FINISH].tokens
    assert set() == parts(found).keys() & phases.keys()


def test_numbers_past_two_to_the_53_come_as_text_or_numbers(tmp_path: Path) -> None:
    end_ns = START_NS + 30 * 86_400 * 10**9 + 1
    for start, end in ((str(START_NS), str(end_ns)), (START_NS, end_ns)):
        found = imported(tmp_path, request(span(startTimeUnixNano=start, endTimeUnixNano=end)))
        assert (START_NS, end_ns) == (
            events(found)[EventKind.COMPUTE_START].wall_ns,
            events(found)[EventKind.COMPUTE_FINISH].wall_ns,
        )
        assert 30 * 86_400 + 1e-9 == derived(found)["service"].duration_s


@pytest.mark.parametrize("ms", [2**31 - 1, 2**31, 2**31 + 1])
def test_long_spans_pass_whole(tmp_path: Path, ms: int) -> None:  # T14
    assert ms / 1000 == derived(imported(tmp_path, request(span(ms * 10**6))))["service"].duration_s


@pytest.mark.parametrize("end", [{}, {"endTimeUnixNano": "0"}, {"endTimeUnixNano": 0}])
def test_a_span_without_an_end_runs_until_its_reporter_was_last_heard(tmp_path: Path, end: dict[str, Any]) -> None:  # T16
    other = span(3_000_000_000, spanId="aaaaaaaaaaaaaaaa")
    found = imported(tmp_path, request(other, {**span(None), **end}))
    running = [row.attempt_id for row in found.rows if isinstance(row, Attempt)][1]
    row = next(
        row
        for row in observe(None, [e for e in found.rows if isinstance(e, Event) and e.attempt_id == running]).observations
        if row.phase == "service"
    )
    assert (3.0, Ended.RUNNING) == (row.duration_s, row.ended)
    assert "1 spans have no end" in " ".join(found.notes)


def test_a_failed_span_is_a_failure_with_its_cause(tmp_path: Path) -> None:
    for code in (2, "STATUS_CODE_ERROR"):
        failed = span(latencies=LATENCIES, status={"code": code, "message": "out of memory"})
        found = imported(tmp_path, request(failed))
        service = derived(found)["service"]
        assert (Ended.FAILED, "out of memory", 1.15) == (service.ended, service.cause, service.duration_s)
        assert Ended.COMPLETED is derived(found)["queue"].ended
        assert {"prefill": Ended.COMPLETED, "decode": Ended.FAILED} == {n: parts(found)[n].ended for n in ("prefill", "decode")}


def test_an_end_before_the_start_is_kept_raw_and_never_a_length(tmp_path: Path) -> None:  # T01
    found = imported(tmp_path, request(span(-100)))
    assert START_NS - 100 == events(found)[EventKind.COMPUTE_FINISH].wall_ns
    assert [] == [row for row in timeline(found).observations if row.ended is Ended.COMPLETED]
    assert ["end_before_start"] == [row.reason for row in timeline(found).quarantined]


def test_events_named_like_ours_are_boundaries(tmp_path: Path) -> None:
    marks = [{"name": "first_output", "timeUnixNano": str(START_NS + 10**9)}, {"name": "exception", "timeUnixNano": "1"}]
    assert 1.0 == derived(imported(tmp_path, request(span(events=marks))))["time_to_first_output"].duration_s


def test_json_and_protobuf_give_the_same_rows(tmp_path: Path) -> None:
    document = request(span(latencies=LATENCIES, status={"code": 2}), span(spanId="", kind=3))
    message = ExportTraceServiceRequest()
    fill(message, document)
    raw = message.SerializeToString()
    for name, data in (("a.pb", raw), ("b.bin", len(raw).to_bytes(4) + raw), ("c.gz", gzip.compress(raw))):
        path = tmp_path / name
        path.write_bytes(data)
        assert recognises(path, first_bytes(path)), name
        assert imported(tmp_path, document) == read(path, Options())
    base64 = MessageToDict(message)  # protobuf's own JSON has ids in base64
    snake = MessageToDict(message, preserving_proto_field_name=True)
    assert imported(tmp_path, document) == imported(tmp_path, base64) == imported(tmp_path, snake)


def fill(message: ExportTraceServiceRequest, document: dict[str, Any]) -> None:
    """The protobuf of a document, whose ids are in hex."""
    for group in document["resourceSpans"]:
        made = message.resource_spans.add()
        _attributes(made.resource.attributes, group["resource"]["attributes"])
        scope = made.scope_spans.add()
        for one in group["scopeSpans"][0]["spans"]:
            ids = {"trace_id": bytes.fromhex(one["traceId"]), "span_id": bytes.fromhex(one["spanId"])}
            times = {"start_time_unix_nano": int(one["startTimeUnixNano"]), "end_time_unix_nano": int(one["endTimeUnixNano"])}
            made_span = scope.spans.add(name=one["name"], **ids, **times)
            made_span.status.code = one.get("status", {}).get("code", 0)
            _attributes(made_span.attributes, one["attributes"])


def _attributes(into: Any, attributes: list[dict[str, Any]]) -> None:
    for one in attributes:
        [(kind, plain)] = one["value"].items()
        name = {"intValue": "int_value", "doubleValue": "double_value", "stringValue": "string_value"}[kind]
        setattr(into.add(key=one["key"]).value, name, int(plain) if kind == "intValue" else plain)


def test_the_key_is_trace_id_and_span_id(tmp_path: Path) -> None:
    first = attempt(imported(tmp_path, request(span())))
    again = attempt(imported(tmp_path, request(span(2_000_000_000, traceId=TRACE.upper()))))
    other = attempt(imported(tmp_path, request(span(spanId="eee19b7ec3c1b175"))))
    assert first.attempt_id == again.attempt_id != other.attempt_id


@pytest.mark.parametrize("ids", [{"traceId": "", "spanId": ""}, {"traceId": "0" * 32}, {"spanId": None}, {"traceId": 7}])
def test_without_ids_a_span_is_known_by_what_it_says(tmp_path: Path, ids: dict[str, Any]) -> None:
    bare = {key: given for key, given in span().items() if key not in ids} | {k: v for k, v in ids.items() if v is not None}
    found = imported(tmp_path, request(bare))
    assert found == imported(tmp_path, request(bare))
    longer = {**bare, "endTimeUnixNano": str(START_NS + 5)}
    assert attempt(found).attempt_id != attempt(imported(tmp_path, request(longer))).attempt_id
    assert "1 spans have no trace id or span id" in " ".join(found.notes)


def test_bad_spans_are_told_and_the_rest_goes_on(tmp_path: Path) -> None:
    bad = [
        span(startTimeUnixNano=None),
        span(startTimeUnixNano="soon"),
        span(endTimeUnixNano=-5),
        span(endTimeUnixNano=2**64),
        span(latencies={"e2e": -1.0}),
        span(attributes=told(gen_ai__latency__e2e="NaN")),
        "no object",
    ]
    found = imported(tmp_path, request(*bad, span()))
    assert (8, 7) == (found.n_read, len(found.refused))
    assert SPAN in found.refused[0].item
    assert "startTimeUnixNano" in found.refused[0].reason
    assert 1.2 == derived(found)["service"].duration_s


def test_times_in_another_unit_are_refused_with_the_way_out(tmp_path: Path) -> None:  # T13
    in_us = span(startTimeUnixNano=START_NS // 1000, endTimeUnixNano=START_NS // 1000 + 1_200_000)
    assert "--unit" in imported(tmp_path, request(in_us)).refused[0].reason
    assert 1.2 == derived(imported(tmp_path, request(in_us), unit="us"))["service"].duration_s
    off = imported(tmp_path, request(span(latencies={"e2e": 1200.0})))
    assert "1000 times off" in " ".join(off.notes)


def test_one_document_a_line_and_older_names(tmp_path: Path) -> None:
    older = json.dumps(request(span(spanId="aaaaaaaaaaaaaaaa"))).replace("scopeSpans", "instrumentationLibrarySpans")
    found = imported(tmp_path, f"{json.dumps(request(span()))}\n\n{older}\n{{broken\n")
    assert 2 == sum(isinstance(row, Attempt) for row in found.rows)
    assert (3, [4]) == (found.n_read, [one.line for one in found.refused])


def test_a_span_of_a_server_that_says_little(tmp_path: Path) -> None:
    """One span of a vLLM server: no ids, latencies in s, counts as text."""
    few = {key: given for key, given in span(latencies=LATENCIES).items() if key not in {"traceId", "spanId", "name"}}
    found = imported(tmp_path, {"resourceSpans": [{"scopeSpans": [{"spans": [few]}]}]})
    assert ((), None, None, 64.0) == (found.refused, attempt(found).host, attempt(found).run_id, attempt(found).size_in)
    assert 1.2 == derived(found)["completion"].duration_s
    assert "node-9" == attempt(imported(tmp_path, request(few), host="node-9")).host


def test_what_holds_no_spans_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    for data in (b"{}", b'{"resourceSpans": [', b"[1]", b"\n\xff\xff\xff", b"{" * 100_000):
        path.write_bytes(data)
        with pytest.raises(BadField):
            OTLP.read(path, Options())
    with pytest.raises(BadField):
        from_json(b'{"resourceSpans": ' + b"[" * 100_000 + b"]" * 100_000 + b"}")


def test_a_sized_file_that_breaks_off_keeps_what_came_before(tmp_path: Path) -> None:
    message = ExportTraceServiceRequest()
    fill(message, request(span()))
    raw = message.SerializeToString()
    path = tmp_path / "x.bin"
    path.write_bytes((len(raw).to_bytes(4) + raw) * 2 + (9).to_bytes(4) + b"junk bits" + len(raw).to_bytes(4) + raw[:-3])
    found = read(path, Options())
    assert (4, ["message 3", "message 4"]) == (found.n_read, [one.item for one in found.refused])


def test_only_traces_are_recognised(tmp_path: Path) -> None:
    path = tmp_path / "other"
    logs = b'{"resourceLogs": [{"note": "\\"resourceSpans\\": ["}]}'
    for data in (logs, b'\n{\n  "schemaVersion": 1, "traceEvents": []}', b"\n" * 300, b"\n\x05hello", b"", b"PAR1\x15\x04"):
        path.write_bytes(data)
        assert not recognises(path, first_bytes(path)), data


def test_no_example_of_another_format_is_recognised(shared_dir: Path) -> None:
    files = [path for path in sorted((shared_dir / "examples").iterdir()) if path.is_file()]
    assert [] == [path.name for path in files if recognises(path, first_bytes(path))]


def test_a_span_that_ends_before_it_starts_leaves_nothing_running(tmp_path: Path) -> None:
    found = imported(tmp_path, request(span(-1_000_000)))
    told = timeline(found)
    assert ["service"] == [row.phase for row in told.quarantined]
    assert not [row.phase for row in told.observations if row.ended is Ended.RUNNING]
    assert 0 == sum(note.startswith("1 spans have no end") for note in found.notes)


def test_protobuf_with_fields_of_a_newer_version_is_recognised(tmp_path: Path) -> None:
    message = ExportTraceServiceRequest()
    fill(message, request(span()))
    group = message.resource_spans[0].SerializeToString() + b"\xa2\x06\x03new"  # field 100, text
    newer = b"\x78\x05" + b"\x0a" + bytes([len(group) & 127 | 128, len(group) >> 7]) + group  # field 15, then the spans
    path = tmp_path / "newer.pb"
    path.write_bytes(newer)
    assert recognises(path, first_bytes(path))
    assert imported(tmp_path, request(span())).rows == read(path, Options()).rows
    path.write_bytes(b"\x78\x05\x0a\x03new")
    assert not recognises(path, first_bytes(path))
