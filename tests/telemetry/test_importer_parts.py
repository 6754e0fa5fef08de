"""What importers stand on: a JSON list read piece by piece, and stamps exact to the ns."""

from __future__ import annotations

import io
import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.errors import BadField, TooLarge
from telemetry.importers import json_stream
from telemetry.importers.contract import Refused
from telemetry.importers.exact import nanoseconds
from telemetry.importers.json_stream import Element, Member, pieces

ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


def file(text: str) -> io.BytesIO:
    return io.BytesIO(text.encode())


@given(ns=st.integers(-(2**63) + 1, 2**63 - 1))
@settings(max_examples=100)
def test_every_instant_passes_through_decimal_text(ns: int) -> None:
    for unit, exponent in (("ns", 0), ("us", -3), ("ms", -6), ("s", -9)):
        text = f"{Decimal(ns).scaleb(exponent):f}"
        assert ns == nanoseconds("ts", text, unit)


@pytest.mark.parametrize("given", [None, True, "", "nan", "1_000", "1e99", 2**63, "9223372036.854775808", [], float("inf")])
def test_what_is_no_instant_is_refused(given: object) -> None:
    with pytest.raises(BadField, match="ts"):
        nanoseconds("ts", given, "s")


@pytest.mark.parametrize("chunk", [1, 7, 64])
@given(members=st.dictionaries(st.text(max_size=3).filter(lambda name: name != "list"), ANY, max_size=3), values=st.lists(ANY))
@settings(max_examples=30)
def test_pieces_are_those_of_the_whole_whatever_the_size_of_the_reads(
    chunk: int, members: dict[str, object], values: list[object]
) -> None:
    text = json.dumps({**members, "list": values, "last": 12}, indent=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_stream, "_CHUNK", chunk)
        found = list(pieces(file(text), "list"))
    assert {**members, "last": 12} == {piece.name: piece.value for piece in found if isinstance(piece, Member)}
    assert values == [piece.value for piece in found if isinstance(piece, Element)]


def test_decimals_stay_text() -> None:
    assert [Element(1, {"ts": "1712195495505582.988"})] == list(pieces(file('[{"ts": 1712195495505582.988}]'), "list"))


def test_a_broken_record_costs_itself_only() -> None:
    text = '{"list": [\n{"a": 1},\n{"a": ,"b": {}},\n{"a": 3}\n], "last": 1}'
    found = list(pieces(file(text), "list"))
    assert [Element(2, {"a": 1}), Element(4, {"a": 3}), Member("last", 1)] == [p for p in found if not isinstance(p, Refused)]
    assert [3] == [p.line for p in found if isinstance(p, Refused)]


@pytest.mark.parametrize("text", ["", "12", '{"a" 1}', '{"a": tru}', "{"])
def test_what_is_no_json_of_the_kind_is_an_error(text: str) -> None:
    with pytest.raises(BadField, match="line 1"):
        list(pieces(file(text), "list"))


def test_a_file_past_the_limit_is_refused_before_it_fills_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_stream, "MOST_BYTES", 1000)
    monkeypatch.setattr(json_stream, "_CHUNK", 100)
    with pytest.raises(TooLarge):
        list(pieces(file("[" + "1," * 1000 + "1]"), "list"))
