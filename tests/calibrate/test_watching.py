"""Watches folded over what becomes known: changes are found where they are, told once, and reactions end by their rule."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from calibrate.evidence import watchfile, watching
from calibrate.evidence.drift import Change as Drift
from calibrate.evidence.reactions import NEEDED, Action
from calibrate.evidence.unseen import places_of
from calibrate.evidence.watching import LEAST_RANKED, MOST_NOTES, Watching, line_of, nodes_of
from predictors.contexts import Context
from predictors.model import Change
from telemetry.words import Ended

S = 1_000_000_000
WORK = places_of(Context(family="encoder"), "service")[1].node


def at(host: str = "north", model: str = "m", family: str = "encoder") -> Context:
    return Context(host=host, model=model, family=family)


def ended(row: int, context: Context, duration_s: float, how: Ended = Ended.COMPLETED, *, phase: str = "service") -> Change:
    return Change(1, row, phase, context, 0.0, duration_s, how, 1.0, row, f"{row}/{phase}/0", row * S)


def running(row: int, context: Context, age_s: float, sign: int = 1) -> Change:
    return Change(sign, row, "service", context, 0.0, age_s, Ended.RUNNING, 1.0, row, f"{row}/service/0", row * S)


def stream(seed: int, n: int, hosts: Iterable[str], *, slower: dict[str, float], from_row: int, noise: float) -> Iterator[Change]:
    """Log-normal durations of three models on each host; from a row on some hosts are slower."""
    rng, contexts = np.random.default_rng(seed), [at(host, model) for host in hosts for model in "abc"]
    typical = rng.normal(size=len(contexts))
    for row in range(n):
        place = int(rng.integers(len(contexts)))
        factor = slower.get(contexts[place].host or "", 1.0) if row >= from_row else 1.0
        yield ended(row, contexts[place], factor * math.exp(typical[place] + noise * rng.normal()))


def shown(changes: Iterable[Change], known: Watching | None = None) -> Watching:
    """Outcomes taken in, one commit each."""
    known = Watching() if known is None else known
    for change in changes:
        known = known.after([change], change.known_at)
    return known


def drifts(known: Watching, *, unseen: bool = False) -> list[tuple[str, str, int]]:
    """Changes of durations that were told, or of what is new."""
    told = [note for note in known.notes if note.kind == "drift" and (note.action == Drift.UNSEEN) == unseen]
    return [(note.node, note.action, note.began) for note in told]


def heavy(seed: int, n: int) -> Iterator[Change]:
    """Stationary durations with heavy tails: Student's t of 1.5 degrees in log time, in 60 configurations on 20 hosts."""
    rng, contexts = np.random.default_rng(seed), [at(f"host-{host}", model) for host in range(20) for model in "abc"]
    typical, spread = rng.normal(size=60), np.exp(0.5 * rng.normal(size=60))
    places, scores = rng.integers(60, size=n), rng.standard_t(1.5, size=n)
    for row, (place, score) in enumerate(zip(places.tolist(), scores.tolist(), strict=True)):
        yield ended(row, contexts[place], math.exp(min(max(typical[place] + spread[place] * score, -20.0), 40.0)))


def trickling(seed: int, n: int) -> Iterator[Change]:
    """The same, every third outcome of one of four more families, where models and sizes never seen keep coming at one pace."""
    rng = np.random.default_rng([seed, 1])
    for row, change in enumerate(heavy(seed, n)):
        if rng.random() < 1 / 3:
            model, size, family = min(int(rng.zipf(1.5)), 10**6), float(rng.pareto(1.0)), f"f{rng.integers(4)}"
            context = Context(host=f"host-{rng.integers(20)}", model=f"m{model}", family=family, size_in=size)
            yield ended(row, context, change.duration_s)
        else:
            yield change


def alarms(changes: Iterable[Change]) -> int:
    return sum(note.kind == "drift" for note in shown(changes).notes)


def test_eighty_watches_of_what_does_not_change_raise_hardly_an_alarm() -> None:
    assert 2 >= sum(alarms(heavy(seed, 2_500)) for seed in range(2))
    assert 2 >= sum(alarms(trickling(seed, 2_500)) for seed in range(2))


