"""What FastAPI can't know for the description: bodies that a route reads itself, and scopes of tokens."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from service.http.auth import OPEN, scope_of


def takes(body: type[BaseModel], example: dict[str, Any]) -> dict[str, Any]:
    """The `openapi_extra` of a route that takes this JSON body; the example is run as a test."""
    schema = body.model_json_schema()
    defs = schema.pop("$defs", {})
    content = {"application/json": {"schema": _inlined(schema, defs), "example": example}}
    return {"requestBody": {"required": True, "content": content}}


def tell_scopes(app: FastAPI) -> None:
    """Say in the API's description which scope the token of each call needs, where one is needed."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        told = plain()
        scheme = {"type": "http", "scheme": "bearer", "description": "Needed where others than this machine can call the API."}
        told["components"]["securitySchemes"] = {"token": scheme}
        for path, ways in told["paths"].items():
            for method, call in ways.items():
                call["security"] = [] if path == OPEN else [{}, {"token": [scope_of(method.upper(), path).value]}]
        return told

    app.openapi = described  # type: ignore[method-assign]


def _inlined(node: Any, defs: dict[str, Any]) -> Any:
    """Put definitions where they are referred to: OpenAPI looks for them in another place than pydantic puts them."""
    if isinstance(node, dict):
        if "$ref" in node:
            return _inlined(defs[node["$ref"].rsplit("/", 1)[1]], defs)
        return {key: _inlined(value, defs) for key, value in node.items()}
    return [_inlined(value, defs) for value in node] if isinstance(node, list) else node
