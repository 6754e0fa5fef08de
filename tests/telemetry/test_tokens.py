"""Tokens: what is kept of them, which are taken, and when they end."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path

import pytest

from telemetry import tokens
from telemetry.errors import BadField, NoToken, PhasecastError, UnknownId, WrongScope
from telemetry.store.batch import Batch
from telemetry.store.file import Store
from telemetry.words import Scope

NOW_NS = 1_800_000_000 * 10**9
TEXT, ROW = tokens.minted("planner", ["query"], NOW_NS, NOW_NS + 10)
KNOWN = {ROW.token_id: ROW}


def test_only_the_hash_of_a_token_is_kept() -> None:
    assert TEXT.split("_")[:2] == ["phc", ROW.token_id]
    assert hashlib.sha256(TEXT.encode()).hexdigest() == ROW.sha256
    assert TEXT[-4:] == ROW.last_four
    assert TEXT.split("_")[2][:-4] not in ROW.model_dump_json()


def test_no_two_tokens_are_alike() -> None:
    assert 100 == len({tokens.minted("n", ["query"], NOW_NS)[0] for _ in range(100)})


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        (TEXT.encode()[:-1] + (b"0" if TEXT[-1] != "0" else b"1"), NoToken, "not known"),  # H11
        (TEXT.encode()[:-1], NoToken, "not known"),
        (TEXT.encode() + b"0", NoToken, "not known"),
        (f"phc_{ROW.token_id}_".encode() + "\u00e9\u20ac".encode(), NoToken, "not known"),  # H11
        (b"\xff\xfe", NoToken, "not known"),
        (b"", NoToken, "not known"),
        (b"phc__", NoToken, "not known"),
        (TEXT.encode() * 1000, NoToken, "not known"),
    ],
    ids=["last digit changed", "too short", "too long", "not ASCII", "not UTF-8", "empty", "no digits", "very long"],
)
def test_what_is_no_token_of_ours_is_refused_alike(given: bytes, error: type[PhasecastError], told: str) -> None:
    with pytest.raises(error, match=told):
        tokens.checked(KNOWN, given, Scope.QUERY, NOW_NS)


def test_an_unknown_id_is_compared_like_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []
    real = hmac.compare_digest

    def watched(a: str, b: str) -> bool:
        compared.append((a, b))
        return real(a, b)

    monkeypatch.setattr(tokens.hmac, "compare_digest", watched)
    for given in (TEXT.encode(), b"phc_00000000_0"):
        with contextlib.suppress(NoToken):
            tokens.checked(KNOWN, given, Scope.QUERY, NOW_NS)
    assert [(64, 64), (64, 64)] == [(len(a), len(b)) for a, b in compared]


@pytest.mark.parametrize(
    ("scopes", "good_for"),
    [(["ingest"], {"ingest"}), (["query"], {"query"}), (["admin"], set(Scope)), (["query", "ingest"], {"ingest", "query"})],
)
def test_a_token_is_good_for_its_scopes_and_admin_for_all(scopes: Sequence[str], good_for: set[str]) -> None:
    text, row = tokens.minted("n", scopes, NOW_NS)
    known = {row.token_id: row}
    for scope in good_for:
        assert row == tokens.checked(known, text.encode(), Scope(scope), NOW_NS)
    for scope in set(Scope) - good_for:
        with pytest.raises(WrongScope, match=f"scope {', '.join(row.scopes)}.*{scope}"):
            tokens.checked(known, text.encode(), scope, NOW_NS)


def test_a_token_ends_when_it_says() -> None:
    assert ROW == tokens.checked(KNOWN, TEXT.encode(), Scope.QUERY, NOW_NS + 9)
    with pytest.raises(NoToken, match="has expired"):
        tokens.checked(KNOWN, TEXT.encode(), Scope.QUERY, NOW_NS + 10)


def test_a_revoked_token_is_refused_and_stays_revoked_when_it_was() -> None:
    ended = tokens.revoked(KNOWN, ROW.token_id, NOW_NS + 1)
    known = {ended.token_id: ended}
    with pytest.raises(NoToken, match="was revoked"):
        tokens.checked(known, TEXT.encode(), Scope.QUERY, NOW_NS + 1)
    assert ended == tokens.revoked(known, ROW.token_id, NOW_NS + 5)
    with pytest.raises(UnknownId, match="token list"):
        tokens.revoked(known, "nobody", NOW_NS)


@pytest.mark.parametrize(
    ("scopes", "expires_ns", "field"), [([], None, "scopes"), (["root"], None, "scopes"), (["query"], NOW_NS, "expires")]
)
def test_a_token_that_makes_no_sense_is_not_made(scopes: list[str], expires_ns: int | None, field: str) -> None:
    with pytest.raises(BadField) as refusal:
        tokens.minted("n", scopes, NOW_NS, expires_ns)
    assert field == refusal.value.field


def test_a_keyring_knows_what_is_stored_and_what_is_committed_since(tmp_path: Path) -> None:
    _, later = tokens.minted("later", ["ingest"], NOW_NS + 1)
    with Store.open(tmp_path / "s.duckdb") as store:
        store.write(Batch((ROW,)))
        keyring = tokens.Keyring(store)
        assert KNOWN == keyring.known
        store.write(Batch((later,)))
        assert {**KNOWN, later.token_id: later} == keyring.known
        ended = tokens.revoked(keyring.known, ROW.token_id, NOW_NS + 2)
        store.write(Batch((ended,)))
        assert ended == keyring.known[ROW.token_id]
    with Store.open(tmp_path / "s.duckdb") as store, store.reader() as reader:
        assert [ended, later] == list(tokens.standing(reader).values())