@pytest.mark.slow
@pytest.mark.parametrize("stream_of", [heavy, trickling])
def test_fifty_runs_of_ten_thousand_stationary_outcomes_raise_at_most_fifty_alarms_in_all(
    stream_of: Callable[[int, int], Iterator[Change]],
) -> None:
    assert 50 >= sum(alarms(stream_of(seed, 10_000)) for seed in range(50))


def found_within(seed: int, noise: float) -> int | None:
    """Outcomes after which a service-wide slow-down by half is found; None where an alarm came before it."""
    known = shown(stream(seed, 500, "wxyz", slower=dict.fromkeys("wxyz", 1.5), from_row=400, noise=noise))
    first = drifts(known)[:1]
    return first[0][2] - 400 if first and first[0][2] >= 400 else None


def test_a_slow_down_by_half_is_found_within_a_hundred_outcomes() -> None:
    assert all(found_within(seed, 0.5) is not None for seed in range(5))


@pytest.mark.slow
@pytest.mark.parametrize("noise", [0.5, 0.25])
def test_a_slow_down_by_half_is_found_within_a_hundred_outcomes_in_95_of_100_seeds(noise: float) -> None:
    assert 95 <= sum(found_within(seed, noise) is not None for seed in range(100))


def test_a_host_that_changes_is_named_and_the_others_are_not() -> None:
    known = shown(stream(3, 1_000, "wxyz", slower={"x": 3.0}, from_row=600, noise=0.3))
    [(node, action, began)] = drifts(known)
    assert (nodes_of(at("x"), "service")[1], Drift.HIGHER) == (node, action)
    assert 600 < began < 700
    there, elsewhere = known.reactions_at(at("x", "a"), "service"), known.reactions_at(at("y", "a"), "service")
    assert {Action.SHORTEN, Action.SHADOW} >= set(there) != set(elsewhere) == set()


def test_work_that_comes_in_another_order_is_no_change() -> None:
    """Ranks are among one configuration's own: slow work that follows fast work on a host has not slowed anything down."""
    rng = np.random.default_rng(5)
    fast = [ended(row, at(model="small"), math.exp(0.3 * rng.normal())) for row in range(300)]
    slow = [ended(300 + row, at(model="large"), 50.0 * math.exp(0.3 * rng.normal())) for row in range(300)]
    assert [] == drifts(shown([*fast, *slow]))


def test_the_first_outcomes_of_a_configuration_are_counted_and_not_bet_on() -> None:
    known = shown(ended(row, at(), 1.0) for row in range(LEAST_RANKED))
    assert LEAST_RANKED == known.lines[line_of(at(), "service")].n
    assert not {*nodes_of(at(), "service")} & set(known.watches)
    assert {*nodes_of(at(), "service")} <= set(known.after([ended(9, at(), 1.0)], 9).watches)


def test_a_burst_is_taken_in_order_of_start_though_the_short_ones_end_first() -> None:
    rng = np.random.default_rng(8)
    known = shown(ended(row, at(), math.exp(rng.normal())) for row in range(200))
    known = known.after([running(row, at(), 0.0) for row in range(200, 320)], 200)
    for place in np.argsort(lasts := np.exp(rng.normal(size=120))):
        known = known.after([running(200 + place, at(), 0.0, -1), ended(200 + int(place), at(), float(lasts[place]))], 400)
    assert ({}, 320, []) == (dict(known.queues), known.lines[line_of(at(), "service")].n, drifts(known))


def test_one_that_hangs_is_counted_once_and_passed_over_when_it_ends() -> None:
    lasts = np.exp(np.random.default_rng(2).normal(size=85)).tolist()
    known = shown(ended(row, at(), lasts[row]) for row in range(20)).after([running(20, at(), 3.0)], 20)
    known = shown((ended(row, at(), lasts[row]) for row in range(21, 85)), known)
    assert (frozenset({"20/service/0"}), 85) == (known.passed, known.lines[line_of(at(), "service")].n)
    over = known.after([running(20, at(), 3.0, -1), ended(20, at(), 900.0)], 90)
    assert (frozenset(), 85) == (over.passed, over.lines[line_of(at(), "service")].n)


