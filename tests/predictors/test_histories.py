"""What recent outcomes say, worked by hand: windows, means, centres, pooled quantiles, features."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from predictors.contexts import GROUPS, Context, fleet_of, groups_of
from predictors.distribution import GRID, Array
from predictors.experts import histories
from predictors.experts.histories import FEATURES, LEAST_RATIOS, NORMAL, Centres, Histories, Learning, Mean
from predictors.experts.lessons import Lessons
from predictors.experts.windows import Window

A, B = Context(host="h", family="a", batch=3.0), Context(host="h", family="b")
FLAT: Array = np.zeros(len(GRID))


def at(quantiles: Array, p: float) -> float:
    return float(quantiles[np.argmin(np.abs(GRID - p))])


def knowing(known: Histories, told: list[tuple[Context, float, float]]) -> Histories:
    """The histories told (context, log time, centre) one by one, each with what they had said before."""
    for context, log_time, centre in told:
        learning = Learning(known)
        learning.take(context, "service", log_time, centre, known.centres(context, "service"))
        known = learning.done()
    return known


def test_a_window_forgets_its_oldest_and_reads_ranks() -> None:
    window = Window(3)
    for value in (5.0, 1.0, 3.0, 2.0):
        window = window.having(value)
    assert (1.0, 3.0, 2.0) == window.values
    # Ranks lie at 1/4, 2/4, 3/4.
    assert_allclose(
        [1.0, 1.0, 1.5, 2.0, 3.0, 3.0], [at(window.quantiles, p) for p in (0.1, 0.25, 0.38, 0.5, 0.75, 0.99)], atol=0.03
    )
    assert (1.0, 2.0, 3.0) == tuple(at(window.quantiles, p) for p in (0.25, 0.5, 0.75))


@given(st.lists(st.floats(-50.0, 50.0), min_size=1, max_size=60), st.integers(1, 20))
@settings(max_examples=150, deadline=None)
def test_a_window_reads_what_numpy_reads_off_its_newest_values(values: list[float], size: int) -> None:
    window = Window(size)
    for value in values:
        window = window.having(value)
    assert tuple(values[-size:]) == window.values
    assert_allclose(np.quantile(values[-size:], GRID, method="weibull"), window.quantiles, atol=1e-9)


def test_means_reach_back_as_far_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "FAST", 2)
    known = knowing(Histories(), [(A, 1.0, 0.0), (A, 3.0, 1.0), (A, 0.0, 4.0)])
    # Residuals 1, 2, -4. Fast: 1, then 1.5, then 1.5 + (-4 - 1.5) / 2. Slow: their mean, and that of their sizes.
    for key in groups_of(A, "service"):
        mean = known.means[key]
        assert_allclose([3, -1.25, -1.0 / 3.0, 7.0 / 3.0], [mean.n, mean.fast, mean.slow, mean.off])


def test_groups_that_others_share_hear_of_their_outcomes_too() -> None:
    known = knowing(Histories(), [(A, 1.0, 0.0), (B, 3.0, 0.0)])
    shared = [name for name, a, b in zip(GROUPS, groups_of(A, "service"), groups_of(B, "service"), strict=True) if a == b]
    assert ["phase", "host", "device", "model", "host+model", "fleet"] == shared
    assert [Mean(2, 2.0, 2.0, 2.0), Mean(1, 1.0, 1.0, 1.0)] == [
        known.means[key] for key in (groups_of(A, "service")[0], groups_of(A, "service")[3])
    ]


def test_a_configuration_is_known_by_its_last_nine() -> None:
    known = knowing(Histories(), [(A, float(value), 0.0) for value in range(12)])
    recent = known.recents[groups_of(A, "service")[-1]]
    assert (12, tuple(float(v) for v in range(3, 12)), 7.0) == (recent.n, recent.last, recent.median)
    short = 0.0
    for n, value in enumerate(range(12), start=1):
        short += (value - short) / min(n, 8)
    assert_allclose(short, recent.averages[0])
    assert_allclose(5.5, recent.averages[1])  # thirty are not reached: the mean of all
    assert Centres(7.0, recent.averages[0], 2) == known.centres(A, "service")
    assert (12, 0, None) == (known.known(A, "service"), known.known(B, "service"), known.centres(B, "service"))


def test_a_spread_is_read_off_ratios_to_what_was_said_once_there_are_enough() -> None:
    groups = groups_of(A, "service")
    few = knowing(Histories(), [(A, 0.0, 0.0)] * LEAST_RATIOS)  # the first had no centre to be compared with
    assert_array_equal(5.0 + NORMAL, few.around("median", 5.0, 3, groups))
    enough = knowing(few, [(A, 0.0, 0.0)])
    assert_array_equal(FLAT, enough.around("median", 0.0, 3, groups))
    assert_array_equal(5.0 + NORMAL, enough.around("median", 5.0, 3, groups_of(A, "setup")))


def test_work_of_two_modes_is_not_said_to_last_longer_than_any_has() -> None:
    groups = groups_of(A, "service")
    known = knowing(Histories(), [(A, float(mode), 0.0) for mode in [0, 0, 0, 7, 7, 7] * 12])
    ratios = known.windows[f"median {groups[-1]}"]
    assert ratios.values.count(7.0) >= LEAST_RATIOS  # of the slow mode to a centre in the fast one
    said = known.around("median", 7.0, 3, groups)
    reached = len(known.windows[groups[0]]) / (len(known.windows[groups[0]]) + 1)
    assert (0.0, 7.0) == (said.min(), said[reached >= GRID].max())
    assert 14.0 == said[-1]  # further out than 72 outcomes reach, nothing is held


def test_ratios_below_the_shortest_seen_are_held_too() -> None:
    groups = groups_of(A, "service")
    known = knowing(Histories(), [(A, float(mode), 0.0) for mode in [7, 7, 7, 0, 0, 0] * 12])
    assert 0.0 == known.around("median", 0.0, 3, groups)[GRID * 73 >= 1.0].min()


def test_ratios_are_to_the_centre_at_the_asking() -> None:
    learning = Learning(Histories())
    learning.take(A, "service", 3.0, 0.0, Centres(1.0, 2.5, 0))
    windows = learning.done().windows
    assert (2.0,) == windows[f"median {groups_of(A, 'service')[-1]}"].values
    assert (0.5,) == windows[f"average {groups_of(A, 'service')[-1]}"].values


def test_pooled_quantiles_are_shrunk_to_wider_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "POOLING", (10.0, 10.0, 10.0, 5.0))
    whole, shrunk = knowing(Histories(), [(A, 0.0, 0.0), (B, 2.0, 0.0)]).pooled(groups_of(A, "service"))
    assert whole is not None
    assert shrunk is not None
    # Phase {0, 2}: median 1. Family {0}: 10 / 11; host, family, model {0}: (10 / 11)^2; configuration {0}: (10 / 11)^2 * 5 / 6.
    assert_allclose([1.0, (10 / 11) ** 2 * 5 / 6], [at(whole, 0.5), at(shrunk, 0.5)])
    assert (None, None) == Histories().pooled(groups_of(A, "service"))


@pytest.mark.parametrize(
    ("place", "spread", "n", "like"),
    [
        (0.0, 1.0, 50, 1.0),
        (1.0, 1.0, 50, 1.0),
        (3.0, 1.0, 10_000, 1.0 / 9.0),
        (3.0, 1.0, 2, 1.0 / 8.5),  # of which two outcomes explain a half
        (1.2, 1.0, 2, 1.0),
        (3.0, 0.0, 1, 0.75**2 / (9.0 - 0.75**2)),  # three quarters of the wider group's spread, and as much explained
    ],
)
def test_a_wider_group_says_the_less_of_one_the_farther_off_it_lies(place: float, spread: float, n: int, like: float) -> None:
    unit = NORMAL / 1.2815515655446004
    assert histories._likeness(place + spread * unit, n, unit) == pytest.approx(like, rel=1e-3)


def test_a_host_never_met_takes_what_its_fleet_took() -> None:
    first, new, alone = (replace(A, host=name) for name in ("gpu-a-07", "gpu-a-12", "north"))
    rows = [(replace(A, host=f"south-{i % 7}x"), 0.01 * (i % 10), 0.0) for i in range(40)]
    known = knowing(Histories(), [*rows, *((first, 5.0 + 0.01 * (i % 10), 0.0) for i in range(20))])
    _, of_fleet = known.pooled(groups_of(new, "service"))
    _, of_family = known.pooled(groups_of(alone, "service"))
    assert of_fleet is not None
    assert of_family is not None
    assert 5.0 < at(of_fleet, 0.5) < 5.1  # not drawn to the family, most of which takes far less
    assert at(of_family, 0.5) < 0.5


def test_features_of_the_unknown_are_zeros_and_absences() -> None:
    row = dict(zip(FEATURES, Histories().features(B, "service", FLAT), strict=True))
    absent = {"batch": -1.0, "size_in": -1.0, "corunners": -1.0, "phase": -1.0}
    absent |= {f"{group} off": -1.0 for group in ("host+family+model", "device+family", "fleet+family+model", "configuration")}
    assert absent == {name: value for name, value in row.items() if value}


def test_features_tell_what_the_model_of_record_does_not_know() -> None:
    known = knowing(Histories(), [(B, 9.0, 9.0), (A, 1.0, 0.5), (A, 2.0, 0.5)])
    record = 0.25 + NORMAL
    row = dict(zip(FEATURES, known.features(A, "service", record), strict=True))
    assert_allclose([1.0, 1.0, math.log1p(2)], [row[f"family {what}"] for what in ("fast", "slow", "n")])
    assert_allclose([math.log1p(3.0), -1.0, 0.0], [row["batch"], row["size_in"], row["phase"]])
    assert_allclose([1.0, 1.0], [row["configuration off"], row["fleet+family+model off"]])
    assert_allclose([0.25 - 4.0, 2 * 1.2815516, 1.2815516], [row["place"], row["spread"], row["upper"]])
    assert_allclose([1.25, 1.75, 1.25, 1.25], [row[name] for name in ("median of nine", "last", "average of 8", "average of 30")])


def test_what_one_host_of_a_fleet_took_tells_of_the_others() -> None:
    first, second, apart = (replace(A, host=name) for name in ("gpu-a-07", "gpu-a-12", "gpu-b-07"))
    known = knowing(Histories(), [(first, 2.0, 0.5)])
    row = dict(zip(FEATURES, known.features(second, "service", FLAT), strict=True))
    assert_allclose([1.5, 1.5, 1.5], [row["fleet fast"], row["fleet+family+model slow"], row["fleet+family+model off"]])
    assert_allclose([0.0, math.log1p(1)], [row["host n"], row["fleet n"]])
    other = dict(zip(FEATURES, known.features(apart, "service", FLAT), strict=True))
    assert (0.0, -1.0) == (other["fleet n"], other["fleet+family+model off"])


@pytest.mark.parametrize(
    ("host", "fleet"),
    [
        ("gpu-a-07", "gpu-a"),
        ("worker12", "worker"),
        ("node-3.site.org", "node.site.org"),
        ("ip-10-0-0-12", "ip-10-0-0"),
        ("north", ""),
        ("A100", ""),
        ("h100.example.com", ""),
        ("web-5d8f7c.", ""),
        ("n" * 9_000 + "-" * 900 + "x", ""),
        ("12", ""),
        ("runner_v1.2", ""),
        ("", ""),
    ],
)
def test_a_fleet_is_what_names_have_in_common_beside_a_number(host: str, fleet: str) -> None:
    assert fleet == fleet_of(host)


def test_learning_makes_a_new_value() -> None:
    before = knowing(Histories(), [(A, 1.0, 0.0)])
    row = before.features(A, "service", FLAT)
    after = knowing(before, [(A, 5.0, 0.0)])
    assert_array_equal(row, before.features(A, "service", FLAT))
    assert (1, 2) == (before.known(A, "service"), after.known(A, "service"))


def test_lessons_share_a_list_and_keep_to_their_own_end() -> None:
    rows = [(np.full(2, float(i), dtype=np.float32), float(i)) for i in range(6)]
    first = Lessons().having(rows[:2])
    left, right = first.having(rows[2:4]), first.having(rows[4:])
    assert [[0, 1], [0, 1, 2, 3], [0, 1, 4, 5]] == [one.arrays()[1].tolist() for one in (first, left, right)]
    assert [2, 4, 4] == [len(one) for one in (first, left, right)]
    assert [[0, 0], [1, 1], [4, 4], [5, 5]] == right.arrays()[0].tolist()
