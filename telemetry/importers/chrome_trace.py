"""Chrome and Perfetto JSON traces, as torch's profiler writes them: every span an attempt with one observation.

What a device did (kernels, fills) is phase `service`, its copies `transfer`, both on the device's own clock and by stream.
Spans of host threads are phase `host_span`: a host that launches device work is done long before the device is, so their
lengths must never pass for `service`. Waits of the device are `device_wait`, stretches with a user's label `annotation`.

Taken: an object with `traceEvents` or a bare list, also without its end, packed or not; ts and dur in us as number or text
(`displayTimeUnit` is for display only); X, B/E, b/e and the older S/F; ids of processes and threads as number or text; stamps
since 1970, or from a zero of their own, with `baseTimeNanoseconds` or without. Device work is known by its category, as torch
has it, or by a process named `/device:GPU:0` with threads named `Stream ...`, as TensorFlow and JAX have it. A span without
an end was last seen at the end of the trace, and is known to exceed that. Perfetto's protobuf traces are another format.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from telemetry.errors import BadField
from telemetry.importers.cells import FAR_OFF, name, reason
from telemetry.importers.chrome_spans import SPANS, Span, Spans, arguments
from telemetry.importers.contract import Found, Importer, Options, Refused, row_id
from telemetry.importers.decimals import count, unit_told
from telemetry.importers.exact import SINCE_1970_NS, nanoseconds
from telemetry.importers.json_stream import Element, Member, pieces
from telemetry.importers.texts import opened
from telemetry.rows import Row
from telemetry.tables import Attempt, Observation
from telemetry.words import Clock, Ended

_PHASES = {
    **dict.fromkeys(("kernel", "gpu_memset", "memset"), "service"),
    **dict.fromkeys(("gpu_memcpy", "memcpy"), "transfer"),
    "cuda_sync": "device_wait",
    "gpu_user_annotation": "annotation",
}
"""What each of the categories of a device is."""
_DEVICE = "/device:"
"""How a process is named that stands for a device, where records have no such category."""
_TELLING = ("correlation", "External id", "Ev Idx")
"""Arguments that tell two spans of one name and instant apart."""
_BARE = re.compile(rb'\s*\[\s*\{[^{}]*"ph"\s*:\s*"')


@dataclass
class _Trace:
    """What was gathered of a file. `about` are the members beside the list, `first` is the first span as text."""

    spans: Spans
    about: dict[str, Any] = field(default_factory=dict)
    first: str | None = None

    @cached_property
    def identity(self) -> str:
        """The trace's own id with the rank it is of, else a digest of its first span, as a longer version of it has too."""
        own = self.about.get("trace_id")
        told = [self.about.get(key) for key in ("trace_id", "distributedInfo", "baseTimeNanoseconds")]
        return hashlib.blake2b(repr([told, None if own else self.first]).encode(errors="replace"), digest_size=12).hexdigest()

    def base_ns(self) -> int:
        """What stamps are counted from, UTC ns; 0 where they say it themselves or nobody does."""
        return count(str(self.about.get("baseTimeNanoseconds"))) or 0