@pytest.mark.parametrize(
    "change",
    [
        ended(1, at(), 2.0, phase="queue"),
        Change(1, 1, "service", at(), 0.0, 2.0, Ended.COMPLETED, 1.0, 1, "1/service/0"),
        Change(1, 1, "service", at(), 0.5, 2.0, Ended.COMPLETED, 1.0, 1, "1/service/0", S),
    ],
    ids=["a wait", "start not known", "joined while it ran"],
)
def test_what_has_no_place_among_its_likes_is_not_ranked(change: Change) -> None:
    assert {} == dict(Watching().after([change], 1).lines)


def bringing(seed: int, brings: dict[str, Any], share: float, *, quiet: int = 700, n: int = 900) -> Iterator[Change]:
    """Familiar work on four hosts, shapes up to 8; after `quiet` rows a share of what begins brings something."""
    rng = np.random.default_rng(seed)
    for row in range(n):
        batch = 2.0 ** float(rng.integers(4))
        context = Context(host=f"h{rng.integers(4)}", model=f"m{min(rng.zipf(2.0), 9)}", family="encoder", batch=batch)
        late = row >= quiet and rng.random() < share
        yield ended(row, replace(context, **brings) if late else context, 1.0 + rng.random())


BRINGS = [{"model": "v2"}, {"host": "h9"}, {"batch": 64.0}, {"family": "decoder"}]


@pytest.mark.parametrize("brings", BRINGS, ids=["a model", "a host", "a shape out of range", "a kind of work"])
@pytest.mark.parametrize(("share", "within"), [(1.0, 10), (0.5, 40)], ids=["always", "every other time"])
def test_what_was_never_seen_is_found_soon_after_it_begins_to_come(brings: dict[str, Any], share: float, within: int) -> None:
    for seed in range(4):
        known = shown(bringing(seed, brings, share, n=700 + within))
        [(node, _, began)] = drifts(known, unseen=True)
        assert 700 <= began < 700 + within
        assert any(node == place.node for place in places_of(replace(at(), **brings), "service"))
        assert [] == drifts(known)
        [new] = [json.loads(note.evidence)["new"] for note in known.notes if note.action == Drift.UNSEEN]
        assert set(brings) <= set(new)


def test_answers_outside_what_was_seen_stay_out_of_decisions_until_enough_have_come_true_and_no_others() -> None:
    known, begun = Watching(), {}
    for change in bringing(1, {"batch": 64.0}, 0.5, n=1_100):
        known = known.after([change], change.known_at, {change.key: change.known_at % 12 == 0} if known.standing else {})
        begun |= {note.node: note for note in known.notes if note.kind == "reaction" and note.node not in begun}
        if known.standing:
            small, large = (replace(at("h1", "m1"), batch=batch) for batch in (8.0, 64.0))
            assert [] == list(known.reactions_at(small, "service"))
            assert [Action.APART] == list(known.reactions_at(large, "service"))
            assert [] == list(known.reactions_at(large, "setup"))
    [first] = begun.values()
    [note] = [note for note in known.notes if note.kind == "reaction"]
    assert (first.node, "shadow_unseen", False) == (note.node, note.action, note.stands)
    assert NEEDED[Action.APART] < note.ended - note.began < 3 * NEEDED[Action.APART]  # every other one lies outside
    assert "never seen came more often" in note.reason


def test_a_row_is_met_once_however_often_it_is_told() -> None:
    known = shown([running(0, at(), 0.0), running(1, at(), 0.0)])
    known = known.after([running(0, at(), 0.0, -1), running(0, at(), 2.0), running(0, at(), 2.0, -1), running(0, at(), 3.0)], 8)
    known = known.after([running(0, at(), 3.0, -1), ended(0, at(), 4.0)], 9)
    assert [2, 2] == [known.met[place.node].seen.n for place in places_of(at(), "service")]


