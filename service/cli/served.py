"""Asking the API that holds a store, where there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

TIMEOUT_S = 120.0
"""Freezing and scoring read the whole history."""


def ask_served(path: Path, method: str, place: str, body: dict[str, Any] | None = None) -> dict[str, Any] | None:
    """The API's answer to one call; None where nobody serves the store at `path`. Raises what a refusal stands for."""
    from service.client import calls
    from service.client.sync import http_client
    from service.settings import default_token
    from telemetry.store.lock import holder

    held = holder(path)
    if not held or not held.url:
        return None
    with http_client(held.url, timeout_s=TIMEOUT_S, token=default_token()) as http:
        answer = http.request(method, place, json=body)
    return calls.document(answer.status_code, answer.content)
