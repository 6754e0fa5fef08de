"""Who answered is told by the id an answer carries, and nobody is known by a name that is nobody's."""

from __future__ import annotations

import pytest

from service.answerers import ANSWERERS, DEFAULT, file_of, fitted_as_of, known, part_id, rule_id, who
from telemetry.errors import BadField


def test_ids_tell_who_answered_and_from_what() -> None:
    whole, part, rule = "0123456789abcdef", part_id("0123456789abcdef", "hazards"), rule_id("kaplan_meier", 42)
    assert [DEFAULT, "hazards", "kaplan_meier"] == [who(one) for one in (whole, part, rule)]
    assert [whole, whole] == [file_of(one) for one in (whole, part)]
    assert [None, None, 42] == [fitted_as_of(one) for one in (whole, part, rule)]


def test_a_rule_and_the_expert_that_follows_it_go_by_different_names() -> None:
    assert {"median_of_nine", "median_of_nine_rule", "moving_average", "moving_average_rule"} <= set(ANSWERERS)
    assert len(set(ANSWERERS)) == len(ANSWERERS)
    assert "median_of_nine_rule" == known("median_of_nine_rule")


def test_a_name_that_is_nobodys_is_refused_with_all_there_are() -> None:
    with pytest.raises(BadField, match="kaplan_meier") as refused:
        known("planner-3", "--challenger")
    assert "--challenger" == refused.value.field
