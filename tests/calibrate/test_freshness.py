"""A measured cost ages, is replaced by the first valid sample after that, and never becomes fresh by an invalid one."""

from __future__ import annotations

import pytest

from calibrate.explore.freshness import Cost, Limits, stalest
from telemetry.errors import BadField

S = 10**9
LIMIT = 30 * S


def measured(*samples_s: float, at_s: int = 0) -> Cost:
    cost = Cost()
    for sample_s in samples_s:
        cost = cost.after(sample_s, at_s * S, LIMIT)
    return cost


def test_the_first_positive_sample_is_the_cost() -> None:
    assert None is Cost().cost_s
    assert 2.0 == measured(2.0).cost_s


def test_the_cost_is_the_median_of_the_last_nine() -> None:
    assert 5.0 == measured(100.0, 1, 2, 3, 4, 5, 6, 7, 8, 9).cost_s
    assert 1.5 == measured(1.0, 2.0).cost_s


@pytest.mark.parametrize("sample_s", [None, 0.0, -1.0, float("nan")])
def test_an_invalid_sample_changes_no_cost_and_makes_nothing_fresh(sample_s: float | None) -> None:
    after = measured(2.0).after(sample_s, 31 * S, LIMIT)
    assert (2.0, 0, 31 * S) == (after.cost_s, after.valid_ns, after.tried_ns)
    assert not after.fresh(31 * S, LIMIT)


def test_the_first_valid_sample_of_a_stale_cost_replaces_it() -> None:
    assert 7.0 == measured(1.0, 2.0, 3.0).after(7.0, 31 * S, LIMIT).cost_s
    assert 3.0 == measured(1.0, 3.0).after(9.0, 30 * S, LIMIT).cost_s


def test_age_alone_never_makes_a_cost_unknown() -> None:
    assert 2.0 == measured(2.0).cost_s
    assert not measured(2.0).fresh(10**6 * S, LIMIT)


def test_each_configuration_may_have_its_own_limit() -> None:
    limits = Limits(30.0, {"slow": 600.0})
    costs = {"quick": measured(1.0), "slow": measured(1.0)}
    assert "quick" == stalest(["slow", "quick"], costs, 31 * S, limits)
    assert None is stalest(["slow"], costs, 600 * S, limits)
    assert "slow" == stalest(["slow"], costs, 601 * S, limits)


def test_the_one_valid_or_tried_longest_ago_is_next_and_use_decides_between_equals() -> None:
    costs = {"a": measured(1.0, at_s=5), "b": measured(1.0, at_s=1).after(None, 9 * S, LIMIT), "c": measured(1.0, at_s=5)}
    assert "c" == stalest(["b", "c", "a"], costs, 100 * S, Limits())


def test_what_was_never_measured_is_not_refreshed() -> None:
    assert None is stalest(["new", "failed"], {"failed": Cost().after(None, 1, LIMIT)}, 100 * S, Limits())


def test_a_limit_of_nothing_is_refused() -> None:
    with pytest.raises(BadField, match="slow"):
        Limits(30.0, {"slow": 0.0})
