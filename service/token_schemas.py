"""Wire models of tokens. Pydantic only, shared with the client."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from service.schemas import Name, Wire
from telemetry.tables import Token
from telemetry.tokens import in_force
from telemetry.words import Scope

LONGEST_S = 10 * 365 * 86_400.0


class TokenIn(Wire):
    """Ask for a new token."""

    name: Annotated[Name, Field(description="Who or what it is for.")]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=len(Scope), description="Calls it is good for.")]
    expires_in_s: Annotated[
        float | None, Field(ge=1, le=LONGEST_S, description="How long it is good for, s; until it is revoked if left out.")
    ] = None


class TokenOut(BaseModel):
    """What is known of a token; never the token itself."""

    token_id: str
    name: str
    scopes: list[Scope]
    last_four: Annotated[str, Field(description="Its last four characters.")]
    created_ns: int
    expires_ns: int | None
    revoked_ns: int | None
    in_force: Annotated[bool, Field(description="Whether it may be used now.")]

    @classmethod
    def of(cls, row: Token, now_ns: int) -> TokenOut:
        """What is told of a row."""
        return TokenOut.model_validate(row.model_dump(exclude={"sha256"}) | {"in_force": in_force(row, now_ns)})


class TokenMadeOut(TokenOut):
    """A token just made."""

    token: Annotated[str, Field(description="The token; it is not kept and can never be shown again.")]


class TokensOut(BaseModel):
    """All tokens, the oldest first, also those that have ended."""

    tokens: list[TokenOut]
