"""What a change that was found does to answers: the past weighs less where it reaches, and wide is wide in time."""

from __future__ import annotations

import numpy as np
import pytest

from calibrate.conformal.checked import checked
from calibrate.conformal.pit import Placed, Recalibration
from calibrate.conformal.reacting import MIDDLE, discounted, spread, trusted
from calibrate.evidence.drift import Alarm, Change
from calibrate.evidence.reactions import AMOUNT, Action, Reaction
from calibrate.evidence.watching import Found
from predictors.contexts import PLACED, Context, judged_path
from predictors.distribution import GRID, Checked

PATH = ("root", "family", "host")


def found(*, forgets: bool) -> tuple[Found, ...]:
    return (Found("family", Alarm(Change.HIGHER, 1, 2, 3.0, 2.0), ("family", "host", "unknown"), forgets),)


def reaction(action: Action) -> dict[Action, Reaction]:
    return {action: Reaction("family", action, AMOUNT[action], 1, 2, "found")}


@pytest.mark.parametrize(("forgets", "kept"), [(True, AMOUNT[Action.SHORTEN]), (False, 1.0)])
def test_the_past_weighs_less_within_the_node_and_as_before_above_it(forgets: bool, kept: float) -> None:
    known = Recalibration().having([Placed(PATH, (1.0, 1.0, 1.0), 0.7)] * 10)
    after = discounted(known, found(forgets=forgets))
    n = [known.nodes[node].n for node in PATH]
    assert [n[0], kept * n[1], kept * n[2]] == pytest.approx([after.nodes[node].n for node in PATH])
    assert "unknown" not in after.nodes


def test_answers_are_spread_about_their_median_in_log_time() -> None:
    log_quantiles = np.log(4.0) + (GRID - 0.5)
    wide = spread(log_quantiles, reaction(Action.WIDEN))
    assert np.log(4.0) == pytest.approx(wide[MIDDLE])
    assert 1.5 * (log_quantiles - np.log(4.0)) == pytest.approx(wide - np.log(4.0))
    assert log_quantiles is spread(log_quantiles, reaction(Action.SHADOW))


def test_the_parent_answers_for_a_node_that_keeps_changing() -> None:
    assert ("root",) == trusted(PATH, reaction(Action.PARENT))
    assert PATH == trusted(PATH, reaction(Action.SHADOW)) == trusted(PATH, {})


def test_hosts_placed_by_their_rates_are_not_judged_by_what_the_whole_phase_has_learned() -> None:
    path = judged_path(Context(host="new", family="sort"), "service", PLACED)
    assert path[1:] == trusted(path, {})
    known = Recalibration().having([Placed(path[:1], (1.0,), 0.95)] * 300)
    levels = np.array([0.5, 0.9])
    assert (known.asked(path, levels) > 0.94).all()
    assert levels.tolist() == pytest.approx(known.asked(trusted(path, {}), levels))
    assert checked(known, path, 0.0) is None
    own = known.having([Placed(path[:2], (1.0, 1.0), 0.95)] * 300)
    assert (own.asked(trusted(path, {}), levels)[1:] > 0.94).all()
    assert Checked("novelty", pytest.approx(own.nodes[path[1]].n), enough=True) == checked(own, path, 0.0)
