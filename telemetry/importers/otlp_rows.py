"""One reported span to rows: an attempt, events for boundaries that are known, and observations of what has no boundary.

A plain span is `compute_start` to `compute_finish`, so its length becomes `service`. A span with GenAI latencies (seconds,
as vLLM reports them) begins with the arrival, so its length is `completion`; the wait in the queue and the first token give
the boundaries between, and the parts inside (prefill, decode, ...) are observations of phases with those names, on the wall
clock. Events of a span that are named like our kinds are taken as they are.

Key is trace id + span id; without them, all the span says. Another content under a known key is a conflict of its events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import orjson

from telemetry.errors import BadField
from telemetry.importers.cells import length, name
from telemetry.importers.contract import Options, row_id
from telemetry.importers.decimals import count, number, unit_told
from telemetry.importers.exact import SINCE_1970_NS, nanoseconds
from telemetry.importers.otlp_wire import Reported, Scalar
from telemetry.rows import Row
from telemetry.tables import Attempt, Event, Observation
from telemetry.words import PHASES, Clock, Ended, EventKind

_K = EventKind
_KINDS = {kind.value: kind for kind in EventKind}
_NUMBERS = ("gen_ai.latency.", "gen_ai.usage.")
_LATENCY = "gen_ai.latency."
_QUEUE, _FIRST, _WHOLE = "time_in_queue", "time_to_first_token", "e2e"
_PHASES = {f"time_in_model_{part}": part for part in ("prefill", "decode", "inference")}
_AFTER = (("prefill", _QUEUE), ("inference", _QUEUE), ("decode", _FIRST))
"""Phases, and the latency after which each begins."""
_OVER_BEFORE_OUTPUT = frozenset({_FIRST, "prefill"})


@dataclass(frozen=True, slots=True)
class Taken:
    """A span that was read. `said_s` is what it says of its own length and `seen_s` what its times say, None where absent."""

    attempt_id: str
    rows: tuple[Row, ...]
    said_s: float | None
    seen_s: float | None
    keyed: bool

    @property
    def running(self) -> bool:
        """Whether it has no end yet."""
        return self.seen_s is None


def last_seen_ns(spans: Sequence[Reported], options: Options) -> dict[str, int]:
    """The newest time that each reporter gave in these spans, UTC ns: until then its open spans are known to run."""
    found: dict[str, int] = {}
    for span in spans:
        source = _source(span)
        for given in (span.start, span.end):
            try:
                at_ns = _stamp("time", given, options) or 0
            except BadField:
                continue
            found[source] = max(at_ns, found.get(source, 0))
    return found


def taken(span: Reported, options: Options, until_ns: Mapping[str, int]) -> Taken:
    """Rows of one span; `until_ns` as `last_seen_ns` gives it. Raises BadField, or ValidationError for a value out of range."""
    start_ns, end_ns = _stamp("startTimeUnixNano", span.start, options), _stamp("endTimeUnixNano", span.end, options)
    if start_ns is None or start_ns < SINCE_1970_NS:
        raise BadField("startTimeUnixNano", span.start, "a time in ns since 1970 was expected; for another unit give --unit")
    latencies = dict(_latencies(span))
    attempt = _attempt(span, options)
    marks = dict(_boundaries(span, start_ns, end_ns, latencies))
    for told, given in span.marks:
        if told in _KINDS and (at_ns := _stamp(f"events.{told}", given, options)) is not None:
            marks.setdefault(_KINDS[told], at_ns)
    source = _source(span)
    if end_ns is None and until_ns[source] > start_ns:
        marks[_K.HEARTBEAT] = until_ns[source]
    rows: list[Row] = [attempt, *(_event(span, attempt.attempt_id, kind, at_ns, source) for kind, at_ns in marks.items())]
    if end_ns is not None:
        rows += _inside(span, attempt.attempt_id, start_ns, latencies)
    whole = latencies.get(_WHOLE)
    seen_s = None if end_ns is None else (end_ns - start_ns) / 1e9
    keyed = bool(span.trace_id and span.span_id)
    return Taken(attempt.attempt_id, tuple(rows), None if whole is None else float(whole), seen_s, keyed)


def _stamp(field: str, given: object, options: Options) -> int | None:
    """A time in ns, None where there is none, as 0 stands for it too."""
    ns = 0 if given is None else nanoseconds(field, given, unit_told(options.unit) or "ns")
    if ns < 0:
        raise BadField(field, given, "a time from 1970 on was expected")
    return ns or None


def _latencies(span: Reported) -> Iterator[tuple[str, Decimal]]:
    """Latencies in s by their name after the prefix."""
    for key, given in span.attributes.items():
        if key.startswith(_LATENCY) and key != _LATENCY:
            found = number(str(given))
            if found is None or found < 0:
                raise BadField(key, str(given)[:80], "a length in s was expected")
            yield key.removeprefix(_LATENCY), found


def _boundaries(
    span: Reported, start_ns: int, end_ns: int | None, latencies: dict[str, Decimal]
) -> Iterator[tuple[EventKind, int]]:
    """Boundaries that the span's ends and latencies tell; lengths are decimals until they are whole ns."""
    own_start = any(told == _K.COMPUTE_START for told, _ in span.marks)
    yield (_K.ELIGIBLE if latencies or own_start else _K.COMPUTE_START), start_ns
    if _QUEUE in latencies:
        for kind in (_K.RESERVATION_COMMIT, _K.COMPUTE_START):
            yield kind, start_ns + nanoseconds(_QUEUE, str(latencies[_QUEUE]), "s")
    if _FIRST in latencies:
        yield _K.FIRST_OUTPUT, start_ns + nanoseconds(_FIRST, str(latencies[_FIRST]), "s")
    if end_ns is not None:
        if _tokens_out(span) is not None:
            yield _K.ITERATION_FINISH, end_ns
        yield (_K.FAILED if span.failed else _K.COMPUTE_FINISH), end_ns
        if not span.failed:
            # Nobody will tell of a drain; without this it would count as running for ever.
            yield _K.RESOURCE_RELEASED, end_ns


