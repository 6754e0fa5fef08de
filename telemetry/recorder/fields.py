"""What attempts and marks may carry, checked in the caller's own traceback and put into JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypedDict

from telemetry.errors import BadField

_ENCODE = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_REASON_LENGTH = 2000
_ATTRIBUTES_LENGTH = 20_000


class Known(TypedDict, total=False):
    """What is known of an attempt before it starts; fields mean what the columns of the attempts table say."""

    workflow_id: str
    run_id: str
    node_id: str
    generation: int
    retry_of: str
    decision_id: str
    prediction_id: str
    purpose: str
    host: str
    device: str
    family: str
    model: str
    runtime: str
    precision: str
    mode: str
    state: str
    batch: float
    size_in: float
    corunners: float


class Details(TypedDict, total=False):
    """What a mark may carry; fields mean what the columns of the events table say, `attributes` is any JSON object."""

    device_elapsed_s: float
    stage_index: int
    transferred_bytes: int
    link: str
    direction: str
    source_place: str
    target_place: str
    launch_only: bool
    tokens: int
    reason: str
    attributes: Mapping[str, Any]


def checked(given: Mapping[str, Any], allowed: type) -> dict[str, Any]:
    """The given values without unknowns (None). Raises BadField on a name that `allowed` lacks."""
    unknown = [name for name in given if name not in allowed.__annotations__]
    if unknown:
        raise BadField(unknown[0], given[unknown[0]], f"use one of {', '.join(allowed.__annotations__)}")
    return {name: value for name, value in given.items() if value is not None}


def details_json(given: Mapping[str, Any]) -> str:
    """Details as the rest of a JSON object: empty, or starting with a comma. Raises BadField."""
    values = checked(given, Details)
    if "reason" in values:
        values["reason"] = values["reason"][:_REASON_LENGTH]
    if "attributes" in values:
        values["attributes"] = to_json("attributes", values["attributes"])
        if len(values["attributes"]) > _ATTRIBUTES_LENGTH:
            raise BadField("attributes", len(values["attributes"]), f"keep them under {_ATTRIBUTES_LENGTH} characters of JSON")
    return f",{to_json('details', values)[1:-1]}" if values else ""


def to_json(field: str, value: object) -> str:
    """Compact JSON on one line. Raises BadField naming `field`; NaN and infinity are refused."""
    try:
        return _ENCODE(value)
    except (TypeError, ValueError) as error:
        raise BadField(field, value, f"pass values that JSON knows: {error}") from error