def recognises(_path: Path, head: bytes) -> bool:
    """Whether it is a JSON object with traceEvents, or a list of records with a `ph`."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start.startswith(b"{"):
        return re.search(rb'"traceEvents"\s*:\s*\[', start) is not None
    return _BARE.match(start) is not None


def read(path: Path, options: Options) -> Found:
    """Rows of a trace. Raises BadField where it is no JSON, TooLarge past 4 GiB unpacked."""
    unit = unit_told(options.unit)
    trace = _gathered(path, unit or "us")
    spans = trace.spans
    rows: list[Row] = []
    seen = Counter[str]()
    for span in spans.found:
        try:
            rows.extend(_rows(span, trace, options.host, unit, seen))
        except (BadField, ValidationError, UnicodeEncodeError) as error:
            why = str(error) if isinstance(error, UnicodeEncodeError) else reason(error)
            spans.refused.append(Refused(span.mark.line, str(span.mark.record.get("name"))[:80], why))
    return Found(tuple(rows), spans.n_read, tuple(spans.refused), tuple(_notes(trace)))


def _gathered(path: Path, unit: str) -> _Trace:
    """The records of a file, sorted into spans, and what is told beside them."""
    trace = _Trace(Spans(unit))
    with opened(path) as file:
        for piece in pieces(file, "traceEvents"):
            if isinstance(piece, Member):
                trace.about[piece.name] = piece.value
            elif isinstance(piece, Element):
                if trace.first is None and isinstance(piece.value, dict) and str(piece.value.get("ph")) in SPANS:
                    trace.first = repr(piece.value)
                trace.spans.take(piece.line, piece.value)
            else:
                trace.spans.n_read += 1
                trace.spans.refused.append(piece)
    trace.spans.settle()
    return trace


def _rows(span: Span, trace: _Trace, host: str | None, unit: str | None, seen: Counter[str]) -> tuple[Attempt, Observation]:
    """The attempt and the observation of one span."""
    record = span.mark.record
    told = arguments(record)
    category = str(record.get("cat") or "").split(",")[0]
    phase, device = _place(category, record, trace)
    identity = [trace.identity, category, record.get("name"), record.get("pid"), record.get("tid"), _written(record)]
    same = row_id("chrome_trace", *identity, *(told.get(key) for key in _TELLING))
    seen[same] += 1  # spans that nothing tells apart are still as many as there are
    attempt_id = same if seen[same] == 1 else row_id("chrome_trace", same, seen[same])
    attempt = Attempt(
        attempt_id=attempt_id,
        run_id=trace.identity,
        node_id=name(record.get("name")),
        host=name(host or trace.about.get("host_name")),
        device=name(device),
        family=name(category),
        model=name(record.get("name")),
        size_in=count(str(told.get("bytes"))) if device else None,
    )
    return attempt, _observation(attempt_id, phase, span, trace, unit)


def _written(record: dict[str, Any]) -> object:
    """When a record begins as it stands there, for its identity: by that it is known again when the unit is corrected."""
    try:
        return nanoseconds("ts", record.get("ts"), "us")
    except BadField:
        return record.get("ts")


def _observation(attempt_id: str, phase: str, span: Span, trace: _Trace, unit: str | None) -> Observation:
    """The span as a length, or as last seen at the end of the trace."""
    length_ns, ended = span.length_ns, Ended.COMPLETED
    if length_ns is None:
        assert trace.spans.last_ns is not None
        length_ns, ended = trace.spans.last_ns - span.mark.at_ns, Ended.LOST
    started_ns = span.mark.at_ns
    if abs(started_ns) < SINCE_1970_NS:
        started_ns += trace.base_ns()
    dated = started_ns >= SINCE_1970_NS
    return Observation(
        observation_id=f"{attempt_id}/{phase}/0",
        attempt_id=attempt_id,
        phase=phase,
        started_ns=started_ns if dated else None,
        started_text=None if dated else str(span.mark.record.get("ts")),
        duration_s=length_ns / 1e9,
        ended=ended,
        clock=Clock.MONOTONIC if phase == "host_span" else Clock.DEVICE,
        assumed=f"unit={unit}" if unit else None,
    )


def _place(category: str, record: dict[str, Any], trace: _Trace) -> tuple[str, str | None]:
    """The phase of a span, and the device and stream it is of; None for a thread of a host."""
    if (phase := _PHASES.get(category.lower())) is not None:
        return phase, _device(record, arguments(record), trace.about)
    names, pid = trace.spans.names, str(record.get("pid"))
    process, thread = names.get((pid, None), ""), names.get((pid, str(record.get("tid"))), "")
    if not process.startswith(_DEVICE):
        return "host_span", None
    device = process.removeprefix(_DEVICE)
    if not thread.startswith("Stream"):
        return "annotation", device  # steps, modules and operators are drawn over what the streams did
    return "transfer" if str(record.get("name")).startswith("Memcpy") else "service", f"{device} {thread}"


def _device(record: dict[str, Any], told: dict[str, Any], about: dict[str, Any]) -> str:
    """The device by the model and number that the trace has for it, and its stream; a wait for all of them has no stream."""
    number = told.get("device", record.get("pid"))
    properties = about.get("deviceProperties")
    listed = [one for one in properties if isinstance(one, dict)] if isinstance(properties, list) else []
    model = next((str(one["name"]) for one in listed if one.get("id") == number and one.get("name")), "device")
    stream = str(told.get("stream", record.get("tid")))
    return f"{model} {number}" if stream.startswith("-") else f"{model} {number} stream {stream}"


def _notes(trace: _Trace) -> Iterator[str]:
    """What a reader of the rows should know, and times that look like another unit."""
    spans = trace.spans
    if not spans.found:
        yield "no record has a length: nothing to learn from"
        return
    if spans.n_passed_over:
        yield f"{spans.n_passed_over} records without a length passed over: flows, instants, counters, names"
    if n_open := sum(span.length_ns is None for span in spans.found):
        yield f"{n_open} spans had not ended when the trace did: known to last until then"
    starts = [span.mark.at_ns for span in spans.found]
    longest, extent = max(span.length_ns or 0 for span in spans.found), max(starts) - min(starts)
    if extent and longest > FAR_OFF * extent:
        yield f"a span lasts {longest / 1e9:g} s, but all begin within {extent / 1e9:g} s: is a length in ns? See --unit"


CHROME_TRACE = Importer("chrome_trace", recognises, read)
