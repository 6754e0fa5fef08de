import gzip
from decimal import Decimal
from pathlib import Path

import pytest

from telemetry.errors import BadField, TooLarge, UnknownId
from telemetry.importers.contract import Refused
from telemetry.importers.decimals import count, in_seconds, number, unit_of, unit_told
from telemetry.importers.texts import LINE_BYTES, Unended, decoded, lines, unended, whole

TEXT = "one\ntwo \u00b5s\r\n\nlast"
NUMBERED = [(1, "one"), (2, "two \u00b5s"), (3, ""), (4, "last")]


@pytest.mark.parametrize("raw", [TEXT.encode(), b"\xef\xbb\xbf" + TEXT.encode()])
def test_text_is_the_same_plain_packed_and_marked(tmp_path: Path, raw: bytes) -> None:
    plain, packed = tmp_path / "a", tmp_path / "b"
    plain.write_bytes(raw)
    packed.write_bytes(gzip.compress(raw))
    assert (TEXT, ()) == whole(plain) == whole(packed)
    assert NUMBERED == list(lines(plain)) == list(lines(packed))


def test_utf16_is_told_by_its_mark_and_bad_bytes_are_replaced() -> None:
    assert TEXT == decoded(TEXT.encode("utf-16"))
    assert "a\ufffd" == decoded(b"a\xff")


def test_a_packed_file_that_breaks_off_keeps_what_came_before(tmp_path: Path) -> None:
    path = tmp_path / "cut.gz"
    path.write_bytes(gzip.compress("\n".join(map(str, range(100_000))).encode())[:-2000])
    text, [refusal] = whole(path)
    assert text.startswith("0\n1\n2\n")
    assert "breaks off" in refusal.reason
    *before, (at, last) = lines(path)
    assert (1, "0") == before[0]
    assert isinstance(last, Refused)
    assert len(before) + 1 == at == last.line


def test_sizes_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"x" * (3 * LINE_BYTES) + b"\nnext\n"))
    with pytest.raises(TooLarge):
        whole(path, most_bytes=1000)
    (number_1, refusal), second = lines(path)
    assert (1, Refused(1, "line", f"longer than {LINE_BYTES} bytes")) == (number_1, refusal)
    assert (2, "next") == second


def test_a_file_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(UnknownId, match="cannot be read"):
        whole(tmp_path / "none")


def test_numbers_are_exact_or_none() -> None:
    assert Decimal("1759516298000.123") == number(" 1759516298000.123 ")
    assert [Decimal("1E+2"), Decimal("0.5"), Decimal(-3)] == [number("1e2"), number(".5"), number("-3.")]
    for text in ("", "nan", "inf", "N/A", "1_000", "0x1f", "1e9999", "\u0661", "1" * 41, "."):
        assert number(text) is None
    assert [6, 6, 0, 2**63 - 1] == [count("6"), count("6.0e0"), count("0"), count(str(2**63 - 1))]
    assert [None] * 4 == [count("6.5"), count("-1"), count(str(2**63)), count("")]


def test_units_have_short_and_long_names_and_lengths_are_rounded_once() -> None:
    assert ["us", "us", "ms", "s", None] == [unit_of(word) for word in ("us", "\u00b5s", "Milliseconds", "seconds", "J")]
    assert (None, "ns") == (unit_told(None), unit_told("nanoseconds"))
    with pytest.raises(BadField, match="--unit"):
        unit_told("fortnight")
    assert 2592000.000000001 == in_seconds(Decimal(2592000000000001), "ns")
    assert [2147483.647, 2147483.649] == [in_seconds(Decimal(2**31 + step), "ms") for step in (-1, 1)]


@pytest.mark.parametrize(
    ("raw", "is_open"), [(b"a\nb", True), (b"a\nb\n", False), (b"a\r\n", False), (b"", False), (b"PAR1\0", False)]
)
def test_a_last_line_without_an_end_is_known(tmp_path: Path, raw: bytes, is_open: bool) -> None:
    for name, data in (("plain", raw), ("packed.gz", gzip.compress(raw))):
        (tmp_path / name).write_bytes(data)
        assert is_open == unended(tmp_path / name)
    assert is_open == any(isinstance(text, Unended) for _, text in lines(tmp_path / "plain") if raw[:4] != b"PAR1")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"a\nb")[:-6])
    assert not unended(broken)