def _event(span: Reported, attempt_id: str, kind: EventKind, at_ns: int, source: str) -> Event:
    """One boundary."""
    return Event(
        event_id=f"{attempt_id}/{kind}" + (f"/{at_ns}" if kind is _K.HEARTBEAT else ""),
        attempt_id=attempt_id,
        kind=kind,
        wall_ns=at_ns,
        source=source,
        tokens=_tokens_out(span) if kind is _K.ITERATION_FINISH else None,
        reason=(span.message or _text(span.attributes, "error.type") or "error")[:2000] if kind is _K.FAILED else None,
        attributes=_told(span) if kind in {_K.COMPUTE_FINISH, _K.FAILED} else None,
    )


def _told(span: Reported) -> str | None:
    """What the span said in numbers, for its end to carry: so the same span told otherwise is seen to differ."""
    found = {key: str(given) for key, given in sorted(span.attributes.items()) if key.startswith(_NUMBERS)}
    return orjson.dumps(found).decode()[:20_000] if found else None


def _inside(span: Reported, attempt_id: str, start_ns: int, latencies: dict[str, Decimal]) -> Iterator[Observation]:
    """Observations of what happened between the boundaries, in phases of the names that the span gives them."""
    begun_ns = {phase: start_ns + nanoseconds(key, str(latencies[key]), "s") for phase, key in _AFTER if key in latencies}
    for key, length_s in latencies.items():
        if key in {_QUEUE, _WHOLE}:
            continue
        phase = _phase(key)
        cut = span.failed and not (phase in _OVER_BEFORE_OUTPUT and _FIRST in latencies)
        yield Observation(
            observation_id=f"{attempt_id}/{phase}/0",
            attempt_id=attempt_id,
            phase=phase,
            started_ns=start_ns if phase == _FIRST else begun_ns.get(phase),
            duration_s=length(key, length_s),
            ended=Ended.FAILED if cut else Ended.COMPLETED,
            cause=(span.message or "error")[:2000] if cut else None,
            clock=Clock.WALL,
        )


def _phase(latency: str) -> str:
    """Name of the phase of a latency; one of ours means a span between boundaries, which a mere length is not."""
    phase = _PHASES.get(latency, latency.removeprefix("time_in_"))
    return f"gen_ai.{phase}" if phase in PHASES else phase


def _attempt(span: Reported, options: Options) -> Attempt:
    """What was known before the span began; tokens that came out are not."""
    told, who = span.attributes, span.resource
    runtime = _text(told, "gen_ai.provider.name", "gen_ai.system") or _text(who, "service.name")
    version = _text(who, "service.version")
    tokens_in = _count(told, "gen_ai.usage.prompt_tokens", "gen_ai.usage.input_tokens")
    return Attempt(
        attempt_id=row_id("otlp", *_key(span)),
        workflow_id=name(_text(who, "service.name")),
        run_id=span.trace_id or None,
        node_id=name(span.name),
        host=name(options.host or _text(who, "host.name", "host.id", "k8s.node.name")),
        family=name(_text(told, "gen_ai.operation.name") or span.name),
        model=name(_text(told, "gen_ai.response.model", "gen_ai.request.model")),
        runtime=name(f"{runtime}-{version}" if runtime and version else runtime),
        size_in=tokens_in,
    )


def _key(span: Reported) -> tuple[str, ...]:
    """Trace id and span id; where one is missing, all that was told, which is the same in JSON and in protobuf."""
    if span.trace_id and span.span_id:
        return span.trace_id, span.span_id
    plain = [f"{key}={value}" for told in (span.attributes, span.resource) for key, value in sorted(told.items())]
    return "content", span.trace_id, span.span_id, span.name, str(span.start), str(span.end), span.message, *plain


def _source(span: Reported) -> str:
    """Who reported it: host and process, as far as told."""
    who = span.resource
    process = _text(who, "service.instance.id", "process.pid", "service.name")
    found = name(f"otlp@{_text(who, 'host.name', 'host.id') or 'unknown'}/{process or 'unknown'}")
    assert found is not None
    return found


def _tokens_out(span: Reported) -> int | None:
    return _count(span.attributes, "gen_ai.usage.completion_tokens", "gen_ai.usage.output_tokens")


def _count(told: Mapping[str, Scalar], *keys: str) -> int | None:
    return next((found for key in keys if (found := count(_text(told, key))) is not None), None)


def _text(told: Mapping[str, Scalar], *keys: str) -> str:
    """The first of these attributes that is there, as text; empty if none is."""
    return next((str(told[key]) for key in keys if told.get(key) not in {None, ""}), "")
