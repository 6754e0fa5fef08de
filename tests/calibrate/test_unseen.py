"""New values and shapes are named, and raise an alarm when they come more often than before."""

from __future__ import annotations

import numpy as np

from calibrate.evidence.drift import Change, Ranks, Watch, threshold, winnings
from calibrate.evidence.unseen import seen, unseen
from predictors.contexts import Context

RECORD = seen([Context(host="north", model="small", batch=1.0), Context(host="south", model="small", batch=8.0)])


def test_a_value_never_seen_and_a_shape_out_of_range_are_named() -> None:
    assert () == unseen(Context(host="south", model="small", batch=4.0), RECORD)
    assert ("host",) == unseen(Context(host="west", model="small", batch=8.0), RECORD)
    assert ("model", "batch") == unseen(Context(host="north", model="large", batch=8.5), RECORD)
    assert ("batch",) == unseen(Context(host="north", model="small", batch=0.5), RECORD)


def test_unknown_is_a_value_of_a_category_and_no_number() -> None:
    assert ("host",) == unseen(Context(model="small"), RECORD)
    assert () == unseen(Context(host="north", model="small"), RECORD)
    assert ("corunners",) == unseen(Context(host="north", model="small", corunners=0.0), RECORD)


def test_nothing_seen_makes_everything_new() -> None:
    assert {"host", "batch"} < set(unseen(Context(host="north", batch=1.0), seen([])))


def test_more_new_values_than_before_raise_an_alarm_and_a_steady_trickle_does_not() -> None:
    rng = np.random.default_rng(1)
    ranks, watch, alarmed_at = Ranks(), Watch(), []
    for place in range(900):
        new = rng.random() < (0.05 if place < 600 else 0.5)
        context = Context(host="west" if new else "north", model="small", batch=2.0)
        ranks, x = ranks.after(float(len(unseen(context, RECORD))), (rng.random(), rng.random()))
        watch = watch.after(winnings(x), place)
        if (alarm := watch.alarm(threshold())) is not None:
            alarmed_at.append((place, alarm.change))
            break
    [(place, change)] = alarmed_at
    assert Change.HIGHER == change
    assert 600 < place < 700
