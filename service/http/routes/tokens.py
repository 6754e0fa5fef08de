"""GET, POST and DELETE /v1/tokens: who may call the API, for the holder of an admin token."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from fastapi import APIRouter, Request

from service.http.limits import body_of
from service.http.openapi import takes
from service.http.running import running
from service.token_schemas import TokenIn, TokenMadeOut, TokenOut, TokensOut
from telemetry.store.batch import Batch
from telemetry.tokens import minted, revoked

router = APIRouter(prefix="/v1/tokens", tags=["tokens"])
EXAMPLE: dict[str, Any] = {"name": "planner", "scopes": ["query"], "expires_in_s": 86_400}


@router.get("", response_model=TokensOut)
async def get_tokens(request: Request) -> TokensOut:
    """List tokens by what is known of them."""
    return TokensOut(tokens=[TokenOut.of(row, time.time_ns()) for row in running(request).keyring.known.values()])


@router.post("", response_model=TokenMadeOut, openapi_extra=takes(TokenIn, EXAMPLE))
async def post_token(request: Request) -> TokenMadeOut:
    """Make a token. Its text is in this answer alone."""
    at, now_ns = running(request), time.time_ns()
    asked = TokenIn.model_validate_json(await body_of(request, at.settings.question_limit_bytes))
    expires_ns = None if asked.expires_in_s is None else now_ns + round(asked.expires_in_s * 1e9)
    text, row = minted(asked.name, asked.scopes, now_ns, expires_ns)
    await asyncio.wrap_future(at.store.submit(Batch((row,))))
    return TokenMadeOut(token=text, **TokenOut.of(row, now_ns).model_dump())


@router.delete("/{token_id}", response_model=TokenOut)
async def delete_token(token_id: str, request: Request) -> TokenOut:
    """Revoke a token: from the answer on it is refused."""
    at = running(request)
    row = revoked(at.keyring.known, token_id, time.time_ns())
    await asyncio.wrap_future(at.store.submit(Batch((row,))))
    return TokenOut.of(row, time.time_ns())
