"""What is published to workers, and what they send back, as JSON values and Arrow bytes; reading gives equal values again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from predictors.contexts import Context
from service.lineup import RunningAttempt
from service.sightings import RunningPhase
from telemetry.ledger import PlanAnswer, Prediction
from telemetry.tables import Token

ROWS: dict[str, type[Prediction | PlanAnswer]] = {row.table: row for row in (Prediction, PlanAnswer)}


def attempt_record(attempt: RunningAttempt | None) -> Any:
    """A running attempt; None for one that has ended."""
    if attempt is None:
        return None
    return [attempt.context.known(), {name: asdict(phase) for name, phase in attempt.phases.items()}]


def attempt_of(record: Any) -> RunningAttempt:
    """The running attempt in a record."""
    context, phases = record
    return RunningAttempt(Context.of(context), {name: RunningPhase(**phase) for name, phase in phases.items()})


def row_records(rows: Sequence[Prediction | PlanAnswer]) -> list[Any]:
    """Ledger rows with the names of their tables."""
    return [[row.table, row.__dict__] for row in rows]


def rows_of(records: Sequence[Any]) -> list[Prediction | PlanAnswer]:
    """The ledger rows in records; they were made by our own code, so they are not validated again."""
    return [ROWS[table].model_construct(**values) for table, values in records]


def token_records(tokens: Mapping[str, Token]) -> list[Any]:
    """Tokens as they are kept: hashes."""
    return [token.__dict__ for token in tokens.values()]


def tokens_of(records: Sequence[Any]) -> dict[str, Token]:
    """The tokens in records, by id."""
    return {values["token_id"]: Token.model_construct(**values) for values in records}


def table_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def table_of(content: bytes) -> pa.Table:
    """The table in an Arrow stream."""
    return pa.ipc.open_stream(content).read_all()
