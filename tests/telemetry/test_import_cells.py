"""What importers have in common: numbers, times, names, and rows that tell of one phase twice."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from telemetry.errors import BadField
from telemetry.importers.cells import decimal, far_apart, name, seconds
from telemetry.importers.gathered import Gathered
from telemetry.importers.instants import counted, written
from telemetry.importers.phases import phase_row, span_row
from telemetry.tables import Observation, Quarantine
from telemetry.words import Ended


@given(st.integers(0, 2**63 - 1))
@settings(max_examples=200)
def test_a_length_is_the_float_nearest_to_its_text_in_every_unit(length_ns: int) -> None:  # T14
    for unit, digits in (("ns", 0), ("us", 3), ("ms", 6), ("s", 9)):
        assert length_ns / 10**9 == seconds("x", f"{Decimal(length_ns).scaleb(-digits):f}", unit)


def test_zero_with_a_sign_is_zero() -> None:
    assert "0.0" == str(seconds("x", "-0.0"))


@pytest.mark.parametrize("text", ["-1", "9223372036.854775808", "nan", "inf", "", "1_000", "1,5", "0x10", "1e9999", "-0.001"])
def test_what_is_no_length_is_refused_with_the_name_of_its_column(text: str) -> None:
    with pytest.raises(BadField, match="elapsed"):
        seconds("elapsed", text)


def test_numbers_stay_exact() -> None:
    assert Decimal("0.1") + Decimal("0.2") == decimal("x", "0.1") + decimal("x", "0.2")


@pytest.mark.parametrize(
    ("text", "utc_ns"),
    [
        ("2026-03-08T06:59:59Z", 1_772_953_199_000_000_000),
        ("2026-03-08T01:59:59-05:00", 1_772_953_199_000_000_000),
        ("2026-03-08 07:59:59.000000001 +0100", 1_772_953_199_000_000_001),
        ("2039-07-01T00:00:00Z", 2_193_091_200_000_000_000),
    ],
)
def test_a_time_with_a_zone_is_an_instant(text: str, utc_ns: int) -> None:  # D14
    assert (utc_ns, None) == (written("x", text).started_ns, written("x", text).started_text)


def test_a_time_without_a_zone_stays_as_it_was_written() -> None:
    assert (None, "2023-11-16 18:17:03.9799600") == (
        *(written("x", "2023-11-16 18:17:03.9799600").started_ns, written("x", "2023-11-16 18:17:03.9799600").started_text),
    )
    assert 100 == written("x", "2023-11-16 18:17:03.9799601").since_ns(written("x", "2023-11-16 18:17:03.9799600"))
    assert None is written("x", "2026-03-08T06:59:59Z").since_ns(written("x", "2026-03-08T06:59:59"))


@pytest.mark.parametrize("text", ["", "soon", "12-19-20T21:31:53Z", "2026-02-30T00:00:00", "2026-01-01", "1969-12-31T23:59:59Z"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadField):
        written("x", text)


def test_counted_times_keep_all_their_digits() -> None:
    assert 1_700_000_000_123_456_789 == counted("x", "1700000000.123456789", "s").started_ns


def test_a_name_too_long_is_cut_and_told_apart() -> None:
    one, other = name("n" * 300 + "1"), name("n" * 300 + "2")
    assert one is not None
    assert (200, True) == (len(one), one != other)
    assert (None, "n1") == (name("  "), name(" n1 "))


def test_a_wrong_unit_shows_in_the_typical_ratio_not_in_a_few() -> None:
    assert far_apart([(10_000.0, 10.0), (20_000.0, 20.0), (1.0, 1.0)])
    assert far_apart([(0.01, 10.0)])
    assert not far_apart([(0.01, 10.0)], only_longer=True)
    assert not far_apart([(10.0, 10.0), (20.0, 20.0), (90_000.0, 1.0)])
    assert not far_apart([(0.0, 10.0), (1.0, 0.0)])


def row(duration_s: float, ended: Ended) -> Observation:
    return phase_row("a", "service", duration_s, ended)


def test_of_a_phase_that_comes_twice_the_end_or_the_longest_counts() -> None:
    gathered = Gathered()
    for line, duration_s, ended, standing_s in (
        (1, 10.0, Ended.RUNNING, 10.0),
        (2, 20.0, Ended.RUNNING, 20.0),
        (3, 15.0, Ended.RUNNING, 20.0),
        (4, 30.0, Ended.COMPLETED, 30.0),
        (5, 25.0, Ended.RUNNING, 30.0),
        (6, 30.0, Ended.COMPLETED, 30.0),
    ):
        gathered.add(line, [row(duration_s, ended)])
        assert [standing_s] == [found.duration_s for found in gathered.rows() if isinstance(found, Observation)]
    with pytest.raises(BadField, match="line 4"):
        gathered.add(7, [row(31.0, Ended.FAILED)])


def test_a_span_that_ends_before_it_starts_is_set_aside() -> None:  # T01
    found = span_row("a", "queue", written("x", "2026-01-01 00:00:01"), written("x", "2026-01-01 00:00:00"), Ended.COMPLETED)
    assert isinstance(found, Quarantine)
    assert ("a/queue/0", "end_before_start") == (found.quarantine_id, found.reason)
