"""Tokens of the API: made once, shown once, kept as a hash, and checked in constant time.

A token reads `phc_ID_SECRET`. The id finds its row, the secret has 192 random bits: a plain SHA-256 of it can't be undone, and
slow hashing, which protects words that people choose, would only slow every request.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence

from telemetry.errors import BadField, NoToken, UnknownId, WrongScope
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.store.reader import Reader
from telemetry.tables import Token
from telemetry.words import Scope

PREFIX = "phc"
ANOTHER = "send a valid one as `Authorization: Bearer TOKEN`; `phasecast token add NAME --scope SCOPE` makes one"
_NOBODY = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
"""Compared with where the id is unknown, so that it takes as long."""


def minted(name: str, scopes: Sequence[str], now_ns: int, expires_ns: int | None = None) -> tuple[str, Token]:
    """A new token and its row; the text is nowhere else. Raises BadField for scopes that are none, or an end that is past."""
    if unknown := [scope for scope in scopes if scope not in list(Scope)]:
        raise BadField("scopes", unknown[0], f"scopes are {', '.join(Scope)}")
    if not scopes:
        raise BadField("scopes", "none", f"give at least one of {', '.join(Scope)}")
    if expires_ns is not None and expires_ns <= now_ns:
        raise BadField("expires", f"{expires_ns} ns", "give an end that lies ahead")
    token_id = secrets.token_hex(4)
    text = f"{PREFIX}_{token_id}_{secrets.token_hex(24)}"
    row = Token(
        token_id=token_id,
        name=name,
        scopes=sorted(set(scopes)),
        sha256=_digest(text.encode()),
        last_four=text[-4:],
        created_ns=now_ns,
        expires_ns=expires_ns,
    )
    return text, row


def in_force(token: Token, now_ns: int) -> bool:
    """Whether it may be used now."""
    return (token.expires_ns is None or now_ns < token.expires_ns) and token.revoked_ns is None


def checked(known: Mapping[str, Token], given: bytes, needed: Scope, now_ns: int) -> Token:
    """The row of a token that is good for calls of scope `needed`.

    Raises NoToken, which never says what was wrong with it beyond its end, and WrongScope.
    """
    row = known.get(_id_of(given))
    if not hmac.compare_digest(_digest(given), row.sha256 if row is not None else _NOBODY) or row is None:
        raise NoToken("Authorization", "a token that is not known here", ANOTHER)
    if not in_force(row, now_ns):
        ended = "was revoked" if row.revoked_ns is not None else "has expired"
        raise NoToken("Authorization", f"token {row.token_id}, which {ended}", ANOTHER)
    if needed not in row.scopes and Scope.ADMIN not in row.scopes:
        have = ", ".join(row.scopes)
        raise WrongScope("Authorization", f"a token of scope {have}", f"this call takes one of scope {needed} or admin")
    return row


def standing(reader: Reader) -> dict[str, Token]:
    """All tokens there are, the oldest first, by id; also those that have ended."""
    names = list(Token.model_fields)
    sql = f"SELECT {', '.join(names)} FROM tokens WHERE known_until IS NULL ORDER BY created_ns, token_id"  # noqa: S608  our own names
    rows = [Token.model_construct(**dict(zip(names, found, strict=True))) for found in reader.rows(sql)]
    return {row.token_id: row for row in rows}


def revoked(known: Mapping[str, Token], token_id: str, now_ns: int) -> Token:
    """The row that ends a token at once; one that was revoked before stays as it was. Raises UnknownId."""
    row = known.get(token_id)
    if row is None:
        raise UnknownId("token_id", token_id, "`phasecast token list` shows the ids")
    return row if row.revoked_ns is not None else row.model_copy(update={"revoked_ns": now_ns})


class Keyring:
    """The tokens of an open store: read once, then kept up with what is committed. Readers take the mapping whole."""

    def __init__(self, store: Store) -> None:
        self.known: Mapping[str, Token] = {}
        store.subscribe(self._committed)
        with store.reader() as reader:
            self.known = standing(reader) | dict(self.known)

    def _committed(self, _commit: int, batches: Iterable[Batch]) -> None:
        """Take up tokens of a commit before it is acknowledged: one that was revoked is not taken a moment longer."""
        fresh = {row.token_id: row for batch in batches for row in batch.rows if isinstance(row, Token)}
        if fresh:
            self.known = {**self.known, **fresh}


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _id_of(text: bytes) -> str:
    """The id within a token; empty where it has not the form of one."""
    parts = text.split(b"_")
    return parts[1].decode("latin-1") if len(parts) == 3 else ""
