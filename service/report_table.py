"""The figures of a report as one long table, one number a row, for Parquet and whoever reads that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from calibrate.evidence.coverage import LEVELS
from service.report_schemas import PlaceOut, ReportOut

PLACE = tuple(PlaceOut.model_fields)
KEYS = ("part", "elapsed_from", "question", "answered_from", "status", "reason", "bin")
"""What tells rows of one figure apart beside their place and level; as text, null where a figure has no such thing."""
SCHEMA = pa.schema(
    [("report", pa.string()), ("figure", pa.string())]
    + [(name, pa.string()) for name in (*PLACE, *KEYS)]
    + [("level", pa.float64()), ("measure", pa.string()), ("value", pa.float64())]
)


def table(report: ReportOut) -> pa.Table:
    """Every number of the coverage, sharpness and support reports; the same numbers, to the last digit."""
    rows: list[dict[str, Any]] = []
    told = report.model_dump(include={"coverage", "sharpness", "support"})
    for name, part in told.items():
        for figure, found in part.items():
            if isinstance(found, list) and found and isinstance(found[0], dict):
                rows += [{"report": name, "figure": figure} | row for one in found for row in _long(one)]
    by_name = {name: [row.get(name) for row in rows] for name in SCHEMA.names}
    metadata = {"as_of_commit": str(report.as_of_commit), "newest": str(report.newest)}
    return pa.table(by_name, schema=SCHEMA.with_metadata(metadata))


def _long(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row per number of a figure's row."""
    at = {name: row[name] for name in PLACE if name in row}
    at |= {name: str(row[name]) for name in KEYS if name in row}
    for name, value in row.items():
        if name in at or value is None:
            continue
        if name == "exceeded":
            for one in value:
                yield from (at | {"level": one["level"], "measure": word, "value": float(v)} for word, v in _numbers(one))
        elif name == "pinball":
            for level, v in zip(LEVELS, value, strict=True):
                yield at | {"level": level, "measure": name, "value": v}
        elif name == "weights":
            yield from (at | {"bin": str(place), "measure": "weight", "value": v} for place, v in enumerate(value))
        else:
            yield at | {"measure": name, "value": float(value)}


def _numbers(one: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(word, value) for word, value in one.items() if word != "level" and value is not None]