def test_values_are_bounded_and_those_past_the_bound_stay_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "MOST_VALUES", 30)
    changes = [ended(row, at(model=f"run-{row}"), 1.0) for row in range(200)]
    known = shown(changes)
    assert 30 <= len(known.firsts) <= 30 + len(places_of(at(), "service")[1].keys)
    assert [] == drifts(known, unseen=True)  # every row brings a name of its own, from the first on
    assert sum(known.met[WORK].counts[1:]) == sum(known.met[WORK].counts) > 0


def test_rows_met_at_one_commit_are_met_in_order_of_start() -> None:
    rows = [ended(row, at(model=f"m{row}"), 1.0) for row in (2, 0, 1)]
    firsts = Watching().after(rows, 5).firsts
    assert [1, 2, 3] == [n for key, n in sorted(firsts.items()) if "|model=" in key]


def slowed(missed: float) -> Watching:
    """A host that became slower; of answers since, a share passed their p90."""
    known, due = Watching(), 0.0
    for change in stream(3, 1_600, "wxyz", slower={"x": 2.0}, from_row=600, noise=0.4):
        due += missed
        known = known.after([change], change.known_at, {change.key: due >= 1.0} if known.standing else {})
        due -= due >= 1.0
    return known


def test_reactions_end_once_answers_since_have_come_true() -> None:
    notes = {note.action: note for note in slowed(0.1).notes if note.kind == "reaction"}
    shadow = notes["shadow_only"]
    assert shadow.ended > shadow.began + NEEDED[Action.SHADOW]
    assert "answers passed their p90" in shadow.ended_reason
    assert "widen" not in notes


def test_answers_that_are_passed_too_often_are_widened_and_stay_out_of_decisions() -> None:
    known = slowed(0.4)
    assert {Action.SHADOW, Action.WIDEN} <= set(known.reactions_at(at("x", "a"), "service"))
    assert set() == set(known.reactions_at(at("w", "a"), "service"))


def test_the_value_comes_out_of_a_file_as_it_went_in_and_goes_on_alike() -> None:
    changes = list(stream(3, 900, "wxyz", slower={"x": 3.0}, from_row=600, noise=0.3))
    known = shown(changes[:800]).after([running(800, at("w", "a"), 0.1)], 800, {})
    arrays: dict[str, Any] = {}
    again = watchfile.unpack(watchfile.pack(known, arrays), arrays)
    told: dict[str, Any] = {}
    assert watchfile.pack(again, told) == watchfile.pack(known, {})
    assert all(np.array_equal(arrays[name], told[name]) for name in arrays)
    one, other = (shown(changes[801:], value) for value in (known, again))
    assert (one.notes, one.standing) == (other.notes, other.standing)
    assert (dict(one.met), dict(one.firsts)) == (dict(other.met), dict(other.firsts))
    assert [watch.holds for watch in one.watches.values()] == [watch.holds for watch in other.watches.values()]


def test_what_is_apart_stays_so_after_a_restart() -> None:
    changes = list(bringing(3, {"batch": 64.0}, 1.0))
    known = shown(changes[:720])
    arrays: dict[str, Any] = {}
    told = json.loads(json.dumps(watchfile.pack(known, arrays), allow_nan=False))
    again = watchfile.unpack(told, arrays)
    assert (known.met[WORK].before, dict(known.met)) == (again.met[WORK].before, dict(again.met))
    large = replace(at("h1", "m1"), batch=64.0)
    assert [Action.APART] == list(known.reactions_at(large, "service")) == list(again.reactions_at(large, "service"))
    one, other = (shown(changes[720:], value) for value in (known, again))
    assert (one.notes, one.standing, dict(one.met)) == (other.notes, other.standing, dict(other.met))


def test_an_earlier_programs_file_watches_nothing() -> None:
    assert Watching() == watchfile.unpack(None, {})


def test_notes_are_bounded_and_those_that_stand_are_kept() -> None:
    from calibrate.evidence.watching import _newest

    notes = [note for note in slowed(0.4).notes if note.stands][:1]
    old = [notes[0], *(notes[0].undone_at(row, "over") for row in range(1, MOST_NOTES + 10))]
    assert (MOST_NOTES + 1, notes[0]) == (len(_newest(old)), _newest(old)[0])
    assert all(before.ended < after.ended for before, after in pairwise(_newest(old)))
