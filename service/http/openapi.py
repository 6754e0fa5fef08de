"""Documentation of bodies that a route reads itself, without FastAPI's parsing in the hot path."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


def takes(body: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """The `openapi_extra` of a route that takes this JSON body; the example is run as a test."""
    schema = body.model_json_schema()
    defs = schema.pop("$defs", {})
    content = {"application/json": {"schema": _inlined(schema, defs), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def _inlined(node: Any, defs: dict[str, Any]) -> Any:
    """Put definitions where they are referred to: OpenAPI looks for them in another place than pydantic puts them."""
    if isinstance(node, dict):
        if "$ref" in node:
            return _inlined(defs[node["$ref"].rsplit("/", 1)[1]], defs)
        return {key: _inlined(value, defs) for key, value in node.items()}
    return [_inlined(value, defs) for value in node] if isinstance(node, list) else node
